"""What must be so of every rendering, whatever a cluster would let through. Each policy answers what is wrong.

A policy that is added here needs faults in planted.py: one that was never seen to fail proves nothing.
"""

import re
from urllib.parse import parse_qs, urlsplit

from cluster import name_of, selects, title

POLICIES = {}


def policy(rule):
    POLICIES[rule.__name__] = rule
    return rule


def complaints(cluster, facts):
    for name, rule in POLICIES.items():
        for complaint in rule(cluster, facts):
            yield f"{cluster.name}: {name}: {complaint}"


def containers(cluster):
    for pod in cluster.pods:
        for container in pod.containers:
            yield pod, container, f"{title(pod.owner)}, container {container['name']}"


@policy
def nobody_is_root(cluster, facts):
    for pod, container, where in containers(cluster):
        of_all, own = pod.spec.get("securityContext", {}), container.get("securityContext", {})
        together = {**of_all, **own}
        if together.get("runAsNonRoot") is not True:
            yield f"{where}: runAsNonRoot is not true"
        for key in ("runAsUser", "runAsGroup"):
            if together.get(key, 0) == 0:
                yield f"{where}: {key} is root's, or not set"
        if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
            yield f"{where}: it may get more rights than it starts with"
        if own.get("capabilities") != {"drop": ["ALL"]}:
            yield f"{where}: it keeps capabilities"
        if together.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield f"{where}: seccompProfile is not RuntimeDefault"


@policy
def the_namespace_refuses_who_asks_for_more(cluster, facts):
    spaces = cluster.of("Namespace")
    for thing in cluster.objects:
        if thing["kind"] != "Namespace" and thing["metadata"].get("namespace") not in map(name_of, spaces):
            yield f"{title(thing)} is in another namespace"
    for space in spaces:
        if space["metadata"].get("labels", {}).get("pod-security.kubernetes.io/enforce") != "restricted":
            yield f"{title(space)} does not enforce the standard `restricted`"
    for pod in cluster.pods:
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            if pod.spec.get(key):
                yield f"{title(pod.owner)}: {key}"
        for volume in pod.spec.get("volumes", []):
            kinds = set(volume) - {"name"}
            if not kinds <= {"projected", "secret", "configMap", "emptyDir", "downwardAPI", "persistentVolumeClaim"}:
                yield f"{title(pod.owner)}: the volume {volume['name']} is of the kind {', '.join(kinds)}"


@policy
def the_root_file_system_is_read_only(cluster, facts):
    for _, container, where in containers(cluster):
        if container.get("securityContext", {}).get("readOnlyRootFilesystem") is not True:
            yield f"{where}: readOnlyRootFilesystem is not true"


@policy
def nobody_gets_a_token_of_kubernetes(cluster, facts):
    for pod in cluster.pods:
        if pod.spec.get("automountServiceAccountToken") is not False:
            yield f"{title(pod.owner)}: automountServiceAccountToken is not false"
        if pod.spec.get("enableServiceLinks") is not False:
            yield f"{title(pod.owner)}: enableServiceLinks is not false"


@policy
def requests_and_limits_are_set(cluster, facts):
    for _, container, where in containers(cluster):
        for kind in ("requests", "limits"):
            for resource in ("cpu", "memory"):
                if resource not in container.get("resources", {}).get(kind, {}):
                    yield f"{where}: no {kind} of {resource}"


@policy
def images_are_pinned(cluster, facts):
    for _, container, where in containers(cluster):
        image = container["image"]
        tag = image.rsplit("/", 1)[-1].partition(":")[2]
        if not re.search(r"@sha256:[0-9a-f]{64}$", image) and not re.match(r"v?\d+\.\d+\.\d+", tag):
            yield f"{where}: the image {image} is of no one version"


# What nats-server is asked of itself, and not of each of its streams.
OF_THE_BROKER_ALONE = ("/healthz?js-server-only=true", "/healthz?js-enabled-only=true")


