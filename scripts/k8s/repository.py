"""What the code and other files of this repository say and the manifests must match."""

import re
from dataclasses import dataclass
from pathlib import Path

import generated


@dataclass(frozen=True)
class Participant:
    name: str
    port: int
    has_stream: bool
    calls: tuple


@dataclass(frozen=True)
class Repository:
    participants: tuple
    # Maximum duration of a graceful stop.
    stop_within_s: int
    # The environment variable with the size limit of the broker's streams.
    broker_limit: str
    # Database connections of one process.
    connections: int
    # The names of the metrics of every service.
    metrics: frozenset
    # Secrets that operators create: names and keys.
    secrets: dict
    # Secrets that a command on the page creates.
    created_secrets: frozenset
    # The table of requests on the page: what it says of each overlay.
    requests: dict
    # Kinds of objects that the script prunes.
    pruned: frozenset
    # The alert rules and dashboards in grafana/.
    rule_groups: list
    dashboards: frozenset

    @property
    def paths(self):
        """The network paths that the topology needs."""
        port_of = {who.name: who.port for who in self.participants}
        to_broker = {(who.name, "nats", 4222) for who in self.participants if who.has_stream}
        return to_broker | {(who.name, called, port_of[called]) for who in self.participants for called in who.calls}


def read(root: Path):
    return Repository(
        participants=tuple(participants(root / "shared/contract/src/topology.rs")),
        stop_within_s=stop_within(root / "shared/engine/src/host/http/connections.rs"),
        broker_limit=broker_limit(root / "tools/devstack/src/credentials.rs"),
        connections=connections(root / "shared/engine/src/store/mod.rs"),
        metrics=frozenset(metrics(root / "shared/engine/src/host/metrics/names.rs")),
        secrets=secrets(root / "docs/kubernetes.md"),
        created_secrets=frozenset(created_secrets(root)),
        requests=requests(root / "docs/kubernetes.md"),
        pruned=frozenset(pruned(root / "scripts/k8s-apply.sh")),
        rule_groups=generated.groups(root),
        dashboards=frozenset(file.read_text() for file in generated.dashboards(root)),
    )


def participants(file):
    found = re.findall(
        r'Participant \{\s+name: "(\w+)",.*?port: (\d+),\s+has_stream: (true|false),.*?calls: &\[(.*?)\],?\s+\}',
        file.read_text(),
        re.S,
    )
    assert len(found) >= 5, f"the participants in {file} have an unexpected form"
    for name, port, has_stream, calls in found:
        yield Participant(name, int(port), has_stream == "true", tuple(re.findall(r'"(\w+)"', calls)))


def stop_within(file):
    # First the requests in flight, then the last spans.
    return int(re.search(r"STOPS_WITHIN: Duration = Duration::from_secs\((\d+)\)", (file.parents[1] / "stop.rs").read_text())[1])


def broker_limit(file):
    return re.search(r'FROM_THE_ENVIRONMENT: &str = "\$(\w+)"', file.read_text())[1]


def connections(file):
    """The default of store.max_connections."""
    return int(re.search(r"DEFAULT_MAX_CONNECTIONS: usize = (\d+);", file.read_text())[1])


def metrics(file):
    return re.findall(r'Metric::\w+\(\s*"(\w+)"', file.read_text())


def secrets(file):
    """The table in the README, with rows such as: | `saga-order` | `broker.nk` | … |"""
    rows = re.findall(r"^\| `(saga-[\w-]+)` \| ((?:`[\w.]+`(?:, )?)+) \|", file.read_text(), re.M)
    return {name: set(re.findall(r"`([\w.]+)`", keys)) for name, keys in rows}


def created_secrets(root):
    """Names in commands such as `kubectl -n NAMESPACE create secret generic saga-nats`. `saga-$name` is in a loop over the
    services."""
    found = re.findall(r"create secret generic (saga-[\w$-]+)", (root / "docs/kubernetes.md").read_text())
    for participant in participants(root / "shared/contract/src/topology.rs"):
        yield from (name.replace("$name", participant.name) for name in found)


def requests(file):
    """The table of requests, with rows such as: | `production` | 18 to 33 | 8.1 to 15.6 | 4.1 to 7.9 GiB |"""
    rows = re.findall(r"^\| `(\w+)/?` \| ([\d to]+) \| ([\d. to]+) \| ([\d. to]+ [MG]iB) \|", file.read_text(), re.M)
    return {name: {"pods": pods, "CPUs": cpus, "memory": memory} for name, pods, cpus, memory in rows}


def pruned(file):
    return re.search(r"^kinds='([a-z\d.\s]+)'", file.read_text(), re.M)[1].split()
