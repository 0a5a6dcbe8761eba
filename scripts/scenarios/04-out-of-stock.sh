# shellcheck shell=bash disable=SC2034,SC2154
title="out of stock, compensated at once"
about="An order needs two products, and one has too few units. Inventory reserves all lines or none. The order is
cancelled at once, not at its deadline. Out of stock is a business result, not a fault."

scenario() {
  local coffee rare="moka-pot-$tag" placed_for cancelled_after
  ensure_stock coffee-beans-1kg
  coffee=$(stock coffee-beans-1kg)

  step "list a product with one unit"
  new_product "$rare" "Moka pot, the last one" 3900 1

  step "order two units of it, and coffee that is in stock"
  place grace tok_ok coffee-beans-1kg 2 "$rare" 2
  placed_for=$(field "$seconds"'((.deadline | seconds) - (.placed_at | seconds)) * 1000')
  wait_for_saga "$id" COMPENSATED
  expect "order" "CANCELLED out_of_stock" "$(order_state "$id")"
  cancelled_after=$(get "$admin/api/admin/sagas/$id" '.timeline[] | select(.type == "OrderCancelled").after_ms')
  check "cancelled after $cancelled_after ms, long before its deadline at $placed_for ms" \
    test $((cancelled_after * 4)) -lt "$placed_for"

  step "all or nothing: no coffee is reserved, and nobody is charged"
  request GET "$inventory/api/reservations/$id"
  expect "reservation" 'REFUSED []' "$(field '"\(.status) \(.lines | tojson)"')"
  expect "coffee-beans-1kg on hand, reserved, sold: unchanged" "$coffee" "$(stock coffee-beans-1kg)"
  expect "$rare on hand" 1 "$(units "$rare" on_hand)"
  wait_until "payment, which received only the cancellation: VOID" "$short_wait" is VOID payment_state "$id"
}
