# shellcheck shell=bash disable=SC2154
# Load, evaluation of a run, and the search for the highest rate, for the parts of `bench.sh all`. To be sourced by bench.sh.

# Limits for a step of the search: p99 in milliseconds, and the percentage of the target rate that must end in time.
readonly limit_p99_ms=250 least_share=97

# load FILE OPTIONS…: runs a load and writes its report to FILE, valid or not. Fails without a report.
load() {
  local file=$1
  shift
  timeout 4000 "$sagactl" --data "$data" load --json "$@" >"$file" 2>"$folder/load.err" || true
  has_report "$file" || {
    tail -n 5 "$folder/load.err" >&2
    return 1
  }
}

# has_report FILE: true if the file contains a report. (jq 1.6 accepts an empty file.)
has_report() { jq -e -s '.[0].started' "$1" >/dev/null 2>&1; }

# in_short FILE: prints the part of a report that is kept.
in_short() {
  jq 'del(.reconciliation, .timeline, .ending_s, .warmup_orders, .report) | del(.shed_latency_ms | select(.p50 == 0))' "$1"
}

# against FILE NAME: reports each reason why the run is invalid as a failed check.
against() {
  local reason
  while read -r reason; do
    show "  ✘ $2: $reason"
    failed=$((failed + 1))
  done < <(jq -r '.reasons[]' "$1")
}

# step RATE: one step of the search. Succeeds if the run stayed within the limits.
step() {
  local file=$folder/step.json held
  load "$file" --rate "$1" --warmup "${warmup_s}s" --duration "${step_s}s" --mix happy=100 || return 1
  held=$(jq --argjson limit "$limit_p99_ms" --argjson share "$least_share" \
    '.valid and .latency_ms.p99 <= $limit and .rate_in_time * 100 >= .target_rate * $share' "$file")
  in_short "$file" | jq -c --argjson held "$held" '. + {held: $held}' >>"$folder/steps"
  show "$(jq -r --arg held "$([[ $held == true ]] && echo '✔' || echo '✘')" \
    '"  \($held) \(.target_rate)/s: \(.rate_in_time)/s ended, p50 \(.latency_ms.p50) ms, p99 \(.latency_ms.p99) ms, \(.cpu_ms_per_order) ms CPU\(.reasons | map("; " + .) | join(""))"' "$file")"
  # Orders in flight would disturb the next step.
  [[ $(jq '.unfinished + .failed' "$file") == 0 ]] || { stop_system && start_system "$bin"; }
  [[ $held == true ]]
}

# search: finds the highest sustained rate by doubling and bisection; sets $sustained.
search() {
  local low=0 high=0 rate=$first_rate
  : >"$folder/steps"
  while ((high == 0)); do
    if step "$rate"; then low=$rate rate=$((rate * 2)); else high=$rate; fi
    ((rate <= 50000)) || high=$rate
  done
  if ((low == 0)); then
    while ((low == 0 && high > 20)); do
      rate=$((high / 2))
      if step "$rate"; then low=$rate; else high=$rate; fi
    done
  fi
  while ((low > 0 && (high - low) * 100 > low * within_percent)); do
    rate=$(((low + high) / 2))
    if step "$rate"; then low=$rate; else high=$rate; fi
  done
  sustained=$low
}

# of_sustained PERCENT: prints this percentage of the highest rate, rounded.
of_sustained() {
  echo $(((sustained * $1 + 50) / 100))
}

# need_sustained: searches the highest rate unless `throughput` or --sustained has set it.
need_sustained() {
  if ((sustained == 0)); then
    show "  searching the highest rate first (or use --sustained N)"
    start_system "$bin"
    search
    stop_system
  fi
  ((sustained > 0)) || die "there is no sustained rate: at none all orders ended with a p99 of $limit_p99_ms ms"
}

# pids: prints NAME=PID for all processes of the system.
pids() { status | jq -r '.processes[] | select(.pid) | "\(.name)=\(.pid)"'; }

# used_while SECONDS FILE: writes the resource usage before and after to FILE.before and FILE.after, for `bench used`.
used_while() {
  local all
  mapfile -t all < <(pids)
  "$tool" usage "${all[@]}" >"$2.before"
  sleep "$1"
  "$tool" usage "${all[@]}" >"$2.after"
}
