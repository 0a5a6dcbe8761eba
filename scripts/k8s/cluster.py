"""A rendering of the manifests: its objects, what selectors select, and which network paths are open."""

import re
from dataclasses import dataclass, field


WORKLOADS = ["StatefulSet", "Job", "CronJob", "Deployment", "DaemonSet"]


@dataclass
class Pod:
    """The pod template of a StatefulSet or of a job."""

    owner: dict
    labels: dict
    spec: dict

    @property
    def name(self):
        return name_of(self.owner)

    @property
    def is_job(self):
        return self.owner["kind"] in ("Job", "CronJob")

    @property
    def is_service(self):
        return self.owner["metadata"].get("labels", {}).get("saga/runs") == "service"

    @property
    def containers(self):
        return self.spec.get("initContainers", []) + self.spec["containers"]

    @property
    def ports(self):
        """The number of each port, by name."""
        return {
            port.get("name", str(port["containerPort"])): port["containerPort"]
            for container in self.containers
            for port in container.get("ports", [])
        }

    @property
    def env(self):
        return [entry for container in self.containers for entry in container.get("env", [])]


@dataclass
class Cluster:
    """All objects of one rendering, and what is known about it otherwise."""

    name: str
    objects: list
    # Secrets that operators create, as the README lists them: names and keys.
    documented_secrets: dict = field(default_factory=dict)
    # Network paths beyond the topology: (from, to, port).
    extra_paths: frozenset = frozenset()
    # Minimum number of replicas of each service.
    min_replicas: int = 1
    # The objects of the PostgreSQL cluster that this rendering uses.
    database: list = field(default_factory=list)
    # Rules by which prometheus-adapter serves metrics to the autoscalers.
    adapter: list = field(default_factory=list)
    # The workloads of all renderings: name of the rendering, workload.
    neighbours: list = field(default_factory=list)

    def of(self, kind):
        return [thing for thing in self.objects if thing["kind"] == kind]

    def one(self, kind, name):
        return next((thing for thing in self.of(kind) if name_of(thing) == name), None)

    @property
    def namespace(self):
        return next(map(name_of, self.of("Namespace")), "default")

    @property
    def pods(self):
        owners = [owner for kind in WORKLOADS for owner in self.of(kind)]
        templates = [(owner, template_of(owner)) for owner in owners]
        return [Pod(owner, made["metadata"].get("labels", {}), made["spec"]) for owner, made in templates]

    def containers(self):
        """Each container, with its pod and a title for complaints."""
        for pod in self.pods:
            for container in pod.containers:
                yield pod, container, f"{title(pod.owner)}, container {container['name']}"

    def references(self):
        """Each use of a Secret or ConfigMap: user, kind, name, keys."""
        for pod in self.pods:
            who = title(pod.owner)
            for volume in pod.spec.get("volumes", []):
                for source in [volume, *volume.get("projected", {}).get("sources", [])]:
                    for key, kind in (("secret", "Secret"), ("configMap", "ConfigMap")):
                        if key in source:
                            name = source[key].get("secretName") or source[key].get("name")
                            yield who, kind, name, [item["key"] for item in source[key].get("items", [])]
            for entry in pod.env:
                for key, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
                    if key in entry.get("valueFrom", {}):
                        reference = entry["valueFrom"][key]
                        yield who, kind, reference["name"], [reference["key"]]
        for monitor in self.of("ServiceMonitor"):
            for endpoint in monitor["spec"]["endpoints"]:
                if "authorization" in endpoint:
                    key = endpoint["authorization"]["credentials"]
                    yield title(monitor), "Secret", key["name"], [key["key"]]

    def settings(self, pod):
        """The environment of the first replica."""
        field = {"metadata.name": f"{pod.name}-0", "metadata.namespace": self.namespace}
        found = {}
        for entry in pod.env:
            source = entry.get("valueFrom", {})
            if "fieldRef" in source:
                found[entry["name"]] = field[source["fieldRef"]["fieldPath"]]
            elif "configMapKeyRef" in source:
                named = self.one("ConfigMap", source["configMapKeyRef"]["name"])
                found[entry["name"]] = (named or {}).get("data", {}).get(source["configMapKeyRef"]["key"], "")
            elif "value" in entry:
                known = lambda used: found.get(used[1], used[0])
                found[entry["name"]] = re.sub(r"\$\((\w+)\)", known, entry["value"])
        return found

    def setting(self, pod, key):
        """The value of a setting of a service, or an empty string."""
        return self.settings(pod).get(f"{pod.name.upper()}__{key}", "")

    def autoscalers(self, pod):
        own = {"kind": pod.owner["kind"], "name": pod.name}
        scalers = self.of("HorizontalPodAutoscaler")
        return [scaler for scaler in scalers if own.items() <= scaler["spec"]["scaleTargetRef"].items()]

    def selected(self, selector):
        return [pod for pod in self.pods if selects(selector, pod.labels)]

    def paths_out(self):
        """All network paths out of a pod that the NetworkPolicies allow."""
        return self._paths("egress", "Egress", "to")

    def paths_in(self):
        """All network paths into a pod that the NetworkPolicies allow."""
        return {(other, pod, port) for pod, other, port in self._paths("ingress", "Ingress", "from")}

    def _paths(self, rules, direction, peers):
        found = set()
        for pod in self.pods:
            about = [policy["spec"] for policy in self.of("NetworkPolicy")]
            about = [spec for spec in about if selects(spec["podSelector"], pod.labels)]
            if not any(direction in spec["policyTypes"] for spec in about):
                found.add((pod.name, "anybody", "any"))
            for rule in (rule for spec in about for rule in spec.get(rules, [])):
                found |= {(pod.name, *end) for end in self._ends(rule, peers, pod if peers == "from" else None)}
        return found

    def _ends(self, rule, peers, own):
        """The peers that a rule allows, and the port of the called side."""
        asked = [port.get("port", "any") for port in rule.get("ports", [{}])]
        for peer in rule.get(peers) or [{}]:
            if set(peer) == {"podSelector"}:
                for other in self.selected(peer["podSelector"]):
                    called = own or other
                    for port in asked:
                        yield other.name, called.ports.get(port, port)
            else:
                for port in asked:
                    yield outside(peer), own.ports.get(port, port) if own else port


def template_of(owner):
    spec = owner["spec"]
    return (spec["jobTemplate"]["spec"] if owner["kind"] == "CronJob" else spec)["template"]


def outside(peer):
    """A name for a peer outside the namespace."""
    if "ipBlock" in peer:
        return peer["ipBlock"]["cidr"]
    labels = [
        "/".join((peer.get(kind) or {}).get("matchLabels", {}).values())
        for kind in ("namespaceSelector", "podSelector")
    ]
    return ":".join(label for label in labels if label) or "anybody"


def name_of(thing):
    return thing["metadata"]["name"]


def title(thing):
    return f"{thing['kind']} {name_of(thing)}"


def selects(selector, labels):
    """True if a label selector matches these labels. An empty selector matches all."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for rule in selector.get("matchExpressions") or []:
        has, value, values = rule["key"] in labels, labels.get(rule["key"]), rule.get("values", [])
        if not {
            "In": has and value in values,
            "NotIn": value not in values,
            "Exists": has,
            "DoesNotExist": not has,
        }[rule["operator"]]:
            return False
    return True
