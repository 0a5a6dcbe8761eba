"""Policies about Services, network paths, disruption, and what Prometheus and Grafana read."""

import re
from urllib.parse import urlsplit

from cluster import name_of, title
from policy import policy


@policy
def ports_have_names_and_services(cluster, repository):
    services = cluster.of("Service")
    for pod, container, where in cluster.containers():
        own = [service for service in services if service["spec"]["selector"].items() <= pod.labels.items()]
        targets = {port["targetPort"] for service in own for port in service["spec"]["ports"]}
        for port in container.get("ports", []):
            if "name" not in port:
                yield f"{where}: port {port['containerPort']} has no name"
            elif port["name"] not in targets:
                yield f"{where}: no Service uses the port {port['name']}"
    for service in services:
        pods = cluster.selected({"matchLabels": service["spec"]["selector"]})
        if len(pods) != 1:
            yield f"{title(service)}: it selects {len(pods)} workloads instead of one"
        for port in service["spec"]["ports"]:
            for pod in pods:
                if pod.ports.get(port["targetPort"]) != port["port"]:
                    yield f"{title(service)}: port {port['port']} is not the port of {pod.name}"
    for participant in repository.participants:
        if (service := cluster.one("Service", participant.name)) is None:
            yield f"there is no Service {participant.name}"
        elif participant.port not in [port["port"] for port in service["spec"]["ports"]]:
            yield f"{title(service)}: {participant.name} listens on {participant.port}"


@policy
def addresses_are_reachable(cluster, repository):
    paths = cluster.paths_out() & cluster.paths_in()
    for pod in cluster.pods:
        defined = set()
        for entry in pod.env:
            value, where = entry.get("value", ""), f"{title(pod.owner)}: {entry['name']}"
            for used in re.findall(r"\$\((\w+)\)", value):
                if used not in defined:
                    yield f"{where} uses {used}, which is not defined before it"
            defined.add(entry["name"])
            address = urlsplit(value)
            if address.scheme not in ("http", "nats"):
                continue
            service = cluster.one("Service", address.hostname)
            if service is None or address.port not in [port["port"] for port in service["spec"]["ports"]]:
                yield f"{where} is {value}, but there is no such Service"
                continue
            for other in cluster.selected({"matchLabels": service["spec"]["selector"]}):
                if (pod.name, other.name, address.port) not in paths:
                    yield f"{where} is {value}, but no NetworkPolicy allows it"


@policy
def allowed_hosts_are_complete(cluster, repository):
    for pod in (pod for pod in cluster.pods if pod.is_service):
        setting = f"{pod.name.upper()}__HTTP__ALLOWED_HOSTS"
        allowed = next((entry["value"].split(",") for entry in pod.env if entry["name"] == setting), [])
        for service in cluster.of("Service"):
            if service["spec"]["selector"].items() <= pod.labels.items() and name_of(service) not in allowed:
                yield f"{title(pod.owner)}: {setting} lacks {name_of(service)}, so requests to that name are rejected"


@policy
def pods_have_network_policies(cluster, repository):
    policies = cluster.of("NetworkPolicy")
    for pod in cluster.pods:
        own = [
            thing["spec"]
            for thing in policies
            if thing["spec"]["podSelector"] and pod in cluster.selected(thing["spec"]["podSelector"])
        ]
        for direction in ("Ingress", "Egress"):
            if not any(direction in spec["policyTypes"] for spec in own):
                yield f"{title(pod.owner)}: no NetworkPolicy of its own for {direction}"
    for thing in policies:
        spec = thing["spec"]
        if spec["podSelector"] and not cluster.selected(spec["podSelector"]):
            yield f"{title(thing)} selects no pod"
        rules = spec.get("ingress", []) + spec.get("egress", [])
        for peer in (peer for rule in rules for peer in rule.get("from", []) + rule.get("to", [])):
            if set(peer) == {"podSelector"} and not cluster.selected(peer["podSelector"]):
                yield f"{title(thing)} names an unknown peer: {peer['podSelector']}"
    if {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]} not in [thing["spec"] for thing in policies]:
        yield "no NetworkPolicy denies everything else"


@policy
def network_paths_match_topology(cluster, repository):
    own = {pod.name for pod in cluster.pods}
    dns = {(name, "kube-system:kube-dns", 53) for name in own}
    expected = repository.paths | cluster.extra_paths | dns
    for direction, found, needed in (
        ("egress", cluster.paths_out(), {path for path in expected if path[0] in own}),
        ("ingress", cluster.paths_in(), {path for path in expected if path[1] in own}),
    ):
        for caller, called, port in sorted(found - needed, key=str):
            yield f"{direction} from {caller} to {called}:{port} is allowed but not needed"
        for caller, called, port in sorted(needed - found, key=str):
            yield f"{direction} from {caller} to {called}:{port} is needed but not allowed"


@policy
def one_disruption_at_a_time(cluster, repository):
    budgets = cluster.of("PodDisruptionBudget")
    for pod in cluster.pods:
        own = [budget["spec"] for budget in budgets if pod in cluster.selected(budget["spec"]["selector"])]
        if not pod.is_job and len(own) != 1:
            yield f"{title(pod.owner)}: {len(own)} PodDisruptionBudgets instead of one"
        for budget in own:
            if budget.get("maxUnavailable") != 1 or budget.get("unhealthyPodEvictionPolicy") != "AlwaysAllow":
                yield f"{title(pod.owner)}: its PodDisruptionBudget must allow one pod, and any pod that is not ready"
    for budget in budgets:
        if not cluster.selected(budget["spec"]["selector"]):
            yield f"{title(budget)} selects no pod"


@policy
def services_are_scraped_once(cluster, repository):
    for monitor in cluster.of("ServiceMonitor"):
        scraped = sorted(
            pod.name
            for service in cluster.of("Service")
            if monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"].get("labels", {}).items()
            for pod in cluster.selected({"matchLabels": service["spec"]["selector"]})
        )
        if scraped != sorted(participant.name for participant in repository.participants):
            yield f"{title(monitor)}: it scrapes {', '.join(scraped)}"
        for endpoint in monitor["spec"]["endpoints"]:
            labels = {rule.get("targetLabel"): rule for rule in endpoint.get("relabelings", [])}
            if labels.get("job", {}).get("replacement") != "saga":
                yield f"{title(monitor)}: the alert rules need the job `saga`"
            source = labels.get("service", {}).get("sourceLabels")
            if source != ["__meta_kubernetes_service_label_app_kubernetes_io_name"]:
                yield f"{title(monitor)}: the label `service` is not the name of the service"


@policy
def rules_and_dashboards_match_grafana(cluster, repository):
    for rule in cluster.of("PrometheusRule"):
        if rule["spec"]["groups"] != repository.rule_groups:
            yield f"{title(rule)}: its groups differ from grafana/prometheus/rules"
        shown = {
            text
            for thing in cluster.of("ConfigMap")
            if "grafana_dashboard" in thing["metadata"].get("labels", {})
            for text in thing["data"].values()
        }
        if shown != repository.dashboards:
            yield "the dashboards in ConfigMaps differ from grafana/dashboards"


# The limit for all annotations of an object. `kubectl apply` stores the object in one of them.
MAX_OBJECT_BYTES = 262_144


@policy
def objects_can_be_applied(cluster, repository):
    seen = set()
    for thing in cluster.objects:
        if (key := (thing["kind"], name_of(thing))) in seen:
            yield f"{title(thing)} exists twice"
        seen.add(key)
        if (size := len(str(thing).encode())) >= MAX_OBJECT_BYTES:
            yield f"{title(thing)} has {size} bytes, too many for `kubectl apply`"
