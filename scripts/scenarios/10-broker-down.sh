# shellcheck shell=bash disable=SC2034,SC2154
title="broker down while orders keep coming"
about="The broker is stopped. Orders are still taken: the fact that each was placed waits in the outbox, in the same
database transaction as the order. The broker comes back, the outboxes drain, and every order ends. An outage of the
broker loses nothing and makes no dead letters."

scenario() {
  local customer="ada-$tag" dead
  keep_in_stock ceramic-mug
  dead=$(dead_letters)

  step "the broker stops"
  control stop nats
  wait_until "the order service has noticed" "$soon" is true get "$order/readyz" .degraded
  request GET "$order/readyz"
  expect "readiness: it takes orders" 200 "$status"
  holds "it says that the broker is away" \
    json_matches '.ready and .checks.broker.state == "degraded" and .checks.store.state == "ok"' "$answer"

  step "orders keep coming"
  place "$customer" tok_ok ceramic-mug 1
  show "  and 29 more"
  expect "answers" "29 x 202" "$(post_at_once 29 "demo-$tag-outage-#" "$(order_of "$customer" tok_ok ceramic-mug 1)")"
  deadline=$(jq -r "$seconds"'.deadline | seconds' "$scratch/posted/29")
  shown='[.[] | {(.service): (.entries | length)}] | add' request GET "$admin/api/admin/outbox"
  holds "30 facts or more wait in the outbox of the order service" \
    json_matches '.[] | select(.service == "order").entries | length >= 30' "$answer"
  expect "orders that wait" 30 "$(count_orders "$customer" PENDING)"

  step "the broker comes back"
  control start nats
  wait_until "the outbox of the order service is empty" "$soon" is 0 outbox_of order
  wait_until "no order waits" "$(past_deadline)" is 0 count_orders "$customer" PENDING
  expect "orders that ended" 30 "$(count_orders "$customer")"
  expect "orders that are confirmed" 30 "$(count_orders "$customer" CONFIRMED)"
  wait_until "the saga of the first one has ended" "$soon" is_over "$id"
  ends "$id" "$(saga_state "$id")"
  wait_until "nothing is wrong with the order service" "$soon" is false get "$order/readyz" .degraded
  expect "dead letters, as before" "$dead" "$(dead_letters)"
}

outbox_of() { get "$admin/api/admin/outbox" ".[] | select(.service == \"$1\").entries | length"; }

is_over() {
  local state
  state=$(saga_state "$1")
  printf '%s' "$state"
  [[ $state == COMPLETED || $state == COMPENSATED ]]
}
