"""Renders k8s/ with kubectl in a copy with fake secrets. Checks all objects against the schemas and policies, and then checks
that the policies find planted faults. `--write` writes the generated files."""

import copy
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

import apply_check
import faults
import generated
import network_policies  # noqa: F401 (registers its policies)
import operation_policies  # noqa: F401
import pod_policies  # noqa: F401
import policy
import repository
import schemas
import state_policies  # noqa: F401
from cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]
KUBECTL = os.environ.get("KUBECTL", "kubectl")
# The files of `sagactl credentials` that the local overlay uses, beside the broker key of each service.
SECRETS = ["nats/nats.conf", "admin/http.token", "payment/http.token", "sagactl/http.token", "http/tokens.json", "prometheus/http.token"]
# The files outside k8s/ and grafana/ that repository.py reads.
SOURCES = [
    "docs/kubernetes.md",
    "scripts/k8s-apply.sh",
    "scripts/lib.sh",
    "shared/contract/src/topology.rs",
    "shared/engine/src/host/http/connections.rs",
    "shared/engine/src/host/metrics/names.rs",
    "shared/engine/src/host/stop.rs",
    "shared/engine/src/store/mod.rs",
    "tools/devstack/src/credentials.rs",
]
# The settings of prometheus-adapter, which are not a Kubernetes object.
ADAPTER = "k8s/overlays/production/prometheus-adapter.yaml"
# Network paths of the Job that fills the catalogue.
CATALOGUE = {("catalogue", "inventory", 8082), ("catalogue", "order", 8081)}
# An additional rule with text of several lines, to test the generated files.
RULE = """groups:
  - name: sample
    rules:
      - alert: Sample
        expr: up{job="saga"} == 0
        for: 1m
        annotations:
          description: |
            {{ $labels.service }} has not
            answered.
"""


def main():
    if sys.argv[1:] == ["--write"]:
        generated.write(ROOT)
        return
    found = [*file_complaints(), *generated.complaints(ROOT)]
    with tempfile.TemporaryDirectory() as folder:
        clusters, expected = render(copy_of_manifests(Path(folder) / "own"))
        for cluster in clusters.values():
            found += [f"{cluster.name}: {complaint}" for complaint in schemas.complaints(cluster.objects + cluster.database)]
            found += policy.complaints(cluster, expected)
        found += secret_complaints(clusters, expected)
        if not found:
            found += [*setting_complaints(clusters["all"]), *setting_complaints(clusters["production"])]
        if not found:
            found += fault_complaints(Path(folder))
            found += apply_check.complaints(copy_of_manifests(Path(folder) / "applied"))
    for complaint in found:
        print(complaint, file=sys.stderr)
    if found:
        sys.exit(1)
    count = sum(len(cluster.objects) for cluster in clusters.values())
    print(f"{count} objects, {len(policy.POLICIES)} policies, all {len(faults.FAULTS)} planted faults found")


def fault_complaints(folder):
    """Planted faults that were not found, in a copy with one more rule and dashboard."""
    root = copy_of_manifests(folder / "planted")
    rule, dashboard = root / "grafana/prometheus/rules/sample.yml", root / "grafana/dashboards/sample.json"
    rule.write_text(RULE)
    dashboard.write_text('{"title": "sample"}\n')
    if len(list(generated.complaints(root))) != 2:
        yield "generated files that lack a rule and a dashboard were accepted"
    generated.write(root)
    yield from generated.complaints(root)
    clusters, expected = render(root)
    for cluster in clusters.values():
        yield from schemas.complaints(cluster.objects + cluster.database)
        yield from policy.complaints(cluster, expected)
    yield from faults.complaints(clusters, expected)


def copy_of_manifests(root):
    """A copy of the manifests and sources with fake secrets, and with additional overlays that use all components."""
    for folder in ("k8s", "grafana"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("secrets"))
    for file in SOURCES:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, root / file)
    producers = (who.name for who in repository.participants(ROOT / "shared/contract/src/topology.rs") if who.has_stream)
    for file in [*SECRETS, *(f"{name}/broker.nk" for name in producers)]:
        secret = root / "k8s/overlays/local/secrets" / file
        secret.parent.mkdir(parents=True, exist_ok=True)
        secret.write_text("none\n")
    components = sorted(folder.name for folder in (root / "k8s/components").iterdir())
    webhook = {"name": "saga-webhook", "files": ["webhook.secret"], "options": {"disableNameSuffixHash": True}}
    add_overlay(root, "local", components, secretGenerator=[webhook])
    (root / "k8s/overlays/local-and-all/webhook.secret").write_text("none\n")
    own = yaml.safe_load((root / "k8s/overlays/production/kustomization.yaml").read_text())["components"]
    add_overlay(root, "production", [name for name in components if f"../../components/{name}" not in own])
    return root


def add_overlay(root, overlay, components, **more):
    """Adds an overlay that extends another one by components, with its namespace and labels."""
    extended = yaml.safe_load((root / f"k8s/overlays/{overlay}/kustomization.yaml").read_text())
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": extended["namespace"],
        "labels": extended["labels"],
        "resources": [f"../{overlay}"],
        "components": [f"../../components/{name}" for name in components],
        **more,
    }
    folder = root / f"k8s/overlays/{overlay}-and-all"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))