@policy
def probes_mean_what_the_services_mean(cluster, facts):
    for pod, container, where in containers(cluster):
        if pod.is_job:
            continue
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = container.get(kind, {})
            asked = probe.get("httpGet", {})
            if asked.get("port") not in pod.ports:
                yield f"{where}: {kind} asks no port that it has by name"
            wanted = "/readyz" if kind == "readinessProbe" else "/livez"
            if pod.is_service and asked.get("path") != wanted:
                yield f"{where}: {kind} asks {asked.get('path')}, not {wanted}"
            if pod.name == "nats" and asked.get("path") not in OF_THE_BROKER_ALONE:
                yield f"{where}: {kind} asks {asked.get('path')}, which one damaged stream fails"
        patience = {
            kind: container.get(kind, {}).get("periodSeconds", 10) * container.get(kind, {}).get("failureThreshold", 3)
            for kind in ("startupProbe", "livenessProbe")
        }
        if patience["startupProbe"] < 60:
            yield f"{where}: after {patience['startupProbe']} s it must have started"
        if patience["livenessProbe"] < 30:
            yield f"{where}: it is killed once it has not answered for {patience['livenessProbe']} s"


BYTES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def bytes_of(quantity):
    """A quantity as nats-server and Kubernetes write it alike; `None` for any other."""
    written = re.fullmatch(r"(\d+)(Ki|Mi|Gi|Ti)", str(quantity))
    return int(written[1]) * BYTES[written[2]] if written else None


@policy
def the_broker_takes_less_than_its_volume(cluster, facts):
    """Without a bound of its own it takes three quarters of what is free when it starts, also at its second start."""
    for pod in (pod for pod in cluster.pods if pod.name == "nats"):
        given = next((entry.get("value") for entry in pod.env if entry["name"] == facts.broker_bound), None)
        bound = bytes_of(given)
        if bound is None:
            yield f"{title(pod.owner)}: {facts.broker_bound} is {given}, and has to be a number with Mi or Gi"
            continue
        for claim in pod.owner["spec"].get("volumeClaimTemplates", []):
            size = claim["spec"].get("resources", {}).get("requests", {}).get("storage")
            # What it keeps beside the messages, and what a file system takes for itself: a tenth at least.
            if bytes_of(size) is None or bound > bytes_of(size) * 0.9:
                yield f"{title(pod.owner)}: its streams may take {given} of a volume of {size}"


@policy
def a_stop_has_its_time(cluster, facts):
    for pod in cluster.pods:
        given = pod.spec.get("terminationGracePeriodSeconds", 30)
        if not pod.is_job and given <= facts.stop_within_s:
            yield f"{title(pod.owner)}: it is killed after {given} s, and may need {facts.stop_within_s} s to stop"


@policy
def one_process_has_one_database(cluster, facts):
    for pod in cluster.pods:
        if pod.is_job:
            continue
        is_kept_elsewhere = cluster.setting(pod, "STORE__URL").startswith("postgres:")
        is_one_of_several = is_kept_elsewhere or is_in_a_cluster(pod)
        if pod.owner["kind"] != "StatefulSet" or (not is_one_of_several and pod.owner["spec"].get("replicas") != 1):
            yield f"{title(pod.owner)}: SQLite and R1 are for a StatefulSet with one replica"
        claims = {name_of(claim): claim["spec"] for claim in pod.owner["spec"].get("volumeClaimTemplates", [])}
        if is_kept_elsewhere and claims:
            yield f"{title(pod.owner)}: its database is elsewhere, and it has a volume"
        if not is_kept_elsewhere and not claims:
            yield f"{title(pod.owner)}: it has no volume of its own"
        for name, claim in claims.items():
            if "storage" not in claim.get("resources", {}).get("requests", {}):
                yield f"{title(pod.owner)}: the volume {name} is of no size"
        if cluster.one("Service", pod.owner["spec"].get("serviceName")) is None:
            yield f"{title(pod.owner)}: there is no Service {pod.owner['spec'].get('serviceName')}, which it names"


def is_in_a_cluster(pod):
    return pod.name == "nats" and any(word.endswith("/cluster.conf") for word in pod.containers[0].get("command", []))


