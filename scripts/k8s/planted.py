"""Faults, each planted in a copy of what was rendered: the policy that is there for it must name it.

A fault is a function that changes the copy; it says which policy finds it, and a part of what that says.
"""

import copy
from dataclasses import dataclass
from typing import Callable

import policies
import schemas

FAULTS = []


@dataclass(frozen=True)
class Fault:
    name: str
    policy: str
    says: str
    # Which rendering it is planted in.
    where: str
    plant: Callable


def fault(policy, says, where="all"):
    def keep(plant):
        FAULTS.append(Fault(plant.__name__, policy, says, where, plant))
        return plant

    return keep


def complaints(clusters, facts):
    """Which planted faults were not found, and which policies no fault was planted for."""
    for one in FAULTS:
        cluster = copy.deepcopy(clusters[one.where])
        try:
            one.plant(cluster)
        except Exception as error:
            yield f"the planted fault {one.name} cannot be planted any more: {error!r}"
            continue
        if one.policy == "schemas":
            found = list(schemas.complaints(cluster.objects))
        else:
            found = list(policies.POLICIES[one.policy](cluster, facts))
        if not any(one.says in complaint for complaint in found):
            yield f"the planted fault {one.name} was not found by {one.policy}: it said {found or 'nothing'}"
    for name in policies.POLICIES.keys() - {one.policy for one in FAULTS}:
        yield f"no fault was planted for {name}"


def spec(cluster, name="order", kind="StatefulSet"):
    return cluster.one(kind, name)["spec"]


def pod(cluster, name="order", kind="StatefulSet"):
    return spec(cluster, name, kind)["template"]["spec"]


def container(cluster, name="order", kind="StatefulSet"):
    return pod(cluster, name, kind)["containers"][0]


def setting(cluster, name, of="order"):
    return next(entry for entry in container(cluster, of)["env"] if entry["name"] == name)


def network(cluster, name):
    return spec(cluster, name, "NetworkPolicy")


def to(name, port):
    peer = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": name}}}
    return {"to": [peer], "ports": [{"port": port}]}


@fault("nobody_is_root", "order, container service: runAsUser")
def the_user_is_root(cluster):
    pod(cluster)["securityContext"]["runAsUser"] = 0


@fault("nobody_is_root", "catalogue, container sagactl: runAsUser")
def the_container_alone_is_root(cluster):
    container(cluster, "catalogue", "Job")["securityContext"]["runAsUser"] = 0


@fault("nobody_is_root", "nats: runAsNonRoot")
def the_user_may_be_root(cluster):
    del pod(cluster, "nats")["securityContext"]["runAsNonRoot"]


@fault("nobody_is_root", "more rights")
def rights_may_grow(cluster):
    container(cluster)["securityContext"]["allowPrivilegeEscalation"] = True


@fault("nobody_is_root", "capabilities")
def a_capability_is_kept(cluster):
    container(cluster)["securityContext"]["capabilities"]["add"] = ["NET_ADMIN"]


@fault("nobody_is_root", "seccompProfile")
def every_system_call_is_allowed(cluster):
    pod(cluster)["securityContext"]["seccompProfile"]["type"] = "Unconfined"


@fault("the_namespace_refuses_who_asks_for_more", "`restricted`")
def the_namespace_enforces_less(cluster):
    labels = cluster.one("Namespace", "saga")["metadata"]["labels"]
    labels["pod-security.kubernetes.io/enforce"] = "baseline"


@fault("the_namespace_refuses_who_asks_for_more", "order is in another namespace")
def one_object_is_in_another_namespace(cluster):
    cluster.one("StatefulSet", "order")["metadata"]["namespace"] = "default"


@fault("the_namespace_refuses_who_asks_for_more", "hostNetwork")
def a_pod_is_on_the_network_of_its_host(cluster):
    pod(cluster)["hostNetwork"] = True


@fault("the_namespace_refuses_who_asks_for_more", "hostPath")
def a_pod_sees_the_files_of_its_host(cluster):
    pod(cluster)["volumes"].append({"name": "host", "hostPath": {"path": "/"}})


@fault("the_root_file_system_is_read_only", "nats")
def the_root_can_be_written(cluster):
    container(cluster, "nats")["securityContext"]["readOnlyRootFilesystem"] = False


@fault("nobody_gets_a_token_of_kubernetes", "automountServiceAccountToken")
def a_token_is_mounted(cluster):
    del pod(cluster)["automountServiceAccountToken"]


@fault("nobody_gets_a_token_of_kubernetes", "enableServiceLinks")
def the_environment_is_filled(cluster):
    pod(cluster)["enableServiceLinks"] = True


@fault("requests_and_limits_are_set", "payment, container service: no limits of memory")
def there_is_no_limit(cluster):
    del container(cluster, "payment")["resources"]["limits"]["memory"]


