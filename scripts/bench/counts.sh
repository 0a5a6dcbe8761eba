# shellcheck shell=bash disable=SC2154
# The cost of a saga by process, counted by the kernel. To be sourced by bench.sh.

# System calls that are counted separately; all others are part of the total.
readonly counted_calls=(fsync fdatasync pwrite64 pread64 write writev sendto recvfrom read openat unlink unlinkat mkdirat epoll_wait futex)

# Percentages of the highest rate to try; the first valid run counts. A lower rate may be needed, because the run is longer than a
# step of the search, and counting takes CPU time.
readonly counted_percents=(100 95 90 80)

bench_counts() {
  title "counts: cost of a saga by process, at the highest rate"
  need_sustained
  local percent per_second counts
  for percent in "${counted_percents[@]}"; do
    per_second=$(of_sustained "$percent")
    show "  at $per_second/s, $percent % of the highest rate"
    start_system "$bin"
    count_at "$per_second"
    stop_system
    is_too_fast "$folder/run.json" || break
    show "$(jq -r '"  too fast: \(.reasons | join("; "))"' "$folder/run.json")"
  done
  against "$folder/run.json" counts
  counts=$(<"$folder/counts.json")
  show "$(jq -r '.each | to_entries[] | "\(.key)\t\(.value.cpu_us)\t\(.value.switches_voluntary + .value.switches_involuntary)\t\((.value.fsync // 0) + (.value.fdatasync // 0))\t\(.value.pwrite64 // "-")\t\(.value.syscalls // "-")\t\(.value.bytes_written)\t\(.value.rss_kib)\t\(.value.transactions // "-")\t\(.value.wire_bytes // "-")"' <<<"$counts" |
    awk -F '\t' 'BEGIN { printf "  %-10s %9s %9s %8s %8s %9s %12s %9s %8s %10s\n", "per saga", "CPU µs", "switches", "fsyncs", "pwrites", "syscalls", "bytes", "RSS KiB", "batches", "wire bytes" }
      { printf "  %-10s %8.1f %9.2f %8.3f %8.2f %9.1f %12.0f %9d %8s %10s\n", $1, $2, $3, $4, $5, $6, $7, $8, $9, $10 }')"
  show "$(jq -r '"  all: \(.all.cpu_us) µs, \(.all.messages) messages, instructions: \(.all.instructions); system calls counted by \(.by)"' <<<"$counts")"
  note counts "$counts"
}

# is_too_fast FILE: true if the run is invalid only because of its rate: rejections, a backlog, a late load generator. Lost orders
# and discrepancies never have that cause.
is_too_fast() {
  jq -e '(.valid | not) and (.errors_by_reason | keys - ["503"] == []) and .unexpected + .failed + .unfinished == 0
    and .balanced' "$1" >/dev/null
}

# count_at RATE: counts during a run. Writes the report to run.json and the cost of a saga to counts.json.
count_at() {
  local sagas load all meanwhile
  timeout 600 "$sagactl" --data "$data" load --rate "$1" --warmup "${warmup_s}s" --duration "$((counts_s * 2 + 4))s" \
    --mix happy=100 --json >"$folder/run.json" 2>"$folder/load.err" &
  load=$!
  wait_for 60 first_order_is_there || die "no order arrives"
  sleep "$warmup_s"
  mapfile -t all < <(pids)
  # Reading the counters takes time, so they are read in the same order before and after.
  counted_so_far "${all[@]}" >"$folder/counted.before"
  meanwhile=$(ended)
  sagas=$meanwhile
  used_while "$counts_s" "$folder/counts"
  sagas=$(($(ended) - sagas))
  counted_so_far "${all[@]}" >"$folder/counted.after"
  meanwhile=$(($(ended) - meanwhile))
  ((sagas > 0)) || die "no order ended during the count"
  count_calls
  wait "$load" || true
  has_report "$folder/run.json" || die "the run at $1/s failed: $(tail -n 2 "$folder/load.err")"
  "$tool" used "$folder/counts.before" "$folder/counts.after" "$sagas" >"$folder/used.json"
  jq -n --slurpfile used "$folder/used.json" --slurpfile calls "$folder/calls.json" \
    --argjson rate "$1" --slurpfile run "$folder/run.json" --arg by "$counted_by" \
    --slurpfile before "$folder/counted.before" --slurpfile after "$folder/counted.after" --argjson sagas "$meanwhile" '
    def sum(f): map(f) | add // 0 | . * 1000 | round / 1000;
    # A missing value is not counted on this machine.
    def sum_if_any(f): if all(f == null) then "not counted here" else sum(f // 0) end;
    ($after[0] | with_entries(.key as $name | .value |= with_entries(
      .value = (([.value - ($before[0][$name][.key] // 0), 0] | max) * 1000 / $sagas | round / 1000)))) as $counted
    | ($used[0] | with_entries(.value += ($counted[.key] // {}) + ($calls[0][.key] // {}))) as $each | ($each | [.[]]) as $all
    | {rate: $rate, by: $by, valid: $run[0].valid, reasons: $run[0].reasons, each: $each, all: ({
        cpu_us: ($all | sum(.cpu_us)), switches: ($all | sum(.switches_voluntary + .switches_involuntary)),
        bytes_written: ($all | sum(.bytes_written)), rss_mib: ($all | map(.rss_kib) | add / 1024 | round),
        messages: ($all | sum(.published // 0)), inputs: ($all | sum(.inputs // 0)), transactions: ($all | sum(.transactions // 0)),
        instructions: ($all | sum_if_any(.instructions)), wire_bytes: ($all | sum_if_any(.wire_bytes))}
      + if $by == "nobody" then {} else {fsync: ($all | sum((.fsync // 0) + (.fdatasync // 0))), pwrite: ($all | sum(.pwrite64 // 0)),
        write: ($all | sum((.write // 0) + (.writev // 0))), syscalls: ($all | sum(.syscalls // 0))} end)}' >"$folder/counts.json"
}

# counted_so_far NAME=PID…: prints for each process its own counters (inputs, transactions, messages) and, if the kernel shows
# them, the bytes that its connections sent and received.
counted_so_far() {
  local each name
  for each in "$@"; do
    name=${each%=*}
    # The broker has no metrics address.
    [[ -z ${!name:-} ]] || curl --silent --show-error --max-time 60 "${!name}/metrics" | awk -v name="$name" '
      $1 ~ /^engine_batch_inputs_sum/ { print name, "inputs", $2 }
      $1 ~ /^engine_batch_inputs_count/ { print name, "transactions", $2 }
      $1 ~ /^outbox_published_total/ { print name, "published", $2 }'
    ! have ss || ss --tcp --numeric --info --processes --no-header --oneline | awk -v name="$name" -v pid="pid=${each#*=}," '
      index($0, pid) { for (i = 1; i <= NF; i++) if ($i ~ /^bytes_(sent|received):/) { sub(/.*:/, "", $i); all += $i } }
      END { printf "%s wire_bytes %.0f\n", name, all }'
  done | jq -R -n '[inputs | split(" ")] | reduce .[] as [$name, $what, $count] ({}; .[$name][$what] = ($count | tonumber))'
}

# Prints the number of ended orders.
ended() {
  local row
  row=$(progress)
  echo "${row#* }"
}

# count_calls: counts the system calls of each process per ended saga. Prefers kernel tracepoints: strace stops a process at each
# call, which makes batches larger.
count_calls() {
  local sagas all pid name jobs=() job call events=''
  mapfile -t all < <(pids)
  echo '{}' >"$folder/calls.json"
  sagas=$(ended)
  for call in "${counted_calls[@]}"; do events+=",syscalls:sys_enter_$call"; done
  if have perf && perf stat --event raw_syscalls:sys_enter true >/dev/null 2>&1; then
    counted_by='kernel tracepoints'
    for name in "${all[@]}"; do
      pid=${name#*=} name=${name%=*}
      perf stat --field-separator , --event "raw_syscalls:sys_enter,instructions$events" --pid "$pid" \
        --output "$folder/calls.$name" -- sleep "$counts_s" >/dev/null 2>&1 &
      jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job" || true; done
    merge_calls "$(($(ended) - sagas))" "${all[@]}"
  elif have strace; then
    counted_by='strace, which slows the processes'
    for name in "${all[@]}"; do
      timeout --signal=INT "$counts_s" strace -f -c -U calls,name -o "$folder/strace.${name%=*}" -p "${name#*=}" 2>/dev/null &
      jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job" || true; done
    for name in "${all[@]}"; do
      awk '$1 ~ /^[0-9]+$/ { print $1 ",," ($2 == "total" ? "raw_syscalls:sys_enter" : "syscalls:sys_enter_" $2) }' \
        "$folder/strace.${name%=*}" >"$folder/calls.${name%=*}"
    done
    merge_calls "$(($(ended) - sagas))" "${all[@]}"
  else
    counted_by=nobody
  fi
}

# merge_calls SAGAS NAME=PID…: merges the counts of all processes into one object, per saga. Each process has a file with lines
# VALUE,UNIT,EVENT,…; an uncounted value is "<not supported>".
merge_calls() {
  local sagas=$1 name
  for name in "${@:2}"; do
    name=${name%=*}
    awk -F , -v name="$name" '$1 ~ /^[0-9]+$/ {
      call = $3 ~ /^raw_/ ? "syscalls" : $3; sub(/^syscalls:sys_enter_/, "", call); sub(/:u$/, "", call); print name, call, $1 }' "$folder/calls.$name"
  done | jq -R -n --argjson sagas "$sagas" '[inputs | split(" ")] | reduce .[] as [$name, $call, $count] ({};
    .[$name][$call] = (($count | tonumber) * 1000 / ([$sagas, 1] | max) | round / 1000))' >"$folder/calls.json"
}
