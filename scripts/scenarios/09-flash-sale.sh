# shellcheck shell=bash disable=SC2034,SC2154
title="flash sale: 500 orders at once for 100 pieces"
about="100 pieces, 500 customers, all at the same moment. Exactly 100 orders are confirmed and 400 are told that it is
out of stock; not one piece is sold twice, and nobody pays without getting one."

scenario() {
  local sku="flash-$tag" customer="crowd-$tag" body winner
  step "a product of which there are 100 pieces, and never more"
  new_product "$sku" "Flash sale mug" 990 100
  body=$(order_of "$customer" tok_ok "$sku" 1)

  step "500 orders at once"
  show "  ${blue}→ 500 x POST $order/api/orders${plain}" "    ${dim}Idempotency-Key: demo-$tag-1 … 500${plain}" "    $body"
  expect "answers" "500 x 202" "$(post_at_once 500 "demo-$tag-#" "$body")"
  expect "different orders" 500 "$(jq -r .id "$scratch"/posted/* | sort -u | wc -l | tr -d ' ')"
  id=$(jq -r .id "$scratch/posted/500")
  deadline=$(jq -r "$seconds"'.deadline | seconds' "$scratch/posted/500")

  step "every one of them ends"
  wait_until "no order waits" "$(past_deadline)" is 0 count_orders "$customer" PENDING
  expect "CONFIRMED" 100 "$(count_orders "$customer" CONFIRMED)"
  expect "CANCELLED" 400 "$(count_orders "$customer" CANCELLED)"
  expect "reasons on the last page" out_of_stock \
    "$(get "$order/api/orders?customer=$customer&status=CANCELLED&limit=100" '[.orders[].cancelled_because] | unique | join(" ")')"

  step "one that won, and one that did not"
  winner=$(get "$order/api/orders?customer=$customer&status=CONFIRMED&limit=1" '.orders[0].id')
  ends "$winner" COMPLETED
  ends "$(get "$order/api/orders?customer=$customer&status=CANCELLED&limit=1" '.orders[0].id')" COMPENSATED

  step "all pieces are sold, and no more"
  wait_until "sold: 100" "$soon" is 100 pieces "$sku" sold
  shown='{sku, on_hand, reserved, sold, supplied}' request GET "$inventory/api/products/$sku"
  expect "on hand, reserved, sold" "0 0 100" "$(field '"\(.on_hand) \(.reserved) \(.sold)"')"
}
