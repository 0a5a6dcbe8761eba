"""Faults, each planted in a copy of what was rendered: the policy that is there for it must name it.

A fault is a function that changes the copy; it says which policy finds it, and a part of what that says.
"""

import copy
from dataclasses import dataclass
from typing import Callable

import policies
import schemas
from cluster import name_of

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
            found = list(schemas.complaints(cluster.objects + cluster.database))
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


@fault("one_process_has_one_database", "order: its database is elsewhere", where="production")
def what_keeps_nothing_has_a_volume(cluster):
    spec(cluster)["volumeClaimTemplates"] = copy.deepcopy(spec(cluster, "nats")["volumeClaimTemplates"])


@fault("one_process_has_one_database", "nats: SQLite and R1", where="production")
def three_brokers_know_nothing_of_each_other(cluster):
    container(cluster, "nats")["command"][-1] = "/etc/nats/nats.conf"


@fault("brokers_are_one_cluster", "of 2 brokers", where="production")
def there_are_two_brokers(cluster):
    spec(cluster, "nats")["replicas"] = 2


@fault("brokers_are_one_cluster", "the first waits for the second", where="production")
def brokers_are_started_one_after_the_other(cluster):
    del spec(cluster, "nats")["podManagementPolicy"]


@fault("brokers_are_one_cluster", "no time to catch up", where="production")
def brokers_are_replaced_at_once(cluster):
    del spec(cluster, "nats")["minReadySeconds"]


@fault("brokers_are_one_cluster", "one is not mounted", where="production")
def a_broker_knows_no_users(cluster):
    pod(cluster, "nats")["volumes"][0]["secret"]["items"].pop(0)


@fault("brokers_are_one_cluster", "NATS_NAME is not", where="production")
def all_brokers_have_one_name(cluster):
    named = next(entry for entry in container(cluster, "nats")["env"] if entry["name"] == "NATS_NAME")
    named.pop("valueFrom")
    named["value"] = "nats"


@fault("brokers_are_one_cluster", "nats does not lead to each broker", where="production")
def brokers_have_no_names_of_their_own(cluster):
    spec(cluster, "nats")["serviceName"] = "nats"


@fault("brokers_are_one_cluster", "3 brokers, and 1 copies", where="production")
def a_stream_is_at_one_of_three_brokers(cluster):
    setting(cluster, "ORDER__BUS__REPLICAS")["value"] = "1"


@fault("brokers_are_one_cluster", "1 brokers, and 3 copies")
def one_broker_is_to_keep_three_copies(cluster):
    container(cluster)["env"].append({"name": "ORDER__BUS__REPLICAS", "value": "3"})


@fault("each_service_has_a_database_of_its_own", "its database is payment, as the user order", where="production")
def a_service_has_the_database_of_another(cluster):
    url = setting(cluster, "ORDER__STORE__URL")
    url["value"] = url["value"].replace("/order?", "/payment?")


@fault("each_service_has_a_database_of_its_own", "order: no file has the password", where="production")
def a_database_has_no_password(cluster):
    container(cluster)["env"].remove(setting(cluster, "ORDER__STORE__PASSWORD_FILE"))


@fault("each_service_has_a_database_of_its_own", "it does not know", where="production")
def any_server_is_believed(cluster):
    url = setting(cluster, "ORDER__STORE__URL")
    url["value"] = url["value"].replace("verify-full", "require")


@fault("each_service_has_a_database_of_its_own", "order: its replicas are not told apart", where="production")
def replicas_have_one_name(cluster):
    setting(cluster, "ORDER__INSTANCE")["value"] = "order"


def address(cluster):
    return next(thing for thing in cluster.of("ConfigMap") if name_of(thing).startswith("saga-postgres"))["data"]


def beside(cluster, kind, name):
    return next(thing for thing in cluster.database if (thing["kind"], name_of(thing)) == (kind, name))