@policy
def brokers_are_one_cluster(cluster, facts):
    for pod in (pod for pod in cluster.pods if pod.name == "nats"):
        where, spec = title(pod.owner), pod.owner["spec"]
        brokers = spec.get("replicas", 1)
        if is_in_a_cluster(pod):
            if brokers < 3 or brokers % 2 == 0:
                yield f"{where}: of {brokers} brokers the loss of one may be that of most"
            if spec.get("podManagementPolicy") != "Parallel":
                yield f"{where}: the first waits for the second, which is not started before that"
            if spec.get("minReadySeconds", 0) < 20:
                yield f"{where}: one that was replaced has no time to catch up"
            if not {"nats.conf", "cluster.conf"} <= {file for volume in pod.spec["volumes"] for file in files_of(volume)}:
                yield f"{where}: its configuration is of two files, and one is not mounted"
            if cluster.settings(pod).get("NATS_NAME") != "nats-0":
                yield f"{where}: NATS_NAME is not the name of the pod"
            found = cluster.one("Service", spec["serviceName"]) or {"spec": {}}
            if found["spec"].get("clusterIP") != "None" or not found["spec"].get("publishNotReadyAddresses"):
                yield f"{where}: {spec['serviceName']} does not lead to each broker, ready or not"
        for service in (service for service in cluster.pods if service.is_service and cluster.setting(service, "BUS__URL")):
            if (copies := cluster.setting(service, "BUS__REPLICAS") or "1") != str(min(brokers, 3)):
                yield f"{title(service.owner)}: {brokers} brokers, and {copies} copies of its stream"


def databases(cluster):
    """Every service whose data a server of PostgreSQL keeps, and the address of its database."""
    for pod in (pod for pod in cluster.pods if pod.is_service):
        address = urlsplit(cluster.setting(pod, "STORE__URL"))
        if address.scheme == "postgres":
            yield pod, title(pod.owner), address


@policy
def each_service_has_a_database_of_its_own(cluster, facts):
    for pod, where, address in databases(cluster):
        if (address.username, address.path) != (pod.name, f"/{pod.name}"):
            yield f"{where}: its database is {address.path[1:]}, as the user {address.username}"
        if not cluster.setting(pod, "STORE__PASSWORD_FILE"):
            yield f"{where}: no file has the password of its database"
        options = parse_qs(address.query)
        if options.get("sslmode") != ["verify-full"] or "sslrootcert" not in options:
            yield f"{where}: whether it is its server that it gives its password to it does not know"
        if cluster.setting(pod, "INSTANCE") != f"{pod.name}-0":
            yield f"{where}: its replicas are not told apart by the names of their pods"


@policy
def the_database_is_there_and_lets_in_its_services(cluster, facts):
    taken = 0
    for pod, where, address in databases(cluster):
        host, _, namespace = (address.hostname or "").partition(".")
        servers = in_namespace(cluster.database, "Cluster", namespace, host.removesuffix("-rw"))
        if not host.endswith("-rw") or servers is None:
            yield f"{where}: nobody takes what is written at {address.hostname}"
            continue
        own = in_namespace(cluster.database, "Database", namespace, pod.name) or {"spec": {}}
        if own["spec"] != {"name": pod.name, "owner": pod.name, "cluster": {"name": name_of(servers)}}:
            yield f"{where}: {title(servers)} has no database {pod.name} that is its user's"
        roles = [role for role in servers["spec"]["managed"]["roles"] if role["name"] == pod.name]
        if not roles or not roles[0].get("login"):
            yield f"{where}: {title(servers)} has no user {pod.name} who may log in"
        if (pod.name, f"{namespace}:{name_of(servers)}", address.port) not in cluster.paths_out():
            yield f"{where}: no policy lets it go to {address.hostname}:{address.port}"
        if not any(lets_in(policy, pod, address.port) for policy in cluster.database if policy["kind"] == "NetworkPolicy"):
            yield f"{where}: no policy lets it in at {address.hostname}:{address.port}"
        taken += facts.connections * max(
            [scaler["spec"]["maxReplicas"] for scaler in cluster.autoscalers(pod)] or [pod.owner["spec"].get("replicas", 1)]
        )
        # A few are for people, and for the server itself.
        given = int(servers["spec"]["postgresql"]["parameters"]["max_connections"])
        if given < taken + 20:
            yield f"{where}: with it {taken} connections may be taken, and {title(servers)} gives {given}"
    for thing in cluster.database:
        space = name_of(thing) if thing["kind"] == "Namespace" else thing["metadata"].get("namespace")
        found = next((thing for thing in cluster.database if thing["kind"] == "Namespace" and name_of(thing) == space), None)
        if found is None or found["metadata"]["labels"].get("pod-security.kubernetes.io/enforce") != "restricted":
            yield f"{title(thing)}: its namespace {space} does not enforce the standard `restricted`"


def in_namespace(objects, kind, namespace, name):
    for thing in objects:
        if (thing["kind"], thing["metadata"].get("namespace"), name_of(thing)) == (kind, namespace, name):
            return thing


