#!/usr/bin/env bash
# Holds ten thousand half-open requests and then twenty thousand idle connections against the order service of a system
# of its own, while customers order: every order goes on, /livez answers, and the memory comes back.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$root/scripts/bench-lib.sh"

usage() {
  cat <<USAGE
usage: scripts/held.sh [OPTIONS]

  --half-open N   connections that begin a request and never end it (10000)
  --idle N        connections that ask for nothing (20000)
  --for SECONDS   how long they are held (60)
  --json          one JSON object instead of lines; progress goes to standard error
  --keep          keep the data and the logs
  --no-build      measure what is built already

Exit code 0 when every order was confirmed (a client asks again after a 503, as it is told to), /livez answered within a
second throughout, and 20 MiB at most stayed behind; 1 when not, 2 when the command makes no sense.
USAGE
}

half_open=10000 idle=20000 seconds=60 before=0

main() {
  parse "$@"
  begin
  ulimit -n "$(ulimit -Hn)"
  if [[ $building == yes ]]; then
    build --example held >&2
  fi
  [[ -x $bin/examples/held ]] || die "$bin/examples/held is not built (leave out --no-build)"
  start_system "$bin"
  curl --silent --show-error --fail --output /dev/null --header 'Content-Type: application/json' \
    --data '{"quantity":100000}' "$inventory/api/products/coffee-beans-1kg/restock"
  local warmed asked_again=0
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
        [[ ${2:-} =~ ^[1-9][0-9]{0,5}$ ]] || refuse "$1 needs a number"
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

# What the order service holds of the memory, in MiB.
resident() { status | jq '.processes[] | select(.name == "order") | .rss_mib | round'; }

# One order, until it is settled: under one key, so that asking again orders nothing twice.
is_confirmed() {
  local key answer again
  key=held-$$-$RANDOM-$(millis)
  for ((again = 0; again <= 10; again++)); do
    answer=$(curl --silent --max-time 60 --header "Idempotency-Key: $key" --header 'Content-Type: application/json' \
      --header 'Prefer: wait=30' --write-out '\n%{http_code}' "$order/api/orders" --data \
      '{"customer":"ada","lines":[{"sku":"coffee-beans-1kg","quantity":1}],"payment":{"token":"tok_ok"}}') || true
    # 503: all connections are taken. 000: it was closed before anything was said.
    case ${answer##*$'\n'} in
      503 | 000) asked_again=$((asked_again + 1)) && sleep 1 ;;
      *) break ;;
    esac
  done
  [[ $(jq -r .status <<<"${answer%$'\n'*}") == CONFIRMED ]]
}

# hold KIND NUMBER [half-open]: by several processes, none of which may hold that many files.
hold() {
  local kind=$1 number=$2 said=${3:-} each=9000 left=$2 now peak=0 orders=0 confirmed=0 dead=0 until asked_again=0
  local holders=() holder missing=0
  title "held: $number $kind connections for $seconds s"
  while ((left > 0)); do
    "$bin/examples/held" "${order#http://}" $((left < each ? left : each)) "$seconds" ${said:+"$said"} &
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
  wait_for 30 is_small_again "$before" || true
  now=$(resident)
  must "all connections were made" test "$missing" = 0
  must "every order was confirmed: $confirmed of $orders, asking again $asked_again times" test "$confirmed" = "$orders"
  must "/livez answered throughout: it missed $dead times" test "$dead" = 0
  must "the memory came back: $before MiB before, $peak at most, $now after" is_small_again "$before"
  note "$kind" "$(jq -n --argjson connections "$number" --argjson seconds "$seconds" --argjson orders "$orders" \
    --argjson confirmed "$confirmed" --argjson asked_again "$asked_again" --argjson livez_missed "$dead" \
    --argjson before "$before" --argjson peak "$peak" --argjson after "$now" \
    '{$connections, $seconds, $orders, $confirmed, $asked_again, $livez_missed,
      rss_mib: {$before, $peak, $after}}')"
}

is_small_again() { (($(resident) <= $1 + 20)); }

main "$@"