@fault("requests_and_limits_are_set", "no requests of cpu")
def nothing_is_requested(cluster):
    del container(cluster)["resources"]["requests"]


@fault("images_are_pinned", "saga/order:latest")
def the_image_is_the_latest(cluster):
    container(cluster)["image"] = "saga/order:latest"


@fault("images_are_pinned", "registry.example:5000/nats")
def the_image_has_no_tag(cluster):
    container(cluster)["image"] = "registry.example:5000/nats"


@fault("probes_mean_what_the_services_mean", "livenessProbe asks /readyz")
def who_is_not_ready_is_killed(cluster):
    container(cluster)["livenessProbe"]["httpGet"]["path"] = "/readyz"


@fault("probes_mean_what_the_services_mean", "readinessProbe asks no port")
def nobody_asks_whether_it_is_ready(cluster):
    del container(cluster)["readinessProbe"]


@fault("probes_mean_what_the_services_mean", "startupProbe asks /healthz, which one damaged stream fails")
def a_damaged_stream_gets_the_broker_killed(cluster):
    container(cluster, "nats")["startupProbe"]["httpGet"]["path"] = "/healthz"


@fault("the_broker_takes_less_than_its_volume", "NATS_MAX_FILE_STORE is None")
def the_broker_is_told_no_bound(cluster):
    container(cluster, "nats")["env"] = []


@fault("the_broker_takes_less_than_its_volume", "may take 4Gi of a volume of 4Gi")
def the_volume_is_smaller_than_what_the_broker_may_take(cluster):
    claim = spec(cluster, "nats")["volumeClaimTemplates"][0]["spec"]
    claim["resources"]["requests"]["storage"] = "4Gi"


@fault("probes_mean_what_the_services_mean", "it must have started")
def a_start_has_no_time(cluster):
    container(cluster)["startupProbe"]["failureThreshold"] = 3


@fault("probes_mean_what_the_services_mean", "it is killed once")
def one_slow_answer_kills(cluster):
    container(cluster)["livenessProbe"]["failureThreshold"] = 1


@fault("a_stop_has_its_time", "killed after 9 s")
def a_stop_has_no_time(cluster):
    pod(cluster)["terminationGracePeriodSeconds"] = 9


@fault("one_process_has_one_database", "order: SQLite")
def two_processes_have_one_database(cluster):
    spec(cluster)["replicas"] = 2


@fault("one_process_has_one_database", "no volume of its own")
def the_database_goes_with_the_pod(cluster):
    del spec(cluster)["volumeClaimTemplates"]


@fault("one_process_has_one_database", "no size")
def the_volume_has_no_size(cluster):
    del spec(cluster)["volumeClaimTemplates"][0]["spec"]["resources"]


@fault("one_process_has_one_database", "there is no Service order-headless")
def the_governing_service_is_missing(cluster):
    spec(cluster)["serviceName"] = "order-headless"


@fault("no_secret_stands_in_clear", "secrets are made elsewhere", where="base")
def the_base_has_a_secret(cluster):
    cluster.objects.append({"kind": "Secret", "metadata": {"name": "saga-order"}, "data": {}})


@fault("no_secret_stands_in_clear", "looks like a secret")
def a_setting_is_a_seed(cluster):
    setting(cluster, "ORDER__LOG__FORMAT")["value"] = "SU" + "A" * 56


@fault("no_secret_stands_in_clear", "ConfigMap")
def a_config_map_has_a_token(cluster):
    cluster.one("ConfigMap", config_map(cluster))["data"]["note"] = "ask with saga_" + "aB3_-" * 8 + "xyz"


@fault("no_secret_stands_in_clear", "ADMIN__HTTP__TOKEN names no file")
def a_setting_is_a_token(cluster):
    setting(cluster, "ADMIN__HTTP__TOKEN", of="admin")["value"] = "hunter2"


@fault("no_secret_stands_in_clear", "somebody's name or password")
def an_address_has_a_password(cluster):
    setting(cluster, "ORDER__BUS__URL")["value"] = "nats://order:hunter2@nats:4222"


@fault("no_secret_stands_in_clear", "in the environment")
def a_secret_is_in_the_environment(cluster):
    reference = {"secretKeyRef": {"name": "saga-order", "key": "broker.nk"}}
    container(cluster)["env"].append({"name": "ORDER__OTHER", "valueFrom": reference})


@fault("every_reference_leads_somewhere", "there is no Secret saga-odrer", where="base")
def a_secret_is_misspelt(cluster):
    pod(cluster)["volumes"][0]["projected"]["sources"][0]["secret"]["name"] = "saga-odrer"


