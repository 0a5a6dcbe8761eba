"""Renders k8s/ with kubectl, in a copy with secrets that are none, and holds all that comes out against the schemas and
the policies; then plants faults, and holds the policies against those. `--write` writes what is generated."""

import copy
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

import facts
import generated
import planted
import policies
import schemas
from cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]
KUBECTL = os.environ.get("KUBECTL", "kubectl")
# What `sagactl credentials` makes, as far as the local overlay takes it.
SECRETS = [
    "nats/nats.conf",
    "order/broker.nk",
    "inventory/broker.nk",
    "payment/broker.nk",
    "admin/broker.nk",
    "admin/http.token",
    "http/tokens.json",
    "prometheus/http.token",
]
# What the manifests must agree with, beside what k8s/ and grafana/ say.
SOURCES = [
    "shared/contract/src/topology.rs",
    "shared/engine/src/host/http/connections.rs",
    "shared/engine/src/host/metrics/names.rs",
    "shared/engine/src/host/run.rs",
    "shared/engine/src/store/postgres/pool.rs",
    "tools/sagactl/src/local/credentials.rs",
]
# What prometheus-adapter is told, which is no object of Kubernetes.
ADAPTER = "k8s/overlays/production/prometheus-adapter.yaml"
# Who speaks to whom beside what the topology says.
CATALOGUE = {("catalogue", "inventory", 8082), ("catalogue", "order", 8081)}
# A rule and a dashboard, so that a rendering has some also while there are none.
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
    found = [*of_the_files(), *generated.complaints(ROOT)]
    with tempfile.TemporaryDirectory() as folder:
        clusters, known = render(copied(Path(folder) / "own"))
        for cluster in clusters.values():
            found += [f"{cluster.name}: {complaint}" for complaint in schemas.complaints(cluster.objects + cluster.database)]
            found += policies.complaints(cluster, known)
        found += secrets_as_documented(clusters, known)
        if not found:
            found += settings_are_known(clusters["all"])
            found += settings_are_known(clusters["production"])
        if not found:
            found += planted_ones_are_found(Path(folder))
    for complaint in found:
        print(complaint, file=sys.stderr)
    if found:
        sys.exit(1)
    count = sum(len(cluster.objects) for cluster in clusters.values())
    print(f"{count} objects, {len(policies.POLICIES)} policies; {len(planted.FAULTS) + 1} planted faults, all found")


def planted_ones_are_found(folder):
    """In a copy with a rule and a dashboard more, so that there is always one to change."""
    root = copied(folder / "planted")
    rule, dashboard = root / "grafana/prometheus/rules/sample.yml", root / "grafana/dashboards/sample.json"
    for file, text in ((rule, RULE), (dashboard, '{"title": "sample"}\n')):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    if len(list(generated.complaints(root))) != 2:
        yield "a rule and a dashboard more, and what is generated was taken to be as it should"
    generated.write(root)
    yield from generated.complaints(root)
    clusters, known = render(root)
    for cluster in clusters.values():
        yield from schemas.complaints(cluster.objects + cluster.database)
        yield from policies.complaints(cluster, known)
    yield from planted.complaints(clusters, known)


def copied(root):
    """What is rendered, without anybody's secrets, and with some that are none."""
    for folder in ("k8s", "grafana"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("secrets"))
    for file in SOURCES:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, root / file)
    for file in SECRETS:
        secret = root / "k8s/overlays/local/secrets" / file
        secret.parent.mkdir(parents=True, exist_ok=True)
        secret.write_text("none\n")
    components = sorted(folder.name for folder in (root / "k8s/components").iterdir())
    # What notices are signed with: only who has a receiver of them makes it.
    of_webhook = {"name": "saga-webhook", "files": ["webhook.secret"], "options": {"disableNameSuffixHash": True}}
    with_all(root, "local", components, secretGenerator=[of_webhook])
    (root / "k8s/overlays/local-and-all/webhook.secret").write_text("none\n")
    own = yaml.safe_load((root / "k8s/overlays/production/kustomization.yaml").read_text())["components"]
    with_all(root, "production", [name for name in components if f"../../components/{name}" not in own])
    return root


def with_all(root, overlay, components, **more):
    """Another overlay, which is this one with these components."""
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "saga",
        "resources": [f"../{overlay}"],
        "components": [f"../../components/{name}" for name in components],
        **more,
    }
    folder = root / f"k8s/overlays/{overlay}-and-all"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))


