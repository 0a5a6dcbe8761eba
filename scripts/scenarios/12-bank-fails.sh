# shellcheck shell=bash disable=SC2034,SC2154
title="the bank is out of order, and its breaker opens"
about="The bank answers 503 to everything. The first calls are tried again, then the breaker opens: payment stops asking
the bank, and stops taking requests for money from the broker, where they wait. An outage uses up nobody's attempts
and makes no dead letters. The bank comes back, a few probes go through, the breaker closes, every order is confirmed."

scenario() {
  local customer="ada-$tag" dead before now calls began
  keep_in_stock ceramic-mug
  dead=$(dead_letters)
  began=$(get "$admin/api/admin/breakers" '[.[].breakers[] | select(.name == "bank").transitions[].at] | max // ""')

  step "all is well"
  show_breaker
  expect "the breaker of the bank" CLOSED "$(bank_breaker)"

  step "the bank answers 503, and ten orders come"
  same_by faults inject bank bank_error
  inject bank bank_error
  place "$customer" tok_ok ceramic-mug 1
  # The bank has to be back before the order gives up.
  pause_ends=$((deadline - 7))
  show "  and 9 more"
  expect "answers" "9 x 202" "$(post_at_once 9 "demo-$tag-first-#" "$(order_of "$customer" tok_ok ceramic-mug 1)")"
  wait_until "the breaker has opened" "$soon" has_opened
  same_by breakers
  show_breaker

  step "30 more come: they are taken and their stock is set aside, but nobody asks the bank for their money"
  before=$(tallies_of payment-processing) calls=$(metric "$payment" 'task_call_total{')
  expect "answers" "30 x 202" "$(post_at_once 30 "demo-$tag-more-#" "$(order_of "$customer" tok_ok ceramic-mug 1)")"
  # Those that come at once travel together: what waits is counted in messages, of which one may carry many requests.
  wait_until "their stock is set aside, and requests for money wait in the broker" "$soon" \
    at_least_is 1 waiting_for payment-processing
  wait_until "a probe finds the bank still out of order, and the breaker opens again" "$soon" \
    at_least_is 2 openings_since "$began"
  now=$(tallies_of payment-processing)
  shown='.[] | select(.service == "payment").service_stats.steps[] | select(.step == "payment-processing")
    | {waiting, handled, retrying, dead}' request GET "$admin/api/admin/services"
  expect "requests that are to be tried again, and that are dead letters: as before" "${before#* }" "${now#* }"
  calls=$(($(metric "$payment" 'task_call_total{') - calls))
  holds "calls to the bank meanwhile, for 40 orders: $calls, the breaker's probes" test "$calls" -le 12
  expect "orders that wait" 40 "$(count_orders "$customer" PENDING)"

  step "the bank is back: the breaker lets a few probes through, and closes when they are answered"
  same_by faults clear bank "$fault"
  end_fault bank "$fault"
  wait_until "the breaker has closed" "$soon" is CLOSED bank_breaker
  shown="[.[] | select(.service == \"payment\").breakers[] | select(.name == \"bank\").transitions[]
    | select(.at > \"$began\") | {at, from, to, why}]" request GET "$admin/api/admin/breakers"

  pause_ends=''
  step "what waited is done"
  wait_until "no order waits" "$(past_deadline)" is 0 count_orders "$customer" PENDING
  expect "orders that are CONFIRMED" 40 "$(count_orders "$customer" CONFIRMED)"
  ends "$id" COMPLETED
  expect "dead letters, as before" "$dead" "$(dead_letters)"
  # As it was before: with an empty window, and no slow start.
  ask POST breakers/payment/bank '{"action":"reset"}' >/dev/null
}

show_breaker() {
  shown='.[] | select(.service == "payment").breakers[] | select(.name == "bank")
    | {name, state, calls, failures, failure_rate, refused, open_until}' request GET "$admin/api/admin/breakers"
}

# How often the bank's breaker has opened since then.
openings_since() {
  get "$admin/api/admin/breakers" \
    "[.[].breakers[] | select(.name == \"bank\").transitions[] | select(.to == \"OPEN\" and .at > \"$1\")] | length"
}

# Open, or half-open with its probes: while the bank is away it goes back and forth.
has_opened() {
  local state
  state=$(bank_breaker)
  printf '%s' "$state"
  [[ $state == OPEN || $state == HALF_OPEN ]]
}