def lets_in(policy, pod, port):
    """Whether a policy of another namespace lets in this pod of ours."""
    own = {"kubernetes.io/metadata.name": "saga"}
    rules = [rule for rule in policy["spec"].get("ingress", []) if {"port": port} in rule.get("ports", [])]
    peers = [peer for rule in rules for peer in rule.get("from", []) if "namespaceSelector" in peer]
    return any(selects(peer["namespaceSelector"], own) and selects(peer.get("podSelector", {}), pod.labels) for peer in peers)


ZONE, NODE = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


@policy
def there_are_enough_of_each_and_apart(cluster, facts):
    for pod in (pod for pod in cluster.pods if not pod.is_job and cluster.copies > 1):
        where, given = title(pod.owner), pod.owner["spec"].get("replicas")
        least = [scaler["spec"].get("minReplicas", 1) for scaler in cluster.autoscalers(pod)]
        if len(least) + (given is not None) != 1:
            yield f"{where}: how many there are is to be said by its replicas or by one autoscaler, not by both"
        elif (least or [given])[0] < cluster.copies:
            yield f"{where}: there may be {(least or [given])[0]} of it, and {cluster.copies} is the least"
        spread = {rule["topologyKey"]: rule for rule in pod.spec.get("topologySpreadConstraints", [])}
        for key in (ZONE, NODE):
            rule = spread.get(key, {})
            together = set(rule.get("labelSelector", {}).get("matchLabels", {})) | set(rule.get("matchLabelKeys", []))
            if rule.get("maxSkew") != 1 or not selects(rule["labelSelector"], pod.labels):
                yield f"{where}: nothing spreads it by {key}"
            elif "app.kubernetes.io/name" not in together:
                yield f"{where}: it is counted together with others when it is spread by {key}"
        if spread.get(NODE, {}).get("whenUnsatisfiable") != "DoNotSchedule":
            yield f"{where}: all of them may be on one node"
        if pod.name == "nats" and spread.get(NODE, {}).get("minDomains") != given:
            yield f"{where}: most of the brokers may be on one node"


@policy
def autoscalers_go_by_what_there_is(cluster, facts):
    served = {served_as(rule): rule for rule in cluster.adapter}
    for name, rule in served.items():
        query = rule["metricsQuery"].replace("<<.Series>>", name)
        # The first word before a brace is a metric's name.
        asked = set(re.findall(r"(\w+)\{", f"{rule['seriesQuery']} {query}"))
        if not asked or not asked <= facts.metrics:
            yield f"prometheus-adapter, {name}: nobody has the metric {', '.join(sorted(asked - facts.metrics))}"
        if not query.startswith("max by (service)"):
            yield f"prometheus-adapter, {name}: of what all replicas say of their one outbox it takes not the largest"
    publishes = {who.name: who.has_stream for who in facts.participants}
    for scaler in cluster.of("HorizontalPodAutoscaler"):
        where, spec = title(scaler), scaler["spec"]
        scaled = [pod for pod in cluster.pods if scaler in cluster.autoscalers(pod)]
        if len(scaled) != 1 or scaled[0].name != name_of(scaler):
            yield f"{where}: it scales {', '.join(pod.name for pod in scaled) or 'nobody'}"
            continue
        if spec["maxReplicas"] <= spec.get("minReplicas", 1):
            yield f"{where}: it has nothing to decide"
        metrics = {metric["type"]: metric[metric["type"].lower()] for metric in spec["metrics"]}
        if metrics.get("Resource", {}).get("name") != "cpu":
            yield f"{where}: it does not go by the processor"
        by_outbox = metrics.get("External")
        if (by_outbox is not None) != publishes[name_of(scaler)]:
            yield f"{where}: whether it goes by the outbox is not whether there is one"
        if by_outbox is None:
            continue
        if by_outbox["metric"]["name"] not in served:
            yield f"{where}: prometheus-adapter serves no {by_outbox['metric']['name']}"
        if by_outbox["metric"].get("selector") != {"matchLabels": {"service": name_of(scaler)}}:
            yield f"{where}: it goes by the outbox of others"
        if by_outbox["target"]["type"] != "Value":
            yield f"{where}: what all replicas say alike is divided by their number"


def served_as(rule):
    return rule.get("name", {}).get("as") or rule["seriesQuery"].partition("{")[0]


