#!/usr/bin/env bash
# Measures throughput, latency, cost and recovery. Starts separate systems and stops only those.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$root/scripts/bench-lib.sh"
source "$root/scripts/bench/runs.sh"
source "$root/scripts/bench/parts.sh"
source "$root/scripts/bench/counts.sh"
source "$root/scripts/bench/report.sh"
source "$root/scripts/bench/stores.sh"

usage() {
  cat <<USAGE
usage: scripts/bench.sh [BENCHMARK…] [OPTIONS]

  all               performance: all parts below, compared with the limits of this machine; parts can be named separately
    idle            latency of single orders, and CPU and memory of idle processes
    throughput      the highest sustained rate with p99 up to 250 ms and no backlog; and closed-loop clients
    latency         at 25, 50 and 75 % of that rate
    drain           10,000 orders during an outage of the broker: how fast they end afterwards
    store, relay    the store and the relay alone
    mixed           10 % declined, 5 % out of stock, 5 % cancelled by customers, at half of that rate
    overload        3 times that rate, then half of it: latency of accepted and rejected orders; memory
    history         load and reconciliation with --history finished orders
    soak            half of that rate for 30 minutes
    counts          CPU time, instructions, context switches, system calls, transactions, messages and bytes per saga and
                    process, at that rate or 95, 90 or 80 % of it; tools/budget checks those that need no clock

  promises          breaker, dead-letters, outage and night (the default)
  breaker           cost of a circuit breaker
  dead-letters      10,000 dead letters: duration of lists and groups, rate of a redrive
  outage            200 orders per second during a 60 s outage of the bank: memory, losses, recovery
  happy DIR         this build and the programs in DIR, alternating: throughput, latency, CPU per saga
  traces            the same with and without traces, at the default sampling
  stores            SQLite, PostgreSQL, and PostgreSQL with three replicas of each service, alternating
  night             an operator's work during an incident: scripts/night.sh, which has more options

  options of \`all\` and its parts:
  --skip PART       omit a part (repeatable)
  --quick           short runs, to try everything within minutes; not a valid result
  --sustained N     the highest sustained rate, if known
  --soak S          seconds of soak (1800)
  --history N       finished orders of history (5000000: half an hour; a million takes about 7 GB)
  --profile NAME    the Cargo profile (dist: see scripts/dist.sh)
  --write           write docs/benchmarks: page, charts, results as JSON

  options of the others:
  --dead-letters N  dead letters (10000)
  --rate N          orders per second: outage (200), happy and traces (500), dead-letters (500)
  --outage S        seconds of the outage (60)
  --pairs N         pairs of runs of happy and traces, rounds of stores (4)
  --duration S      seconds of one run of happy, traces or stores (20)
  --json            print one JSON object; progress goes to standard error
  --keep            keep data and logs
  --no-build        use the programs of the last build

Everything runs in a temporary folder and on free ports. Exit codes: 0 all checks passed (ledgers, no losses), 1 a check failed,
2 invalid arguments.
USAGE
}

wanted=() skipped=() other='' endpoint='' history=5000000
parts=(idle throughput latency drain store relay mixed overload history soak counts)
quick=no writing=no profile=release tool='' counted_by=nobody
# The highest sustained rate; 0 if unknown.
sustained=0
# Durations of `all`, in seconds. --quick has shorter ones.
warmup_s=3 step_s=10 floor_s=5 rest_s=10 overload_s=20 soak_s=1800 counts_s=10
first_rate=400 within_percent=5 rest_orders=200 drain_orders=10000
closed_clients=(64 256 1024)
dead_letters=10000 rate='' outage_s=60 pairs=4 duration_s=20

main() {
  parse "$@"
  local benchmark
  if is_of_all "${wanted[0]}"; then
    bin=$(measured_folder)
    sagactl=$bin/sagactl tool=$bin/bench builder=build_measured
  fi
  begin
  if [[ -n $tool ]]; then
    describe
    bench_floor
  fi
  for benchmark in "${wanted[@]}"; do
    "bench_${benchmark//-/_}"
  done
  [[ -z $tool ]] || conclude
  end
}

# is_of_all PART
is_of_all() {
  local part
  for part in "${parts[@]}"; do [[ $part != "$1" ]] || return 0; done
  return 1
}

# `promises` use the release build, `all` the one for images, so they cannot be combined.
parse() {
  local chosen='' part kept=()
  while (($# > 0)); do
    case $1 in
      --sustained | --soak | --history)
        [[ ${2:-} =~ ^[1-9][0-9]{0,7}$ ]] || reject_arguments "$1 needs a number"
        case $1 in
          --sustained) sustained=$2 ;;
          --soak) soak_s=$2 ;;
          --history) history=$2 ;;
        esac
        shift
        ;;
      --skip)
        is_of_all "${2:-}" || reject_arguments "--skip needs a part of all: ${parts[*]}"
        skipped+=("$2")
        shift
        ;;
      --profile)
        [[ ${2:-} =~ ^[a-z]+$ ]] || reject_arguments "--profile needs a name, as Cargo.toml has it"
        chosen=$2
        shift
        ;;
      --quick) quick=yes ;;
      --write) writing=yes ;;
      --dead-letters | --rate | --outage | --pairs | --duration)
        [[ ${2:-} =~ ^[1-9][0-9]{0,6}$ ]] || reject_arguments "$1 needs a number"
        case $1 in
          --dead-letters) dead_letters=$2 ;;
          --rate) rate=$2 ;;
          --outage) outage_s=$2 ;;
          --pairs) pairs=$2 ;;
          --duration) duration_s=$2 ;;
        esac
        shift
        ;;
      all) wanted+=("${parts[@]}") ;;
      promises) wanted+=(breaker dead-letters outage night) ;;
      breaker | dead-letters | outage | night | stores) wanted+=("$1") ;;
      traces)
        have python3 || reject_arguments "traces needs python3 for its collector"
        [[ -r /proc/self/stat ]] || reject_arguments "traces needs /proc"
        wanted+=(traces)
        ;;
      happy)
        [[ -x ${2:-}/sagactl ]] || reject_arguments "happy needs a folder with other programs (there is no ${2:-DIR}/sagactl)"
        [[ -r /proc/self/stat ]] || reject_arguments "happy needs /proc"
        wanted+=(happy) other=$(cd "$2" && pwd)
        shift
        ;;
      *)
        if is_of_all "$1"; then wanted+=("$1"); else common_option "$1"; fi
        ;;
    esac
    shift
  done
  ((${#wanted[@]} > 0)) || wanted=(breaker dead-letters outage night)
  for part in "${wanted[@]}"; do
    [[ " ${skipped[*]-} " == *" $part "* ]] || kept+=("$part")
  done
  ((${#kept[@]} > 0)) || reject_arguments "all parts are skipped"
  wanted=("${kept[@]}")
  local of_all=0
  for part in "${wanted[@]}"; do if is_of_all "$part"; then of_all=$((of_all + 1)); fi; done
  ((of_all == 0 || of_all == ${#wanted[@]})) || reject_arguments "parts of all and other benchmarks cannot be combined"
  if ((of_all > 0)); then
    [[ -r /proc/self/stat ]] || reject_arguments "all needs /proc"
    profile=${chosen:-dist}
  elif [[ $writing == yes || $quick == yes || -n $chosen ]]; then
    reject_arguments "--write, --quick and --profile are for all and its parts"
  fi
  [[ $quick == no ]] || be_quick
}

be_quick() {
  warmup_s=1 step_s=3 floor_s=1 rest_s=3 overload_s=5 counts_s=3
  within_percent=30 rest_orders=30 drain_orders=2000
  closed_clients=(64 256)
  ((soak_s < 1800)) || soak_s=8
  ((history < 5000000)) || history=20000
}

# --- night ------------------------------------------------------------------------------------------------

bench_night() {
  local flags=(--no-build --json)
  [[ $keep == no ]] || flags+=(--keep)
  "$root/scripts/night.sh" "${flags[@]}" >"$folder/night.json" || failed=$((failed + 1))
  [[ ! -s $folder/night.json ]] || note night "$(jq .night "$folder/night.json")"
}

# --- breaker ----------------------------------------------------------------------------------------------

bench_breaker() {
  title "breaker: cost of a call"
  local text
  text=$(cd "$root" && timeout 900 cargo bench --quiet -p saga-core --bench breaker 2>"$folder/bench.log") || {
    tail -n 5 "$folder/bench.log" >&2
    die "the benchmark failed"
  }
  show "$text"
  # divan: "├─ name   fastest │ slowest │ median │ mean │ samples │ iters"; arguments have lines of their own.
  note breaker "$(awk '
    { gsub(/[├╰│─]/, " ") }
    $3 ~ /^(ps|ns|µs|ms|s)$/ && $2 + 0 > 0 { print $1, $6, $7; next }
    NF == 1 { print $1 }' <<<"$text" | jq -R -n '[inputs | split(" ")] | reduce .[] as $line ({of: null, all: []};
      if ($line | length) == 1 then .of = $line[0]
      else .all += [{bench: (if ($line[0] | test("^[0-9]")) then "\(.of) \($line[0])" else $line[0] end),
        median: "\($line[1]) \($line[2])"}] end) | .all')"
}

# --- dead letters -----------------------------------------------------------------------------------------

bench_dead_letters() {
  local per_second=${rate:-500}
  title "dead-letters: $dead_letters of one step"
  start_system "$bin"
  send POST faults '{"service":"inventory","kind":"fail_permanently","step":"inventory-sale"}' >/dev/null
  show "  sending orders, $per_second per second; each is confirmed, and its sale is dead-lettered"
  # The reconciliation of the load fails because of the dead letters, as intended.
  timeout $((dead_letters / per_second + 180)) "$sagactl" --data "$data" load --rate "$per_second" --mix happy=100,declined=0,out_of_stock=0 \
    --duration "$(((dead_letters * 1000 + per_second - 1) / per_second))ms" --json >"$folder/load.json" 2>/dev/null || true
  local sent=$dead_letters dead_letters
  dead_letters=$(jq .started "$folder/load.json")
  must "$dead_letters dead letters of $sent" wait_for 120 has_dead_letters PENDING "$dead_letters"
  local dead_letter cause saga
  read -r dead_letter cause saga <<<"$(get "$admin/api/admin/dlq?limit=1" '.dead_letters[0] | "\(.id) \(.fingerprint) \(.saga)"')"

  local table=() measured='[]'
  measure "a page of 50" "dlq?limit=50"
  measure "a page of 200" "dlq?limit=200"
  measure "page 100 of 50" "dlq?limit=50&cursor=$(cursor_of_page 100)"
  measure "by status, service and step" "dlq?status=PENDING&service=inventory&step=inventory-sale&limit=50"
  measure "by cause" "dlq?fingerprint=$cause&limit=50"
  measure "by saga" "dlq?saga=$saga"
  measure "of the last minute" "dlq?failed_after=$(date -u -d '1 minute ago' +%Y-%m-%dT%H:%M:%SZ 2>/dev/null || date -u -v-1M +%Y-%m-%dT%H:%M:%SZ)&limit=50"
  measure "text in all" "dlq?text=never&limit=50"
  measure "text in none" "dlq?text=unheard-of&limit=50"
  measure "count" "dlq/count"
  measure "groups" "dlq/groups"
  measure "one dead letter" "dlq/$dead_letter"
  show "" "  GET, 50 times each           median ms     max ms" "${table[@]}" ""

  send DELETE faults '{}' >/dev/null
  local began took redrive per_s
  began=$(millis)
  redrive=$(send POST dlq/redrive "{\"filter\":{\"fingerprint\":\"$cause\"},\"canary\":1,\"reason\":\"bench\"}" | jq -r .id)
  must "a redrive without a limit is done" wait_for 300 redrive_is_done "$redrive"
  must "all are RESOLVED" wait_for 60 has_dead_letters RESOLVED "$dead_letters"
  took=$(($(millis) - began))
  per_s=$((dead_letters * 1000 / took))
  show "  $dead_letters dead letters in $took ms: $per_s per second, from the request until all are RESOLVED"
  must "the ledgers balance" ledgers_balance
  note dead_letters "$(jq -n --argjson reads "$measured" --argjson dead_letters "$dead_letters" --argjson ms "$took" --argjson rate "$per_s" \
    '{dead_letters: $dead_letters, reads: $reads, redrive_ms: $ms, redriven_per_s: $rate}')"
  stop_system
}

redrive_is_done() { [[ $(get "$admin/api/admin/dlq/redrive/$1" .status) == DONE ]]; }

# measure WHAT PATH: measures 50 requests over one connection.
measure() {
  local what=$1 path=$2 times median max n
  times=$(for ((n = 0; n < 50; n++)); do printf 'url = "%s/api/admin/%s"\noutput = "/dev/null"\n' "$admin" "$path"; done |
    curl --silent --show-error --fail --max-time 60 --write-out '%{time_total}\n' --config -) || die "GET $path failed"
  read -r median max <<<"$(sort -n <<<"$times" | awk '{ t[NR] = $1 * 1000 } END { printf "%.2f %.2f", t[int((NR + 1) / 2)], t[NR] }')"
  table+=("$(printf '  %-26s %11s %10s' "$what" "$median" "$max")")
  measured=$(jq --arg what "$what" --argjson median "$median" --argjson max "$max" \
    '. + [{get: $what, median_ms: $median, max_ms: $max}]' <<<"$measured")
}

# cursor_of_page N: prints the cursor of page N, with 50 entries per page.
cursor_of_page() {
  local n cursor='' last=''
  for ((n = 1; n < $1; n++)); do
    cursor=$(get "$admin/api/admin/dlq?limit=50${cursor:+&cursor=$cursor}" '.next // ""')
    [[ -n $cursor ]] || break
    last=$cursor
  done
  echo "$last"
}

# --- outage -----------------------------------------------------------------------------------------------

bench_outage() {
  local per_second=${rate:-200} before_s=15 after_s=40
  title "outage: $per_second orders per second, bank down for $outage_s s"
  # A long deadline, so that no order is cancelled during the outage.
  start_system "$bin" --set order.service.deadline=30m
  local all_s=$((before_s + outage_s + after_s)) load began recovered='' drained='' row at sampled=0
  timeout $((all_s + 180)) "$sagactl" --data "$data" load --rate "$per_second" --duration "${all_s}s" --mix happy=100,declined=0,out_of_stock=0 \
    --json >"$folder/load.json" 2>"$folder/load.err" &
  load=$!
  : >"$folder/samples"
  # Stock is filled first; the clock starts with the first order.
  wait_for 60 first_order_is_there || die "no order arrives"
  began=$SECONDS
  local bank_is=up
  while kill -0 "$load" 2>/dev/null; do
    at=$((SECONDS - began))
    if [[ $bank_is == up && -z $recovered ]] && ((at >= before_s)); then
      sample "$at" before
      control kill bank
      bank_is=dead
      show "  $at s: the bank is down"
    elif [[ $bank_is == dead ]] && ((at >= before_s + outage_s)); then
      sample "$at" outage
      row=$(progress)
      control start bank
      bank_is=up recovered=$(millis)
      local backlog=$((${row% *} - ${row#* })) confirmed_then=${row#* }
      show "  $at s: the bank is up again; $backlog orders wait"
    fi
    if ((at >= sampled + 5)); then
      sampled=$at
      sample "$at" "$(if [[ -n $recovered ]]; then echo after; elif [[ $bank_is == dead ]]; then echo outage; else echo before; fi)"
    fi
    if [[ -n $recovered && -z $drained ]]; then
      row=$(progress)
      # Orders in flight are back to at most one second of load.
      if ((${row% *} - ${row#* } <= per_second)); then
        drained=$(($(millis) - recovered))
        local drain_rate=$(((${row#* } - confirmed_then) * 1000 / (drained > 0 ? drained : 1)))
        show "  $at s: the backlog is gone, $drained ms after the bank restarted"
      fi
    fi
    sleep 0.5
  done
  wait "$load" || true
  [[ -n $drained ]] || die "the backlog was not gone within $after_s s (see $folder/load.err)"

  local started completed unfinished errors dead
  read -r started completed unfinished errors <<<"$(jq -r '"\(.started) \(.completed) \(.unfinished + .failed) \(.errors)"' "$folder/load.json")"
  dead=$(get "$admin/api/admin/dlq/count" .total)
  show "" "  RSS in MiB      at outage start   max in outage   grown by      max after"
  local growth
  growth=$(memory_growth)
  show "$(jq -r '.[] | "\(.service)\t\(.start)\t\(.max)\t\(.grown)\t\(.after)"' <<<"$growth" |
    awk -F '\t' '{ printf "  %-16s %14s %15s %10s %14s\n", $1, $2, $3, $4, $5 }')"
  show "" "  drained at $drain_rate orders per second, while $per_second per second arrived: $(awk "BEGIN { printf \"%.1f\", $drain_rate / $per_second }") times as fast"
  must "lost orders: $unfinished of $started; rejected: $errors" test "$unfinished,$errors" = 0,0
  must "all are confirmed: $completed" test "$completed" = "$started"
  must "dead letters: $dead" test "$dead" = 0
  must "the ledgers balance" ledgers_balance
  note outage "$(jq -n --argjson memory "$growth" --argjson rate "$per_second" --argjson drain "$drain_rate" --argjson drained "$drained" \
    --argjson backlog "$backlog" --argjson started "$started" --argjson completed "$completed" --argjson lost "$unfinished" \
    --argjson dead "$dead" '{orders_per_s: $rate, started: $started, completed: $completed, lost: $lost, dead_letters: $dead,
      backlog: $backlog, drained_after_ms: $drained, drained_per_s: $drain, rss_mib: $memory}')"
  stop_system
}

first_order_is_there() { [[ $(progress) != "0 "* ]]; }

# Prints "CREATED ENDED", the orders so far.
progress() {
  get "$order/internal/stats" \
    '.published | "\(."order.created" // 0) \((."order.confirmed" // 0) + (."order.cancelled" // 0))"'
}

# sample SECOND PHASE: records the memory of every process.
sample() {
  status | jq -c --argjson at "$1" --arg phase "$2" \
    '{at: $at, phase: $phase, rss: ([.processes[] | select(.rss_mib) | {(.name): .rss_mib}] | add)}' >>"$folder/samples"
}

# Memory of each process but the bank: at the start of the outage, and its maximum during and after it.
memory_growth() {
  jq -s '(map(select(.phase == "before")) | last.rss) as $start
    | [$start | keys[] | select(. != "bank")] as $names
    | . as $all | $names | map(. as $name
      | ([$all[] | select(.phase == "outage").rss[$name]] | max) as $most
      | ([$all[] | select(.phase == "after").rss[$name]] | max) as $after
      | {service: $name, start: $start[$name], max: $most, grown: (($most - $start[$name]) * 10 | round / 10), after: $after})' \
    "$folder/samples"
}

# --- pairs of runs ----------------------------------------------------------------------------------------

bench_happy() {
  run_pairs happy "this build and $other" this other
}

bench_traces() {
  collector >"$folder/collector" &
  wait_for 10 test -s "$folder/collector" || die "there is no collector"
  endpoint=http://127.0.0.1:$(<"$folder/collector")
  run_pairs traces "with and without traces, at the default sampling" on off
}

# A collector that accepts all spans and prints its port.
collector() {
  exec python3 -c '
import http.server

class Collector(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
print(server.server_port, flush=True)
server.serve_forever()'
}

# run_pairs BENCHMARK WHAT ONE OTHER: alternates the runs, so that other load of the machine affects both.
run_pairs() {
  local benchmark=$1 what=$2 one=$3 second=$4 per_second=${rate:-500} pair
  title "$benchmark: $what, $pairs pairs of $duration_s s, $per_second orders per second"
  : >"$folder/runs"
  show "  pair  run     orders/s   p50 ms   p99 ms   CPU ms per saga   ledgers"
  for ((pair = 1; pair <= pairs; pair++)); do
    if ((pair % 2)); then
      run_one "$pair" "$one" "$per_second"
      run_one "$pair" "$second" "$per_second"
    else
      run_one "$pair" "$second" "$per_second"
      run_one "$pair" "$one" "$per_second"
    fi
  done
  local summary
  summary=$(jq -s --arg one "$one" --arg other "$second" "$spread"'
    def ratios(part): group_by(.pair) | map((map(select(.run == $one))[0] | part) / (map(select(.run == $other))[0] | part))
      | spread;
    {throughput: ratios(.rate), p50: ratios(.p50), p99: ratios(.p99), cpu_per_saga: ratios(.cpu_ms), runs: .}' "$folder/runs")
  show "" "  $one / $second, per pair: median (min … max)"
  show "$(jq -r 'to_entries[] | select(.key != "runs") | "  \(.key)\t\(.value.median)\t\(.value.min) … \(.value.max)"' <<<"$summary" |
    awk -F '\t' '{ printf "%-16s %8s   (%s)\n", $1, $2, $3 }')"
  note "$benchmark" "$summary"
}

# run_one PAIR RUN RATE: measures one run. The CPU time excludes warm-up and reconciliation.
run_one() {
  local pair=$1 run=$2 per_second=$3 warmup_s=5 programs=$bin flags=() service before after load
  case $run in
    other) programs=$other ;;
    on) for service in $services; do flags+=(--set "$service.trace.endpoint=$endpoint"); done ;;
  esac
  start_system "$programs" ${flags[@]+"${flags[@]}"}
  timeout $((duration_s + 180)) "$programs/sagactl" --data "$data" load --rate "$per_second" --warmup "${warmup_s}s" \
    --duration "${duration_s}s" --json >"$folder/load.json" 2>/dev/null &
  load=$!
  sleep "$warmup_s"
  before=$(cpu_ms)
  sleep "$duration_s"
  after=$(cpu_ms)
  wait "$load" || true
  jq -c --argjson pair "$pair" --arg run "$run" --argjson cpu $((after - before)) --argjson seconds "$duration_s" \
    '{pair: $pair, run: $run, rate: .rate_achieved, p50: .latency_ms.p50, p99: .latency_ms.p99, backlog_grew, balanced,
      unfinished, errors, cpu_ms: ($cpu / (.rate_achieved * $seconds) * 1000 | round / 1000)}' \
    "$folder/load.json" >>"$folder/runs"
  stop_system
  show "$(tail -n 1 "$folder/runs" | jq -r '"\(.pair)\t\(.run)\t\(.rate)\t\(.p50)\t\(.p99)\t\(.cpu_ms)\t\(if .balanced then "balance" else "DO NOT BALANCE" end)\(if .backlog_grew then ", backlog grew" else "" end)"' |
    awk -F '\t' '{ printf "  %4s  %-6s %9s %8s %8s %17s   %s\n", $1, $2, $3, $4, $5, $6, $7 }')"
  [[ $(tail -n 1 "$folder/runs" | jq '.balanced and .unfinished == 0 and .errors == 0') == true ]] || failed=$((failed + 1))
}

# CPU time of the five services and the broker so far, in milliseconds.
cpu_ms() {
  local pid stat ticks=0 fields per_s
  per_s=$(getconf CLK_TCK)
  for pid in $(status | jq '.processes[].pid // empty'); do
    stat=$(<"/proc/$pid/stat")
    # After the name in brackets: state is the first field, user and system time are the 12th and 13th.
    read -r -a fields <<<"${stat##*) }"
    ticks=$((ticks + fields[11] + fields[12]))
  done
  echo $((ticks * 1000 / per_s))
}

main "$@"
