# shellcheck shell=bash disable=SC2034,SC2154
title="every message is published twice"
about="Every service publishes each message twice, in a way that the broker cannot detect. Every consumer receives every
fact twice, and also every operator command. The inboxes recognise the duplicates: 59 orders of all kinds end correctly,
each card is charged at most once, and the ledgers balance."

scenario() {
  local customer="twice-$tag" rare="rare-$tag" dead service dead_letter duplicates
  ensure_stock coffee-beans-1kg
  new_product "$rare" "The last one" 3900 1
  dead=$(dead_letters) duplicates=$(duplicates)

  step "make all services publish everything twice"
  show_command faults inject order publish_twice
  for service in $publishers; do inject "$service" publish_twice; done

  step "place orders that are confirmed, declined, out of stock, or charged with a lost answer"
  : >"$scratch/ids"
  post good 24 tok_ok coffee-beans-1kg 1
  post declined 10 tok_declined coffee-beans-1kg 1
  post short 10 tok_ok "$rare" 2
  post lost 4 tok_lost_answer coffee-beans-1kg 1
  post regretted 10 tok_ok coffee-beans-1kg 1
  wait_until "no order is pending" "$(past_deadline)" is 0 count_orders "$customer" PENDING
  expect "CONFIRMED" 38 "$(count_orders "$customer" CONFIRMED)"

  step "ten customers cancel confirmed orders"
  show "  ${blue}→ 10 x POST $order/api/orders/…/cancel${plain}"
  for id in $(tail -n 10 "$scratch/ids"); do
    curl --silent --show-error --max-time 60 --request POST "$order/api/orders/$id/cancel" >/dev/null
  done
  expect "CANCELLED" 30 "$(count_orders "$customer" CANCELLED)"

  step "an operator replays a dead letter; the command arrives twice"
  inject inventory fail_permanently '"step":"inventory-sale","next":1'
  place "$customer" tok_ok coffee-beans-1kg 1
  printf '%s\n' "$id" >>"$scratch/ids"
  wait_until "its sale becomes a dead letter" "$short_wait" is 1 pending_dead_letters_of "$id"
  dead_letter=$(newest_dead_letter_of "$id")
  replay_dead_letter "$dead_letter" "injected fault"
  wait_until "dead letter: RESOLVED" "$short_wait" is RESOLVED dead_letter_state "$dead_letter"
  wait_until "reservation: SOLD" "$short_wait" is SOLD reservation "$id"

  step "every saga ends"
  wait_until "every saga has ended" "$short_wait" is 0 unfinished_sagas "$customer" 59
  wait_for_saga "$id" COMPLETED
  shown='[.faults[] | {service, kind, hits}]' request GET "$admin/api/admin/faults"
  expect "services that published twice" "$(xargs -n 1 <<<"$publishers" | sort | xargs)" \
    "$(field '[.faults[] | select(.kind == "publish_twice" and .hits > 0).service] | sort | join(" ")')"
  check "duplicates recognised by inboxes: $(($(duplicates) - duplicates))" test "$(duplicates)" -gt "$duplicates"

  step "the bank's ledger"
  ledger_of "$scratch/ids" >"$scratch/ledger"
  expect "highest number of charges for one order" 1 "$(awk '{ print ++count[$1] }' "$scratch/ledger" | sort -n | tail -n 1)"
  expect "captured, refunded, declined (none for the 10 orders out of stock)" "29 10 10" \
    "$(awk '{ count[$2]++ } END { print count["CAPTURED"], count["REFUNDED"], count["NONE"] }' "$scratch/ledger")"
  expect "dead letters as before" "$dead" "$(dead_letters)"

  step "clear the faults"
  show_command faults clear
  shown='{cleared}' request DELETE "$admin/api/admin/faults" "" "X-Operator: $operator"
  expect "cleared" "$(wc -w <<<"$publishers" | tr -d ' ')" "$(field .cleared)"
}

# post KIND N TOKEN SKU QUANTITY: posts N orders in parallel and appends their ids to $scratch/ids.
post() {
  local kind=$1 count=$2
  show "  ${blue}→ $count x POST $order/api/orders${plain}, $5 x $4, $3"
  expect "answers" "$count x 202" "$(post_in_parallel "$count" "demo-$tag-$kind-#" "$(order_of "$customer" "${@:3}")")"
  jq -r .id "$scratch"/posted/* >>"$scratch/ids"
  deadline=$(jq -s "$seconds"'map(.deadline | seconds) | max' "$scratch"/posted/*)
}

# Duplicates that inboxes have recognised since the services started.
duplicates() {
  local service
  for service in $publishers; do
    curl --silent --show-error --max-time 60 "${!service}/metrics"
  done | awk '/^saga_input_total.*outcome="duplicate"/ { sum += $2 } END { print sum + 0 }'
}

# ledger_of FILE: the bank's "ORDER STATE" for each charge of the orders whose ids are in FILE.
ledger_of() {
  local after='' page
  while
    page=$(curl --silent --show-error --max-time 60 "$bank/v1/charges${after:+?after=$after}")
    jq -r '.entries[] | "\(.reference) \(.state)"' <<<"$page"
    after=$(jq -r '.next // ""' <<<"$page")
    [[ -n $after ]]
  do :; done | grep -F -f "$1"
}
