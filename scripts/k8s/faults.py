"""Planted faults, to test the policies and schemas: each is a change of a rendering that a policy must complain about.

A line of the table is `OBJECT CHANGE => part of the complaint`, below the name of the policy. The rendering is the one with
all components, unless OBJECT names another: `production:StatefulSet/order`. Names may be globs or several. Changes:

    PATH = YAML      set a value                    del PATH      delete a value, or the whole object
    PATH += YAML     append to a list               new YAML      add an object
    PATH ~ A -> B    replace text in a value        copy          add the object a second time
                                                    reverse PATH  reverse a list

A path is a list of words. `pod` and `container` stand for the pod template and its first container. In a list, a word is an
index, or the `name` or `type` of an item.
"""

import copy
import fnmatch
import re
from dataclasses import dataclass

import policy
import schemas
import yaml
from cluster import name_of

TABLE = """
runs_unprivileged
  StatefulSet/order  pod securityContext runAsUser = 0  => order, container service: runAsUser
  CronJob/catalogue  container securityContext runAsUser = 0  => catalogue, container sagactl: runAsUser
  StatefulSet/nats  del pod securityContext runAsNonRoot  => runAsNonRoot
  StatefulSet/order  container securityContext allowPrivilegeEscalation = true  => privilege escalation
  StatefulSet/order  container securityContext capabilities add = [NET_ADMIN]  => capabilities
  StatefulSet/order  pod securityContext seccompProfile type = Unconfined  => seccompProfile

namespace_is_restricted
  Namespace/saga  metadata labels pod-security.kubernetes.io/enforce = baseline  => `restricted`
  StatefulSet/order  metadata namespace = default  => order is in another namespace
  StatefulSet/order  pod hostNetwork = true  => hostNetwork
  StatefulSet/order  pod volumes += {name: host, hostPath: {path: /}}  => hostPath

root_filesystem_is_read_only
  StatefulSet/nats  container securityContext readOnlyRootFilesystem = false  => nats

no_access_to_kubernetes
  StatefulSet/order  del pod automountServiceAccountToken  => automountServiceAccountToken
  StatefulSet/order  pod enableServiceLinks = true  => enableServiceLinks

requests_and_limits_are_set
  StatefulSet/payment  del container resources limits memory  => payment, container service: no limits of memory
  StatefulSet/order  del container resources requests  => no requests of cpu

images_are_pinned
  StatefulSet/order  container image = saga/order:latest  => saga/order:latest
  StatefulSet/order  container image = registry.example:5000/nats  => registry.example:5000/nats

probes_match_endpoints
  StatefulSet/order  container livenessProbe httpGet path = /readyz  => livenessProbe requests /readyz
  StatefulSet/order  del container readinessProbe  => readinessProbe uses no named port
  StatefulSet/nats  container startupProbe httpGet path = /healthz  => /healthz, which fails for one damaged stream
  StatefulSet/order  container startupProbe failureThreshold = 3  => startupProbe kills the container
  StatefulSet/order  container livenessProbe failureThreshold = 1  => livenessProbe kills the container

broker_limit_is_below_volume_size
  StatefulSet/nats  container env = []  => NATS_MAX_FILE_STORE is None
  StatefulSet/nats  spec volumeClaimTemplates 0 spec resources requests storage = 4Gi  => take 4Gi of a volume of 4Gi

time_to_stop_is_long_enough
  StatefulSet/order  pod terminationGracePeriodSeconds = 14  => killed after 14 s

stopping_services_take_connections_until_nodes_know
  StatefulSet/order  del container lifecycle  => preStop sleeps 0 s

one_database_per_process
  StatefulSet/order  spec replicas = 2  => order: SQLite
  StatefulSet/order  del spec volumeClaimTemplates  => no persistent volume
  StatefulSet/order  del spec volumeClaimTemplates 0 spec resources  => no size
  StatefulSet/order  spec serviceName = order-headless  => there is no Service order-headless
  production:StatefulSet/order  spec volumeClaimTemplates = [{metadata: {name: data}, spec: {}}]  => order: it uses PostgreSQL
  production:StatefulSet/nats  container command -1 = /etc/nats/nats.conf  => nats: SQLite and streams without copies

updates_replace_pods_that_are_not_ready
  StatefulSet/order  del spec podManagementPolicy  => StatefulSet order: without the policy Parallel
  base:StatefulSet/nats  spec podManagementPolicy = OrderedReady  => StatefulSet nats: without the policy Parallel
  production:StatefulSet/nats  del spec podManagementPolicy  => StatefulSet nats: without the policy Parallel
  StatefulSet/bank  spec updateStrategy = {type: OnDelete}  => StatefulSet bank: an update replaces no pod

every_object_can_be_updated
  -  new {kind: Job, metadata: {name: seed}, spec: {template: {metadata: {}, spec: {containers: []}}}}  => Job seed: its template cannot be changed
  CronJob/catalogue  del spec suspend  => CronJob catalogue: it is not suspended
  production:StatefulSet/order  metadata namespace = saga  => an update over the rendering `local` cannot change volumeClaimTemplates
  production:StatefulSet/nats  metadata namespace = saga  => an update over the rendering `base` cannot change serviceName
  local:StatefulSet/bank  del spec podManagementPolicy  => an update over the rendering `base` cannot change podManagementPolicy

stale_objects_are_pruned
  Service/order  del metadata labels app.kubernetes.io/part-of  => Service order: without the label app.kubernetes.io/part-of=saga
  -  new {apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: x, labels: {app.kubernetes.io/part-of: saga}}}  => does not prune the kind Role
  Namespace/saga  del metadata labels app.kubernetes.io/component  => Namespace saga: scripts/k8s-apply.sh does not create it first
  Service/order  metadata labels app.kubernetes.io/component = namespace  => Service order: scripts/k8s-apply.sh creates it first

brokers_form_a_cluster
  production:StatefulSet/nats  spec replicas = 2  => 2 brokers may lose their quorum
  production:StatefulSet/nats  del spec minReadySeconds  => needs minReadySeconds
  production:StatefulSet/nats  del pod volumes 0 secret items 0  => is not mounted
  production:StatefulSet/nats  container env NATS_NAME = {name: NATS_NAME, value: nats}  => NATS_NAME is not
  production:StatefulSet/nats  spec serviceName = nats  => nats does not resolve to each broker
  production:StatefulSet/order  container env ORDER__BUS__REPLICAS value = "1"  => 3 brokers, but 1 copies
  StatefulSet/order  container env += {name: ORDER__BUS__REPLICAS, value: "3"}  => 1 brokers, but 3 copies

each_service_has_its_own_postgres_database
  production:StatefulSet/order  container env ORDER__STORE__URL value ~ /order? -> /payment?  => is payment, with the user order
  production:StatefulSet/order  del container env ORDER__STORE__PASSWORD_FILE  => order: there is no password file
  production:StatefulSet/order  container env ORDER__STORE__URL value ~ verify-full -> require  => does not verify
  production:StatefulSet/order  container env ORDER__INSTANCE value = order  => order: the instance name

postgres_is_reachable
  production:ConfigMap/saga-postgres*  data address = saga-ro.saga-postgres:5432  => not a server that accepts writes
  production:Database/order  del  => no database order
  production:Database/order  spec owner = payment  => no database order
  production:Cluster/saga  del spec managed roles 0 login  => no user order
  production:NetworkPolicy/to-postgres  del  => order: no egress policy
  production:NetworkPolicy/postgres  del spec ingress 0  => order: no ingress policy
  production:Cluster/saga  spec postgresql parameters max_connections = "100"  => allows 100
  production:Namespace/saga-postgres  metadata labels pod-security.kubernetes.io/enforce = baseline  => Cluster saga: its namespace

replicas_are_spread
  production:StatefulSet/order  spec replicas = 3  => either `replicas` or one autoscaler
  production:HorizontalPodAutoscaler/order  spec minReplicas = 2  => 2 replicas are less than 3
  production:StatefulSet/order  del pod topologySpreadConstraints 0  => not spread by topology.kubernetes.io/zone
  production:StatefulSet/order  del pod topologySpreadConstraints 0 matchLabelKeys  => together with other services
  production:StatefulSet/order  pod topologySpreadConstraints 1 whenUnsatisfiable = ScheduleAnyway  => order: all replicas may run on
  production:StatefulSet/nats  del pod topologySpreadConstraints 1 minDomains  => most brokers

autoscalers_need_a_shared_store
  production:StatefulSet/order  container env ORDER__STORE__URL value = sqlite:/data/order.db  => order: its replicas have a database each
  production:StatefulSet/bank  spec volumeClaimTemplates = [{metadata: {name: data}, spec: {}}]  => bank: its replicas have a database each
  -  new {kind: HorizontalPodAutoscaler, metadata: {name: nats}, spec: {scaleTargetRef: {kind: StatefulSet, name: nats}}}  => nats: its replicas

autoscalers_use_existing_metrics
  production:adapter  0 seriesQuery = outbox_age_seconds{}  => no service has the metric outbox_age_seconds
  production:adapter  0 metricsQuery ~ max by -> sum by  => must take the maximum
  production:HorizontalPodAutoscaler/order  spec scaleTargetRef name = payment  => order: it scales payment
  production:HorizontalPodAutoscaler/order  spec scaleTargetRef kind = Deployment  => it scales nothing
  production:HorizontalPodAutoscaler/order  spec maxReplicas = 3  => maxReplicas is not above
  production:HorizontalPodAutoscaler/order  del spec metrics Resource  => does not use the CPU load
  production:HorizontalPodAutoscaler/order  del spec metrics External  => if and only if
  production:HorizontalPodAutoscaler/order  spec metrics External external metric name = outbox_pending  => serve outbox_pending
  production:HorizontalPodAutoscaler/order  spec metrics External external metric selector matchLabels service = payment  => of another
  production:HorizontalPodAutoscaler/order  spec metrics External external target = {type: AverageValue, averageValue: "10"}  => divided

no_secrets_in_plain_text
  base:-  new {kind: Secret, metadata: {name: saga-order}, data: {}}  => created elsewhere
  StatefulSet/order  container env ORDER__LOG__FORMAT value = <SEED>  => looks like a secret
  ConfigMap/*  data note = use <TOKEN>  => ConfigMap
  StatefulSet/admin  container env ADMIN__HTTP__TOKEN value = hunter2  => ADMIN__HTTP__TOKEN is not the path of a file
  StatefulSet/order  container env ORDER__BUS__URL value = nats://order:hunter2@nats:4222  => a user or password
  StatefulSet/order  container env ORDER__BUS__URL value = nats://order@nats:4222  => a user or password
  production:StatefulSet/order  container env ORDER__STORE__URL value ~ order@ -> order:hunter2@  => a user or password
  StatefulSet/order  container env += {name: X, valueFrom: {secretKeyRef: {name: saga-order, key: broker.nk}}}  => into the environment

references_exist
  base:StatefulSet/order  pod volumes 0 projected sources 0 secret name = saga-odrer  => there is no Secret saga-odrer
  ServiceMonitor/saga  spec endpoints 0 authorization credentials key = token  => saga-prometheus has no key token
  StatefulSet/order  del pod volumes 0 projected sources 0 secret items  => without naming its keys
  ConfigMap/*  del  => there is no ConfigMap

files_in_settings_are_mounted
  StatefulSet/order  container env ORDER__BUS__CREDENTIALS value = /etc/saga/order.nk  => /etc/saga/order.nk
  production:StatefulSet/order  container env ORDER__STORE__URL value ~ postgres.crt -> root.crt  => /etc/saga/root.crt
  StatefulSet/nats  del container volumeMounts -1  => nothing is mounted there
  StatefulSet/order  container env ORDER__STORE__URL value = sqlite:/etc/saga/order.db  => not on a persistent volume
  StatefulSet/order  container volumeMounts 0 name = dta  => there is no volume dta

credentials_are_readable_by_group_only
  StatefulSet/order  pod volumes 0 projected defaultMode = 292  => mode 440
  StatefulSet/order  del pod securityContext fsGroup  => without fsGroup

ports_have_names_and_services
  StatefulSet/order  container ports += {containerPort: 9999}  => has no name
  StatefulSet/order  container ports += {containerPort: 9999, name: debug}  => no Service uses the port debug
  Service/order  spec selector = {app.kubernetes.io/name: orders}  => Service order: it selects 0
  Service/order  spec ports 0 port = 8099  => port 8099 is not the port of order
  Service/bank  del  => there is no Service bank

addresses_are_reachable
  StatefulSet/payment  container env PAYMENT__SERVICE__BANK value = http://banks:8084  => there is no such Service
  StatefulSet/order  container env ORDER__BUS__URL value = http://bank:8084  => no NetworkPolicy allows it
  StatefulSet/order  reverse container env  => POD_NAMESPACE

allowed_hosts_are_complete
  StatefulSet/order  container env ORDER__HTTP__ALLOWED_HOSTS value ~ ,order-pods ->  => lacks order-pods

pods_have_network_policies
  NetworkPolicy/order,from-catalogue,from-prometheus,to-collector  spec podSelector = <BANK>  => order: no NetworkPolicy
  NetworkPolicy/from-catalogue  spec podSelector matchLabels = {app.kubernetes.io/name: orders}  => from-catalogue selects no pod
  NetworkPolicy/order  spec egress += {to: [{podSelector: {matchLabels: {app: natss}}}]}  => names an unknown peer
  NetworkPolicy/nothing-else  spec ingress = [{}]  => no NetworkPolicy denies

network_paths_match_topology
  NetworkPolicy/order  spec egress += {to: [{podSelector: <BANK>}], ports: [{port: 8084}]}  => order to bank:8084 is allowed
  NetworkPolicy/order  spec ingress += {ports: [{port: 8081}]}  => ingress from anybody to order:8081 is allowed
  NetworkPolicy/inventory  spec egress += {to: [{ipBlock: {cidr: 0.0.0.0/0}}]}  => inventory to 0.0.0.0/0:any is allowed
  NetworkPolicy/payment  del spec egress -1  => egress from payment to bank:8084 is needed
  NetworkPolicy/nats  del spec ingress 0 from 0  => ingress from admin to nats:4222 is needed
  production:NetworkPolicy/nats-routes  del spec ingress -1  => ingress from nats to nats:6222 is needed
  production:NetworkPolicy/order  spec egress += {to: [{podSelector: <NATS>}], ports: [{port: 6222}]}  => order to nats:6222 is allowed
  production:NetworkPolicy/to-postgres  spec podSelector = {matchLabels: {app.kubernetes.io/name: nats}}  => nats to saga-postgres:saga:5432 is allowed
  NetworkPolicy/dns  del  => nats to kube-system:kube-dns:53 is needed

one_disruption_at_a_time
  PodDisruptionBudget/order  del  => order: 0 PodDisruptionBudgets
  PodDisruptionBudget/order  spec selector matchLabels = {app: order}  => order selects no pod
  PodDisruptionBudget/order  del spec maxUnavailable  => must allow one pod

services_are_scraped_once
  Service/order-pods  del metadata labels saga/metrics  => it scrapes admin, bank, inventory, payment
  ServiceMonitor/saga  del spec endpoints 0 relabelings 0  => job `saga`
  ServiceMonitor/saga  del spec endpoints 0 relabelings 1  => label `service`

rules_and_dashboards_match_grafana
  PrometheusRule/saga  spec groups += {name: other, rules: [{alert: Other, expr: up == 0}]}  => its groups differ
  -  new {kind: ConfigMap, metadata: {name: x, labels: {grafana_dashboard: "1"}}, data: {x.json: "{}"}}  => the dashboards

requests_match_page
  production:StatefulSet/order  container resources requests cpu = "1"  => production: CPUs: the page says
  production:HorizontalPodAutoscaler/bank  spec maxReplicas = 8  => production: pods: the page says
  local:StatefulSet/nats  container resources requests memory = 1Gi  => local: memory: the page says
  production:Cluster/saga  spec resources requests cpu = "2"  => cloudnativepg: CPUs: the page says 3, but the manifests say 6

page_creates_secrets
  production-and-all:StatefulSet/admin  pod volumes 0 projected sources -1 secret name = saga-hook  => no command on the page creates the Secret saga-hook
  production:StatefulSet/bank  pod volumes 0 projected sources -1 secret name = saga-banks  => no command on the page creates the Secret saga-banks

objects_can_be_applied
  Service/order  copy  => exists twice
  ConfigMap/*  data large = <300 KB>  => too many for

schemas
  StatefulSet/order  spec replica = 1  => StatefulSet order: Kubernetes 1.30: spec: Additional properties are not allowed ('replica'
  NetworkPolicy/order  spec policyTypes = Egress  => NetworkPolicy order: Kubernetes 1.37
  ServiceMonitor/saga  spec endpoints 0 scrape_interval = 15s  => ServiceMonitor saga
  PrometheusRule/saga  spec groups += {name: other, rules: [{alert: Other}]}  => PrometheusRule saga
  production:HorizontalPodAutoscaler/order  spec minReplica = 3  => HorizontalPodAutoscaler order: Kubernetes 1.30
  production:Cluster/saga  spec instance = 3  => Cluster saga: CloudNativePG
  production:Database/order  del spec owner  => Database order: CloudNativePG
"""
# Text that would look like a secret in this file, or is long.
VALUES = {
    "<SEED>": "SU" + "A" * 56,
    "<TOKEN>": "saga_" + "aB3_-" * 8 + "xyz",
    "<BANK>": "{matchLabels: {app.kubernetes.io/name: bank}}",
    "<NATS>": "{matchLabels: {app.kubernetes.io/name: nats}}",
    "<300 KB>": "x" * 300_000,
}
SHORTHANDS = {"pod": ["template", "spec"], "container": ["template", "spec", "containers", "0"]}


