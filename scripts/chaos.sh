#!/usr/bin/env bash
# Builds everything and breaks a system of its own at random while customers order. Flags: see `chaos.sh --help`.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<USAGE
usage: scripts/chaos.sh [--seed N] [--for TIME] [--rate N] [--store postgres] [--replicas N] [--nats-nodes 3] [--json]

  --seed N          what everything that is done follows from; another one each time unless told otherwise
  --for TIME        how long orders are placed and things are broken (1m; from 10s to 1h)
  --rate N          orders per second (20)
  --store, --replicas, --nats-nodes
                    of what the system consists, as of up.sh; without them one process each, on SQLite
  --json            one JSON object at the end

For example the whole of it: scripts/chaos.sh --for 10m --store postgres --replicas 3 --nats-nodes 3

Processes are killed, restarted, stopped and starved, connections are cut and silenced, faults are injected; as root also the
disk of a broker is filled. Exit code 0 when in the end every order has ended, each is known once, nothing waits for a
human and the books balance; 1 when not, and then data and logs are kept; 2 when the command makes no sense.
USAGE
}

for word; do
  case $word in -h | --help) usage && exit 0 ;; esac
done

"$root/scripts/setup.sh"
build
exec "$sagactl" chaos "$@"
