# shellcheck shell=bash disable=SC2034,SC2154
title="broker down while orders arrive"
about="The broker is stopped. Orders are still accepted: each fact waits in the outbox, stored in the same transaction
as the order. When the broker restarts, the outboxes are published and every order ends. An outage of the broker loses
nothing and creates no dead letters."

scenario() {
  local customer="ada-$tag" dead
  ensure_stock ceramic-mug
  dead=$(dead_letters)

  step "stop the broker"
  control_process stop nats
  wait_until "the order service reports it" "$short_wait" is true get "$order/readyz" .degraded
  request GET "$order/readyz"
  expect "readiness: it accepts orders" 200 "$status"
  check "it reports that the broker is unreachable" \
    json_matches '.ready and .checks.broker.state == "degraded" and .checks.store.state == "ok"' "$answer"

  step "30 orders arrive"
  place "$customer" tok_ok ceramic-mug 1
  show "  and 29 more"
  expect "answers" "29 x 202" "$(post_in_parallel 29 "demo-$tag-outage-#" "$(order_of "$customer" tok_ok ceramic-mug 1)")"
  deadline=$(jq -r "$seconds"'.deadline | seconds' "$scratch/posted/29")
  shown='[.[] | {(.service): (.entries | length)}] | add' request GET "$admin/api/admin/outbox"
  check "30 facts or more wait in the outbox of the order service" \
    json_matches '.[] | select(.service == "order").entries | length >= 30' "$answer"
  expect "pending orders" 30 "$(count_orders "$customer" PENDING)"

  step "start the broker"
  control_process start nats
  wait_until "the outbox of the order service is empty" "$short_wait" is 0 outbox_of order
  wait_until "no order is pending" "$(past_deadline)" is 0 count_orders "$customer" PENDING
  expect "all orders" 30 "$(count_orders "$customer")"
  expect "confirmed orders" 30 "$(count_orders "$customer" CONFIRMED)"
  wait_until "the saga of the first order has ended" "$short_wait" has_ended "$id"
  wait_for_saga "$id" "$(saga_state "$id")"
  wait_until "the order service is no longer degraded" "$short_wait" is false get "$order/readyz" .degraded
  expect "dead letters as before" "$dead" "$(dead_letters)"
}

outbox_of() { get "$admin/api/admin/outbox" ".[] | select(.service == \"$1\").entries | length"; }

has_ended() {
  local state
  state=$(saga_state "$1")
  printf '%s' "$state"
  [[ $state == COMPLETED || $state == COMPENSATED ]]
}