@fault("every_reference_leads_somewhere", "saga-prometheus has no token")
def a_key_is_misspelt(cluster):
    endpoint = spec(cluster, "saga", "ServiceMonitor")["endpoints"][0]
    endpoint["authorization"]["credentials"]["key"] = "token"


@fault("every_reference_leads_somewhere", "name the keys")
def a_secret_is_taken_whole(cluster):
    del pod(cluster)["volumes"][0]["projected"]["sources"][0]["secret"]["items"]


@fault("every_reference_leads_somewhere", "there is no ConfigMap")
def a_config_map_is_missing(cluster):
    cluster.objects = [thing for thing in cluster.objects if thing["kind"] != "ConfigMap"]


@fault("every_file_that_a_setting_names_is_mounted", "/etc/saga/order.nk")
def a_file_is_mounted_under_another_name(cluster):
    setting(cluster, "ORDER__BUS__CREDENTIALS")["value"] = "/etc/saga/order.nk"


@fault("every_file_that_a_setting_names_is_mounted", "nothing is mounted there")
def the_configuration_is_not_mounted(cluster):
    container(cluster, "nats")["volumeMounts"].pop()


@fault("every_file_that_a_setting_names_is_mounted", "no volume that lasts")
def the_database_is_among_the_credentials(cluster):
    setting(cluster, "ORDER__STORE__URL")["value"] = "sqlite:/etc/saga/order.db"


@fault("every_file_that_a_setting_names_is_mounted", "there is no volume dta")
def a_volume_is_misspelt(cluster):
    container(cluster)["volumeMounts"][0]["name"] = "dta"


@fault("credentials_are_for_the_group_alone", "mode 440")
def anybody_may_read_the_credentials(cluster):
    pod(cluster)["volumes"][0]["projected"]["defaultMode"] = 0o444


@fault("credentials_are_for_the_group_alone", "without fsGroup")
def nobody_may_read_the_credentials(cluster):
    del pod(cluster)["securityContext"]["fsGroup"]


@fault("every_port_has_a_name_and_a_service", "has no name")
def a_port_has_no_name(cluster):
    container(cluster)["ports"].append({"containerPort": 9999})


@fault("every_port_has_a_name_and_a_service", "no Service leads to the port debug")
def a_port_has_no_service(cluster):
    container(cluster)["ports"].append({"containerPort": 9999, "name": "debug"})


@fault("every_port_has_a_name_and_a_service", "Service order: it selects 0")
def a_service_selects_nobody(cluster):
    spec(cluster, "order", "Service")["selector"] = {"app.kubernetes.io/name": "orders"}


@fault("every_port_has_a_name_and_a_service", "its port 8099 is not that of order")
def a_service_is_at_another_port(cluster):
    spec(cluster, "order", "Service")["ports"][0]["port"] = 8099


@fault("every_port_has_a_name_and_a_service", "there is no Service bank")
def a_service_is_missing(cluster):
    cluster.objects.remove(cluster.one("Service", "bank"))


@fault("every_address_leads_to_a_service_that_may_be_reached", "no Service is there")
def an_address_is_misspelt(cluster):
    setting(cluster, "PAYMENT__SERVICE__BANK", of="payment")["value"] = "http://banks:8084"


@fault("every_address_leads_to_a_service_that_may_be_reached", "no policy lets it go")
def an_address_is_out_of_reach(cluster):
    setting(cluster, "ORDER__BUS__URL")["value"] = "http://bank:8084"


@fault("every_address_leads_to_a_service_that_may_be_reached", "POD_NAMESPACE")
def a_variable_comes_too_late(cluster):
    container(cluster)["env"].reverse()


@fault("services_know_their_names", "has no order-pods")
def a_service_does_not_know_its_name(cluster):
    hosts = setting(cluster, "ORDER__HTTP__ALLOWED_HOSTS")
    hosts["value"] = hosts["value"].replace(",order-pods", "")


@fault("every_pod_is_under_a_policy_both_ways", "order: no NetworkPolicy")
def a_pod_has_no_policy(cluster):
    for name in ("order", "from-catalogue", "from-prometheus", "to-collector"):
        network(cluster, name)["podSelector"] = {"matchLabels": {"app.kubernetes.io/name": "bank"}}


@fault("every_pod_is_under_a_policy_both_ways", "from-catalogue selects nobody")
def a_policy_selects_nobody(cluster):
    network(cluster, "from-catalogue")["podSelector"] = {"matchLabels": {"app.kubernetes.io/name": "orders"}}


@fault("every_pod_is_under_a_policy_both_ways", "names a peer that there is not")
def a_policy_names_nobody(cluster):
    network(cluster, "order")["egress"].append(to("natss", 4222))


@fault("every_pod_is_under_a_policy_both_ways", "no NetworkPolicy refuses")
def everything_else_is_allowed(cluster):
    network(cluster, "nothing-else")["ingress"] = [{}]


