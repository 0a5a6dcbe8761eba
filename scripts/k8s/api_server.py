"""A stand-in for an API server, for the real kubectl: it stores, lists and deletes objects, and rejects what a real one
rejects of them. Nothing runs."""

import copy
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from cluster import name_of
from operation_policies import fixed_differences

APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Kinds by group and version, with the names of their resources.
RESOURCES = {
    "v1": {"namespaces": "Namespace", "configmaps": "ConfigMap", "secrets": "Secret", "services": "Service"},
    "apps/v1": {"statefulsets": "StatefulSet"},
    "batch/v1": {"cronjobs": "CronJob", "jobs": "Job"},
    "autoscaling/v2": {"horizontalpodautoscalers": "HorizontalPodAutoscaler"},
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
    "networking.k8s.io/v1": {"networkpolicies": "NetworkPolicy"},
    "monitoring.coreos.com/v1": {"prometheusrules": "PrometheusRule", "servicemonitors": "ServiceMonitor"},
}


class Server:
    """Serves on a free port of this machine until it is closed."""

    def __init__(self):
        # Objects by group and version, resource, namespace and name.
        self.objects = {}
        server, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                url = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with lock:
                    status, answer = server.answer(self.command, url.path.strip("/"), dict(parse_qsl(url.query)), body)
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PATCH = do_DELETE = answer

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # kubectl resets connections that it does not need any more.
        self.http.handle_error = lambda *_: None
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()

    def config(self):
        """A configuration for kubectl."""
        cluster = {"name": "here", "cluster": {"server": f"http://127.0.0.1:{self.http.server_port}"}}
        context = {"name": "here", "context": {"cluster": "here", "user": "nobody"}}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [cluster],
            "contexts": [context],
            "current-context": "here",
            "users": [{"name": "nobody", "user": {}}],
        }

    def answer(self, method, path, query, body):
        """The status and body for a request."""
        prefix, _, rest = path.partition("/")
        if prefix in ("api", "apis", "openapi", "version") and (found := discovery(path)) is not None:
            return 200, found
        version = "/".join(path.split("/")[1 : 2 if prefix == "api" else 3])
        words = path.split("/")[2 if prefix == "api" else 3 :]
        namespace = words[1] if words[:1] == ["namespaces"] and len(words) > 2 else None
        resource, name = (words[2 if namespace else 0 :] + [None, None])[:2]
        if resource not in RESOURCES.get(version, {}):
            return failure(404, "NotFound", f"there is no {path}")
        key = (version, resource, namespace, name)
        if method == "GET" and name is None:
            return 200, self.list(key, query)
        if method in ("GET", "PATCH", "DELETE") and key not in self.objects:
            return failure(404, "NotFound", f"{resource} {name} not found")
        if method == "GET":
            return 200, self.objects[key]
        if method == "DELETE":
            return 200, self.objects.pop(key)
        return self.write(key, json.loads(body), "dryRun" in query)

    def list(self, key, query):
        wanted = dict(word.split("=") for word in query.get("labelSelector", "").split(",") if word)
        items = [
            thing
            for (*kind, namespace, _), thing in self.objects.items()
            if tuple(kind) == key[:2] and namespace == key[2] and wanted.items() <= thing["metadata"]["labels"].items()
        ]
        return {"kind": f"{RESOURCES[key[0]][key[1]]}List", "apiVersion": key[0], "metadata": {}, "items": items}

    def write(self, key, change, is_dry_run):
        version, resource, namespace, name = key
        if namespace and ("v1", "namespaces", None, namespace) not in self.objects:
            return failure(404, "NotFound", f'namespaces "{namespace}" not found')
        old = self.objects.get(key) if name else None
        new = copy.deepcopy(old or {})
        merge(new, change)
        # A patch of a list is not a list, but kubectl sends the whole object along.
        applied = json.loads(new["metadata"].get("annotations", {}).get(APPLIED, "{}"))
        new.update({part: value for part, value in applied.items() if part != "metadata"})
        if resource == "statefulsets":
            new["spec"].setdefault("updateStrategy", {"type": "RollingUpdate"})
            if old and (fields := fixed_differences(new["spec"], old["spec"])):
                return failure(422, "Invalid", f"updates to statefulset spec are forbidden: {', '.join(fields)}")
            new["status"] = updated(new["spec"].get("replicas", 1))
        new["metadata"].setdefault("labels", {})
        new["metadata"].update(generation=1, resourceVersion="1", uid=name_of(new))
        if not is_dry_run:
            self.objects[(version, resource, namespace, name_of(new))] = new
        return 200 if old else 201, new


def updated(replicas):
    """The status of a StatefulSet whose update has ended."""
    counts = ("replicas", "readyReplicas", "updatedReplicas", "currentReplicas", "availableReplicas")
    return dict.fromkeys(counts, replicas) | {"observedGeneration": 1, "currentRevision": "1", "updateRevision": "1"}


def merge(thing, change):
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(thing.get(key), dict):
            merge(thing[key], value)
        elif value is None:
            thing.pop(key, None)
        else:
            thing[key] = value


def failure(status, reason, message):
    return status, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": status}


def discovery(path):
    """What kubectl asks before anything else; None for other paths."""
    if path == "version":
        return {"major": "1", "minor": "37", "gitVersion": "v1.37.0"}
    if path == "api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "apis":
        versions = [{"groupVersion": name, "version": name.split("/")[1]} for name in RESOURCES if "/" in name]
        groups = [
            {"name": version["groupVersion"].split("/")[0], "versions": [version], "preferredVersion": version}
            for version in versions
        ]
        return {"kind": "APIGroupList", "groups": groups}
    if path == "openapi/v3":
        paths = [f"apis/{name}" if "/" in name else f"api/{name}" for name in RESOURCES]
        return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}
    version = path.removeprefix("openapi/v3/").removeprefix("apis/").removeprefix("api/")
    if version not in RESOURCES:
        return None
    if not path.startswith("openapi/"):
        verbs = ["create", "delete", "get", "list", "patch"]
        resources = [
            {"name": name, "singularName": "", "namespaced": kind != "Namespace", "kind": kind, "verbs": verbs}
            for name, kind in RESOURCES[version].items()
        ]
        return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}
    # Tells kubectl that the server validates objects itself.
    group, _, number = version.rpartition("/")
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in ("dryRun", "fieldValidation")]
    paths = {
        f"/{name}": {
            "patch": {
                "responses": {},
                "parameters": parameters,
                "x-kubernetes-group-version-kind": {"group": group, "version": number, "kind": kind},
            }
        }
        for name, kind in RESOURCES[version].items()
    }
    return {"openapi": "3.0.0", "info": {"title": "stand-in", "version": "1"}, "paths": paths}
