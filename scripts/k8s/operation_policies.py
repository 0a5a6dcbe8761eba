"""Policies about applying, updating and removing objects, and about what the page says of it."""

from cluster import name_of, title
from policy import policy

# The fields of a StatefulSet that an update may change, beside its metadata.
MUTABLE = {
    "replicas",
    "template",
    "updateStrategy",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
    "ordinals",
    "revisionHistoryLimit",
}


@policy
def every_object_can_be_updated(cluster, repository):
    """An update that cannot change one object changes the others all the same: `kubectl apply` is no transaction."""
    for pod in cluster.pods:
        if pod.owner["kind"] == "Job":
            yield f"{title(pod.owner)}: its template cannot be changed; use that of a suspended CronJob"
        if pod.owner["kind"] == "CronJob" and pod.owner["spec"].get("suspend") is not True:
            yield f"{title(pod.owner)}: it is not suspended, and would run by its schedule"
    for thing in cluster.of("StatefulSet"):
        for other, neighbour in cluster.neighbours:
            if place_of(neighbour) == place_of(thing) and (fields := fixed_differences(thing["spec"], neighbour["spec"])):
                yield f"{title(thing)}: an update over the rendering `{other}` cannot change {', '.join(fields)}"


def place_of(thing):
    return thing["kind"], thing["metadata"].get("namespace"), name_of(thing)


def fixed_differences(spec, other):
    return sorted(key for key in {*spec, *other} - MUTABLE if spec.get(key) != other.get(key))


PART_OF = "app.kubernetes.io/part-of"
COMPONENT = "app.kubernetes.io/component"


@policy
def stale_objects_are_pruned(cluster, repository):
    script = "scripts/k8s-apply.sh"
    for thing in cluster.objects:
        labels = thing["metadata"].get("labels", {})
        if labels.get(PART_OF) != "saga":
            yield f"{title(thing)}: without the label {PART_OF}=saga, nothing prunes it"
        is_namespace = thing["kind"] == "Namespace"
        if not is_namespace and resource_of(thing) not in repository.pruned:
            yield f"{title(thing)}: {script} does not prune the kind {thing['kind']}"
        if is_namespace != (labels.get(COMPONENT) == "namespace"):
            yield f"{title(thing)}: {script} {'does not create' if is_namespace else 'creates'} it first"


CPU = {"m": 0.001}
MEMORY = {"Mi": 1, "Gi": 1024}


def resource_of(thing):
    """The name of its kind, as `kubectl api-resources -o name` prints it."""
    kind, group = thing["kind"].lower(), thing["apiVersion"].rpartition("/")[0]
    plural = f"{kind.removesuffix('y')}ies" if kind.endswith("y") else f"{kind}s"
    return f"{plural}.{group}".removesuffix(".")


@policy
def requests_match_page(cluster, repository):
    if cluster.name not in ("local", "production"):
        return
    found = [pods_and_requests(cluster, pod) for pod in cluster.pods if not pod.is_job]
    yield from differences(cluster.name, found, repository.requests)
    servers = [thing["spec"] for thing in cluster.database if thing["kind"] == "Cluster"]
    if servers:
        found = [((spec["instances"],) * 2, spec["resources"]["requests"]) for spec in servers]
        yield from differences("cloudnativepg", found, repository.requests)


def pods_and_requests(cluster, pod):
    """The minimum and maximum number of pods, and what each requests."""
    limits = [(scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) for scaler in cluster.autoscalers(pod)]
    requests = [container["resources"]["requests"] for container in pod.containers]
    assert len(requests) == 1, f"{title(pod.owner)} has several containers"
    return (limits or [(pod.owner["spec"].get("replicas", 1),) * 2])[0], requests[0]


def differences(name, found, page):
    sums = {
        "pods": [sum(counts[end] for counts, _ in found) for end in (0, 1)],
        "CPUs": [sum(counts[end] * amount(requests["cpu"], CPU) for counts, requests in found) for end in (0, 1)],
        "memory": [sum(counts[end] * amount(requests["memory"], MEMORY) for counts, requests in found) for end in (0, 1)],
    }
    for what, ends in sums.items():
        said = page.get(name, {}).get(what, "nothing")
        wanted = memory(ends) if what == "memory" else interval(ends)
        if said != wanted:
            yield f"{name}: {what}: the page says {said}, but the manifests say {wanted}"


def amount(quantity, units):
    """A quantity in units of one CPU or MiB."""
    text = str(quantity)
    unit = next((unit for unit in units if text.endswith(unit)), "")
    return float(text.removesuffix(unit)) * units.get(unit, 1)


def interval(ends):
    low, high = (f"{end:.1f}".removesuffix(".0") for end in ends)
    return low if low == high else f"{low} to {high}"


def memory(ends):
    return f"{interval([end / 1024 for end in ends])} GiB" if ends[0] >= 1024 else f"{interval(ends)} MiB"


@policy
def page_creates_secrets(cluster, repository):
    if not cluster.documented_secrets:
        return
    for who, kind, name, _ in cluster.references():
        if kind == "Secret" and name not in repository.created_secrets:
            yield f"{who}: no command on the page creates the Secret {name}"
