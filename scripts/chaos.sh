#!/usr/bin/env bash
# Builds all programs, starts a separate system and disrupts it at random under load. Options: see `chaos.sh --help`.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<USAGE
usage: scripts/chaos.sh [OPTIONS]

  --seed N          seed of all disruptions (default: a new one each time)
  --for TIME        duration of load and disruptions (default 1m; 10s to 1h)
  --rate N          orders per second (default 20)
  --store, --replicas, --nats-nodes
                    the system, as for up.sh (default: one process each, on SQLite)
  --json            print one JSON object at the end
  --no-build        use the programs of the last build; fail if one is missing

The full configuration: scripts/chaos.sh --for 10m --store postgres --replicas 3 --nats-nodes 3

Kills, restarts, suspends and slows down processes; cuts and stalls connections, some for minutes; injects faults; makes the
broker's clock jump; lets PostgreSQL reject writes, or starts a service with an older copy of its database; as root also fills the
disks of a broker and of databases. Exit code 0: every order ended exactly once, no operator is needed, the ledgers balance, and
no outbox waited for more than 20 seconds while a process could publish. 1: a check failed; data and logs are kept. 2: invalid
arguments.
USAGE
}

building=yes arguments=()
for word; do
  case $word in
    -h | --help) usage && exit 0 ;;
    --no-build) building=no ;;
    *) arguments+=("$word") ;;
  esac
done

build_or_require "$building"
export_nats_server
exec "$sagactl" chaos ${arguments[@]+"${arguments[@]}"}