@fault("there_are_these_paths_and_no_others", "order may speak to bank:8084 (egress)")
def order_may_speak_to_the_bank(cluster):
    network(cluster, "order")["egress"].append(to("bank", 8084))


@fault("there_are_these_paths_and_no_others", "may speak to order:8081 (ingress)")
def anybody_may_come(cluster):
    network(cluster, "order")["ingress"].append({"ports": [{"port": 8081}]})


@fault("there_are_these_paths_and_no_others", "inventory may speak to 0.0.0.0/0")
def one_may_go_anywhere(cluster):
    network(cluster, "inventory")["egress"].append({"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]})


@fault("there_are_these_paths_and_no_others", "payment may not speak to bank:8084 (egress)")
def payment_may_not_speak_to_the_bank(cluster):
    network(cluster, "payment")["egress"].pop()


@fault("there_are_these_paths_and_no_others", "admin may not speak to nats:4222 (ingress)")
def the_broker_does_not_hear_admin(cluster):
    network(cluster, "nats")["ingress"][0]["from"].pop(0)


@fault("there_are_these_paths_and_no_others", "nats may not speak to kube-system:kube-dns:53")
def nobody_can_ask_for_names(cluster):
    cluster.objects.remove(cluster.one("NetworkPolicy", "dns"))


@fault("one_pod_of_each_may_be_taken_away_at_a_time", "order: 0 PodDisruptionBudgets")
def there_is_no_budget(cluster):
    cluster.objects.remove(cluster.one("PodDisruptionBudget", "order"))


@fault("one_pod_of_each_may_be_taken_away_at_a_time", "order selects nobody")
def a_budget_selects_nobody(cluster):
    spec(cluster, "order", "PodDisruptionBudget")["selector"]["matchLabels"] = {"app": "order"}


@fault("one_pod_of_each_may_be_taken_away_at_a_time", "is not: one at a time")
def a_node_can_never_be_drained(cluster):
    budget = spec(cluster, "order", "PodDisruptionBudget")
    del budget["maxUnavailable"]
    budget["minAvailable"] = 1


@fault("every_service_is_scraped_once_and_by_its_name", "it scrapes admin, bank, inventory, payment")
def one_service_is_not_scraped(cluster):
    del cluster.one("Service", "order-pods")["metadata"]["labels"]["saga/metrics"]


@fault("every_service_is_scraped_once_and_by_its_name", "job `saga`")
def series_have_another_job(cluster):
    spec(cluster, "saga", "ServiceMonitor")["endpoints"][0]["relabelings"].pop(0)


@fault("every_service_is_scraped_once_and_by_its_name", "label `service`")
def series_have_no_service(cluster):
    spec(cluster, "saga", "ServiceMonitor")["endpoints"][0]["relabelings"].pop(1)


@fault("what_is_told_is_what_grafana_says", "its groups are not those")
def a_rule_is_another(cluster):
    rule = {"alert": "Other", "expr": "up == 0"}
    spec(cluster, "saga", "PrometheusRule")["groups"].append({"name": "other", "rules": [rule]})


@fault("what_is_told_is_what_grafana_says", "the dashboards")
def a_dashboard_is_another(cluster):
    labels = {"grafana_dashboard": "1"}
    other = {"kind": "ConfigMap", "metadata": {"name": "other", "labels": labels}, "data": {"other.json": "{}"}}
    cluster.objects.append(other)


@fault("every_object_can_be_applied", "is there twice")
def an_object_is_there_twice(cluster):
    cluster.objects.append(cluster.one("Service", "order"))


@fault("every_object_can_be_applied", "cannot take")
def an_object_is_too_large(cluster):
    cluster.one("ConfigMap", config_map(cluster))["data"]["large"] = "x" * 300_000


def config_map(cluster):
    return cluster.of("ConfigMap")[0]["metadata"]["name"]


@fault("schemas", "StatefulSet order: Kubernetes 1.30: spec: Additional properties are not allowed ('replica'")
def a_word_is_misspelt(cluster):
    spec(cluster)["replica"] = 1


@fault("schemas", "NetworkPolicy order: Kubernetes 1.37")
def a_value_is_of_another_type(cluster):
    network(cluster, "order")["policyTypes"] = "Egress"


@fault("schemas", "ServiceMonitor saga")
def a_word_of_the_operator_is_misspelt(cluster):
    spec(cluster, "saga", "ServiceMonitor")["endpoints"][0]["scrape_interval"] = "15s"


@fault("schemas", "PrometheusRule saga")
def a_rule_has_no_expression(cluster):
    spec(cluster, "saga", "PrometheusRule")["groups"].append({"name": "other", "rules": [{"alert": "Other"}]})
