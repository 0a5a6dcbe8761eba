# shellcheck shell=bash disable=SC2034,SC2154
title="a poison message among 200 good orders"
about="Something that is no message gets into the stream, between the orders of 200 customers. Whoever hears it cannot
read it, now or ever. It is parked, by each step for itself, and holds up nobody: all 200 orders are confirmed within
seconds. An operator looks at it, and gives it up, saying why."

# What takes longer than this between placing and confirming 200 orders that came at once is held up by something.
on_time_ms=5000

scenario() {
  local customer="crowd-$tag" dead letter poison slowest
  new_product "mug-$tag" "Mug for a crowd" 990 500
  dead=$(dead_letters)

  step "order will publish something beside the next fact that is none"
  same_by faults inject order publish_garbage --next 1
  inject order publish_garbage '"next":1'

  step "200 orders at once"
  show "  ${blue}→ 200 x POST $order/api/orders${plain}"
  expect "answers" "200 x 202" "$(post_at_once 200 "demo-$tag-#" "$(order_of "$customer" tok_ok "mug-$tag" 1)")"
  id=$(jq -r .id "$scratch/posted/200")
  deadline=$(jq -r "$seconds"'.deadline | seconds' "$scratch/posted/200")
  wait_until "no order waits" "$(past_deadline)" is 0 count_orders "$customer" PENDING
  expect "CONFIRMED" 200 "$(count_orders "$customer" CONFIRMED)"
  wait_until "every saga has ended" "$soon" is 0 unfinished_sagas "$customer" 200
  slowest=$(slowest_ms "$customer")
  holds "from placed to confirmed, the slowest of 200: $slowest ms, on time (under $on_time_ms ms)" \
    test "$slowest" -lt "$on_time_ms"
  ends "$id" COMPLETED

  step "the poison is a dead letter of each step that heard it"
  same_by dlq list --status pending
  wait_until "dead letters, $dead before: $((dead + 2))" "$soon" is $((dead + 2)) dead_letters
  shown='[.dead_letters[] | select(.origin == "foreign") | {id, service, step, reason, attempts}]' \
    request GET "$admin/api/admin/dlq?status=PENDING"
  expect "steps" "admin-saga-view inventory-stock-reservation" \
    "$(field '[.dead_letters[] | select(.origin == "foreign").step] | unique | join(" ")')"

  step "an operator looks at it: this was never a message"
  poison=$(poison_letters) letter=${poison%%$'\n'*}
  same_by dlq show "$letter"
  shown='{error_chain, delivery, payload, payload_base64}' request GET "$admin/api/admin/dlq/$letter"
  show "    which is: $(field .payload_base64 | base64 --decode)"
  expect "attempts: what cannot be read is not tried again" 1 "$(field .attempts)"

  step "and gives it up"
  same_by dlq discard "$letter" --reason "'never was a message'"
  for letter in $poison; do
    shown='{id, status, step}' request DELETE "$admin/api/admin/dlq/$letter" '{"reason":"never was a message"}' "X-Operator: $operator"
    expect "given up" "200 DISCARDED" "$status $(field .status)"
  done
  shown='[.history[] | {at, what, operator, reason} | with_entries(select(.value))]' \
    request GET "$admin/api/admin/dlq/$letter"
  expect "why, for whoever asks later" "never was a message" "$(field '.history[-1].reason')"
  expect "dead letters, as before" "$dead" "$(dead_letters)"
}

# The longest time from placing an order to its last fact.
slowest_ms() {
  jq -s "$millis"'map({(.id): .placed_at | millis}) | add' "$scratch"/posted/* >"$scratch/placed"
  curl --silent --show-error --max-time 60 "$admin/api/admin/sagas?customer=$1&limit=200" |
    jq --slurpfile placed "$scratch/placed" "$millis"'[.sagas[] | (.last_fact_at | millis) - $placed[0][.id]] | max'
}
