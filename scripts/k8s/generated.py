"""What is written from grafana/, so that nothing is said twice by hand: the rules as an object of the Prometheus
operator, and the list of the dashboards, as kustomize wants every file named."""

from pathlib import Path

import yaml

NOTE = "# Written by `scripts/check-k8s.sh --write`, which knows it by {source}: change that.\n"
RULES = "grafana/prometheus/rules/*.yml"
DASHBOARDS = "grafana/dashboards/**/*.json"


class Literal(str):
    """Text of several lines, written as it is read."""


class Dumper(yaml.SafeDumper):
    """Lists stand a step in, as everywhere else here."""

    def increase_indent(self, flow=False, indentless=False):
        return super().increase_indent(flow, False)


Dumper.add_representer(
    Literal, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|")
)


def files(root):
    """What is to stand where."""
    return {
        root / "k8s/components/prometheus-operator/rules.yaml": text_of(rule_object(root), RULES),
        root / "grafana/kustomization.yaml": text_of(dashboard_list(root), DASHBOARDS),
    }


def groups(root):
    """All groups of rules, as the files have them."""
    read = [yaml.safe_load(file.read_text()) for file in sorted(root.glob(RULES))]
    return [group for file in read for group in file["groups"]]


def dashboards(root):
    return sorted(root.glob(DASHBOARDS))


def rule_object(root):
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "saga"},
        "spec": {"groups": groups(root)},
    }


def dashboard_list(root):
    generator = [
        {
            "name": f"dashboard-{file.stem.lower().replace('_', '-')}",
            "files": [str(file.relative_to(root / "grafana"))],
        }
        for file in dashboards(root)
    ]
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "generatorOptions": {"disableNameSuffixHash": True, "labels": {"grafana_dashboard": "1"}},
        "configMapGenerator": generator,
    }


def text_of(thing, source):
    return NOTE.format(source=source) + yaml.dump(as_read(thing), Dumper=Dumper, sort_keys=False, width=120)


def as_read(thing):
    if isinstance(thing, dict):
        return {key: as_read(value) for key, value in thing.items()}
    if isinstance(thing, list):
        return [as_read(value) for value in thing]
    return Literal(thing) if isinstance(thing, str) and "\n" in thing else thing


def complaints(root):
    for file, wanted in files(root).items():
        if not file.exists() or file.read_text() != wanted:
            name = file.relative_to(root)
            yield f"{name} is not what grafana/ says: run scripts/check-k8s.sh --write, and commit it"


def write(root):
    for file, wanted in files(root).items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(wanted)
