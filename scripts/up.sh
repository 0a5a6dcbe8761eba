#!/usr/bin/env bash
# Builds all programs and starts the local system: nats-server and the five services. Options: see `up.sh --help`.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# A short form of `sagactl up --help` that needs no build. A test compares the options of both.
usage() {
  cat <<USAGE
usage: scripts/up.sh [OPTIONS]

  --detach              return when all services are ready; the processes keep running
  --fresh               delete the data of earlier runs first
  --data DIR            data folder (default: SAGA_DATA, or .saga)
  --port-base N         first port, or "standard": 8080 to 8084 and 4222
  --store KIND          database of the services: sqlite, or postgres (starts a server)
  --replicas N          processes of each service behind one port; more than one requires --store postgres
  --nats-nodes N        brokers: 1, or a cluster of 3
  --set SERVICE.KEY=V   override a setting, e.g. order.service.deadline=5s (repeatable)
  --tokens              require tokens, except of customers
  --no-seed             start with an empty catalogue
  --no-build            start the programs of the last build; fail if one is missing

Builds all programs, then starts the system. Ctrl-C or scripts/down.sh stops it.
USAGE
}

building=yes arguments=()
for word; do
  case $word in
    -h | --help) usage && exit 0 ;;
    --no-build) building=no && continue ;;
    --detach | --fresh | --tokens | --no-seed) ;;
    --data | --port-base | --set | --data=* | --port-base=* | --set=*) ;;
    --store | --replicas | --nats-nodes | --store=* | --replicas=* | --nats-nodes=*) ;;
    # Options of every sagactl command.
    --wide | --operator | --color | --token | --ca | --operator=* | --color=* | --token=* | --ca=*) ;;
    -*) say "up.sh: unknown option $word (see: up.sh --help)" && exit 2 ;;
  esac
  arguments+=("$word")
done

build_or_require "$building"
export_nats_server
exec "$sagactl" up ${arguments[@]+"${arguments[@]}"}
