# shellcheck shell=bash disable=SC2034,SC2154
title="out of stock, compensated at once"
about="An order wants two products, and of one there are too few. Inventory sets all lines aside or none, and says so;
the order is cancelled at once and not when its deadline passes. Out of stock is an answer, not a fault."

scenario() {
  local coffee rare="moka-pot-$tag" placed_for cancelled_after
  keep_in_stock coffee-beans-1kg
  coffee=$(stock coffee-beans-1kg)

  step "a product of which there is one piece"
  new_product "$rare" "Moka pot, the last one" 3900 1

  step "an order for two of it, and for coffee that is there"
  place grace tok_ok coffee-beans-1kg 2 "$rare" 2
  placed_for=$(field "$seconds"'((.deadline | seconds) - (.placed_at | seconds)) * 1000')
  ends "$id" COMPENSATED
  expect "order" "CANCELLED out_of_stock" "$(order_state "$id")"
  cancelled_after=$(get "$admin/api/admin/sagas/$id" '.timeline[] | select(.type == "OrderCancelled").after_ms')
  holds "cancelled after $cancelled_after ms, long before its deadline at $placed_for ms" \
    test $((cancelled_after * 4)) -lt "$placed_for"

  step "all or nothing: the coffee was not touched, and nobody was charged"
  request GET "$inventory/api/reservations/$id"
  expect "reservation" 'REFUSED []' "$(field '"\(.status) \(.lines | tojson)"')"
  expect "coffee-beans-1kg on hand, reserved, sold, as before" "$coffee" "$(stock coffee-beans-1kg)"
  expect "$rare on hand" 1 "$(pieces "$rare" on_hand)"
  wait_until "payment, which heard nothing but the cancellation: VOID" "$soon" is VOID payment_state "$id"
}
