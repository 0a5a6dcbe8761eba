# shellcheck shell=bash disable=SC2034,SC2154
title="customer cancels a confirmed order"
about="The order is confirmed, the pieces are sold, the money is taken; then the customer changes their mind. One
fact, OrderCancelled, makes inventory put the pieces back and payment give the money back: each undoes its own part."

scenario() {
  local coffee
  keep_in_stock coffee-beans-1kg
  coffee=$(pieces coffee-beans-1kg on_hand)

  step "an order is placed and confirmed"
  place ada tok_ok coffee-beans-1kg 3
  ends "$id" COMPLETED
  wait_until "reservation: SOLD" "$soon" is SOLD reservation "$id"
  expect "charge" CAPTURED "$(charge_state "$id")"

  step "the customer cancels it"
  shown='{id, status, cancelled_because}' request POST "$order/api/orders/$id/cancel"
  expect "order" "CANCELLED customer_request" "$(field '"\(.status) \(.cancelled_because)"')"
  ends "$id" COMPENSATED

  step "stock and money are back"
  wait_until "reservation: RELEASED" "$soon" is RELEASED reservation "$id"
  expect "coffee-beans-1kg on hand, as before" "$coffee" "$(pieces coffee-beans-1kg on_hand)"
  wait_until "payment: REFUNDED" "$soon" is REFUNDED payment_state "$id"
  request GET "$bank/v1/charges/$(payment_id "$id")"
  expect "charge" REFUNDED "$(field .status)"
}
