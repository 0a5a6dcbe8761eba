# shellcheck shell=bash disable=SC2034,SC2154
title="outage of the bank, and its breaker opens"
about="The bank answers every request with 503. The first calls are retried, then the breaker opens. Payment stops
calling the bank and stops consuming charge requests, which wait at the broker. An outage consumes no attempts and
creates no dead letters. When the bank recovers, a few probes succeed, the breaker closes, and every order is confirmed."

scenario() {
  local customer="ada-$tag" dead before now calls began
  ensure_stock ceramic-mug
  dead=$(dead_letters)
  began=$(get "$admin/api/admin/breakers" '[.[].breakers[] | select(.name == "bank").transitions[].at] | max // ""')

  step "before the outage"
  show_breaker
  expect "the breaker of the bank" CLOSED "$(bank_breaker)"

  step "the bank answers 503, and ten orders arrive"
  show_command faults inject bank bank_error
  inject bank bank_error
  place "$customer" tok_ok ceramic-mug 1
  # The bank must recover before the deadline of the order.
  pause_deadline=$((deadline - 7))
  show "  and 9 more"
  expect "answers" "9 x 202" "$(post_in_parallel 9 "demo-$tag-first-#" "$(order_of "$customer" tok_ok ceramic-mug 1)")"
  wait_until "the breaker has opened" "$short_wait" has_opened
  show_command breakers
  show_breaker

  step "30 more orders are accepted and their stock reserved, but the bank is not called"
  before=$(step_counts payment-processing) calls=$(metric "$payment" 'task_call_total{')
  expect "answers" "30 x 202" "$(post_in_parallel 30 "demo-$tag-more-#" "$(order_of "$customer" tok_ok ceramic-mug 1)")"
  # One message may carry many requests, so a few waiting messages are enough.
  wait_until "charge requests wait at the broker" "$short_wait" \
    at_least 1 waiting_at_broker payment-processing
  wait_until "a probe fails, and the breaker opens again" "$short_wait" \
    at_least 2 openings_since "$began"
  now=$(step_counts payment-processing)
  shown='.[] | select(.service == "payment").service_stats.steps[] | select(.step == "payment-processing")
    | {waiting, handled, retrying, dead}' request GET "$admin/api/admin/services"
  expect "waiting retries and dead letters as before" "${before#* }" "${now#* }"
  calls=$(($(metric "$payment" 'task_call_total{') - calls))
  check "calls to the bank for 40 orders: $calls (the probes of the breaker)" test "$calls" -le 12
  expect "pending orders" 40 "$(count_orders "$customer" PENDING)"

  step "the bank recovers: the breaker allows a few probes and closes when they succeed"
  show_command faults clear bank "$fault"
  end_fault bank "$fault"
  wait_until "the breaker has closed" "$short_wait" is CLOSED bank_breaker
  shown="[.[] | select(.service == \"payment\").breakers[] | select(.name == \"bank\").transitions[]
    | select(.at > \"$began\") | {at, from, to, why}]" request GET "$admin/api/admin/breakers"

  pause_deadline=''
  step "the waiting orders are completed"
  wait_until "no order is pending" "$(past_deadline)" is 0 count_orders "$customer" PENDING
  expect "CONFIRMED orders" 40 "$(count_orders "$customer" CONFIRMED)"
  wait_for_saga "$id" COMPLETED
  expect "dead letters as before" "$dead" "$(dead_letters)"
  # Restore the initial state: an empty window and no slow start.
  ask POST breakers/payment/bank '{"action":"reset"}' >/dev/null
}

show_breaker() {
  shown='.[] | select(.service == "payment").breakers[] | select(.name == "bank")
    | {name, state, calls, failures, failure_rate, rejected, open_until}' request GET "$admin/api/admin/breakers"
}

# openings_since TIME: how often the bank's breaker has opened.
openings_since() {
  get "$admin/api/admin/breakers" \
    "[.[].breakers[] | select(.name == \"bank\").transitions[] | select(.to == \"OPEN\" and .at > \"$1\")] | length"
}

# During an outage the breaker alternates between open and half-open.
has_opened() {
  local state
  state=$(bank_breaker)
  printf '%s' "$state"
  [[ $state == OPEN || $state == HALF_OPEN ]]
}
