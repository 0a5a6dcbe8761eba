#!/usr/bin/env bash
# Holds ten thousand half-open requests and then twenty thousand idle connections against the order service of a system
# of its own, while customers order: every order goes on, /livez answers, and the memory comes back.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<USAGE
usage: scripts/held.sh [--half-open N] [--idle N] [--for SECONDS] [--debug]

  --half-open N   connections that begin a request and never end it (10000)
  --idle N        connections that ask for nothing (20000)
  --for SECONDS   how long they are held (60)
  --debug         programs of the dev profile, which build sooner

Exit code 0 when every order was confirmed, /livez answered within a second throughout, and 20 MiB at most stayed behind.
USAGE
}

half_open=10000 idle=20000 seconds=60 profile=release
while (($# > 0)); do
  case $1 in
    -h | --help) usage && exit 0 ;;
    --half-open) half_open=$2 && shift ;;
    --idle) idle=$2 && shift ;;
    --for) seconds=$2 && shift ;;
    --debug) profile=debug ;;
    *) usage >&2 && exit 2 ;;
  esac
  shift
done

cd "$root"
./scripts/setup.sh
NATS_SERVER_BIN=$(nats_server)
export NATS_SERVER_BIN
flags=()
[[ $profile == debug ]] || flags=(--release)
cargo build --quiet ${flags[@]+"${flags[@]}"} --workspace --bins
cargo build --quiet ${flags[@]+"${flags[@]}"} --package sagactl --example held
programs=${CARGO_TARGET_DIR:-target}/$profile

folder=$(mktemp -d "${TMPDIR:-/tmp}/saga-held.XXXXXX")
trap '"$programs/sagactl" down --data "$folder" >/dev/null; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM HUP
ulimit -n "$(ulimit -Hn)"
base=$((20000 + RANDOM % 1000 * 10))
"$programs/sagactl" up --detach --data "$folder" --port-base "$base" >/dev/null
order=127.0.0.1:$((base + 1))
failed=0

resident() { "$programs/sagactl" status --data "$folder" --json | jq '.processes[] | select(.name == "order") | .rss_mib'; }

# One order, until it is settled; says how it ended.
order() {
  curl --silent --show-error --max-time 60 "http://$order/api/orders" --header 'Content-Type: application/json' \
    --header 'Prefer: wait=30' \
    --data '{"customer":"ada","lines":[{"sku":"coffee-beans-1kg","quantity":1}],"payment":{"token":"tok_ok"}}' |
    jq -r .status
}

# hold KIND NUMBER [half-open]: by several processes, none of which may hold that many files.
hold() {
  local kind=$1 left=$2 said=${3:-} each=9000 before peak=0 now orders=0 confirmed=0 dead=0 holders=() until
  before=$(resident)
  while ((left > 0)); do
    "$programs/examples/held" "$order" $((left < each ? left : each)) "$seconds" $said &
    holders+=($!)
    left=$((left - each))
  done
  until=$((SECONDS + seconds))
  while ((SECONDS < until)); do
    orders=$((orders + 1))
    [[ $(order) != CONFIRMED ]] || confirmed=$((confirmed + 1))
    curl --silent --fail --max-time 1 "http://$order/livez" >/dev/null || dead=$((dead + 1))
    now=$(resident)
    peak=$(jq -n "[$peak, $now] | max")
  done
  wait "${holders[@]}" || true
  until=$((SECONDS + 30))
  while now=$(resident) && ((SECONDS < until)) && jq -en "$now > $before + 20" >/dev/null; do sleep 1; done
  echo "$kind: $2 for ${seconds}s: $confirmed of $orders orders confirmed, /livez missed $dead times;" \
    "RSS $before MiB before, $peak at most, $now after"
  if ((confirmed < orders || dead > 0)) || jq -en "$now > $before + 20" >/dev/null; then failed=1; fi
}

for _ in {1..50}; do order >/dev/null; done
hold half-open "$half_open" half-open
hold idle "$idle"
exit "$failed"
