# shellcheck shell=bash disable=SC2154
# Compares stores and replicas by whole sagas. To be sourced by bench.sh.

# Each round runs all of them, so that other load of the machine affects all.
bench_stores() {
  title "stores: whole sagas on SQLite, on PostgreSQL, and with three replicas of each service on PostgreSQL"
  # If started by root, PostgreSQL runs as another user, who must be able to enter the folder.
  chmod 0711 "$folder"
  : >"$folder/stores"
  show "  round   clients   run            sagas/s   p50 ms   p99 ms   ledgers"
  local round clients run
  for ((round = 1; round <= pairs; round++)); do
    for clients in 256 1024; do
      for run in sqlite postgresql replicas; do store_run "$round" "$clients" "$run"; done
    done
  done
  local summary
  summary=$(jq -s "$spread"'
    def rate(run): map(select(.run == run))[0].rate;
    def ratios(one; other): group_by(.round) | map(rate(one) / rate(other)) | spread;
    {runs: ., ratios: (group_by(.clients) | map({clients: .[0].clients, postgresql_to_sqlite: ratios("postgresql"; "sqlite"),
      replicas_to_one: ratios("replicas"; "postgresql")}))}' "$folder/stores")
  show "" "  per round: median (min … max)"
  show "$(jq -r '.ratios[] | .clients as $clients | to_entries[] | select(.key != "clients")
    | "\($clients)\t\(.key | gsub("_"; " "))\t\(.value.median)\t\(.value.min) … \(.value.max)"' <<<"$summary" |
    awk -F '\t' '{ printf "  %7s   %-22s %8s   (%s)\n", $1, $2, $3, $4 }')"
  note stores "$summary"
}

# store_run ROUND CLIENTS RUN
store_run() {
  local round=$1 clients=$2 run=$3 flags=()
  case $run in
    postgresql) flags=(--store postgres) ;;
    replicas) flags=(--store postgres --replicas 3) ;;
  esac
  start_system "$bin" ${flags[@]+"${flags[@]}"}
  # The long warm-up covers the time in which replicas do not know yet what the others wait for.
  timeout $((duration_s + 180)) "$bin/sagactl" --data "$data" load --clients "$clients" --warmup 15s --duration "${duration_s}s" \
    --mix happy=100 --may-shed --json >"$folder/load.json" 2>/dev/null || true
  stop_system
  [[ -s $folder/load.json ]] || die "the load has no result"
  jq -c --argjson round "$round" --argjson clients "$clients" --arg run "$run" \
    '{round: $round, clients: $clients, run: $run, rate: .rate_achieved, p50: .latency_ms.p50, p99: .latency_ms.p99, balanced, unfinished, failed}' \
    "$folder/load.json" >>"$folder/stores"
  show "$(tail -n 1 "$folder/stores" | jq -r '"\(.round)\t\(.clients)\t\(.run)\t\(.rate)\t\(.p50)\t\(.p99)\t\(if .balanced then "balance" else "DO NOT BALANCE" end)"' |
    awk -F '\t' '{ printf "  %5s   %7s   %-12s %9s %8s %8s   %s\n", $1, $2, $3, $4, $5, $6, $7 }')"
  [[ $(tail -n 1 "$folder/stores" | jq '.balanced and .unfinished == 0 and .failed == 0') == true ]] || failed=$((failed + 1))
}
