#!/usr/bin/env bash
# An operator's night, measured: bugs fill the dead letters while orders go on; triage, a redrive that comes too early,
# more time for who still waits, the cause mended, redrives, and the rest settled by hand. At the end the books balance.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$root/scripts/bench-lib.sh"

usage() {
  cat <<USAGE
usage: scripts/night.sh [OPTIONS]

  --letters N       dead letters, of three causes, before the operator wakes up (2000)
  --rate N          orders per second, all night (100)
  --json            one JSON object instead of tables; progress goes to standard error
  --keep            keep the data and the logs
  --no-build        measure what is built already

Starts a system of its own, on free ports. Exit code 0 when all that must hold held (every command ended as it should,
no dead letter is left, the books balance), 1 when not, 2 when the command makes no sense.
USAGE
}

letters=2000 rate=100 rows='[]'

main() {
  parse "$@"
  begin
  night
  end
}

parse() {
  while (($# > 0)); do
    case $1 in
      --letters | --rate)
        [[ ${2:-} =~ ^[1-9][0-9]{0,4}$ ]] || refuse "$1 needs a number"
        [[ $1 == --rate ]] && rate=$2 || letters=$2
        shift
        ;;
      *) common_option "$1" ;;
    esac
    shift
  done
}

night() {
  local refunds=$((letters / 5)) load began first sale charge known
  title "night: $letters dead letters in 3 groups, $rate orders per second"
  start_system "$bin"
  # Those whose money the bank will not give back were sold before.
  control load --rate 200 --duration "$((refunds * 5))ms" --mix happy=100,declined=0,out_of_stock=0
  refunds=$(confirmed | wc -l)
  timeout 900 "$sagactl" --data "$data" load --rate "$rate" --duration 150s --mix happy=100,declined=0,out_of_stock=0 \
    --json >"$folder/load.json" 2>"$folder/load.err" &
  load=$!
  confirmed >"$folder/to-cancel"

  step "three bugs: the sale, the charge, and a bank that gives nothing back"
  began=$(millis)
  run faults inject bank bank_refuse_refund
  run faults inject inventory fail_permanently --step inventory-sale --probability 40
  run faults inject payment fail_permanently --step payment-processing --probability 40
  must "a dead letter" wait_for 30 some_letters 1
  first=$(millis)
  must "status says that somebody is needed" wait_for 30 needs_somebody
  first=$(($(millis) - first))
  cancel_all
  must "$letters dead letters" wait_for 300 some_letters "$letters"
  show "  after $((($(millis) - began) / 1000)) s; status said so ${first} ms after the first was seen" \
    "" "  command                                    ms   exit"

  timed "what is wrong?" 5 status
  timed "what does it mean?" 5 doctor
  timed "which causes?" 0 dlq groups
  sale=$(cause_of inventory-sale) charge=$(cause_of payment-processing)
  timed "which letters?" 0 dlq list --fingerprint "$sale"
  known=$(get "$admin/api/admin/dlq?fingerprint=$charge&limit=1" '.dead_letters[0].id')
  timed "one of them" 0 dlq show "$known"
  timed "more time for who waits" any saga extend --fingerprint "$charge" --for 30m --reason "the charge is being mended"
  timed "what would a redrive do?" 0 dlq redrive --fingerprint "$sale" --preview
  timed "a redrive too early" 2 dlq redrive --fingerprint "$sale" --canary 20 --reason "mended, I hope"
  timed "the sale is mended" 0 faults clear inventory
  timed "the charge is mended" 0 faults clear payment
  local redrive
  redrive=$(get "$admin/api/admin/dlq/redrive" '.redrives[0].id')
  timed "on with the redrive" 0 redrive resume "$redrive" --reason "now it is mended"
  timed "until all are sold" 0 redrive follow "$redrive"
  timed "a redrive of the charges" 0 dlq redrive --fingerprint "$charge" --canary 5 --reason "mended"
  timed "the refunds, by cheque" 0 dlq settle --step payment-refund --reason "cheques, sent by the accountant"
  timed "what have I done?" 0 log list

  must "the load ends" wait "$load"
  must "no dead letter waits" wait_for 60 has_letters PENDING 0
  timed "do the books balance?" 0 audit
  timed "is anything left?" 0 status
  local settled
  settled=$(get "$admin/api/admin/audit" .settled_count)
  must "the audit lists the $refunds refunds that were settled" test "$settled" = "$refunds"
  note night "$(jq -n --argjson rows "$rows" --argjson first "$first" --slurpfile load "$folder/load.json" \
    --argjson resolved "$(letters_in RESOLVED)" --argjson settled "$settled" \
    '{noticed_ms: $first, commands: $rows, resolved: $resolved, settled: $settled, orders: $load[0].started}')"
  stop_system
}

step() { show "" "  $*"; }

# run COMMAND…: of sagactl, that must work.
run() { must "$*" control "$@"; }

# timed WHAT EXIT COMMAND…: how long a command of sagactl takes, and whether it ends with this exit code.
timed() {
  local what=$1 wanted=$2 began took code=0
  shift 2
  began=$(millis)
  timeout 300 "$sagactl" --data "$data" "$@" >"$folder/said" 2>&1 || code=$?
  took=$(($(millis) - began))
  show "$(printf '  %-36s %8s %6s   sagactl %s' "$what" "$took" "$code" "$*")"
  rows=$(jq --arg what "$what" --arg command "$*" --argjson ms "$took" --argjson code "$code" \
    '. + [{what: $what, command: $command, ms: $ms, exit: $code}]' <<<"$rows")
  if [[ $wanted != any && $code != "$wanted" ]]; then
    must "exit code $wanted, not $code: $(tail -n 3 "$folder/said")" false
  fi
}

some_letters() { (($(letters_in PENDING) >= $1)); }

needs_somebody() {
  local code=0
  "$sagactl" --data "$data" status >/dev/null 2>&1 || code=$?
  ((code == 5))
}

cause_of() { get "$admin/api/admin/dlq/groups?step=$1" '.groups | max_by(.count).fingerprint'; }

# The orders that were confirmed before the night.
confirmed() {
  if [[ -s $folder/confirmed ]]; then cat "$folder/confirmed" && return; fi
  local cursor='' page
  while :; do
    page=$(curl --silent --show-error --fail --max-time 60 "$order/api/orders?status=CONFIRMED&limit=100${cursor:+&cursor=$cursor}")
    jq -r '.orders[].id' <<<"$page" >>"$folder/confirmed"
    cursor=$(jq -r '.next // ""' <<<"$page")
    [[ -n $cursor ]] || break
  done
  cat "$folder/confirmed"
}

cancel_all() {
  local id
  while read -r id; do
    printf '%s\n' "url = \"$order/api/orders/$id/cancel\"" 'request = "POST"' 'data = "{}"' 'max-time = 60' \
      'header = "Content-Type: application/json"' 'output = "/dev/null"' next
  done <"$folder/to-cancel" | sed '$d' | curl --no-progress-meter --parallel --parallel-max 50 --config - ||
    must "every order is cancelled" false
}

main "$@"
