# shellcheck shell=bash disable=SC2154,SC2034
# The parts of `bench.sh all`. Each starts and stops its own systems. To be sourced by bench.sh.

bench_floor() {
  title "floor: limits of the machine without the system"
  local floor
  floor=$("$tool" floor "$folder" --seconds "$floor_s") || die "the limits of the machine cannot be measured"
  show "$(jq -r '"  one fsync: p50 \(.fsync.p50_us) µs; the store: \(.store.events_per_s) events/s; the broker: \(.broker.sagas_per_s) sagas/s, \(.broker.broker_cpu_us_per_saga) µs of its CPU per saga"' <<<"$floor")"
  note floor "$floor"
}

# --- at rest ----------------------------------------------------------------------------------------------

bench_idle() {
  title "idle: single orders, and idle processes"
  start_system "$bin"
  timeout 900 "$sagactl" --data "$data" load --rest "$rest_orders" --json >"$folder/idle.json" 2>"$folder/load.err" || {
    tail -n 5 "$folder/load.err" >&2
    failed=$((failed + 1))
  }
  used_while "$rest_s" "$folder/rest"
  local idle
  idle=$(jq --slurpfile used <("$tool" used "$folder/rest.before" "$folder/rest.after" "$rest_s") '{latency_ms, orders,
    cpu_ms_per_s: ([$used[0][].cpu_us] | add / 100 | round / 10), cpu_us_per_s: ($used[0] | map_values(.cpu_us)),
    rss_mib: ([$used[0][].rss_kib] | add / 1024 | round)}' "$folder/idle.json")
  show "$(jq -r '"  p50 \(.latency_ms.p50) ms, p99 \(.latency_ms.p99) ms; at rest \(.cpu_ms_per_s) ms of CPU per second, \(.rss_mib) MiB"' <<<"$idle")"
  note idle "$idle"
  stop_system
}

# --- how much ---------------------------------------------------------------------------------------------

bench_throughput() {
  title "throughput: the highest rate with p99 ≤ $limit_p99_ms ms, and closed-loop clients"
  local clients setting
  start_system "$bin"
  search
  must "there is a sustained rate" test "$sustained" -gt 0
  show "  sustained: $sustained orders/s"
  stop_system
  : >"$folder/closed"
  for clients in "${closed_clients[@]}"; do
    # Each client has an order in flight, more than the default limit allows.
    setting=order.service.min_in_flight_limit=$((clients + 100))
    start_system "$bin" --set "$setting"
    load "$folder/run.json" --clients "$clients" --warmup "${warmup_s}s" --duration "${step_s}s" --mix happy=100 ||
      die "the run with $clients clients failed"
    show "$(jq -r '"  \(.clients) clients: \(.rate_in_time)/s, p50 \(.latency_ms.p50) ms, p99 \(.latency_ms.p99) ms, \(.cpu_ms_per_order) ms CPU"' "$folder/run.json")"
    against "$folder/run.json" "$clients clients"
    in_short "$folder/run.json" | jq --arg setting "$setting" '. + {settings: [$setting]}' >>"$folder/closed"
    stop_system
  done
  note throughput "$(jq -n --slurpfile steps "$folder/steps" --slurpfile closed "$folder/closed" --argjson sustained "$sustained" '
    {sustained_per_s: $sustained, at_sustained: ([$steps[] | select(.held and .target_rate == $sustained)] | last),
     steps: $steps, closed: $closed, reasons: ($closed | map(.reasons[]))}')"
}

bench_latency() {
  title "latency: at 25, 50 and 75 % of the highest rate"
  need_sustained
  local percent
  : >"$folder/at"
  start_system "$bin"
  for percent in 25 50 75; do
    load "$folder/run.json" --rate "$(of_sustained "$percent")" --warmup "${warmup_s}s" --duration "${step_s}s" --mix happy=100 ||
      die "the run at $percent % failed"
    show "$(jq -r --arg percent "$percent" '"  \($percent) %, \(.target_rate)/s: p50 \(.latency_ms.p50) ms, p99 \(.latency_ms.p99) ms, \(.cpu_ms_per_order) ms CPU"' "$folder/run.json")"
    against "$folder/run.json" "$percent %"
    in_short "$folder/run.json" | jq --argjson percent "$percent" '. + {percent: $percent, rate: .target_rate}' >>"$folder/at"
  done
  stop_system
  note latency "$(jq -s '{at: ., reasons: map(.reasons[])}' "$folder/at")"
}

