# shellcheck shell=bash disable=SC2034,SC2154
title="the same order 50 times in parallel gives one order"
about="A client that is not sure whether its request arrived sends it again. It sends the same order 50 times in
parallel, with the same Idempotency-Key. There is one order and one charge, and every request gets the same answer."

scenario() {
  local customer="grace-$tag" key="demo-$tag" body ids
  ensure_stock ceramic-mug
  body=$(order_of "$customer" tok_ok ceramic-mug 2)

  step "50 requests in parallel"
  show "  ${blue}→ 50 x POST $order/api/orders${plain}" "    ${dim}Idempotency-Key: $key${plain}" "    $body"
  expect "answers" "50 x 202" "$(post_in_parallel 50 "$key" "$body")"
  ids=$(jq -r .id "$scratch"/posted/* | sort | uniq -c | awk '{ print $1 " x " $2 }')
  id=${ids#* x }
  expect "all answers name the same order" "50 x $id" "$ids"
  wait_for_saga "$id" COMPLETED

  step "one order, one payment, one charge"
  shown='[.orders[] | {id, status, total}]' request GET "$order/api/orders?customer=$customer"
  expect "orders of $customer" 1 "$(field '.orders | length')"
  expect "payments of the order" 1 "$(get "$payment/api/payments?order=$id" length)"
  expect "charge" CAPTURED "$(charge_state "$id")"

  step "the same key with another order is rejected"
  request POST "$order/api/orders" "$(order_of "$customer" tok_ok ceramic-mug 3)" "Idempotency-Key: $key"
  expect "rejected" "422 Idempotency-Key" "$status $(field '.errors[0].field')"
}
