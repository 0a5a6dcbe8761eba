#!/usr/bin/env bash
# Measures an operator's work during an incident. Three bugs create dead letters under load. The operator examines them, tries a
# redrive too early, extends deadlines, fixes the causes, redrives, and resolves the rest manually. The ledgers must balance.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$root/scripts/bench-lib.sh"

usage() {
  cat <<USAGE
usage: scripts/night.sh [OPTIONS]

  --dead-letters N  dead letters of three causes before the operator starts (2000)
  --rate N          orders per second (100)
  --json            print one JSON object; progress goes to standard error
  --keep            keep data and logs
  --no-build        use the programs of the last build

Starts a separate system on free ports. Exit code 0: every command ended as expected, no dead letter is left, and the ledgers
balance. 1: a check failed. 2: invalid arguments.
USAGE
}

dead_letters=2000 rate=100 rows='[]'

main() {
  parse "$@"
  begin
  night
  end
}

parse() {
  while (($# > 0)); do
    case $1 in
      --dead-letters | --rate)
        [[ ${2:-} =~ ^[1-9][0-9]{0,4}$ ]] || reject_arguments "$1 needs a number"
        [[ $1 == --rate ]] && rate=$2 || dead_letters=$2
        shift
        ;;
      *) common_option "$1" ;;
    esac
    shift
  done
}

night() {
  local refunds=$((dead_letters / 5)) load began first sale charge known
  title "night: $dead_letters dead letters in 3 groups, $rate orders per second"
  start_system "$bin"
  # Orders whose refunds the bank will decline are confirmed first.
  control load --rate 200 --duration "$((refunds * 5))ms" --mix happy=100,declined=0,out_of_stock=0
  refunds=$(confirmed | wc -l)
  timeout 900 "$sagactl" --data "$data" load --rate "$rate" --duration 150s --mix happy=100,declined=0,out_of_stock=0 \
    --json >"$folder/load.json" 2>"$folder/load.err" &
  load=$!
  confirmed >"$folder/to-cancel"

  step "three bugs: in the sale, in the charge, and a bank that declines refunds"
  began=$(millis)
  run faults inject bank bank_refuse_refund
  run faults inject inventory fail_permanently --step inventory-sale --probability 40
  run faults inject payment fail_permanently --step payment-processing --probability 40
  must "there is a dead letter" wait_for 30 has_at_least 1
  first=$(millis)
  must "status reports that an operator is needed" wait_for 30 needs_operator
  first=$(($(millis) - first))
  cancel_all
  must "$dead_letters dead letters" wait_for 300 has_at_least "$dead_letters"
  show "  after $((($(millis) - began) / 1000)) s; status reported it ${first} ms after the first one" \
    "" "  command                                    ms   exit"

  timed "status" 5 status
  timed "explanation" 5 doctor
  timed "causes" 0 dlq groups
  sale=$(cause_of inventory-sale) charge=$(cause_of payment-processing)
  timed "dead letters of a cause" 0 dlq list --fingerprint "$sale"
  known=$(get "$admin/api/admin/dlq?fingerprint=$charge&limit=1" '.dead_letters[0].id')
  timed "one dead letter" 0 dlq show "$known"
  timed "extend deadlines" any saga extend --fingerprint "$charge" --for 30m --reason "the charge is being fixed"
  timed "preview of a redrive" 0 dlq redrive --fingerprint "$sale" --preview
  timed "redrive too early" 2 dlq redrive --fingerprint "$sale" --canary 20 --reason "probably fixed"
  timed "fix the sale" 0 faults clear inventory
  timed "fix the charge" 0 faults clear payment
  local redrive
  redrive=$(get "$admin/api/admin/dlq/redrive" '.redrives[0].id')
  timed "resume the redrive" 0 redrive resume "$redrive" --reason "the sale is fixed"
  timed "until all are sold" 0 redrive follow "$redrive"
  timed "a redrive of the charges" 0 dlq redrive --fingerprint "$charge" --canary 5 --reason "the charge is fixed"
  timed "the refunds, by cheque" 0 dlq resolve --step payment-refund --reason "cheques, sent by the accountant"
  timed "the audit log" 0 log list

  must "the load ends" wait "$load"
  must "no dead letter waits" wait_for 60 has_dead_letters PENDING 0
  timed "do the ledgers balance?" 0 reconcile
  timed "status at the end" 0 status
  local resolved_manually
  resolved_manually=$(get "$admin/api/admin/reconciliation" .resolved_count)
  must "the reconciliation lists the $refunds refunds that were resolved manually" test "$resolved_manually" = "$refunds"
  note night "$(jq -n --argjson rows "$rows" --argjson first "$first" --slurpfile load "$folder/load.json" \
    --argjson resolved "$(dead_letters_in RESOLVED)" --argjson resolved_manually "$resolved_manually" \
    '{noticed_ms: $first, commands: $rows, resolved: $resolved, resolved_manually: $resolved_manually, orders: $load[0].started}')"
  stop_system
}

step() { show "" "  $*"; }

# run COMMAND…: a command of sagactl that must succeed.
run() { must "$*" control "$@"; }

# timed WHAT EXIT COMMAND…: measures a command of sagactl and checks its exit code.
timed() {
  local what=$1 wanted=$2 began took code=0
  shift 2
  began=$(millis)
  timeout 300 "$sagactl" --data "$data" "$@" >"$folder/output" 2>&1 || code=$?
  took=$(($(millis) - began))
  show "$(printf '  %-36s %8s %6s   sagactl %s' "$what" "$took" "$code" "$*")"
  rows=$(jq --arg what "$what" --arg command "$*" --argjson ms "$took" --argjson code "$code" \
    '. + [{what: $what, command: $command, ms: $ms, exit: $code}]' <<<"$rows")
  if [[ $wanted != any && $code != "$wanted" ]]; then
    must "exit code $wanted instead of $code: $(tail -n 3 "$folder/output")" false
  fi
}

has_at_least() { (($(dead_letters_in PENDING) >= $1)); }

needs_operator() {
  local code=0
  "$sagactl" --data "$data" status >/dev/null 2>&1 || code=$?
  ((code == 5))
}

cause_of() { get "$admin/api/admin/dlq/groups?step=$1" '.groups | max_by(.count).fingerprint'; }

# The orders that were confirmed before the incident.
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