def render(root):
    """The base by itself, each overlay, and that with all components; and the database that production is told of."""
    known = facts.read(root)
    ports = {(who.name, who.port) for who in known.participants}
    prometheus = {("monitoring:prometheus", name, port) for name, port in ports}
    collector = {(name, "monitoring", 4318) for name, _ in ports}
    webhook = {("admin", "0.0.0.0/0", 443)}
    several = {("nats", "nats", 6222)} | {(name, "saga-postgres:saga", 5432) for name, _ in ports} | prometheus
    folders = {
        "base": "base",
        "local": "overlays/local",
        "all": "overlays/local-and-all",
        "production": "overlays/production",
        "production with all": "overlays/production-and-all",
        "database": "cloudnativepg",
    }
    started = {
        name: subprocess.Popen([KUBECTL, "kustomize", root / "k8s" / folder], stdout=-1, stderr=-1, text=True)
        for name, folder in folders.items()
    }
    rendered = {}
    for name, process in started.items():
        out, errors = process.communicate()
        # A warning is of what is deprecated, and will be wrong with the next kubectl.
        if process.returncode != 0 or errors:
            sys.exit(f"k8s/{folders[name]} does not render: {errors}")
        rendered[name] = list(yaml.safe_load_all(out))
    more = {
        "database": rendered.pop("database"),
        "adapter": yaml.safe_load((root / ADAPTER).read_text())["rules"]["external"],
        "copies": 3,
    }
    about = {
        "base": (known.secrets, set(), {}),
        "local": ({}, CATALOGUE, {}),
        "all": ({}, CATALOGUE | prometheus | collector | webhook, {}),
        "production": (known.secrets, several, more),
        "production with all": (known.secrets, several | collector | webhook, more),
    }
    clusters = {
        name: Cluster(name, rendered[name], documented, frozenset(beside), **copy.deepcopy(more))
        for name, (documented, beside, more) in about.items()
    }
    return clusters, known


def of_the_files():
    """What no rendering shows."""
    for file in [*sorted((ROOT / "k8s").rglob("*.yaml")), *sorted((ROOT / "k8s").rglob("*.yml"))]:
        name, text = file.relative_to(ROOT), file.read_text()
        # A list is a patch.
        things = [thing for thing in yaml.safe_load_all(text) if isinstance(thing, dict)]
        if "secrets" in file.parts or str(name) == ADAPTER:
            continue
        for thing in things:
            if thing["kind"] == "Secret":
                yield f"{name} has a Secret: secrets are made elsewhere"
            if any("literals" in made for made in thing.get("secretGenerator", [])):
                yield f"{name} has a secret in clear"
    kept = ["git", "-C", ROOT, "ls-files", "k8s/overlays/*/secrets"]
    if tracked := subprocess.run(kept, capture_output=True, text=True, check=True).stdout:
        yield f"these secrets are in the repository: {tracked}"


def secrets_as_documented(clusters, known):
    """The README's table has every Secret that somebody names, and no other."""
    of_pods = [*policies.references(clusters["base"]), *policies.references(clusters["production"])]
    # Of what a component adds; that of pods has other names by now.
    all_of_them = policies.references(clusters["all"])
    of_others = (found for found in all_of_them if found[0].startswith("ServiceMonitor") or found[2] in known.secrets)
    named = {}
    for _, kind, name, keys in (*of_pods, *of_others):
        if kind == "Secret":
            named.setdefault(name, set()).update(keys)
    for name in sorted(named.keys() | known.secrets.keys()):
        if named.get(name) != known.secrets.get(name):
            yield f"k8s/README.md says {known.secrets.get(name)} of the Secret {name}, and named is {named.get(name)}"


def settings_are_known(cluster):
    """Every service takes the environment that it would have: an unknown or impossible setting is an error."""
    programs = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
    for pod in (pod for pod in cluster.pods if pod.is_service):
        program = programs / pod.name
        if not program.exists():
            yield f"no program {program}: run 'cargo build --workspace --bins', then this again"
            continue
        given = cluster.settings(pod)
        for url, wanted in nowhere(cluster.setting(pod, "STORE__URL")):
            asked = ["verify", "--set", f"store.url={url}"]
            said = subprocess.run([program, *asked], env=given, capture_output=True, text=True, timeout=20)
            if ("settings: " in said.stderr) != ("settings: " in wanted) or wanted not in said.stderr:
                yield f"{cluster.name}: {pod.name} does not take its settings: {said.stderr.strip()}"


def nowhere(url):
    """Databases that are not there, and what is said of them. Of an address of PostgreSQL all is taken but its files, which
    are not here either."""
    yield "sqlite:/dev/null/none.db", "none.db"
    if url.startswith("postgres:"):
        yield url, "settings: store.url: the password file"


if __name__ == "__main__":
    main()