# --- after an outage --------------------------------------------------------------------------------------

# watch_ends: prints "TIME ENDED" ten times per second, with the time in microseconds, until it is killed.
watch_ends() {
  while true; do
    printf '%s %s\n' "${EPOCHREALTIME/[.,]/}" "$(ended)"
    sleep 0.1
  done
}

bench_drain() {
  local per_second=1000 queued
  title "drain: $drain_orders orders while the broker is down"
  # Order must accept orders during the outage, so the limits on time are raised.
  start_system "$bin" --set order.service.deadline=30m --set order.service.max_publish_stall=10m
  timeout 900 "$sagactl" --data "$data" load --rate "$per_second" --duration "$((drain_orders * 1000 / per_second))ms" \
    --mix happy=100 --drain 5m --timeline --json >"$folder/drain.json" 2>"$folder/load.err" &
  local load=$!
  wait_for 60 first_order_is_there || die "no order comes"
  control kill nats
  show "  the broker is down"
  sleep "$((drain_orders / per_second + 2))"
  watch_ends >"$folder/ends" &
  local watch=$!
  control start nats
  show "  the broker is up again"
  wait "$load" || true
  kill "$watch" 2>/dev/null || true
  wait "$watch" 2>/dev/null || true
  has_report "$folder/drain.json" || die "the run failed: $(tail -n 2 "$folder/load.err")"
  # A backlog is intended here.
  jq '.reasons |= map(select(startswith("the backlog grew") | not)) | .valid = (.reasons == [])' "$folder/drain.json" >"$folder/run.json"
  # Uses the counters of the order service, because the load generator sees all ends at once after it reconnects. Measures from 5 %
  # to 95 % of the backlog.
  local drain
  drain=$(jq -R -n --slurpfile run "$folder/run.json" '[inputs | split(" ") | map(tonumber)] as $ends
    | $ends[0][1] as $before | ($ends[-1][1] - $before) as $queued
    | def when($share): first($ends[] | select(.[1] >= $before + $queued * $share)) ;
    when(0.05) as [$from, $first] | when(0.95) as [$until, $last]
    | {queued: $queued, per_s: (if $until > $from then ($last - $first) * 1000000 / ($until - $from) | round else 0 end),
       seconds: (($until - $from) / 100000 | round / 10),
       settings: ["order.service.deadline=30m", "order.service.max_publish_stall=10m"]}
      + ($run[0] | {valid, reasons, errors_by_reason, rss_mib})' "$folder/ends")
  queued=$(jq .queued <<<"$drain")
  show "$(jq -r '"  \(.queued) orders were queued, and ended at \(.per_s)/s within \(.seconds) s"' <<<"$drain")"
  against "$folder/run.json" drain
  must "at least 90 % of the orders were queued: $queued" test "$((queued * 10))" -ge "$((drain_orders * 9))"
  note drain "$drain"
  stop_system
}

# --- alone ------------------------------------------------------------------------------------------------

bench_store() {
  title "store alone"
  local sizes postgres='[]' seconds=$((floor_s * 2))
  sizes=$("$tool" store "$folder" --seconds "$seconds") || die "the store cannot be measured"
  show "$(jq -r '.[] | "  \(.batch) per transaction: \(.events_per_s) events/s, \(.cpu_us_per_event) µs of CPU each"' <<<"$sizes")"
  if postgres_programs >/dev/null; then
    postgres=$(on_postgres "$tool" store "$folder" --seconds "$seconds") || die "the store on PostgreSQL cannot be measured"
    show "$(jq -r '.[] | "  on PostgreSQL, \(.batch) per transaction: \(.events_per_s) events/s"' <<<"$postgres")"
  else
    show "  omitted: there is no PostgreSQL $postgres_minimum or newer"
  fi
  note store "$(jq --argjson postgres "$postgres" '{sizes: ., postgres: $postgres}' <<<"$sizes")"
}

# on_postgres COMMAND…: runs it with --postgres and the URL of a temporary database server.
on_postgres() {
  local status=0
  start_postgres "$folder" --durable || return 1
  "$@" --postgres "$(cat "$folder/postgres.url")/postgres" || status=$?
  stop_postgres
  return "$status"
}

bench_relay() {
  title "relay alone, with a broker that accepts everything"
  local relay
  relay=$("$tool" relay "$folder" --seconds "$floor_s") || die "the relay cannot be measured"
  show "$(jq -r '"  \(.entries_per_s) messages/s, \(.entries_per_round) a round, \(.cpu_us_per_entry) µs of CPU each"' <<<"$relay")"
  note relay "$relay"
}

# --- other loads ------------------------------------------------------------------------------------------

bench_mixed() {
  title "mixed: 10 % declined, 5 % out of stock, 5 % cancelled by customers"
  need_sustained
  start_system "$bin"
  load "$folder/run.json" --rate "$(of_sustained 50)" --warmup "${warmup_s}s" --duration "${step_s}s" \
    --mix happy=80,declined=10,out_of_stock=5,cancelled=5 || die "the run failed"
  show "$(jq -r '"  \(.target_rate)/s: p50 \(.latency_ms.p50) ms, p99 \(.latency_ms.p99) ms; \(.completed) confirmed, \(.compensated) compensated, \(.cpu_ms_per_order) ms CPU"' "$folder/run.json")"
  against "$folder/run.json" mixed
  note mixed "$(in_short "$folder/run.json" | jq '. + {rate: .target_rate}')"
  stop_system
}

bench_overload() {
  title "overload: 3 times the highest rate for $overload_s s, then half of it"
  need_sustained
  start_system "$bin"
  load "$folder/run.json" --rate "$((sustained * 3))" --duration "${overload_s}s" --then "$(of_sustained 50)=${overload_s}s" \
    --drain 2m --mix happy=100 --may-shed --timeline || die "the run failed"
  local overload
  overload=$(jq '{rate: .target_rate, valid, reasons, started, shed, shed_latency_ms, latency_ms, http_latency_ms, errors_by_reason,
    services_rss_mib_max: (.timeline | map(.rss_mib - .broker_rss_mib) | max * 10 | round / 10), order_rss_mib_max: (.timeline | map(.order_rss_mib) | max), rss_mib, timeline}' \
    "$folder/run.json")
  show "$(jq -r '"  \(.shed) rejected with 503 and Retry-After within \(.shed_latency_ms.p99) ms (p99); accepted orders p99 \(.latency_ms.p99) ms; services at most \(.services_rss_mib_max) MiB, order \(.order_rss_mib_max)"' <<<"$overload")"
  against "$folder/run.json" overload
  note overload "$overload"
  stop_system
}

# --- over time --------------------------------------------------------------------------------------------

# Places many orders, restarts the system, then measures reconciliation and load.
bench_history() {
  title "history: with $history finished orders"
  need_sustained
  local base full incremental rate
  has_room_for "$history" "--history N reduces it" || return 0
  rate=$(of_sustained 75)
  if ((history / rate > 3600)); then
    history=$((rate * 3600))
    show "  reduced to $history orders, which take an hour at $rate/s"
  fi
  start_system "$bin"
  show "  placing them at $rate/s"
  load "$folder/run.json" --rate "$rate" --duration "$((history * 1000 / rate))ms" --mix happy=100 --may-shed || die "the run failed"
  control down || die "the system in $data could not be stopped"
  base=$(free_ports)
  timeout 900 "$sagactl" --data "$data" up --detach --port-base "$base" >"$folder/up.log" 2>&1 || die "the system did not start: $(tail -n 2 "$folder/up.log")"
  full=$(timed_reconciliation --full)
  load "$folder/run.json" --rate "$rate" --warmup "${warmup_s}s" --duration "${step_s}s" --mix happy=100 || die "the run failed"
  incremental=$(timed_reconciliation)
  show "$(jq -r '"  \(.target_rate)/s: p50 \(.latency_ms.p50) ms, p99 \(.latency_ms.p99) ms, \(.cpu_ms_per_order) ms CPU, \(.rss_mib_total) MiB with the broker"' "$folder/run.json")"
  show "$(jq -r -n --argjson full "$full" --argjson incremental "$incremental" '"  reconciliation: \($full.seconds) s for all \($full.orders) orders, then \($incremental.seconds) s, reading \($incremental.orders_read)"')"
  against "$folder/run.json" history
  note history "$(in_short "$folder/run.json" | jq --argjson full "$full" --argjson incremental "$incremental" \
    '. + {orders: $full.orders, full_verification: $full, incremental_verification: $incremental}')"
  stop_system
}

# timed_reconciliation OPTIONS…: prints how long a reconciliation takes, and of how many orders.
timed_reconciliation() {
  local began took
  began=$(date +%s%N)
  timeout 900 "$sagactl" --data "$data" reconcile --json "$@" >"$folder/reconciliation.json" 2>"$folder/reconciliation.err" ||
    die "the ledgers do not balance: $(tail -n 2 "$folder/reconciliation.err")"
  took=$((($(date +%s%N) - began) / 1000000))
  jq -c --argjson took "$took" '{seconds: ($took / 1000), orders: .summary.orders,
    orders_read: (if .scope.full then .summary.orders else .scope.orders_read end)}' "$folder/reconciliation.json"
}

