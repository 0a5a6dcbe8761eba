# shellcheck shell=bash disable=SC2034,SC2154
title="the bank charges, and its answer is lost"
about="The bank takes the money, and the connection breaks before it says so. Payment cannot know, and asks again under the
same Idempotency-Key, as often as it takes: the bank answers what it answered the first time. The card is charged once,
and given back once."

scenario() {
  local charge
  keep_in_stock travel-mug

  step "the bank will do what it is asked, and lose the answer, three times"
  same_by faults inject bank bank_lose_answer --next 3
  inject bank bank_lose_answer '"next":3'

  step "an order is confirmed all the same"
  lose_answers 3 place ada tok_ok travel-mug 1
  ends "$id" COMPLETED
  charge=$(payment_id "$id")
  expect "calls to the bank that got no answer" 3 "$lost"

  step "one payment, one charge"
  shown='.[] | {id, status, amount, bank_reference}' request GET "$payment/api/payments?order=$id"
  expect "payments" "1 CAPTURED" "$(field '"\(length) \(.[0].status)"')"
  request GET "$bank/v1/charges/$charge"
  expect "charge" CAPTURED "$(field .status)"

  step "the same when money goes back: the bank refunds, and loses the answer"
  inject bank bank_lose_answer '"next":1'
  shown='{id, status}' lose_answers 1 request POST "$order/api/orders/$id/cancel"
  ends "$id" COMPENSATED
  expect "calls to the bank that got no answer" 1 "$lost"
  expect "charge" REFUNDED "$(charge_state "$id")"
  shown='[.events[] | {version, event}]' request GET "$payment/api/payments/$charge/events"
  expect "faults left" 0 "$(get "$admin/api/admin/faults" '.faults | length')"
}

# lose_answers N COMMAND…: does it, and waits until N calls to the bank have failed; leaves how many in `lost`.
lose_answers() {
  local before
  before=$(failed_calls)
  "${@:2}"
  wait_until "lost answers: $1" "$soon" at_least_is $((before + $1)) failed_calls
  lost=$(($(failed_calls) - before))
}

failed_calls() {
  curl --silent --show-error --max-time 60 "$payment/metrics" |
    awk '/^task_call_total.*outcome="failed"/ { sum += $2 } END { print sum + 0 }'
}
