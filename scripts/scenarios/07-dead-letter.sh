# shellcheck shell=bash disable=SC2034,SC2154
title="a dead letter, from failure to resolution"
about="A step has a bug and fails for a valid message. Nothing is lost: the message becomes a dead letter. An operator
finds it, understands it, fixes the cause and replays it, in eleven steps. Each step shows the request and the command
of sagactl. The order's deadline continues meanwhile."

scenario() {
  local dead dead_letter version fingerprint replayed confirmed
  ensure_stock coffee-beans-1kg
  dead=$(dead_letters)

  step "1/11  inject: the step order-confirmation gets a bug"
  show_command faults inject order fail_permanently --step order-confirmation
  inject order fail_permanently '"step":"order-confirmation"'

  step "2/11  order: the stock is reserved and the card charged, but the order is not confirmed"
  place ada tok_ok coffee-beans-1kg 1
  # The replay must happen before the deadline of the order.
  pause_deadline=$((deadline - 3))
  wait_until "payment: CAPTURED" "$short_wait" is CAPTURED payment_state "$id"
  expect "order (would be CONFIRMED without the bug)" PENDING "$(order_state "$id")"

  step "3/11  detect: the number of dead letters grows; an alert uses the same metric"
  show_command dlq count
  wait_until "dead letters: $((dead + 1)) (before: $dead)" "$short_wait" is $((dead + 1)) dead_letters
  request GET "$admin/api/admin/dlq/count"

  step "4/11  list: message, step and reason, newest first"
  show_command dlq list --service order --status pending
  shown='.dead_letters[0] | {id, status, step, message_type, saga, reason, attempts, replays}' \
    request GET "$admin/api/admin/dlq?service=order&status=PENDING&saga=$id"
  dead_letter=$(field '.dead_letters[0].id') version=$(field '.dead_letters[0].version')
  fingerprint=$(field '.dead_letters[0].fingerprint')
  expect "dead letters of this order" 1 "$(field '.dead_letters | length')"
  expect "step and message" "order-confirmation PaymentProcessed" \
    "$(field '.dead_letters[0] | "\(.step) \(.message_type)"')"

  step "5/11  group: dead letters with the same cause have the same fingerprint"
  show_command dlq groups --service order
  shown=".groups[] | select(.fingerprint == \"$fingerprint\") | {fingerprint, count, step, reason}" \
    request GET "$admin/api/admin/dlq/groups?service=order"
  expect "dead letters with this cause" 1 "$(field ".groups[] | select(.fingerprint == \"$fingerprint\").count")"

  step "6/11  inspect: message, error chain, position at the broker, history"
  show_command dlq show "$dead_letter"
  shown='{error_chain, delivery: (.delivery | {stream, sequence}), payload, history: [.history[] | {at, what}]}' \
    request GET "$admin/api/admin/dlq/$dead_letter"
  expect "the order in the message" "$id" "$(field .payload.data.order)"
  expect "the next step of the saga" "order-confirmation of order" \
    "$(get "$admin/api/admin/sagas/$id" '.next | "\(.step) of \(.owner)"')"

  step "7/11  note: record the finding for the next operator"
  show_command dlq note "$dead_letter" "'the message is valid: the step has a bug'"
  shown='{notes}' request POST "$admin/api/admin/dlq/$dead_letter/notes" \
    '{"text":"the message is valid: the step has a bug"}' "X-Operator: $operator"
  expect "stored" 201 "$status"

  step "8/11  fix: remove the cause first; an earlier replay would fail again"
  show_command faults clear
  shown='{cleared}' request DELETE "$admin/api/admin/faults" "" "X-Operator: $operator"
  shown='{faults}' request GET "$admin/api/admin/faults"
  expect "faults left" 0 "$(field '.faults | length')"

  step "9/11  replay: only the failed step gets the message, and does not take it for a duplicate"
  show_command dlq replay "$dead_letter" --reason "'the bug is fixed'"
  version=$(get "$admin/api/admin/dlq/$dead_letter" .version)
  shown='{id, status, version}' request POST "$admin/api/admin/dlq/$dead_letter/replay" \
    "{\"reason\":\"the bug is fixed\",\"version\":$version}" "X-Operator: $operator"
  expect "replayed (the version shows that nobody changed it meanwhile)" "202 REPLAYING" "$status $(field .status)"

  step "10/11 confirm: the order continues"
  pause_deadline=''
  wait_until "order: CONFIRMED" "$short_wait" is CONFIRMED order_state "$id"
  wait_for_saga "$id" COMPLETED
  replayed=$(get "$admin/api/admin/dlq/$dead_letter" "$millis"'[.history[] | select(.what == "replayed").at | millis] | max')
  confirmed=$(get "$admin/api/admin/sagas/$id" "$millis"'.timeline[] | select(.type == "OrderConfirmed").occurred_at | millis')
  check "time from replay to confirmation: $((confirmed - replayed)) ms" test $((confirmed - replayed)) -lt 2000
  expect "the card was charged once" CAPTURED "$(charge_state "$id")"

  step "11/11 resolve: history of the dead letter, and the audit log"
  show_command log --by "$operator"
  wait_until "dead letter: RESOLVED" "$short_wait" is RESOLVED dead_letter_state "$dead_letter"
  shown='[.history[] | {at, what, operator, reason} | with_entries(select(.value))]' \
    request GET "$admin/api/admin/dlq/$dead_letter"
  shown='[.entries[] | {at, operator, action, reason, outcome}]' request GET "$admin/api/admin/audit?target=$dead_letter"
  expect "in the audit log" "dlq.note dlq.replay" "$(field '[.entries[].action] | sort | join(" ")')"
  wait_until "dead letters, as before: $dead" "$short_wait" is "$dead" dead_letters
}
