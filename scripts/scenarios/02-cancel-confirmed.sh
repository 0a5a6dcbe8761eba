# shellcheck shell=bash disable=SC2034,SC2154
title="customer cancels a confirmed order"
about="The order is confirmed, the units are sold, and the card is charged. Then the customer cancels. One fact,
OrderCancelled, makes inventory restock the units and payment refund the money."

scenario() {
  local coffee
  ensure_stock coffee-beans-1kg
  coffee=$(units coffee-beans-1kg on_hand)

  step "place an order; it is confirmed"
  place ada tok_ok coffee-beans-1kg 3
  wait_for_saga "$id" COMPLETED
  wait_until "reservation: SOLD" "$short_wait" is SOLD reservation "$id"
  expect "charge" CAPTURED "$(charge_state "$id")"

  step "the customer cancels it"
  shown='{id, status, cancelled_because}' request POST "$order/api/orders/$id/cancel"
  expect "order" "CANCELLED customer_request" "$(field '"\(.status) \(.cancelled_because)"')"
  wait_for_saga "$id" COMPENSATED

  step "stock and money are back"
  wait_until "reservation: RELEASED" "$short_wait" is RELEASED reservation "$id"
  expect "coffee-beans-1kg on hand as before" "$coffee" "$(units coffee-beans-1kg on_hand)"
  wait_until "payment: REFUNDED" "$short_wait" is REFUNDED payment_state "$id"
  request GET "$bank/v1/charges/$(payment_id "$id")"
  expect "charge" REFUNDED "$(field .status)"
}
