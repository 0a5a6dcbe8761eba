# shellcheck shell=bash disable=SC2034,SC2154
title="every message twice"
about="Every service publishes everything twice, in a way that the broker cannot notice. Every listener gets every fact
twice, and every wish of an operator too. The inboxes know them: 59 orders of all kinds end as they would have, every
card is charged once at most, and the books balance."

scenario() {
  local customer="twice-$tag" rare="rare-$tag" dead service letter duplicates
  keep_in_stock coffee-beans-1kg
  new_product "$rare" "The last one" 3900 1
  dead=$(dead_letters) duplicates=$(duplicates)

  step "all four publish everything twice"
  same_by faults inject order publish_twice
  for service in order inventory payment admin; do inject "$service" publish_twice; done

  step "orders that are confirmed, declined, out of stock, charged with a lost answer"
  : >"$scratch/ids"
  post good 24 tok_ok coffee-beans-1kg 1
  post declined 10 tok_declined coffee-beans-1kg 1
  post short 10 tok_ok "$rare" 2
  post lost 4 tok_lost_answer coffee-beans-1kg 1
  post regretted 10 tok_ok coffee-beans-1kg 1
  wait_until "no order waits" "$(past_deadline)" is 0 count_orders "$customer" PENDING
  expect "CONFIRMED" 38 "$(count_orders "$customer" CONFIRMED)"

  step "ten customers cancel what was confirmed"
  show "  ${blue}→ 10 x POST $order/api/orders/…/cancel${plain}"
  for id in $(tail -n 10 "$scratch/ids"); do
    curl --silent --show-error --max-time 60 --request POST "$order/api/orders/$id/cancel" >/dev/null
  done
  expect "CANCELLED" 30 "$(count_orders "$customer" CANCELLED)"

  step "an operator hands a dead letter back, and is heard twice"
  inject inventory fail_permanently '"step":"inventory-sale","next":1'
  place "$customer" tok_ok coffee-beans-1kg 1
  printf '%s\n' "$id" >>"$scratch/ids"
  wait_until "its sale is a dead letter" "$soon" is 1 letters_of "$id"
  letter=$(letter_of "$id")
  replay_letter "$letter" "was planted"
  wait_until "dead letter: RESOLVED" "$soon" is RESOLVED letter_state "$letter"
  wait_until "reservation: SOLD" "$soon" is SOLD reservation "$id"

  step "every saga ends"
  wait_until "every saga has ended" "$soon" is 0 unfinished_sagas "$customer" 59
  ends "$id" COMPLETED
  shown='[.faults[] | {service, kind, hits}]' request GET "$admin/api/admin/faults"
  expect "services that have published something twice" "admin inventory order payment" \
    "$(field '[.faults[] | select(.kind == "publish_twice" and .hits > 0).service] | sort | join(" ")')"
  holds "messages that an inbox knew: $(($(duplicates) - duplicates))" test "$(duplicates)" -gt "$duplicates"

  step "the bank's ledger, by order"
  ledger_of "$scratch/ids" >"$scratch/ledger"
  expect "charges of one order, at most" 1 "$(awk '{ print ++count[$1] }' "$scratch/ledger" | sort -n | tail -n 1)"
  expect "held, given back, refused; the bank never heard of the 10 that were out of stock" "29 10 10" \
    "$(awk '{ count[$2]++ } END { print count["CAPTURED"], count["REFUNDED"], count["NONE"] }' "$scratch/ledger")"
  expect "dead letters, as before" "$dead" "$(dead_letters)"

  step "the faults end"
  same_by faults clear
  shown='{cleared}' request DELETE "$admin/api/admin/faults" "" "X-Operator: $operator"
  expect "cleared" 4 "$(field .cleared)"
}

# post KIND N TOKEN SKU QUANTITY: N orders at once; adds their ids to $scratch/ids.
post() {
  local kind=$1 count=$2
  show "  ${blue}→ $count x POST $order/api/orders${plain}, $5 x $4, $3"
  expect "answers" "$count x 202" "$(post_at_once "$count" "demo-$tag-$kind-#" "$(order_of "$customer" "${@:3}")")"
  jq -r .id "$scratch"/posted/* >>"$scratch/ids"
  deadline=$(jq -s "$seconds"'map(.deadline | seconds) | max' "$scratch"/posted/*)
}

# Messages that somebody's inbox knew, since the services were started.
duplicates() {
  local service
  for service in "$admin" "$order" "$inventory" "$payment"; do
    curl --silent --show-error --max-time 60 "$service/metrics"
  done | awk '/^saga_input_total.*outcome="duplicate"/ { sum += $2 } END { print sum + 0 }'
}

# ledger_of FILE: "ORDER STATE" for each charge of an order whose id is in FILE, as the bank has it.
ledger_of() {
  local after='' page
  while
    page=$(curl --silent --show-error --max-time 60 "$bank/v1/charges${after:+?after=$after}")
    jq -r '.entries[] | "\(.reference) \(.state)"' <<<"$page"
    after=$(jq -r '.next // ""' <<<"$page")
    [[ -n $after ]]
  do :; done | grep -F -f "$1"
}
