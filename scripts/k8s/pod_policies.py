"""Policies about one pod: its rights, resources, probes, files and secrets."""

import re

from cluster import name_of, title
from policy import policy


@policy
def runs_unprivileged(cluster, repository):
    for pod, container, where in cluster.containers():
        own = container.get("securityContext", {})
        effective = {**pod.spec.get("securityContext", {}), **own}
        if effective.get("runAsNonRoot") is not True:
            yield f"{where}: runAsNonRoot is not true"
        for key in ("runAsUser", "runAsGroup"):
            if effective.get(key, 0) == 0:
                yield f"{where}: {key} is root or not set"
        if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
            yield f"{where}: privilege escalation is allowed"
        if own.get("capabilities") != {"drop": ["ALL"]}:
            yield f"{where}: capabilities are not all dropped"
        if effective.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield f"{where}: seccompProfile is not RuntimeDefault"


VOLUME_KINDS = {"projected", "secret", "configMap", "emptyDir", "downwardAPI", "persistentVolumeClaim"}


@policy
def namespace_is_restricted(cluster, repository):
    namespaces = cluster.of("Namespace")
    for thing in cluster.objects:
        if thing["kind"] != "Namespace" and thing["metadata"].get("namespace") not in map(name_of, namespaces):
            yield f"{title(thing)} is in another namespace"
    for namespace in namespaces:
        if namespace["metadata"].get("labels", {}).get("pod-security.kubernetes.io/enforce") != "restricted":
            yield f"{title(namespace)} does not enforce the pod security standard `restricted`"
    for pod in cluster.pods:
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            if pod.spec.get(key):
                yield f"{title(pod.owner)}: {key} is set"
        for volume in pod.spec.get("volumes", []):
            kinds = set(volume) - {"name"}
            if not kinds <= VOLUME_KINDS:
                yield f"{title(pod.owner)}: volume {volume['name']} has the kind {', '.join(kinds)}"


@policy
def root_filesystem_is_read_only(cluster, repository):
    for _, container, where in cluster.containers():
        if container.get("securityContext", {}).get("readOnlyRootFilesystem") is not True:
            yield f"{where}: readOnlyRootFilesystem is not true"


@policy
def no_access_to_kubernetes(cluster, repository):
    for pod in cluster.pods:
        for key in ("automountServiceAccountToken", "enableServiceLinks"):
            if pod.spec.get(key) is not False:
                yield f"{title(pod.owner)}: {key} is not false"


@policy
def requests_and_limits_are_set(cluster, repository):
    for _, container, where in cluster.containers():
        for kind in ("requests", "limits"):
            for resource in ("cpu", "memory"):
                if resource not in container.get("resources", {}).get(kind, {}):
                    yield f"{where}: no {kind} of {resource}"


@policy
def images_are_pinned(cluster, repository):
    for _, container, where in cluster.containers():
        image = container["image"]
        tag = image.rsplit("/", 1)[-1].partition(":")[2]
        if not re.search(r"@sha256:[0-9a-f]{64}$", image) and not re.match(r"v?\d+\.\d+\.\d+", tag):
            yield f"{where}: image {image} has no exact version"


# Probes of nats-server that ignore the state of single streams.
BROKER_PROBES = ("/healthz?js-server-only=true", "/healthz?js-enabled-only=true")


@policy
def probes_match_endpoints(cluster, repository):
    for pod, container, where in cluster.containers():
        if pod.is_job:
            continue
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            request = container.get(kind, {}).get("httpGet", {})
            if request.get("port") not in pod.ports:
                yield f"{where}: {kind} uses no named port of the pod"
            expected = "/readyz" if kind == "readinessProbe" else "/livez"
            if pod.is_service and request.get("path") != expected:
                yield f"{where}: {kind} requests {request.get('path')} instead of {expected}"
            if pod.name == "nats" and request.get("path") not in BROKER_PROBES:
                yield f"{where}: {kind} requests {request.get('path')}, which fails for one damaged stream"
        for kind, minimum in (("startupProbe", 60), ("livenessProbe", 30)):
            probe = container.get(kind, {})
            patience = probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
            if patience < minimum:
                yield f"{where}: {kind} kills the container after {patience} s, which is less than {minimum} s"


