# shellcheck shell=bash disable=SC2034,SC2154
title="happy path with two lines"
about="An order of two products succeeds. Inventory reserves the units, payment charges the card once, the order is
confirmed, and the units are sold. No service calls another; each consumes the facts of the others."

scenario() {
  local coffee mugs total
  ensure_stock coffee-beans-1kg
  ensure_stock ceramic-mug
  coffee=$(units coffee-beans-1kg on_hand) mugs=$(units ceramic-mug on_hand)

  step "place an order; the answer comes as soon as it is durable"
  place ada tok_ok coffee-beans-1kg 2 ceramic-mug 1
  total=$(field '.total | tojson')
  shown='{id, status}' request GET "$order/api/orders/$id" "" "Prefer: wait=10"
  expect "order" CONFIRMED "$(field .status)"
  wait_for_saga "$id" COMPLETED
  expect "facts in order" "OrderCreated StockReserved PaymentProcessed OrderConfirmed" "$(facts "$id")"

  step "the units are sold"
  wait_until "reservation: SOLD" "$short_wait" is SOLD reservation "$id"
  expect "coffee-beans-1kg on hand (before: $coffee)" $((coffee - 2)) "$(units coffee-beans-1kg on_hand)"
  expect "ceramic-mug on hand (before: $mugs)" $((mugs - 1)) "$(units ceramic-mug on_hand)"

  step "the card was charged once, also in the bank's ledger"
  shown='[.[] | {id, status, bank_reference}]' request GET "$payment/api/payments?order=$id"
  expect "payments of this order" 1 "$(field length)"
  request GET "$bank/v1/charges/$(field '.[0].id')"
  expect "charge" "CAPTURED $total" "$(field '"\(.status) \(.amount | tojson)"')"
}