# has_room_for ORDERS HINT: true if the disk has space for the data of so many orders. Otherwise reports a failed check.
has_room_for() {
  local free wanted=$(($1 * 8 / 1000 + 2000))
  free=$(df --output=avail -B 1M "$folder" | tail -n 1)
  ((free > wanted)) || {
    show "  omitted: $1 orders need about $(($1 * 7 / 1000)) MB, but only $free MB are free in $folder ($2)"
    failed=$((failed + 1))
    return 1
  }
}

bench_soak() {
  title "soak: $soak_s s at half of the highest rate"
  need_sustained
  has_room_for "$(($(of_sustained 50) * soak_s))" "--soak S reduces it" || return 0
  start_system "$bin"
  load "$folder/run.json" --rate "$(of_sustained 50)" --warmup "${warmup_s}s" --duration "${soak_s}s" --mix happy=100 --may-shed --timeline || {
    # Keep the results of the other parts.
    show "  ✘ soak: the run failed"
    failed=$((failed + 1))
    stop_system
    return 0
  }
  local soak
  soak=$(jq '(.timeline | length) as $all | ([($all / 10 | floor), 1] | max) as $tenth
    # Short stalls of the machine are accepted: up to one rejection per thousand orders.
    | (if .shed * 1000 > .started then ["\(.shed) orders of \(.started) were rejected"] else [] end) as $too_many
    | {rate: .target_rate, duration_s, valid: (.valid and $too_many == []), reasons: (.reasons + $too_many), started, shed, latency_ms, cpu_ms_per_order, rss_mib,
       services_rss_mib_first: (.timeline[$tenth] | .rss_mib - .broker_rss_mib | round),
       services_rss_mib_last: (.timeline[-1] | .rss_mib - .broker_rss_mib | round),
       seconds_with_rejections: [.timeline[] | select(.rejected > 0) | {at, rejected, p99_ms}][:100],
       timeline: [.timeline | to_entries[] | select(.key % $tenth == 0) | .value]}' "$folder/run.json")
  show "$(jq -r '"  \(.rate)/s: p50 \(.latency_ms.p50) ms, p99 \(.latency_ms.p99) ms; memory of the services \(.services_rss_mib_first) → \(.services_rss_mib_last) MiB; \(.shed) of \(.started) orders rejected"' <<<"$soak")"
  printf '%s\n' "$soak" >"$folder/soak.json"
  against "$folder/soak.json" soak
  note soak "$soak"
  stop_system
}
