# shellcheck shell=bash disable=SC2034,SC2154
title="happy path with two lines"
about="An order of two products goes through: inventory sets the pieces aside, payment charges the card once, the
order is confirmed, and the pieces are sold. No service calls another: each reacts to facts that it hears."

scenario() {
  local coffee mugs total
  keep_in_stock coffee-beans-1kg
  keep_in_stock ceramic-mug
  coffee=$(pieces coffee-beans-1kg on_hand) mugs=$(pieces ceramic-mug on_hand)

  step "an order is placed; the answer comes as soon as it is durable"
  place ada tok_ok coffee-beans-1kg 2 ceramic-mug 1
  total=$(field '.total | tojson')
  shown='{id, status}' request GET "$order/api/orders/$id" "" "Prefer: wait=10"
  expect "order" CONFIRMED "$(field .status)"
  ends "$id" COMPLETED
  expect "facts, in this order" "OrderCreated StockReserved PaymentProcessed OrderConfirmed" "$(facts "$id")"

  step "the pieces are sold"
  wait_until "reservation: SOLD" "$soon" is SOLD reservation "$id"
  expect "coffee-beans-1kg on hand, $coffee before" $((coffee - 2)) "$(pieces coffee-beans-1kg on_hand)"
  expect "ceramic-mug on hand, $mugs before" $((mugs - 1)) "$(pieces ceramic-mug on_hand)"

  step "the card was charged once: the bank's ledger says so too"
  shown='[.[] | {id, status, bank_reference}]' request GET "$payment/api/payments?order=$id"
  expect "payments of this order" 1 "$(field length)"
  request GET "$bank/v1/charges/$(field '.[0].id')"
  expect "charge" "CAPTURED $total" "$(field '"\(.status) \(.amount | tojson)"')"
}
