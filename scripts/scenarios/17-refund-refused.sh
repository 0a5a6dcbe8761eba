# shellcheck shell=bash disable=SC2034,SC2154
title="a refund that the bank declines"
about="A customer cancels a confirmed order, but the bank declines the refund: the account is closed. Money owed is
never dropped. The call becomes a dead letter, and the saga is COMPENSATION_STUCK until an operator acts; an alert fires. The
operator clarifies it with the bank and replays the call."

scenario() {
  local dead dead_letter
  ensure_stock travel-mug
  dead=$(dead_letters)

  step "place an order; it is confirmed and paid"
  place grace tok_ok travel-mug 2
  wait_for_saga "$id" COMPLETED

  step "make the bank decline refunds; the customer cancels"
  show_command faults inject bank bank_refuse_refund
  inject bank bank_refuse_refund
  shown='{id, status, cancelled_because}' request POST "$order/api/orders/$id/cancel"
  expect "order" "CANCELLED customer_request" "$(field '"\(.status) \(.cancelled_because)"')"
  wait_until "reservation: RELEASED" "$short_wait" is RELEASED reservation "$id"

  step "the saga needs an operator"
  show_command saga list --status failed
  wait_until "saga: COMPENSATION_STUCK" "$short_wait" is COMPENSATION_STUCK saga_state "$id"
  shown=".sagas[] | select(.id == \"$id\") | {id, status, customer, total, next}" \
    request GET "$admin/api/admin/sagas?status=COMPENSATION_STUCK"
  expect "its missing step" "payment-refund of payment" \
    "$(field ".sagas[] | select(.id == \"$id\").next | \"\\(.step) of \\(.owner)\"")"
  wait_until "the metric of the alert is at least 1" "$short_wait" at_least 1 metric "$payment" dead_letter_unresolved
  show "    ${dim}dead_letter_unresolved $(metric "$payment" dead_letter_unresolved)  (GET $payment/metrics)${plain}"

  step "the dead letter is a call, not a message"
  wait_until "the dead letter exists" "$short_wait" is 1 pending_dead_letters_of "$id"
  dead_letter=$(newest_dead_letter_of "$id")
  show_command dlq show "$dead_letter"
  shown='{status, service, step, origin, reason, attempts}' request GET "$admin/api/admin/dlq/$dead_letter"
  expect "a call of payment" "task payment-refund" "$(field '"\(.origin) \(.step)"')"
  request POST "$admin/api/admin/dlq/$dead_letter/edit" '{"data":{},"reason":"a smaller amount"}' "X-Operator: $operator"
  expect "the amount cannot be edited" 409 "$status"
  expect "the charge is not refunded yet" CAPTURED "$(charge_state "$id")"

  step "the bank reopens the account; replay the call"
  show_command faults clear bank "$fault"
  end_fault bank "$fault"
  show_command dlq replay "$dead_letter" --reason "'the bank reopened the account'"
  replay_dead_letter "$dead_letter" "the bank reopened the account"
  wait_for_saga "$id" COMPENSATED
  wait_until "payment: REFUNDED" "$short_wait" is REFUNDED payment_state "$id"
  expect "charge" REFUNDED "$(charge_state "$id")"
  wait_until "dead letter: RESOLVED" "$short_wait" is RESOLVED dead_letter_state "$dead_letter"
  expect "dead letters as before" "$dead" "$(dead_letters)"
}