@dataclass(frozen=True)
class Fault:
    policy: str
    rendering: str
    target: str
    change: str
    complaint: str


def parse(table):
    name = ""
    for line in table.splitlines():
        if not line.startswith(" "):
            name = line or name
            continue
        fault, complaint = line.split(" => ")
        target, change = fault.split(None, 1)
        rendering, _, target = target.rpartition(":")
        yield Fault(name, rendering or "all", target, change.strip(), complaint.strip())


FAULTS = list(parse(TABLE))


def complaints(clusters, expected):
    """Planted faults that were not found, and policies without a planted fault."""
    for fault in FAULTS:
        cluster = copy.deepcopy(clusters[fault.rendering])
        try:
            plant(cluster, fault)
        except Exception as error:
            yield f"the fault `{fault.target} {fault.change}` cannot be planted: {error!r}"
            continue
        if fault.policy == "schemas":
            found = list(schemas.complaints(cluster.objects + cluster.database))
        else:
            found = list(policy.POLICIES[fault.policy](cluster, expected))
        if not any(fault.complaint in complaint for complaint in found):
            yield f"{fault.policy} did not find the fault `{fault.target} {fault.change}`; it found {found or 'nothing'}"
    for name in policy.POLICIES.keys() - {fault.policy for fault in FAULTS}:
        yield f"no fault is planted for {name}"


