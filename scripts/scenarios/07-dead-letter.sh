# shellcheck shell=bash disable=SC2034,SC2154
title="a dead letter, from the first sign to the last entry"
about="A step has a bug: it fails at a message that is perfectly fine. Nothing is lost. The message is parked as a dead
letter, and an operator finds it, understands it, mends the cause and hands it back. Eleven steps, as in real life:
each shows the request, and how to do the same on the command line. The order's deadline does not wait for us."

scenario() {
  local dead letter version fingerprint replayed confirmed
  keep_in_stock coffee-beans-1kg
  dead=$(dead_letters)

  step "1/11  inject: order-confirmation gets a bug"
  same_by faults inject order fail_permanently --step order-confirmation
  inject order fail_permanently '"step":"order-confirmation"'

  step "2/11  order: a customer orders, stock is set aside, the card is charged, and then …"
  place ada tok_ok coffee-beans-1kg 1
  # The rest has to be done before the order gives up.
  pause_ends=$((deadline - 3))
  wait_until "payment: CAPTURED" "$soon" is CAPTURED payment_state "$id"
  expect "order, which should be CONFIRMED by now" PENDING "$(order_state "$id")"

  step "3/11  captured: the first sign is the count; an alert watches the same number"
  same_by dlq count
  wait_until "dead letters, $dead before: $((dead + 1))" "$soon" is $((dead + 1)) dead_letters
  request GET "$admin/api/admin/dlq/count"

  step "4/11  list: which message, which step, why; the newest failure comes first"
  same_by dlq list --service order --status pending
  shown='.dead_letters[0] | {id, status, step, message_type, saga, reason, attempts, replays}' \
    request GET "$admin/api/admin/dlq?service=order&status=PENDING&saga=$id"
  letter=$(field '.dead_letters[0].id') version=$(field '.dead_letters[0].version')
  fingerprint=$(field '.dead_letters[0].fingerprint')
  expect "dead letters of this order" 1 "$(field '.dead_letters | length')"
  expect "parked: a PaymentProcessed that order-confirmation did not get through" "order-confirmation PaymentProcessed" \
    "$(field '.dead_letters[0] | "\(.step) \(.message_type)"')"

  step "5/11  group: one, or one of many? Letters of one cause have one fingerprint"
  same_by dlq groups --service order
  shown=".groups[] | select(.fingerprint == \"$fingerprint\") | {fingerprint, count, step, reason}" \
    request GET "$admin/api/admin/dlq/groups?service=order"
  expect "of this cause" 1 "$(field ".groups[] | select(.fingerprint == \"$fingerprint\").count")"

  step "6/11  inspect: the message as it came, the whole error, where the broker had it, what happened so far"
  same_by dlq show "$letter"
  shown='{error_chain, delivery: (.delivery | {stream, sequence}), payload, history: [.history[] | {at, what}]}' \
    request GET "$admin/api/admin/dlq/$letter"
  expect "the message says which order was paid" "$id" "$(field .payload.data.order)"
  expect "who waits for it" "order-confirmation of order" \
    "$(get "$admin/api/admin/sagas/$id" '.next | "\(.step) of \(.owner)"')"

  step "7/11  note: the message is fine, the step was not; the next operator should not have to find that out again"
  same_by dlq note "$letter" "'nothing wrong with the message: the step has a bug'"
  shown='{notes}' request POST "$admin/api/admin/dlq/$letter/notes" \
    '{"text":"nothing wrong with the message: the step has a bug"}' "X-Operator: $operator"
  expect "written down" 201 "$status"

  step "8/11  mend: first the cause; what is handed back before that only fails again"
  same_by faults clear
  shown='{cleared}' request DELETE "$admin/api/admin/faults" "" "X-Operator: $operator"
  shown='{faults}' request GET "$admin/api/admin/faults"
  expect "faults left" 0 "$(field '.faults | length')"

  step "9/11  replay: back to the step that failed, and to no other; no need to wait, nothing takes it for a duplicate"
  same_by dlq replay "$letter" --reason "'the bug is mended'"
  version=$(get "$admin/api/admin/dlq/$letter" .version)
  shown='{id, status, version}' request POST "$admin/api/admin/dlq/$letter/replay" \
    "{\"reason\":\"the bug is mended\",\"version\":$version}" "X-Operator: $operator"
  expect "handed back, as nobody has changed it since we looked" "202 REPLAYING" "$status $(field .status)"

  step "10/11 confirmed: the order goes on where it stood"
  pause_ends=''
  wait_until "order: CONFIRMED" "$soon" is CONFIRMED order_state "$id"
  ends "$id" COMPLETED
  replayed=$(get "$admin/api/admin/dlq/$letter" "$millis"'[.history[] | select(.what == "replayed").at | millis] | max')
  confirmed=$(get "$admin/api/admin/sagas/$id" "$millis"'.timeline[] | select(.type == "OrderConfirmed").occurred_at | millis')
  holds "from the replay to the confirmation: $((confirmed - replayed)) ms" test $((confirmed - replayed)) -lt 2000
  expect "the card was charged once" CAPTURED "$(charge_state "$id")"

  step "11/11 resolved: the letter knows its story, and the audit log who did what, and why"
  same_by log --operator "$operator"
  wait_until "dead letter: RESOLVED" "$soon" is RESOLVED letter_state "$letter"
  shown='[.history[] | {at, what, operator, reason} | with_entries(select(.value))]' \
    request GET "$admin/api/admin/dlq/$letter"
  shown='[.entries[] | {at, operator, action, reason, outcome}]' request GET "$admin/api/admin/audit/log?target=$letter"
  expect "in the audit log" "dlq.note dlq.replay" "$(field '[.entries[].action] | sort | join(" ")')"
  wait_until "dead letters, as before: $dead" "$soon" is "$dead" dead_letters
}
