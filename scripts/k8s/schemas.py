"""Validates objects against the schemas of Kubernetes, and objects of operators against the part of their schemas in use."""

import functools

import jsonschema
import kubernetes_validate
from kubernetes_validate import utils

from cluster import title

# The oldest and the newest supported Kubernetes.
VERSIONS = ["1.30", "1.37"]

# Each schema is a large file; read it once.
utils.schema_contents = functools.cache(utils.schema_contents)

TEXT = {"type": "string", "minLength": 1}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
DURATION = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h|d))+$"}


def closed(required, **properties):
    """An object without other properties."""
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def listed(item):
    return {"type": "array", "items": item}


def operator_object(version, kind, spec):
    metadata = closed(["name"], name=TEXT, namespace=TEXT, labels=TEXTS, annotations=TEXTS)
    return closed(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion={"const": version},
        kind={"const": kind},
        metadata=metadata,
        spec=spec,
    )


ALERT = closed(
    ["alert", "expr"],
    alert=TEXT,
    expr=TEXT,
    **{"for": DURATION},
    keep_firing_for=DURATION,
    labels=TEXTS,
    annotations=TEXTS,
)
RECORD = closed(["record", "expr"], record=TEXT, expr=TEXT, labels=TEXTS)
GROUP = closed(
    ["name", "rules"],
    name=TEXT,
    interval=DURATION,
    limit={"type": "integer"},
    labels=TEXTS,
    rules=listed({"oneOf": [ALERT, RECORD]}),
)
KEY = closed(["name", "key"], name=TEXT, key=TEXT)
RELABELING = closed(
    [],
    sourceLabels=listed(TEXT),
    separator={"type": "string"},
    targetLabel=TEXT,
    regex={"type": "string"},
    replacement={"type": "string"},
    action=TEXT,
)
ENDPOINT = closed(
    ["port"],
    port=TEXT,
    path=TEXT,
    scheme={"enum": ["http", "https"]},
    interval=DURATION,
    scrapeTimeout=DURATION,
    honorLabels={"type": "boolean"},
    authorization=closed(["credentials"], type=TEXT, credentials=KEY),
    relabelings=listed(RELABELING),
    metricRelabelings=listed(RELABELING),
)
SELECTOR = closed([], matchLabels=TEXTS, matchExpressions=listed({"type": "object"}))
NAMED = closed(["name"], name=TEXT)
AMOUNTS = closed([], cpu=TEXT, memory=TEXT)
SERVERS = closed(
    ["instances", "storage"],
    instances={"type": "integer", "minimum": 1},
    affinity=closed(["topologyKey"], podAntiAffinityType={"enum": ["required", "preferred"]}, topologyKey=TEXT),
    storage=closed(["size"], size={"type": "string", "pattern": "^[0-9]+(Mi|Gi|Ti)$"}),
    resources=closed([], requests=AMOUNTS, limits=AMOUNTS),
    postgresql=closed(
        [],
        synchronous=closed(["method", "number"], method={"enum": ["any", "first"]}, number={"type": "integer"}),
        parameters=TEXTS,
        pg_hba=listed(TEXT),
    ),
    managed=closed(
        ["roles"],
        roles=listed(closed(["name", "passwordSecret"], name=TEXT, login={"type": "boolean"}, passwordSecret=NAMED)),
    ),
)
# The properties in use. All others are rejected, to find misspelt ones.
PROMETHEUS, POSTGRES = "monitoring.coreos.com/v1", "postgresql.cnpg.io/v1"
OPERATORS = {
    "PrometheusRule": (
        "Prometheus operator",
        operator_object(PROMETHEUS, "PrometheusRule", closed(["groups"], groups=listed(GROUP))),
    ),
    "ServiceMonitor": (
        "Prometheus operator",
        operator_object(
            PROMETHEUS,
            "ServiceMonitor",
            closed(["selector", "endpoints"], selector=SELECTOR, jobLabel=TEXT, endpoints=listed(ENDPOINT)),
        ),
    ),
    "Cluster": ("CloudNativePG", operator_object(POSTGRES, "Cluster", SERVERS)),
    "Database": (
        "CloudNativePG",
        operator_object(POSTGRES, "Database", closed(["name", "owner", "cluster"], name=TEXT, owner=TEXT, cluster=NAMED)),
    ),
}


def complaints(objects):
    """Violations of the schemas."""
    for thing in objects:
        for version, check in checks(thing):
            try:
                check(thing)
            except jsonschema.ValidationError as error:
                place = ".".join(str(part) for part in error.path)
                yield f"{title(thing)}: {version}: {place}: {error.message.splitlines()[0]}"
            except kubernetes_validate.SchemaNotFoundError as error:
                yield f"{title(thing)}: {version}: {error.message}"


def checks(thing):
    if thing["kind"] in OPERATORS:
        operator, schema = OPERATORS[thing["kind"]]
        yield operator, lambda thing: jsonschema.validate(thing, schema)
        return
    for version in VERSIONS:
        yield f"Kubernetes {version}", lambda thing, version=version: utils.validate(thing, version, strict=True)
