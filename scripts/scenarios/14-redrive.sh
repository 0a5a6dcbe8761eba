# shellcheck shell=bash disable=SC2034,SC2154
title="redrive of 300 dead letters with one cause"
about="A bug in the sale step: 300 orders are confirmed and paid, but their reservations do not become sales. The 300
dead letters form one group. One redrive replays them all. It sends a canary first and stops while the cause exists. A
late sale is correct, because a confirmed order keeps its reservation."

scenario() {
  local customer="crowd-$tag" sku="bug-$tag" dead fingerprint redrive filter
  dead=$(dead_letters)
  step "list a product, and inject a bug into inventory-sale"
  new_product "$sku" "Mug with a bug" 990 300
  show_command faults inject inventory fail_permanently --step inventory-sale
  inject inventory fail_permanently '"step":"inventory-sale"'

  step "300 orders in parallel: confirmed and paid, but the units stay reserved"
  show "  ${blue}→ 300 x POST $order/api/orders${plain}"
  expect "answers" "300 x 202" "$(post_in_parallel 300 "demo-$tag-#" "$(order_of "$customer" tok_ok "$sku" 1)")"
  deadline=$(jq -r "$seconds"'.deadline | seconds' "$scratch/posted/300")
  wait_until "no order is pending" "$(past_deadline)" is 0 count_orders "$customer" PENDING
  expect "CONFIRMED" 300 "$(count_orders "$customer" CONFIRMED)"
  wait_until "dead letters: $((dead + 300)) (before: $dead)" "$short_wait" is $((dead + 300)) dead_letters
  expect "on hand, reserved, sold" "0 300 0" "$(stock "$sku")"

  step "300 dead letters, one group"
  show_command dlq groups --step inventory-sale
  shown='.groups[] | {fingerprint, count, step, message_type, reason}' \
    request GET "$admin/api/admin/dlq/groups?step=inventory-sale"
  fingerprint=$(field '.groups[] | select(.reason | startswith("injected:")).fingerprint')
  expect "dead letters in this group" 300 "$(size_of_group "$fingerprint")"

  step "preview a redrive of this group"
  filter="\"filter\":{\"fingerprint\":\"$fingerprint\"}"
  show_command dlq redrive --fingerprint "$fingerprint" --preview
  shown='{preview, matching, replayable, over_limit, groups: [.groups[] | {fingerprint, count}]}' \
    request POST "$admin/api/admin/dlq/redrive" "{$filter,\"preview\":true}" "X-Operator: $operator"
  expect "replayable" "300 of 300" "$(field '"\(.replayable) of \(.matching)"')"

  step "redrive too early: the canary fails, and nothing else is sent"
  show_command dlq redrive --fingerprint "$fingerprint" --canary 1 --rate 150 --reason "'probably fixed'"
  shown='{id, status, canary, rate, matching}' request POST "$admin/api/admin/dlq/redrive" \
    "{$filter,\"canary\":1,\"rate\":150,\"reason\":\"probably fixed\"}" "X-Operator: $operator"
  expect "started" 202 "$status"
  redrive=$(field .id)
  wait_until "redrive: STOPPED" "$short_wait" is STOPPED redrive_state "$redrive"
  shown='{status, stopped_because, sent, resolved, failed, remaining}' request GET "$admin/api/admin/dlq/redrive/$redrive"
  expect "sent, resolved" "1 0" "$(field '"\(.sent) \(.resolved)"')"
  expect "dead letters in this group" 300 "$(size_of_group "$fingerprint")"

  step "fix the bug and resume: canary first, then 150 dead letters per second"
  show_command faults clear inventory "$fault"
  end_fault inventory "$fault"
  show_command redrive resume "$redrive" --reason "'now it is fixed'"
  shown='{status, round, remaining}' request POST "$admin/api/admin/dlq/redrive/$redrive/resume" \
    '{"reason":"now it is fixed"}' "X-Operator: $operator"
  expect "resumed" "200 2" "$status $(field .round)"
  show_command redrive follow "$redrive"
  follow "$redrive"
  shown='{status, round, sent, resolved, failed, in_flight, remaining}' request GET "$admin/api/admin/dlq/redrive/$redrive"
  expect "redrive" "DONE 300" "$(field '"\(.status) \(.resolved)"')"

  step "all sales are done"
  expect "dead letters in this group" 0 "$(size_of_group "$fingerprint")"
  expect "dead letters as before" "$dead" "$(dead_letters)"
  expect "on hand, reserved, sold" "0 0 300" "$(stock "$sku")"
  shown='[.entries[] | {at, operator, action, reason}]' request GET "$admin/api/admin/audit?target=$redrive"
  expect "in the audit log, oldest first" "redrive.start redrive.stop redrive.resume" \
    "$(field '[.entries[].action] | reverse | join(" ")')"
}

# size_of_group FINGERPRINT: pending dead letters with this cause.
size_of_group() {
  get "$admin/api/admin/dlq/groups?step=inventory-sale" "[.groups[] | select(.fingerprint == \"$1\").count] | add // 0"
}

redrive_state() { get "$admin/api/admin/dlq/redrive/$1" .status; }

# follow REDRIVE: shows its server-sent events until it ends.
follow() {
  local line event=''
  show "  ${blue}→ GET $admin/api/admin/dlq/redrive/$1/events${plain}"
  curl --silent --show-error --no-buffer --max-time 60 "$admin/api/admin/dlq/redrive/$1/events" |
    while IFS= read -r line; do
      case $line in
        event:*) event=${line#event:} ;;
        data:*)
          jq -r --arg event "${event# }" \
            '"    \($event)  \(.status)  sent \(.sent), resolved \(.resolved), in flight \(.in_flight), remaining \(.remaining)"' \
            <<<"${line#data:}"
          ;;
      esac
    done
}