@fault("the_database_is_there_and_lets_in_its_services", "nobody takes what is written", where="production")
def services_ask_a_server_that_stands_by(cluster):
    address(cluster)["address"] = "saga-ro.saga-postgres:5432"


@fault("the_database_is_there_and_lets_in_its_services", "no database order", where="production")
def a_database_is_missing(cluster):
    cluster.database.remove(beside(cluster, "Database", "order"))


@fault("the_database_is_there_and_lets_in_its_services", "no database order", where="production")
def a_database_is_owned_by_another(cluster):
    beside(cluster, "Database", "order")["spec"]["owner"] = "payment"


@fault("the_database_is_there_and_lets_in_its_services", "no user order", where="production")
def a_user_may_not_log_in(cluster):
    del beside(cluster, "Cluster", "saga")["spec"]["managed"]["roles"][0]["login"]


@fault("the_database_is_there_and_lets_in_its_services", "order: no policy lets it go", where="production")
def no_policy_lets_services_go_to_the_database(cluster):
    cluster.objects.remove(cluster.one("NetworkPolicy", "to-postgres"))


@fault("the_database_is_there_and_lets_in_its_services", "order: no policy lets it in", where="production")
def the_database_lets_nobody_in(cluster):
    beside(cluster, "NetworkPolicy", "postgres")["spec"]["ingress"].pop(0)


@fault("the_database_is_there_and_lets_in_its_services", "gives 100", where="production")
def connections_run_out(cluster):
    beside(cluster, "Cluster", "saga")["spec"]["postgresql"]["parameters"]["max_connections"] = "100"


@fault("the_database_is_there_and_lets_in_its_services", "Cluster saga: its namespace", where="production")
def the_namespace_of_the_database_enforces_less(cluster):
    labels = beside(cluster, "Namespace", "saga-postgres")["metadata"]["labels"]
    labels["pod-security.kubernetes.io/enforce"] = "baseline"


@fault("there_are_enough_of_each_and_apart", "not by both", where="production")
def replicas_stand_beside_an_autoscaler(cluster):
    spec(cluster)["replicas"] = 3


@fault("there_are_enough_of_each_and_apart", "there may be 2 of it", where="production")
def there_may_be_two(cluster):
    autoscaler(cluster)["minReplicas"] = 2


@fault("there_are_enough_of_each_and_apart", "nothing spreads it by topology.kubernetes.io/zone", where="production")
def all_are_in_one_zone(cluster):
    pod(cluster)["topologySpreadConstraints"].pop(0)


@fault("there_are_enough_of_each_and_apart", "counted together with others", where="production")
def services_are_spread_as_if_they_were_one(cluster):
    del pod(cluster)["topologySpreadConstraints"][0]["matchLabelKeys"]


@fault("there_are_enough_of_each_and_apart", "order: all of them may be on one node", where="production")
def all_are_on_one_node(cluster):
    pod(cluster)["topologySpreadConstraints"][1]["whenUnsatisfiable"] = "ScheduleAnyway"


@fault("there_are_enough_of_each_and_apart", "most of the brokers", where="production")
def two_brokers_are_on_one_node(cluster):
    del pod(cluster, "nats")["topologySpreadConstraints"][1]["minDomains"]


def autoscaler(cluster, name="order"):
    return spec(cluster, name, "HorizontalPodAutoscaler")


def by_outbox(cluster):
    return next(metric["external"] for metric in autoscaler(cluster)["metrics"] if metric["type"] == "External")


@fault("autoscalers_go_by_what_there_is", "nobody has the metric outbox_age_seconds", where="production")
def a_metric_is_misspelt(cluster):
    cluster.adapter[0]["seriesQuery"] = "outbox_age_seconds{}"


@fault("autoscalers_go_by_what_there_is", "it takes not the largest", where="production")
def what_all_say_alike_is_added_up(cluster):
    rule = cluster.adapter[0]
    rule["metricsQuery"] = rule["metricsQuery"].replace("max by", "sum by", 1)


