# shellcheck shell=bash disable=SC2034,SC2154
title="payment declined"
about="The stock is available, but the bank declines: first the card (its token selects the answer, as in payment
sandboxes), then a card that it does not know, then an amount over 10,000.00. The stock is released, and no money moves."

scenario() {
  step "a card that the bank declines"
  place_declined declined tok_declined coffee-beans-1kg 2
  step "a mistyped card"
  place_declined unknown_card tok_typo coffee-beans-1kg 2
  step "a good card, but 30 espresso machines for 349.00 each"
  place_declined limit_exceeded tok_ok espresso-machine 30
}

# place_declined REASON TOKEN SKU QUANTITY
place_declined() {
  local reason=$1 token=$2 sku=$3 quantity=$4 before
  ensure_stock "$sku"
  before=$(units "$sku" on_hand)
  place grace "$token" "$sku" "$quantity"
  wait_for_saga "$id" COMPENSATED
  expect "order" "CANCELLED payment_failed" "$(order_state "$id")"
  shown='.[0] | {status, failure, amount}' request GET "$payment/api/payments?order=$id"
  expect "payment" "FAILED $reason" "$(field '.[0] | "\(.status) \(.failure)"')"
  expect "charge" REFUSED "$(charge_state "$id")"
  wait_until "reservation: RELEASED" "$short_wait" is RELEASED reservation "$id"
  expect "$sku on hand as before" "$before" "$(units "$sku" on_hand)"
}
