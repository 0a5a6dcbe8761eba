# shellcheck shell=bash disable=SC2034,SC2154
title="a poison message among 200 valid orders"
about="An invalid message enters the stream between the orders of 200 customers. No consumer can read it. Each step
dead-letters it separately, and it blocks nothing: all 200 orders are confirmed within seconds. An operator examines it
and discards it with a reason."

# Limit for the confirmation of 200 parallel orders that nothing blocks.
on_time_ms=5000

scenario() {
  local customer="crowd-$tag" dead dead_letter poison slowest
  new_product "mug-$tag" "Mug for a crowd" 990 500
  dead=$(dead_letters)

  step "order will publish an invalid message with the next fact"
  show_command faults inject order publish_garbage --next 1
  inject order publish_garbage '"next":1'

  step "200 orders in parallel"
  show "  ${blue}→ 200 x POST $order/api/orders${plain}"
  expect "answers" "200 x 202" "$(post_in_parallel 200 "demo-$tag-#" "$(order_of "$customer" tok_ok "mug-$tag" 1)")"
  id=$(jq -r .id "$scratch/posted/200")
  deadline=$(jq -r "$seconds"'.deadline | seconds' "$scratch/posted/200")
  wait_until "no order is pending" "$(past_deadline)" is 0 count_orders "$customer" PENDING
  expect "CONFIRMED" 200 "$(count_orders "$customer" CONFIRMED)"
  wait_until "every saga has ended" "$short_wait" is 0 unfinished_sagas "$customer" 200
  slowest=$(slowest_ms "$customer")
  check "slowest confirmation of 200: $slowest ms (limit: $on_time_ms ms)" \
    test "$slowest" -lt "$on_time_ms"
  wait_for_saga "$id" COMPLETED

  step "each step that consumed it has a dead letter"
  show_command dlq list --status pending
  wait_until "dead letters: $((dead + 2)) (before: $dead)" "$short_wait" is $((dead + 2)) dead_letters
  shown='[.dead_letters[] | select(.origin == "foreign") | {id, service, step, reason, attempts}]' \
    request GET "$admin/api/admin/dlq?status=PENDING"
  expect "steps" "admin-saga-view inventory-stock-reservation" \
    "$(field '[.dead_letters[] | select(.origin == "foreign").step] | unique | join(" ")')"

  step "an operator examines it: it was never a message"
  poison=$(poison_dead_letters) dead_letter=${poison%%$'\n'*}
  show_command dlq show "$dead_letter"
  shown='{error_chain, delivery, payload, payload_base64}' request GET "$admin/api/admin/dlq/$dead_letter"
  show "    decoded: $(field .payload_base64 | base64 --decode)"
  expect "attempts (an unreadable message is not retried)" 1 "$(field .attempts)"

  step "and discards it"
  show_command dlq discard "$dead_letter" --reason "'never was a message'"
  for dead_letter in $poison; do
    shown='{id, status, step}' request DELETE "$admin/api/admin/dlq/$dead_letter" '{"reason":"never was a message"}' "X-Operator: $operator"
    expect "discarded" "200 DISCARDED" "$status $(field .status)"
  done
  shown='[.history[] | {at, what, operator, reason} | with_entries(select(.value))]' \
    request GET "$admin/api/admin/dlq/$dead_letter"
  expect "recorded reason" "never was a message" "$(field '.history[-1].reason')"
  expect "dead letters as before" "$dead" "$(dead_letters)"
}

# slowest_ms CUSTOMER: the longest time from placing an order to its last fact.
slowest_ms() {
  jq -s "$millis"'map({(.id): .placed_at | millis}) | add' "$scratch"/posted/* >"$scratch/placed"
  curl --silent --show-error --max-time 60 "$admin/api/admin/sagas?customer=$1&limit=200" |
    jq --slurpfile placed "$scratch/placed" "$millis"'[.sagas[] | (.last_fact_at | millis) - $placed[0][.id]] | max'
}
