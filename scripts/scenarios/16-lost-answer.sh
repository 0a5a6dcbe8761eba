# shellcheck shell=bash disable=SC2034,SC2154
title="the bank charges, but its answer is lost"
about="The bank takes the money, and the connection breaks before it answers. Payment repeats the call with the same
Idempotency-Key until there is an answer. The bank repeats its first answer. The card is charged once, and refunded
once."

scenario() {
  local charge
  ensure_stock travel-mug

  step "make the bank execute the next three calls and drop the answers"
  show_command faults inject bank bank_lose_answer --next 3
  inject bank bank_lose_answer '"next":3'

  step "place an order; it is confirmed"
  lose_answers 3 place ada tok_ok travel-mug 1
  wait_for_saga "$id" COMPLETED
  charge=$(payment_id "$id")
  expect "calls to the bank without an answer" 3 "$lost"

  step "one payment, one charge"
  shown='.[] | {id, status, amount, bank_reference}' request GET "$payment/api/payments?order=$id"
  expect "payments" "1 CAPTURED" "$(field '"\(length) \(.[0].status)"')"
  request GET "$bank/v1/charges/$charge"
  expect "charge" CAPTURED "$(field .status)"

  step "the same for a refund"
  inject bank bank_lose_answer '"next":1'
  shown='{id, status}' lose_answers 1 request POST "$order/api/orders/$id/cancel"
  wait_for_saga "$id" COMPENSATED
  expect "calls to the bank without an answer" 1 "$lost"
  expect "charge" REFUNDED "$(charge_state "$id")"
  shown='[.events[] | {version, event}]' request GET "$payment/api/payments/$charge/events"
  expect "faults left" 0 "$(get "$admin/api/admin/faults" '.faults | length')"
}

# lose_answers N COMMAND…: runs it and waits until N calls to the bank have failed; sets `lost` to their number.
lose_answers() {
  local before
  before=$(failed_calls)
  "${@:2}"
  wait_until "lost answers: $1" "$short_wait" at_least $((before + $1)) failed_calls
  lost=$(($(failed_calls) - before))
}

failed_calls() {
  curl --silent --show-error --max-time 60 "$payment/metrics" |
    awk '/^task_call_total.*outcome="failed"/ { sum += $2 } END { print sum + 0 }'
}
