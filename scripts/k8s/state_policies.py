"""Policies about state and replicas: databases, the broker, spreading, autoscalers."""

import re
from urllib.parse import parse_qs, urlsplit

from cluster import name_of, selects, title
from pod_policies import files_of
from policy import policy

BYTES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def bytes_of(quantity):
    """A quantity that nats-server and Kubernetes write in the same way, in bytes; otherwise None."""
    written = re.fullmatch(r"(\d+)(Ki|Mi|Gi|Ti)", str(quantity))
    return int(written[1]) * BYTES[written[2]] if written else None


@policy
def broker_limit_is_below_volume_size(cluster, repository):
    """Without a limit nats-server takes 75 % of the free space at each start, whatever its streams already use."""
    for pod in (pod for pod in cluster.pods if pod.name == "nats"):
        limit = next((entry.get("value") for entry in pod.env if entry["name"] == repository.broker_limit), None)
        if bytes_of(limit) is None:
            yield f"{title(pod.owner)}: {repository.broker_limit} is {limit} instead of a number with Mi or Gi"
            continue
        for claim in pod.owner["spec"].get("volumeClaimTemplates", []):
            size = claim["spec"].get("resources", {}).get("requests", {}).get("storage")
            # At least 10 % for metadata and the file system.
            if bytes_of(size) is None or bytes_of(limit) > bytes_of(size) * 0.9:
                yield f"{title(pod.owner)}: its streams may take {limit} of a volume of {size}"


def is_clustered(pod):
    return pod.name == "nats" and any(word.endswith("/cluster.conf") for word in pod.containers[0].get("command", []))


@policy
def one_database_per_process(cluster, repository):
    for pod in (pod for pod in cluster.pods if not pod.is_job):
        where, spec = title(pod.owner), pod.owner["spec"]
        uses_postgres = cluster.setting(pod, "STORE__URL").startswith("postgres:")
        may_have_replicas = uses_postgres or is_clustered(pod)
        if pod.owner["kind"] != "StatefulSet" or (not may_have_replicas and spec.get("replicas") != 1):
            yield f"{where}: SQLite and streams without copies need a StatefulSet with one replica"
        claims = {name_of(claim): claim["spec"] for claim in spec.get("volumeClaimTemplates", [])}
        if uses_postgres and claims:
            yield f"{where}: it uses PostgreSQL but has a volume"
        if not uses_postgres and not claims:
            yield f"{where}: it has no persistent volume"
        for name, claim in claims.items():
            if "storage" not in claim.get("resources", {}).get("requests", {}):
                yield f"{where}: the volume {name} has no size"
        if cluster.one("Service", spec.get("serviceName")) is None:
            yield f"{where}: there is no Service {spec.get('serviceName')}"


@policy
def updates_replace_pods_that_are_not_ready(cluster, repository):
    """OrderedReady waits for such a pod, so a wrong image or setting stays after its correction. Brokers of a cluster would
    never start: the first is not ready before the second."""
    for thing in cluster.of("StatefulSet"):
        if thing["spec"].get("podManagementPolicy") != "Parallel":
            yield f"{title(thing)}: without the policy Parallel, an update waits for a pod that is not ready"
        if thing["spec"].get("updateStrategy", {}).get("type", "RollingUpdate") != "RollingUpdate":
            yield f"{title(thing)}: an update replaces no pod"


@policy
def brokers_form_a_cluster(cluster, repository):
    for pod in (pod for pod in cluster.pods if pod.name == "nats"):
        where, spec = title(pod.owner), pod.owner["spec"]
        brokers = spec.get("replicas", 1)
        if is_clustered(pod):
            if brokers < 3 or brokers % 2 == 0:
                yield f"{where}: {brokers} brokers may lose their quorum with one failure"
            if spec.get("minReadySeconds", 0) < 20:
                yield f"{where}: a restarted broker needs minReadySeconds to catch up"
            if not {"nats.conf", "cluster.conf"} <= {file for volume in pod.spec["volumes"] for file in files_of(volume)}:
                yield f"{where}: nats.conf or cluster.conf is not mounted"
            if cluster.settings(pod).get("NATS_NAME") != "nats-0":
                yield f"{where}: NATS_NAME is not the name of the pod"
            service = cluster.one("Service", spec["serviceName"]) or {"spec": {}}
            if service["spec"].get("clusterIP") != "None" or not service["spec"].get("publishNotReadyAddresses"):
                yield f"{where}: {spec['serviceName']} does not resolve to each broker, ready or not"
        for service in (service for service in cluster.pods if service.is_service and cluster.setting(service, "BUS__URL")):
            if (copies := cluster.setting(service, "BUS__REPLICAS") or "1") != str(min(brokers, 3)):
                yield f"{title(service.owner)}: {brokers} brokers, but {copies} copies of its stream"


