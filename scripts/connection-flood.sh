#!/usr/bin/env bash
# Opens 10,000 incomplete requests and then 20,000 idle connections to the order service of a separate system while customers
# order. Checks that orders succeed, that /livez answers, and that the memory is released.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$root/scripts/bench-lib.sh"

usage() {
  cat <<USAGE
usage: scripts/connection-flood.sh [OPTIONS]

  --half-open N   connections with an incomplete request (10000)
  --idle N        idle connections (20000)
  --for SECONDS   duration (60)
  --json          print one JSON object; progress goes to standard error
  --keep          keep data and logs
  --no-build      use the programs of the last build

Exit code 0: every order was confirmed (clients retry after 503), /livez always answered within a second, and at most 20 MiB
more memory is used afterwards. 1: a check failed. 2: invalid arguments.
USAGE
}

half_open=10000 idle=20000 seconds=60 before=0

main() {
  parse "$@"
  begin
  ulimit -n "$(ulimit -Hn)"
  if [[ $building == yes ]]; then
    build --example connection_flood >&2
  fi
  [[ -x $bin/examples/connection_flood ]] || die "$bin/examples/connection_flood is not built (omit --no-build)"
  start_system "$bin"
  curl --silent --show-error --fail --output /dev/null --header 'Content-Type: application/json' \
    --data '{"quantity":100000}' "$inventory/api/products/coffee-beans-1kg/restock"
  local warmed retries=0
  for ((warmed = 0; warmed < 50; warmed++)); do is_confirmed || true; done
  before=$(resident)
  hold half-open "$half_open" half-open
  hold idle "$idle"
  end
}

parse() {
  while (($# > 0)); do
    case $1 in
      --half-open | --idle | --for)
        [[ ${2:-} =~ ^[1-9][0-9]{0,5}$ ]] || reject_arguments "$1 needs a number"
        case $1 in
          --half-open) half_open=$2 ;;
          --idle) idle=$2 ;;
          --for) seconds=$2 ;;
        esac
        shift
        ;;
      *) common_option "$1" ;;
    esac
    shift
  done
}

# Resident memory of the order service, in MiB.
resident() { status | jq '.processes[] | select(.name == "order") | .rss_mib | round'; }

# Places an order and waits for its end. Retries use the same key, so they order nothing twice.
is_confirmed() {
  local key answer again
  key=flood-$$-$RANDOM-$(millis)
  for ((again = 0; again <= 10; again++)); do
    answer=$(curl --silent --max-time 60 --header "Idempotency-Key: $key" --header 'Content-Type: application/json' \
      --header 'Prefer: wait=30' --write-out '\n%{http_code}' "$order/api/orders" --data \
      '{"customer":"ada","lines":[{"sku":"coffee-beans-1kg","quantity":1}],"payment":{"token":"tok_ok"}}') || true
    # 503: all connections are in use. 000: the connection was closed without an answer.
    case ${answer##*$'\n'} in
      503 | 000) retries=$((retries + 1)) && sleep 1 ;;
      *) break ;;
    esac
  done
  [[ $(jq -r .status <<<"${answer%$'\n'*}") == CONFIRMED ]]
}

# hold KIND NUMBER [half-open]: opens connections from several processes, because of the limit of open files.
hold() {
  local kind=$1 number=$2 mode=${3:-} each=9000 left=$2 now peak=0 orders=0 confirmed=0 dead=0 until retries=0
  local holders=() holder missing=0
  title "$number $kind connections for $seconds s"
  while ((left > 0)); do
    "$bin/examples/connection_flood" "${order#http://}" $((left < each ? left : each)) "$seconds" ${mode:+"$mode"} &
    holders+=($!)
    left=$((left - each))
  done
  until=$((SECONDS + seconds))
  while ((SECONDS < until)); do
    orders=$((orders + 1))
    if is_confirmed; then confirmed=$((confirmed + 1)); fi
    curl --silent --fail --max-time 1 --output /dev/null "$order/livez" || dead=$((dead + 1))
    now=$(resident)
    ((now <= peak)) || peak=$now
  done
  for holder in "${holders[@]}"; do
    wait "$holder" || missing=$((missing + 1))
  done
  wait_for 30 is_released "$before" || true
  now=$(resident)
  must "all connections were opened" test "$missing" = 0
  must "every order was confirmed: $confirmed of $orders, with $retries retries" test "$confirmed" = "$orders"
  must "/livez always answered: $dead misses" test "$dead" = 0
  must "memory is released: $before MiB before, $peak peak, $now after" is_released "$before"
  note "$kind" "$(jq -n --argjson connections "$number" --argjson seconds "$seconds" --argjson orders "$orders" \
    --argjson confirmed "$confirmed" --argjson retries "$retries" --argjson livez_missed "$dead" \
    --argjson before "$before" --argjson peak "$peak" --argjson after "$now" \
    '{$connections, $seconds, $orders, $confirmed, $retries, $livez_missed,
      rss_mib: {$before, $peak, $after}}')"
}

is_released() { (($(resident) <= $1 + 20)); }

main "$@"
