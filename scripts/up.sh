#!/usr/bin/env bash
# Builds everything and starts the system: nats-server and the five services. Flags: see `up.sh --help`.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# What `sagactl up --help` says at length; here so that nothing has to be built for it. A test holds the two together.
usage() {
  cat <<USAGE
usage: scripts/up.sh [OPTIONS]

  --detach              return when everything is ready; the processes go on
  --fresh               delete the data of earlier runs first
  --data DIR            folder with the data (SAGA_DATA, else .saga)
  --port-base N         ports from N on, or "standard": 8080 to 8084 and 4222
  --store KIND          where the services keep their data: sqlite, or postgres, for which a server is started
  --replicas N          so many processes of each service behind one port; more than one needs --store postgres
  --nats-nodes N        brokers: 1, or a cluster of 3
  --set SERVICE.KEY=V   a setting of a service, e.g. order.service.deadline=5s (may be repeated)
  --tokens              whoever asks admin for something needs a token
  --no-seed             start with an empty catalogue

Builds everything, then starts it; Ctrl-C stops it, or scripts/down.sh.
USAGE
}

for word; do
  case $word in
    -h | --help) usage && exit 0 ;;
    --detach | --fresh | --tokens | --no-seed) ;;
    --data | --port-base | --set | --data=* | --port-base=* | --set=*) ;;
    --store | --replicas | --nats-nodes | --store=* | --replicas=* | --nats-nodes=*) ;;
    # What every command takes.
    --wide | --operator | --color | --token | --ca | --operator=* | --color=* | --token=* | --ca=*) ;;
    -*) say "up.sh: unknown flag $word (see: up.sh --help)" && exit 2 ;;
  esac
done

"$root/scripts/setup.sh"
build
exec "$sagactl" up "$@"
