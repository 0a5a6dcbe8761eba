# shellcheck shell=bash disable=SC2034,SC2154
title="300 dead letters of one bug, redriven"
about="A bug in the sale of what was reserved: 300 orders are confirmed and paid, and none of them is sold: 300 dead
letters. Nobody clicks 300 times: they are one group, and handed back by one redrive, which sends a canary first and
stops by itself as long as the cause is not mended. Late is not wrong: a confirmed order keeps its reservation."

scenario() {
  local customer="crowd-$tag" sku="bug-$tag" dead fingerprint redrive filter
  dead=$(dead_letters)
  step "a product, and a bug in inventory-sale"
  new_product "$sku" "Mug with a bug" 990 300
  same_by faults inject inventory fail_permanently --step inventory-sale
  inject inventory fail_permanently '"step":"inventory-sale"'

  step "300 orders at once: confirmed and paid, but the pieces stay reserved"
  show "  ${blue}→ 300 x POST $order/api/orders${plain}"
  expect "answers" "300 x 202" "$(post_at_once 300 "demo-$tag-#" "$(order_of "$customer" tok_ok "$sku" 1)")"
  deadline=$(jq -r "$seconds"'.deadline | seconds' "$scratch/posted/300")
  wait_until "no order waits" "$(past_deadline)" is 0 count_orders "$customer" PENDING
  expect "CONFIRMED" 300 "$(count_orders "$customer" CONFIRMED)"
  wait_until "dead letters, $dead before: $((dead + 300))" "$soon" is $((dead + 300)) dead_letters
  expect "on hand, reserved, sold" "0 300 0" "$(stock "$sku")"

  step "300 dead letters, one group"
  same_by dlq groups --step inventory-sale
  shown='.groups[] | {fingerprint, count, step, message_type, reason}' \
    request GET "$admin/api/admin/dlq/groups?step=inventory-sale"
  fingerprint=$(field '.groups[] | select(.reason | startswith("injected:")).fingerprint')
  expect "in this group" 300 "$(size_of_group "$fingerprint")"

  step "what would a redrive of this group do?"
  filter="\"filter\":{\"fingerprint\":\"$fingerprint\"}"
  same_by dlq redrive --fingerprint "$fingerprint" --preview
  shown='{preview, matching, replayable, over_limit, groups: [.groups[] | {fingerprint, count}]}' \
    request POST "$admin/api/admin/dlq/redrive" "{$filter,\"preview\":true}" "X-Operator: $operator"
  expect "would be handed back" "300 of 300" "$(field '"\(.replayable) of \(.matching)"')"

  step "somebody is in a hurry and redrives, but the bug is still there: the canary dies, and nothing else is sent"
  same_by dlq redrive --fingerprint "$fingerprint" --canary 1 --rate 150 --reason "'mended, I hope'"
  shown='{id, status, canary, rate, matching}' request POST "$admin/api/admin/dlq/redrive" \
    "{$filter,\"canary\":1,\"rate\":150,\"reason\":\"mended, I hope\"}" "X-Operator: $operator"
  expect "started" 202 "$status"
  redrive=$(field .id)
  wait_until "redrive: STOPPED" "$soon" is STOPPED redrive_state "$redrive"
  shown='{status, stopped_because, sent, resolved, failed, remaining}' request GET "$admin/api/admin/dlq/redrive/$redrive"
  expect "sent, resolved" "1 0" "$(field '"\(.sent) \(.resolved)"')"
  expect "in this group still" 300 "$(size_of_group "$fingerprint")"

  step "the bug is mended, and the redrive goes on: canary first, then 150 dead letters per second"
  same_by faults clear inventory "$fault"
  end_fault inventory "$fault"
  same_by redrive resume "$redrive" --reason "'now it is mended'"
  shown='{status, round, remaining}' request POST "$admin/api/admin/dlq/redrive/$redrive/resume" \
    '{"reason":"now it is mended"}' "X-Operator: $operator"
  expect "goes on" "200 2" "$status $(field .round)"
  same_by redrive follow "$redrive"
  follow "$redrive"
  shown='{status, round, sent, resolved, failed, in_flight, remaining}' request GET "$admin/api/admin/dlq/redrive/$redrive"
  expect "redrive" "DONE 300" "$(field '"\(.status) \(.resolved)"')"

  step "nothing is left of it"
  expect "in this group" 0 "$(size_of_group "$fingerprint")"
  expect "dead letters, as before" "$dead" "$(dead_letters)"
  expect "on hand, reserved, sold" "0 0 300" "$(stock "$sku")"
  shown='[.entries[] | {at, operator, action, reason}]' request GET "$admin/api/admin/audit/log?target=$redrive"
  expect "in the audit log, oldest first" "redrive.start redrive.stop redrive.resume" \
    "$(field '[.entries[].action] | reverse | join(" ")')"
}

# Letters that wait for a human.
size_of_group() {
  get "$admin/api/admin/dlq/groups?step=inventory-sale" "[.groups[] | select(.fingerprint == \"$1\").count] | add // 0"
}

redrive_state() { get "$admin/api/admin/dlq/redrive/$1" .status; }

# Watches a redrive to its end, by server-sent events.
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
