# shellcheck shell=bash disable=SC2034,SC2154
title="kill -9 of each service during 200 orders"
about="200 orders are posted. While they are in flight, every service is killed, one after another. Clients repeat
requests without an answer, with the same Idempotency-Key. All services are started again: every order ends, no client
gets two orders, and the ledgers balance."

# Orders that are posted while one service is killed.
batch=40

scenario() {
  local customer="crowd-$tag" name posted=0
  ensure_stock coffee-beans-1kg
  shown='{sku, on_hand}' request POST "$inventory/api/products/coffee-beans-1kg/restock" '{"quantity":200}'
  order_of "$customer" tok_ok coffee-beans-1kg 1 >"$scratch/body"

  step "post orders, 8 in parallel"
  show "  ${blue}→ 200 x POST $order/api/orders${plain}" "    ${dim}Idempotency-Key: demo-$tag-1 … 200${plain}" "    $(<"$scratch/body")"
  start_posting
  for name in ${services/order/} order; do
    seq $((posted + 1)) $((posted + batch)) >&3
    wait_until "$((posted + batch / 4)) orders are accepted" "$short_wait" has_accepted $((posted + batch / 4))
    control_process kill "$name"
    posted=$((posted + batch))
  done

  # No more orders. Processes started later must not inherit the descriptor.
  exec 3>&-

  step "start all services, while clients retry"
  for name in $services; do control_process start "$name"; done
  wait "$poster" || true
  expect "accepted orders" 200 "$(grep -c ' 202$' "$scratch/accepted")"
  expect "different orders" 200 "$(jq -r .id "$scratch"/posted/* | sort -u | wc -l | tr -d ' ')"
  deadline=$(jq -s "$seconds"'map(.deadline | seconds) | max' "$scratch"/posted/*)

  step "every order ends"
  wait_until "no order is pending" "$(past_deadline)" is 0 count_orders "$customer" PENDING
  expect "orders of these customers" 200 "$(count_orders "$customer")"
  show "    $(count_orders "$customer" CONFIRMED) CONFIRMED, $(count_orders "$customer" CANCELLED) CANCELLED"
  # For a few orders the killed service may have restarted after the deadline.
  check "at least 180 orders are confirmed" test "$(count_orders "$customer" CONFIRMED)" -ge 180
  wait_until "every saga has ended" $((2 * short_wait)) is 0 unfinished_sagas "$customer" 200

  step "the saga that ended last"
  id=$(get "$admin/api/admin/sagas?customer=$customer&limit=200" '.sagas | max_by(.last_fact_at).id')
  wait_for_saga "$id" "$(saga_state "$id")"
}

# Reads order numbers from file descriptor 3 and writes "N STATUS" to $scratch/accepted for each answer.
start_posting() {
  rm -rf "$scratch/posted" "$scratch/numbers"
  mkdir "$scratch/posted"
  mkfifo "$scratch/numbers"
  set -m
  xargs -P 8 -I '{}' curl --silent --max-time 60 --retry 60 --retry-delay 1 --retry-all-errors --retry-connrefused \
    --header 'Content-Type: application/json' --header "Idempotency-Key: demo-$tag-{}" --data "@$scratch/body" \
    --output "$scratch/posted/{}" --write-out '{} %{http_code}\n' "$order/api/orders" \
    <"$scratch/numbers" >"$scratch/accepted" &
  poster=$!
  set +m
  exec 3>"$scratch/numbers"
}

has_accepted() {
  local count
  count=$(grep -c ' 202$' "$scratch/accepted")
  printf '%s' "$count"
  ((count >= $1))
}
