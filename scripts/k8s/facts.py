"""What other files of this repository say, and the manifests must agree with."""

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
class Facts:
    participants: tuple
    # A service's stop is cut short after this long.
    stop_within_s: int
    # By this name the broker's configuration wants to be told how much its streams may take.
    broker_bound: str
    # So many connections of its database one process takes.
    connections: int
    # The metrics that every service has, by name.
    metrics: frozenset
    # Secrets that people make, by name, with their keys.
    secrets: dict
    # What grafana/ has: groups of rules, and the texts of the dashboards.
    rule_groups: list
    dashboards: frozenset

    @property
    def paths(self):
        """Who speaks to whom."""
        port_of = {who.name: who.port for who in self.participants}
        to_broker = {(who.name, "nats", 4222) for who in self.participants if who.has_stream}
        return to_broker | {(who.name, called, port_of[called]) for who in self.participants for called in who.calls}


def read(root: Path):
    return Facts(
        participants=tuple(participants(root / "shared/contract/src/topology.rs")),
        stop_within_s=stop_within(root / "shared/engine/src/host/http/connections.rs"),
        broker_bound=broker_bound(root / "tools/sagactl/src/local/credentials.rs"),
        connections=connections(root / "shared/engine/src/store/postgres/pool.rs"),
        metrics=frozenset(metrics(root / "shared/engine/src/host/metrics/names.rs")),
        secrets=secrets(root / "k8s/README.md"),
        rule_groups=generated.groups(root),
        dashboards=frozenset(file.read_text() for file in generated.dashboards(root)),
    )


def participants(file):
    found = re.findall(
        r'Participant \{\s+name: (\w+|"\w+"),.*?port: (\d+),\s+has_stream: (true|false),.*?calls: &\[(.*?)\],\s+\}',
        file.read_text(),
        re.S,
    )
    assert len(found) >= 5, f"the participants in {file} are written in a way that is not known here"
    operator = re.search(r'pub const OPERATOR: &str = "(\w+)"', file.read_text())[1]
    for name, port, has_stream, calls in found:
        own = operator if name == "OPERATOR" else name.strip('"')
        yield Participant(own, int(port), has_stream == "true", tuple(re.findall(r'"(\w+)"', calls)))


def stop_within(file):
    # The requests under way, and then the last spans.
    return int(re.search(r"STOPS_WITHIN: Duration = Duration::from_secs\((\d+)\)", (file.parents[1] / "run.rs").read_text())[1])


def broker_bound(file):
    return re.search(r'FROM_THE_ENVIRONMENT: &str = "\$(\w+)"', file.read_text())[1]


def connections(file):
    """Of both lanes, and the one that listens."""
    lanes = re.findall(r"^const (?:QUICK|SCAN): usize = (\d+);", file.read_text(), re.M)
    assert len(lanes) == 2, f"the lanes in {file} are written in a way that is not known here"
    return sum(map(int, lanes)) + 1


def metrics(file):
    return re.findall(r'Metric::\w+\(\s*"(\w+)"', file.read_text())


def secrets(file):
    """The rows of the README's table: | `saga-order` | `broker.nk` | … |"""
    rows = re.findall(r"^\| `(saga-[\w-]+)` \| ((?:`[\w.]+`(?:, )?)+) \|", file.read_text(), re.M)
    return {name: set(re.findall(r"`([\w.]+)`", keys)) for name, keys in rows}
