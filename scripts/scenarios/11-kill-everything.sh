# shellcheck shell=bash disable=SC2034,SC2154
title="kill -9 of each service in the middle of 200 orders"
about="200 orders are posted, and while they are under way every service is killed, one after another, without warning.
Clients send again what got no answer, with the same Idempotency-Key. All services are started again: every order
ends, no client got two orders, and the books balance."

# Each is killed while these many orders are being posted.
batch=40

scenario() {
  local customer="crowd-$tag" name posted=0
  keep_in_stock coffee-beans-1kg
  shown='{sku, on_hand}' request POST "$inventory/api/products/coffee-beans-1kg/restock" '{"quantity":200}'
  order_of "$customer" tok_ok coffee-beans-1kg 1 >"$scratch/body"

  step "orders are posted, 8 at a time"
  show "  ${blue}→ 200 x POST $order/api/orders${plain}" "    ${dim}Idempotency-Key: demo-$tag-1 … 200${plain}" "    $(<"$scratch/body")"
  start_posting
  for name in bank payment inventory admin order; do
    seq $((posted + 1)) $((posted + batch)) >&3
    wait_until "$((posted + batch / 4)) orders are taken" "$soon" has_taken $((posted + batch / 4))
    control kill "$name"
    posted=$((posted + batch))
  done

  # That was all; and what is started from here on must not hold it open.
  exec 3>&-

  step "all start again, while clients go on trying"
  for name in bank payment inventory admin order; do control start "$name"; done
  wait "$poster" || true
  expect "orders taken" 200 "$(grep -c ' 202$' "$scratch/taken")"
  expect "different orders" 200 "$(jq -r .id "$scratch"/posted/* | sort -u | wc -l | tr -d ' ')"
  deadline=$(jq -s "$seconds"'map(.deadline | seconds) | max' "$scratch"/posted/*)

  step "every order ends"
  wait_until "no order waits" "$(past_deadline)" is 0 count_orders "$customer" PENDING
  expect "orders of these clients" 200 "$(count_orders "$customer")"
  show "    $(count_orders "$customer" CONFIRMED) CONFIRMED, $(count_orders "$customer" CANCELLED) CANCELLED"
  # What was killed in their middle may have come back too late for a few.
  holds "nearly all of them are confirmed" test "$(count_orders "$customer" CONFIRMED)" -ge 180
  wait_until "every saga has ended" $((2 * soon)) is 0 unfinished_sagas "$customer" 200

  step "the one that ended last"
  id=$(get "$admin/api/admin/sagas?customer=$customer&limit=200" '.sagas | max_by(.last_fact_at).id')
  ends "$id" "$(saga_state "$id")"
}

# Numbers of orders go in at file descriptor 3; "N STATUS" comes out in $scratch/taken for each that got an answer.
start_posting() {
  rm -rf "$scratch/posted" "$scratch/numbers"
  mkdir "$scratch/posted"
  mkfifo "$scratch/numbers"
  set -m
  xargs -P 8 -I '{}' curl --silent --max-time 60 --retry 60 --retry-delay 1 --retry-all-errors --retry-connrefused \
    --header 'Content-Type: application/json' --header "Idempotency-Key: demo-$tag-{}" --data "@$scratch/body" \
    --output "$scratch/posted/{}" --write-out '{} %{http_code}\n' "$order/api/orders" \
    <"$scratch/numbers" >"$scratch/taken" &
  poster=$!
  set +m
  exec 3>"$scratch/numbers"
}

has_taken() {
  local count
  count=$(grep -c ' 202$' "$scratch/taken")
  printf '%s' "$count"
  ((count >= $1))
}
