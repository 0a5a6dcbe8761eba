# shellcheck shell=bash disable=SC2034,SC2154
title="payment declined"
about="The stock is there, but the bank says no: first because of the card (its token chooses the bank's answer, as in
payment sandboxes), then because the amount is over 10,000.00. The stock is released, and no money moves."

scenario() {
  step "a card that the bank declines"
  refused declined tok_declined coffee-beans-1kg 2
  step "a good card, but 30 espresso machines for 349.00 each"
  refused limit_exceeded tok_ok espresso-machine 30
}

# refused REASON TOKEN SKU QUANTITY
refused() {
  local reason=$1 token=$2 sku=$3 quantity=$4 before
  keep_in_stock "$sku"
  before=$(pieces "$sku" on_hand)
  place grace "$token" "$sku" "$quantity"
  ends "$id" COMPENSATED
  expect "order" "CANCELLED payment_failed" "$(order_state "$id")"
  shown='.[0] | {status, failure, amount}' request GET "$payment/api/payments?order=$id"
  expect "payment" "FAILED $reason" "$(field '.[0] | "\(.status) \(.failure)"')"
  expect "charge" REFUSED "$(charge_state "$id")"
  wait_until "reservation: RELEASED" "$soon" is RELEASED reservation "$id"
  expect "$sku on hand, as before" "$before" "$(pieces "$sku" on_hand)"
}
