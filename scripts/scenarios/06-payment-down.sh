# shellcheck shell=bash disable=SC2034,SC2154
title="payment down, time-out, late work is compensated"
about="Payment is stopped. The order is accepted and its stock reserved, but nobody charges the card. At its deadline
the order cancels itself, and the stock is released. When payment restarts, it finds the charge request and the
cancellation. In whatever order it processes them, the customer keeps the money."

scenario() {
  local mugs
  ensure_stock travel-mug
  mugs=$(units travel-mug on_hand)

  step "stop payment and place an order"
  control_process stop payment
  place ada tok_ok travel-mug 4
  wait_until "reservation: RESERVED" "$short_wait" is RESERVED reservation "$id"
  wait_until "admin shows that payment owes the next step" "$short_wait" \
    is payment get "$admin/api/admin/sagas/$id" .next.owner

  step "wait for the deadline ($((deadline - $(date +%s))) s from now)"
  wait_until "order: CANCELLED timed_out" "$(past_deadline)" is "CANCELLED timed_out" order_state "$id"
  wait_until "reservation: RELEASED" "$short_wait" is RELEASED reservation "$id"
  expect "travel-mug on hand as before" "$mugs" "$(units travel-mug on_hand)"

  step "start payment; it finds the late messages"
  control_process start payment
  wait_until "payment: VOID or REFUNDED" "$short_wait" is_reversed "$id"
  wait_for_saga "$id" COMPENSATED
  request GET "$payment/api/payments?order=$id"
  request GET "$bank/v1/charges/$(field '.[0].id')"
  # 404: no charge was requested. BLOCKED: the reversal came first and blocks a later charge.
  check "the bank keeps no money" grep -qxE '404 |200 (REFUNDED|BLOCKED)' <<<"$status $(field '.status | select(type == "string")')"
}

is_reversed() {
  local state
  state=$(payment_state "$1")
  printf '%s' "$state"
  [[ $state == VOID || $state == REFUNDED ]]
}