@policy
def time_to_stop_is_long_enough(cluster, repository):
    for pod in cluster.pods:
        grace = pod.spec.get("terminationGracePeriodSeconds", 30)
        needed = pre_stop_s(pod) + repository.stop_within_s
        if not pod.is_job and grace <= needed:
            yield f"{title(pod.owner)}: killed after {grace} s, but a stop may take {needed} s"


@policy
def stopping_services_take_connections_until_nodes_know(cluster, repository):
    for pod in cluster.pods:
        if pod.is_service and pre_stop_s(pod) < 3:
            yield f"{title(pod.owner)}: refuses connections that nodes still send: preStop sleeps {pre_stop_s(pod)} s"


def pre_stop_s(pod):
    hooks = [container.get("lifecycle", {}).get("preStop", {}) for container in pod.spec["containers"]]
    return max(hook.get("sleep", {}).get("seconds", 0) for hook in hooks)


# The seed of an nkey, an API token (unlike names of metrics with a capital letter), a webhook secret, a private key.
SECRET_VALUE = re.compile(r"\bS[UAON][A-Z2-7]{56}\b|\bsaga_(?=\w*[A-Z])[\w-]{43}|\bwhsec_|-----BEGIN [A-Z ]*PRIVATE KEY")
SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|SEED|_KEY")


@policy
def no_secrets_in_plain_text(cluster, repository):
    for thing in cluster.objects:
        if thing["kind"] == "Secret":
            if cluster.documented_secrets:
                yield f"{title(thing)}: secrets must be created elsewhere"
        elif SECRET_VALUE.search(str(thing)):
            yield f"{title(thing)}: contains a value that looks like a secret"
    for pod in cluster.pods:
        for entry in pod.env:
            value = entry.get("value", "")
            if SECRET_NAME.search(entry["name"]) and not value.startswith("/etc/"):
                yield f"{title(pod.owner)}: {entry['name']} is not the path of a file"
            # The user of a PostgreSQL URL is not secret; a password would be.
            if re.search(r"://[^/]*:[^/]*@", value) or re.match(r"(?!postgres:)\w+://[^/]*@", value):
                yield f"{title(pod.owner)}: {entry['name']} contains a user or password"
            if "secretKeyRef" in entry.get("valueFrom", {}):
                yield f"{title(pod.owner)}: {entry['name']} puts a secret into the environment"


@policy
def references_exist(cluster, repository):
    for who, kind, name, keys in cluster.references():
        thing = cluster.one(kind, name)
        if thing is not None:
            known = set(thing.get("data", {})) | set(thing.get("binaryData", {}))
        elif kind == "Secret" and name in cluster.documented_secrets:
            known = cluster.documented_secrets[name]
        else:
            yield f"{who}: there is no {kind} {name}"
            continue
        for key in keys:
            if key not in known:
                yield f"{who}: {kind} {name} has no key {key}"
        if not keys:
            yield f"{who}: {kind} {name} is used without naming its keys"


@policy
def files_in_settings_are_mounted(cluster, repository):
    for pod, container, where in cluster.containers():
        volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", [])}
        mounts = {mount["mountPath"]: mount for mount in container.get("volumeMounts", [])}
        claims = [name_of(claim) for claim in pod.owner["spec"].get("volumeClaimTemplates", [])]
        for mount in mounts.values():
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
                yield f"{where}: {setting} is {value}, but nothing is mounted there"
            elif value.startswith("sqlite:"):
                if mount.get("readOnly") or mount["name"] in volumes:
                    yield f"{where}: {setting} is {value}, which is not on a persistent volume"
            elif file not in files_of(volumes.get(mount["name"], {})):
                yield f"{where}: {setting} is {value}, but no such file is mounted"


def files_of(volume):
    """The names of the files that a volume mounts from Secrets and ConfigMaps."""
    for source in [volume, *volume.get("projected", {}).get("sources", [])]:
        for kind in ("secret", "configMap"):
            yield from (item["path"] for item in source.get(kind, {}).get("items", []))


@policy
def credentials_are_readable_by_group_only(cluster, repository):
    for pod in cluster.pods:
        for volume in pod.spec.get("volumes", []):
            for kind in ("secret", "projected"):
                if kind in volume:
                    if volume[kind].get("defaultMode", 0o644) != 0o440:
                        yield f"{title(pod.owner)}: files of the volume {volume['name']} do not have the mode 440"
                    if "fsGroup" not in pod.spec.get("securityContext", {}):
                        yield f"{title(pod.owner)}: without fsGroup it cannot read the volume {volume['name']}"