# The seed of an nkey, one of our tokens (no name of a metric has a capital letter), the secret of a webhook, a private
# key.
SECRETS_LOOK_LIKE = re.compile(
    r"\bS[UAON][A-Z2-7]{56}\b|\bsaga_(?=\w*[A-Z])[\w-]{43}|\bwhsec_|-----BEGIN [A-Z ]*PRIVATE KEY"
)
SECRETS_ARE_CALLED = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|SEED|_KEY")


@policy
def no_secret_stands_in_clear(cluster, facts):
    for thing in cluster.objects:
        if thing["kind"] == "Secret":
            if cluster.documented:
                yield f"{title(thing)}: secrets are made elsewhere"
        elif SECRETS_LOOK_LIKE.search(str(thing)):
            yield f"{title(thing)}: it holds what looks like a secret"
    for pod in cluster.pods:
        for entry in pod.env:
            value = entry.get("value", "")
            if SECRETS_ARE_CALLED.search(entry["name"]) and not value.startswith("/etc/"):
                yield f"{title(pod.owner)}: {entry['name']} names no file"
            # A user of a database is no secret, and stands nowhere else; with a password it would be.
            if re.search(r"://[^/]*:[^/]*@", value) or re.match(r"(?!postgres:)\w+://[^/]*@", value):
                yield f"{title(pod.owner)}: {entry['name']} is an address with somebody's name or password"
            if "secretKeyRef" in entry.get("valueFrom", {}):
                yield f"{title(pod.owner)}: {entry['name']} is a secret in the environment, where whoever looks sees it"


def references(cluster):
    """Every Secret and ConfigMap that somebody names: who, which kind, name, keys."""
    for pod in cluster.pods:
        who = title(pod.owner)
        for volume in pod.spec.get("volumes", []):
            for source in [volume, *volume.get("projected", {}).get("sources", [])]:
                for kind, word in (("secret", "Secret"), ("configMap", "ConfigMap")):
                    if kind in source:
                        named = source[kind].get("secretName") or source[kind].get("name")
                        yield who, word, named, [item["key"] for item in source[kind].get("items", [])]
        for entry in pod.env:
            for kind, word in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
                if kind in entry.get("valueFrom", {}):
                    reference = entry["valueFrom"][kind]
                    yield who, word, reference["name"], [reference["key"]]
    for monitor in cluster.of("ServiceMonitor"):
        for endpoint in monitor["spec"]["endpoints"]:
            if "authorization" in endpoint:
                key = endpoint["authorization"]["credentials"]
                yield title(monitor), "Secret", key["name"], [key["key"]]


@policy
def every_reference_leads_somewhere(cluster, facts):
    for who, kind, name, keys in references(cluster):
        thing = cluster.one(kind, name)
        if thing is not None:
            there = set(thing.get("data", {})) | set(thing.get("binaryData", {}))
        elif kind == "Secret" and name in cluster.documented:
            there = cluster.documented[name]
        else:
            yield f"{who}: there is no {kind} {name}"
            continue
        for key in keys:
            if key not in there:
                yield f"{who}: {kind} {name} has no {key}"
        if not keys:
            yield f"{who}: it takes all of {kind} {name}: name the keys"


@policy
def every_file_that_a_setting_names_is_mounted(cluster, facts):
    for pod, container, where in containers(cluster):
        volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", [])}
        mounts = {mount["mountPath"]: mount for mount in container.get("volumeMounts", [])}
        for mount in mounts.values():
            claims = [name_of(claim) for claim in pod.owner["spec"].get("volumeClaimTemplates", [])]
            if mount["name"] not in [*volumes, *claims]:
                yield f"{where}: there is no volume {mount['name']}"
        named = [(entry["name"], entry.get("value", "")) for entry in container.get("env", [])]
        named += [("its command", word) for word in container.get("command", []) + container.get("args", [])]
        named += [(setting, path) for setting, value in named for path in re.findall(r"[?&]sslrootcert=([^&]*)", value)]
        for setting, value in named:
            path = value.removeprefix("sqlite:")
            if not path.startswith("/"):
                continue
            folder, _, file = path.rpartition("/")
            mount = mounts.get(folder)
            if mount is None:
                yield f"{where}: {setting} is {value}, and nothing is mounted there"
            elif value.startswith("sqlite:") and (mount.get("readOnly") or mount["name"] in volumes):
                yield f"{where}: {setting} is {value}, which is no volume that lasts"
            elif not value.startswith("sqlite:") and file not in files_of(volumes.get(mount["name"], {})):
                yield f"{where}: {setting} is {value}, and no file of that name is mounted"


