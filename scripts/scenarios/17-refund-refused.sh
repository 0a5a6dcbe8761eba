# shellcheck shell=bash disable=SC2034,SC2154
title="a refund that cannot be made, and a human who sees to it"
about="A customer cancels a confirmed order, and the bank refuses to give the money back: their account is closed. Money
that is owed is never dropped: the call is parked as a dead letter, the saga is FAILED, which only a human can end, and
an alert watches the count. The human sees to it with the bank, and hands the call back."

scenario() {
  local dead letter
  keep_in_stock travel-mug
  dead=$(dead_letters)

  step "an order is confirmed and paid"
  place grace tok_ok travel-mug 2
  ends "$id" COMPLETED

  step "the bank will refuse the refund; the customer cancels"
  same_by faults inject bank bank_refuse_refund
  inject bank bank_refuse_refund
  shown='{id, status, cancelled_because}' request POST "$order/api/orders/$id/cancel"
  expect "order" "CANCELLED customer_request" "$(field '"\(.status) \(.cancelled_because)"')"
  wait_until "reservation: RELEASED" "$soon" is RELEASED reservation "$id"

  step "the saga cannot end by itself, and it shows"
  same_by saga list --status failed
  wait_until "saga: FAILED" "$soon" is FAILED saga_state "$id"
  shown=".sagas[] | select(.id == \"$id\") | {id, status, customer, total, next}" \
    request GET "$admin/api/admin/sagas?status=FAILED"
  expect "among the failed sagas, and what is owed to it" "payment-refund of payment" \
    "$(field ".sagas[] | select(.id == \"$id\").next | \"\\(.step) of \\(.owner)\"")"
  wait_until "the metric that an alert watches is not 0" "$soon" at_least_is 1 metric "$payment" dead_letter_unresolved
  show "    ${dim}dead_letter_unresolved $(metric "$payment" dead_letter_unresolved)  (GET $payment/metrics)${plain}"

  step "the dead letter: not a message, but a call"
  wait_until "its dead letter is there" "$soon" is 1 letters_of "$id"
  letter=$(letter_of "$id")
  same_by dlq show "$letter"
  shown='{status, service, step, origin, reason, attempts}' request GET "$admin/api/admin/dlq/$letter"
  expect "a call of payment" "task payment-refund" "$(field '"\(.origin) \(.step)"')"
  request POST "$admin/api/admin/dlq/$letter/edit" '{"data":{},"reason":"a smaller amount"}' "X-Operator: $operator"
  expect "what is owed cannot be changed" 409 "$status"
  expect "the money is still at the bank" CAPTURED "$(charge_state "$id")"

  step "a human sees to it with the bank, and hands the call back"
  same_by faults clear bank "$fault"
  end_fault bank "$fault"
  same_by dlq replay "$letter" --reason "'the bank has opened the account again'"
  replay_letter "$letter" "the bank has opened the account again"
  ends "$id" COMPENSATED
  wait_until "payment: REFUNDED" "$soon" is REFUNDED payment_state "$id"
  expect "charge" REFUNDED "$(charge_state "$id")"
  wait_until "dead letter: RESOLVED" "$soon" is RESOLVED letter_state "$letter"
  expect "dead letters, as before" "$dead" "$(dead_letters)"
}