def postgres_users(cluster):
    """Each service that uses PostgreSQL, with the URL of its database."""
    for pod in (pod for pod in cluster.pods if pod.is_service):
        address = urlsplit(cluster.setting(pod, "STORE__URL"))
        if address.scheme == "postgres":
            yield pod, title(pod.owner), address


@policy
def each_service_has_its_own_postgres_database(cluster, repository):
    for pod, where, address in postgres_users(cluster):
        if (address.username, address.path) != (pod.name, f"/{pod.name}"):
            yield f"{where}: its database is {address.path[1:]}, with the user {address.username}"
        if not cluster.setting(pod, "STORE__PASSWORD_FILE"):
            yield f"{where}: there is no password file for its database"
        options = parse_qs(address.query)
        if options.get("sslmode") != ["verify-full"] or "sslrootcert" not in options:
            yield f"{where}: it does not verify the certificate of its database server"
        if cluster.setting(pod, "INSTANCE") != f"{pod.name}-0":
            yield f"{where}: the instance name is not that of the pod"


@policy
def postgres_is_reachable(cluster, repository):
    connections = 0
    for pod, where, address in postgres_users(cluster):
        host, _, namespace = (address.hostname or "").partition(".")
        server = in_namespace(cluster.database, "Cluster", namespace, host.removesuffix("-rw"))
        if not host.endswith("-rw") or server is None:
            yield f"{where}: {address.hostname} is not a server that accepts writes"
            continue
        database = in_namespace(cluster.database, "Database", namespace, pod.name) or {"spec": {}}
        if database["spec"] != {"name": pod.name, "owner": pod.name, "cluster": {"name": name_of(server)}}:
            yield f"{where}: {title(server)} has no database {pod.name} owned by the user {pod.name}"
        roles = [role for role in server["spec"]["managed"]["roles"] if role["name"] == pod.name]
        if not roles or not roles[0].get("login"):
            yield f"{where}: {title(server)} has no user {pod.name} with login"
        if (pod.name, f"{namespace}:{name_of(server)}", address.port) not in cluster.paths_out():
            yield f"{where}: no egress policy allows {address.hostname}:{address.port}"
        policies = [thing for thing in cluster.database if thing["kind"] == "NetworkPolicy"]
        if not any(allows(thing, cluster.namespace, pod, address.port) for thing in policies):
            yield f"{where}: no ingress policy allows it at {address.hostname}:{address.port}"
        limits = [scaler["spec"]["maxReplicas"] for scaler in cluster.autoscalers(pod)]
        connections += repository.connections * max(limits or [pod.owner["spec"].get("replicas", 1)])
        # Room for operators and for the server itself.
        available = int(server["spec"]["postgresql"]["parameters"]["max_connections"])
        if available < connections + 20:
            yield f"{where}: up to {connections} connections, but {title(server)} allows {available}"
    namespaces = {name_of(thing): thing for thing in cluster.database if thing["kind"] == "Namespace"}
    for thing in cluster.database:
        name = name_of(thing) if thing["kind"] == "Namespace" else thing["metadata"].get("namespace")
        labels = namespaces.get(name, {"metadata": {}})["metadata"].get("labels", {})
        if labels.get("pod-security.kubernetes.io/enforce") != "restricted":
            yield f"{title(thing)}: its namespace {name} does not enforce the pod security standard `restricted`"


def in_namespace(objects, kind, namespace, name):
    for thing in objects:
        if (thing["kind"], thing["metadata"].get("namespace"), name_of(thing)) == (kind, namespace, name):
            return thing


def allows(network_policy, namespace, pod, port):
    """True if an ingress policy of another namespace allows this pod."""
    own = {"kubernetes.io/metadata.name": namespace}
    rules = [rule for rule in network_policy["spec"].get("ingress", []) if {"port": port} in rule.get("ports", [])]
    peers = [peer for rule in rules for peer in rule.get("from", []) if "namespaceSelector" in peer]
    return any(selects(peer["namespaceSelector"], own) and selects(peer.get("podSelector", {}), pod.labels) for peer in peers)