def render(root):
    """The renderings of the base and of each overlay, without and with all components; and what the repository expects."""
    expected = repository.read(root)
    ports = {(participant.name, participant.port) for participant in expected.participants}
    prometheus = {("monitoring:prometheus", name, port) for name, port in ports}
    collector = {(name, "monitoring", 4318) for name, _ in ports}
    webhook = {("admin", "0.0.0.0/0", 443)}
    production = {("nats", "nats", 6222)} | {(name, "saga-postgres:saga", 5432) for name, _ in ports} | prometheus
    folders = {
        "base": "base",
        "local": "overlays/local",
        "all": "overlays/local-and-all",
        "production": "overlays/production",
        "production-and-all": "overlays/production-and-all",
        "database": "cloudnativepg",
    }
    rendered = rendered_folders(root, folders)
    more = {
        "database": rendered.pop("database"),
        "adapter": yaml.safe_load((root / ADAPTER).read_text())["rules"]["external"],
        "min_replicas": 3,
    }
    about = {
        "base": (expected.secrets, set(), {}),
        "local": ({}, CATALOGUE, {}),
        "all": ({}, CATALOGUE | prometheus | collector | webhook, {}),
        "production": (expected.secrets, production, more),
        "production-and-all": (expected.secrets, production | collector | webhook, more),
    }
    clusters = {
        name: Cluster(name, rendered[name], secrets, frozenset(paths), **copy.deepcopy(more))
        for name, (secrets, paths, more) in about.items()
    }
    workloads = [(cluster.name, pod.owner) for cluster in clusters.values() for pod in cluster.pods]
    for cluster in clusters.values():
        cluster.neighbours = copy.deepcopy([(name, thing) for name, thing in workloads if name != cluster.name])
    return clusters, expected


def rendered_folders(root, folders):
    """The objects of each folder, rendered in parallel."""
    started = {
        name: subprocess.Popen([KUBECTL, "kustomize", root / "k8s" / folder], stdout=-1, stderr=-1, text=True)
        for name, folder in folders.items()
    }
    rendered = {}
    for name, process in started.items():
        out, errors = process.communicate()
        # Warnings announce deprecated features.
        if process.returncode != 0 or errors:
            sys.exit(f"k8s/{folders[name]} does not render: {errors}")
        rendered[name] = list(yaml.safe_load_all(out))
    return rendered


def file_complaints():
    """Secrets in the manifests or in the repository."""
    for file in [*sorted((ROOT / "k8s").rglob("*.yaml")), *sorted((ROOT / "k8s").rglob("*.yml"))]:
        name = file.relative_to(ROOT)
        if "secrets" in file.parts or str(name) == ADAPTER:
            continue
        # A list is a patch.
        for thing in (thing for thing in yaml.safe_load_all(file.read_text()) if isinstance(thing, dict)):
            if thing["kind"] == "Secret":
                yield f"{name} has a Secret: secrets must be created elsewhere"
            if any("literals" in generator for generator in thing.get("secretGenerator", [])):
                yield f"{name} has a secret in plain text"
    command = ["git", "-C", ROOT, "ls-files", "k8s/overlays/*/secrets"]
    if tracked := subprocess.run(command, capture_output=True, text=True, check=True).stdout:
        yield f"secrets are in the repository: {tracked}"


def secret_complaints(clusters, expected):
    """Differences between the Secrets in the README's table and those in use."""
    of_pods = [*clusters["base"].references(), *clusters["production"].references()]
    # In the other renderings the Secrets of pods have generated names.
    of_components = (
        found
        for found in clusters["all"].references()
        if found[0].startswith("ServiceMonitor") or found[2] in expected.secrets
    )
    used = {}
    for _, kind, name, keys in (*of_pods, *of_components):
        if kind == "Secret":
            used.setdefault(name, set()).update(keys)
    for name in sorted(used.keys() | expected.secrets.keys()):
        if used.get(name) != expected.secrets.get(name):
            yield f"Secret {name}: docs/kubernetes.md lists the keys {expected.secrets.get(name)}, used are {used.get(name)}"


def setting_complaints(cluster):
    """Settings that a program does not accept. Each program is started with the environment of its pod."""
    programs = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
    for pod in (pod for pod in cluster.pods if pod.is_service):
        program = programs / pod.name
        if not program.exists():
            yield f"{program} is missing: run 'cargo build --workspace --bins', then this again"
            continue
        environment = cluster.settings(pod)
        for url, expected in missing_databases(cluster.setting(pod, "STORE__URL")):
            command = [program, "verify", "--set", f"store.url={url}"]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20)
            if ("settings: " in done.stderr) != ("settings: " in expected) or expected not in done.stderr:
                yield f"{cluster.name}: {pod.name} does not accept its settings: {done.stderr.strip()}"


def missing_databases(url):
    """URLs of databases that do not exist here, and part of the expected error. A PostgreSQL URL is accepted except for its
    files, which do not exist here either."""
    yield "sqlite:/dev/null/none.db", "none.db"
    if url.startswith("postgres:"):
        yield url, "settings: store.url: store.password_file /"


if __name__ == "__main__":
    main()