def files_of(volume):
    for source in [volume, *volume.get("projected", {}).get("sources", [])]:
        for kind in ("secret", "configMap"):
            yield from (item["path"] for item in source.get(kind, {}).get("items", []))


@policy
def credentials_are_for_the_group_alone(cluster, facts):
    for pod in cluster.pods:
        for volume in pod.spec.get("volumes", []):
            for kind in ("secret", "projected"):
                if kind in volume:
                    if volume[kind].get("defaultMode", 0o644) != 0o440:
                        yield f"{title(pod.owner)}: the files of {volume['name']} are not of mode 440"
                    if "fsGroup" not in pod.spec.get("securityContext", {}):
                        yield f"{title(pod.owner)}: without fsGroup it cannot read {volume['name']}"


@policy
def every_port_has_a_name_and_a_service(cluster, facts):
    services = cluster.of("Service")
    for pod, container, where in containers(cluster):
        own = [service for service in services if service["spec"]["selector"].items() <= pod.labels.items()]
        reached = {port["targetPort"] for service in own for port in service["spec"]["ports"]}
        for port in container.get("ports", []):
            if "name" not in port:
                yield f"{where}: the port {port['containerPort']} has no name"
            elif port["name"] not in reached:
                yield f"{where}: no Service leads to the port {port['name']}"
    for service in services:
        pods = cluster.selected({"matchLabels": service["spec"]["selector"]})
        if len(pods) != 1:
            yield f"{title(service)}: it selects {len(pods)} kinds of pods, not one"
        for port in service["spec"]["ports"]:
            for pod in pods:
                if pod.ports.get(port["targetPort"]) != port["port"]:
                    yield f"{title(service)}: its port {port['port']} is not that of {pod.name}"
    for who in facts.participants:
        if (service := cluster.one("Service", who.name)) is None:
            yield f"there is no Service {who.name}"
        elif who.port not in [port["port"] for port in service["spec"]["ports"]]:
            yield f"{title(service)}: {who.name} listens at {who.port}"


@policy
def every_address_leads_to_a_service_that_may_be_reached(cluster, facts):
    ways = cluster.paths_out() & cluster.paths_in()
    for pod in cluster.pods:
        defined = set()
        for entry in pod.env:
            value = entry.get("value", "")
            for used in re.findall(r"\$\((\w+)\)", value):
                if used not in defined:
                    yield f"{title(pod.owner)}: {entry['name']} uses {used}, which is not there yet"
            defined.add(entry["name"])
            address = urlsplit(value)
            if address.scheme not in ("http", "nats"):
                continue
            service = cluster.one("Service", address.hostname)
            if service is None or address.port not in [port["port"] for port in service["spec"]["ports"]]:
                yield f"{title(pod.owner)}: {entry['name']} is {value}, and no Service is there"
                continue
            for other in cluster.selected({"matchLabels": service["spec"]["selector"]}):
                if (pod.name, other.name, address.port) not in ways:
                    yield f"{title(pod.owner)}: {entry['name']} is {value}, where no policy lets it go"


@policy
def services_know_their_names(cluster, facts):
    for pod in (pod for pod in cluster.pods if pod.is_service):
        setting = f"{pod.name.upper()}__HTTP__ALLOWED_HOSTS"
        known = next((entry["value"].split(",") for entry in pod.env if entry["name"] == setting), [])
        for service in cluster.of("Service"):
            if service["spec"]["selector"].items() <= pod.labels.items() and name_of(service) not in known:
                yield f"{title(pod.owner)}: {setting} has no {name_of(service)}: whoever asks by that is refused"


@policy
def every_pod_is_under_a_policy_both_ways(cluster, facts):
    for pod in cluster.pods:
        named = [
            policy["spec"]
            for policy in cluster.of("NetworkPolicy")
            if policy["spec"]["podSelector"] and pod in cluster.selected(policy["spec"]["podSelector"])
        ]
        for direction in ("Ingress", "Egress"):
            if not any(direction in spec["policyTypes"] for spec in named):
                yield f"{title(pod.owner)}: no NetworkPolicy of its own says who may speak to it ({direction})"
    for space in cluster.of("NetworkPolicy"):
        spec = space["spec"]
        if spec["podSelector"] and not cluster.selected(spec["podSelector"]):
            yield f"{title(space)} selects nobody"
        peers = [peer for way in ("ingress", "egress") for rule in spec.get(way, []) for peer in peers_of(rule)]
        for peer in peers:
            if set(peer) == {"podSelector"} and not cluster.selected(peer["podSelector"]):
                yield f"{title(space)} names a peer that there is not: {peer['podSelector']}"
    refusal = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    if not any(space["spec"] == refusal for space in cluster.of("NetworkPolicy")):
        yield "no NetworkPolicy refuses what no other allows"