def plant(cluster, fault):
    change = fault.change
    if change.startswith("new "):
        cluster.objects.append(yaml.safe_load(change.removeprefix("new ")))
        return
    targets = matching(cluster, fault.target)
    assert targets, "no such object"
    for thing in targets:
        if change == "del":
            for objects in (cluster.objects, cluster.database):
                objects[:] = [other for other in objects if other is not thing]
        elif change == "copy":
            cluster.objects.append(thing)
        else:
            edit(thing, change)


def matching(cluster, target):
    """The objects that `KIND/NAME[,NAME…]` names."""
    if target == "adapter":
        return [cluster.adapter]
    kind, names = target.split("/")
    return [
        thing
        for thing in [*cluster.objects, *cluster.database]
        if thing["kind"] == kind and any(fnmatch.fnmatch(name_of(thing), name) for name in names.split(","))
    ]


def edit(thing, change):
    if change.startswith(("del ", "reverse ")):
        operation, path = change.split(None, 1)
        value = None
    else:
        path, operation, value = re.fullmatch(r"(.*?) (=|\+=|~) (.*)", change).groups()
        if operation != "~":
            value = value_of(value)
    container, key = locate(thing, path)
    if operation == "del":
        del container[key]
    elif operation == "reverse":
        container[key].reverse()
    elif operation == "=":
        container[key] = value
    elif operation == "+=":
        container[key].append(value)
    else:
        old, new = (part.strip() for part in value.split(" ->"))
        assert old in container[key], f"{old} is not in {container[key]}"
        container[key] = container[key].replace(old, new, 1)


def value_of(text):
    for name, replacement in VALUES.items():
        text = text.replace(name, replacement)
    return yaml.safe_load(text)


def locate(thing, path):
    """The dictionary or list that holds the value at a path, and its key there."""
    is_nested = isinstance(thing, dict) and thing["kind"] == "CronJob"
    spec = ["spec", "jobTemplate", "spec"] if is_nested else ["spec"]
    expanded = {word: spec + rest for word, rest in SHORTHANDS.items()}
    words = [part for word in path.split() for part in expanded.get(word, [word])]
    for word in words[:-1]:
        thing = thing[key_in(thing, word)]
    return thing, key_in(thing, words[-1])


def key_in(thing, word):
    if not isinstance(thing, list):
        return word
    if re.fullmatch(r"-?\d+", word):
        return int(word)
    return next(index for index, item in enumerate(thing) if word in (item.get("name"), item.get("type")))