@fault("autoscalers_go_by_what_there_is", "order: it scales payment", where="production")
def an_autoscaler_scales_another(cluster):
    autoscaler(cluster)["scaleTargetRef"]["name"] = "payment"


@fault("autoscalers_go_by_what_there_is", "it scales nobody", where="production")
def an_autoscaler_scales_nobody(cluster):
    autoscaler(cluster)["scaleTargetRef"]["kind"] = "Deployment"


@fault("autoscalers_go_by_what_there_is", "nothing to decide", where="production")
def an_autoscaler_cannot_scale(cluster):
    autoscaler(cluster)["maxReplicas"] = 3


@fault("autoscalers_go_by_what_there_is", "does not go by the processor", where="production")
def the_processor_counts_for_nothing(cluster):
    autoscaler(cluster)["metrics"] = [{"type": "External", "external": by_outbox(cluster)}]


@fault("autoscalers_go_by_what_there_is", "whether it goes by the outbox", where="production")
def the_outbox_counts_for_nothing(cluster):
    autoscaler(cluster)["metrics"] = [metric for metric in autoscaler(cluster)["metrics"] if metric["type"] != "External"]


@fault("autoscalers_go_by_what_there_is", "serves no outbox_pending", where="production")
def a_metric_is_not_served(cluster):
    by_outbox(cluster)["metric"]["name"] = "outbox_pending"


@fault("autoscalers_go_by_what_there_is", "the outbox of others", where="production")
def the_outbox_is_that_of_another(cluster):
    by_outbox(cluster)["metric"]["selector"]["matchLabels"]["service"] = "payment"


@fault("autoscalers_go_by_what_there_is", "divided by their number", where="production")
def an_age_is_divided_by_the_number_of_replicas(cluster):
    by_outbox(cluster)["target"] = {"type": "AverageValue", "averageValue": "10"}


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


@fault("no_secret_stands_in_clear", "somebody's name or password")
def an_address_has_a_user(cluster):
    setting(cluster, "ORDER__BUS__URL")["value"] = "nats://order@nats:4222"


@fault("no_secret_stands_in_clear", "somebody's name or password", where="production")
def the_address_of_a_database_has_a_password(cluster):
    url = setting(cluster, "ORDER__STORE__URL")
    url["value"] = url["value"].replace("order@", "order:hunter2@")


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


@fault("every_file_that_a_setting_names_is_mounted", "/etc/saga/root.crt", where="production")
def a_certificate_is_mounted_under_another_name(cluster):
    url = setting(cluster, "ORDER__STORE__URL")
    url["value"] = url["value"].replace("postgres.crt", "root.crt")


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


@fault("there_are_these_paths_and_no_others", "nats may not speak to nats:6222 (ingress)", where="production")
def brokers_do_not_hear_each_other(cluster):
    network(cluster, "nats-routes")["ingress"].pop()


@fault("there_are_these_paths_and_no_others", "order may speak to nats:6222 (egress)", where="production")
def a_service_may_pass_for_a_broker(cluster):
    network(cluster, "order")["egress"].append(to("nats", 6222))


@fault("there_are_these_paths_and_no_others", "nats may speak to saga-postgres:saga:5432", where="production")
def a_broker_may_go_to_the_database(cluster):
    network(cluster, "to-postgres")["podSelector"]["matchExpressions"][0]["values"].append("nats")


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


@fault("schemas", "HorizontalPodAutoscaler order: Kubernetes 1.30", where="production")
def a_word_of_an_autoscaler_is_misspelt(cluster):
    autoscaler(cluster)["minReplica"] = 3


@fault("schemas", "Cluster saga: CloudNativePG", where="production")
def a_word_of_the_database_is_misspelt(cluster):
    beside(cluster, "Cluster", "saga")["spec"]["instance"] = 3


@fault("schemas", "Database order: CloudNativePG", where="production")
def a_database_has_no_owner(cluster):
    del beside(cluster, "Database", "order")["spec"]["owner"]