def peers_of(rule):
    return rule.get("from", []) + rule.get("to", [])


@policy
def there_are_these_paths_and_no_others(cluster, facts):
    ours = {pod.name for pod in cluster.pods}
    dns = {(name, "kube-system:kube-dns", 53) for name in ours}
    wanted = facts.paths | cluster.beside | dns
    for end, found, due in (
        ("egress", cluster.paths_out(), {path for path in wanted if path[0] in ours}),
        ("ingress", cluster.paths_in(), {path for path in wanted if path[1] in ours}),
    ):
        for caller, called, port in sorted(found - due, key=str):
            yield f"{caller} may speak to {called}:{port} ({end}), and has no business there"
        for caller, called, port in sorted(due - found, key=str):
            yield f"{caller} may not speak to {called}:{port} ({end}), and has to"


@policy
def one_pod_of_each_may_be_taken_away_at_a_time(cluster, facts):
    for pod in cluster.pods:
        budgets = [
            budget["spec"]
            for budget in cluster.of("PodDisruptionBudget")
            if pod in cluster.selected(budget["spec"]["selector"])
        ]
        if not pod.is_job and len(budgets) != 1:
            yield f"{title(pod.owner)}: {len(budgets)} PodDisruptionBudgets are about it, not one"
        for budget in budgets:
            if budget.get("maxUnavailable") != 1 or budget.get("unhealthyPodEvictionPolicy") != "AlwaysAllow":
                yield f"{title(pod.owner)}: its PodDisruptionBudget is not: one at a time, who is not ready any time"
    for budget in cluster.of("PodDisruptionBudget"):
        if not cluster.selected(budget["spec"]["selector"]):
            yield f"{title(budget)} selects nobody"


@policy
def every_service_is_scraped_once_and_by_its_name(cluster, facts):
    for monitor in cluster.of("ServiceMonitor"):
        scraped = [
            pod.name
            for service in cluster.of("Service")
            if monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"].get("labels", {}).items()
            for pod in cluster.selected({"matchLabels": service["spec"]["selector"]})
        ]
        if sorted(scraped) != sorted(who.name for who in facts.participants):
            yield f"{title(monitor)}: it scrapes {', '.join(sorted(scraped))}"
        for endpoint in monitor["spec"]["endpoints"]:
            labels = {rule.get("targetLabel"): rule for rule in endpoint.get("relabelings", [])}
            if labels.get("job", {}).get("replacement") != "saga":
                yield f"{title(monitor)}: its series are not of the job `saga`, as the rules want them"
            source = labels.get("service", {}).get("sourceLabels")
            if source != ["__meta_kubernetes_service_label_app_kubernetes_io_name"]:
                yield f"{title(monitor)}: its series have not their service in the label `service`"


@policy
def what_is_told_is_what_grafana_says(cluster, facts):
    for rule in cluster.of("PrometheusRule"):
        if rule["spec"]["groups"] != facts.rule_groups:
            yield f"{title(rule)}: its groups are not those of grafana/prometheus/rules"
        shown = {
            text
            for thing in cluster.of("ConfigMap")
            if "grafana_dashboard" in thing["metadata"].get("labels", {})
            for text in thing["data"].values()
        }
        if shown != facts.dashboards:
            yield "the dashboards in ConfigMaps are not those of grafana/dashboards"


# kubectl writes the whole object into an annotation, of which all together may have this many bytes.
ANNOTATIONS_BYTES = 262_144


@policy
def every_object_can_be_applied(cluster, facts):
    seen = set()
    for thing in cluster.objects:
        if (key := (thing["kind"], name_of(thing))) in seen:
            yield f"{title(thing)} is there twice"
        seen.add(key)
        if (size := len(str(thing).encode())) >= ANNOTATIONS_BYTES:
            yield f"{title(thing)} has {size} bytes, which `kubectl apply` cannot take"
