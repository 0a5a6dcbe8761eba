# shellcheck shell=bash disable=SC2034,SC2154
title="flash sale: 500 parallel orders for 100 units"
about="500 customers order one of 100 units at the same moment. Exactly 100 orders are confirmed, and 400 are cancelled
as out of stock. No unit is sold twice, and nobody pays without an order."

scenario() {
  local sku="flash-$tag" customer="crowd-$tag" body winner
  step "list a product with 100 units, without replenishment"
  new_product "$sku" "Flash sale mug" 990 100
  body=$(order_of "$customer" tok_ok "$sku" 1)

  step "500 orders in parallel"
  show "  ${blue}→ 500 x POST $order/api/orders${plain}" "    ${dim}Idempotency-Key: demo-$tag-1 … 500${plain}" "    $body"
  expect "answers" "500 x 202" "$(post_in_parallel 500 "demo-$tag-#" "$body")"
  expect "different orders" 500 "$(jq -r .id "$scratch"/posted/* | sort -u | wc -l | tr -d ' ')"
  id=$(jq -r .id "$scratch/posted/500")
  deadline=$(jq -r "$seconds"'.deadline | seconds' "$scratch/posted/500")

  step "every order ends"
  wait_until "no order is pending" "$(past_deadline)" is 0 count_orders "$customer" PENDING
  expect "CONFIRMED" 100 "$(count_orders "$customer" CONFIRMED)"
  expect "CANCELLED" 400 "$(count_orders "$customer" CANCELLED)"
  expect "reasons of the cancellations" out_of_stock \
    "$(get "$order/api/orders?customer=$customer&status=CANCELLED&limit=100" '[.orders[].cancelled_because] | unique | join(" ")')"

  step "a confirmed order and a cancelled one"
  winner=$(get "$order/api/orders?customer=$customer&status=CONFIRMED&limit=1" '.orders[0].id')
  wait_for_saga "$winner" COMPLETED
  wait_for_saga "$(get "$order/api/orders?customer=$customer&status=CANCELLED&limit=1" '.orders[0].id')" COMPENSATED

  step "exactly 100 units are sold"
  wait_until "sold: 100" "$short_wait" is 100 units "$sku" sold
  shown='{sku, on_hand, reserved, sold, supplied}' request GET "$inventory/api/products/$sku"
  expect "on hand, reserved, sold" "0 0 100" "$(field '"\(.on_hand) \(.reserved) \(.sold)"')"
}