ZONE, NODE = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


@policy
def replicas_are_spread(cluster, repository):
    for pod in (pod for pod in cluster.pods if not pod.is_job and cluster.min_replicas > 1):
        where, replicas = title(pod.owner), pod.owner["spec"].get("replicas")
        minimum = [scaler["spec"].get("minReplicas", 1) for scaler in cluster.autoscalers(pod)]
        if len(minimum) + (replicas is not None) != 1:
            yield f"{where}: the number of replicas must come from either `replicas` or one autoscaler"
        elif (minimum or [replicas])[0] < cluster.min_replicas:
            yield f"{where}: {(minimum or [replicas])[0]} replicas are less than {cluster.min_replicas}"
        spread = {rule["topologyKey"]: rule for rule in pod.spec.get("topologySpreadConstraints", [])}
        for key in (ZONE, NODE):
            rule = spread.get(key, {})
            group = set(rule.get("labelSelector", {}).get("matchLabels", {})) | set(rule.get("matchLabelKeys", []))
            if rule.get("maxSkew") != 1 or not selects(rule["labelSelector"], pod.labels):
                yield f"{where}: not spread by {key}"
            elif "app.kubernetes.io/name" not in group:
                yield f"{where}: spread by {key} together with other services"
        if spread.get(NODE, {}).get("whenUnsatisfiable") != "DoNotSchedule":
            yield f"{where}: all replicas may run on one node"
        if pod.name == "nats" and spread.get(NODE, {}).get("minDomains") != replicas:
            yield f"{where}: most brokers may run on one node"


@policy
def autoscalers_need_a_shared_store(cluster, repository):
    for pod in (pod for pod in cluster.pods if cluster.autoscalers(pod)):
        uses_postgres = cluster.setting(pod, "STORE__URL").startswith("postgres:")
        if not uses_postgres or pod.owner["spec"].get("volumeClaimTemplates"):
            yield f"{title(pod.owner)}: its replicas have a database each, but an autoscaler adds replicas"


@policy
def autoscalers_use_existing_metrics(cluster, repository):
    served = {metric_name(rule): rule for rule in cluster.adapter}
    for name, rule in served.items():
        query = rule["metricsQuery"].replace("<<.Series>>", name)
        # A word before a brace is the name of a metric.
        used = set(re.findall(r"(\w+)\{", f"{rule['seriesQuery']} {query}"))
        if not used or not used <= repository.metrics:
            yield f"prometheus-adapter, {name}: no service has the metric {', '.join(sorted(used - repository.metrics))}"
        if not query.startswith("max by (service)"):
            yield f"prometheus-adapter, {name}: replicas share one outbox, so the query must take the maximum"
    publishes = {participant.name: participant.has_stream for participant in repository.participants}
    for scaler in cluster.of("HorizontalPodAutoscaler"):
        where, spec, name = title(scaler), scaler["spec"], name_of(scaler)
        scaled = [pod.name for pod in cluster.pods if scaler in cluster.autoscalers(pod)]
        if scaled != [name]:
            yield f"{where}: it scales {', '.join(scaled) or 'nothing'}"
            continue
        if spec["maxReplicas"] <= spec.get("minReplicas", 1):
            yield f"{where}: maxReplicas is not above minReplicas"
        metrics = {metric["type"]: metric[metric["type"].lower()] for metric in spec["metrics"]}
        if metrics.get("Resource", {}).get("name") != "cpu":
            yield f"{where}: it does not use the CPU load"
        outbox = metrics.get("External")
        if (outbox is not None) != publishes[name]:
            yield f"{where}: it must use the outbox if and only if the service has one"
        if outbox is None:
            continue
        if outbox["metric"]["name"] not in served:
            yield f"{where}: prometheus-adapter does not serve {outbox['metric']['name']}"
        if outbox["metric"].get("selector") != {"matchLabels": {"service": name}}:
            yield f"{where}: it uses the outbox of another service"
        if outbox["target"]["type"] != "Value":
            yield f"{where}: the shared value is divided by the number of replicas"


def metric_name(rule):
    return rule.get("name", {}).get("as") or rule["seriesQuery"].partition("{")[0]
