# shellcheck shell=bash disable=SC2034,SC2154
title="payment down, the order times out, late work is undone"
about="Payment is stopped. The order is taken and its stock reserved, but nobody charges the card: when its deadline
passes the order cancels itself and the stock is released. Payment comes back, finds a request for money and the
cancellation, and whatever the order in which it hears them, no money is kept."

scenario() {
  local mugs
  keep_in_stock travel-mug
  mugs=$(pieces travel-mug on_hand)

  step "payment stops, an order comes"
  control stop payment
  place ada tok_ok travel-mug 4
  wait_until "reservation: HELD" "$soon" is HELD reservation "$id"
  wait_until "admin knows that payment owes the next step" "$soon" \
    is payment get "$admin/api/admin/sagas/$id" .next.owner

  step "nobody answers, and the deadline passes ($((deadline - $(date +%s))) s from now)"
  wait_until "order: CANCELLED timed_out" "$(past_deadline)" is "CANCELLED timed_out" order_state "$id"
  wait_until "reservation: RELEASED" "$soon" is RELEASED reservation "$id"
  expect "travel-mug on hand, as before" "$mugs" "$(pieces travel-mug on_hand)"

  step "payment comes back and finds late work"
  control start payment
  wait_until "payment: VOID or REFUNDED" "$soon" is_undone "$id"
  ends "$id" COMPENSATED
  request GET "$payment/api/payments?order=$id"
  request GET "$bank/v1/charges/$(field '.[0].id')"
  # 404: it was never asked. BLOCKED: the reversal came before the charge, which can never come now.
  holds "the bank holds nothing of it" grep -qxE '404 |200 (REFUNDED|BLOCKED)' <<<"$status $(field '.status | select(type == "string")')"
}

is_undone() {
  local state
  state=$(payment_state "$1")
  printf '%s' "$state"
  [[ $state == VOID || $state == REFUNDED ]]
}
