# shellcheck shell=bash disable=SC2154
# Functions of the benchmarks: separate systems on free ports, checks, results. To be sourced after lib.sh.

json=no keep=no building=yes builder=build failed=0 results='{}'
folder='' systems=()

# begin: builds the programs and creates a temporary folder that is deleted at the end.
begin() {
  "$root/scripts/setup.sh"
  export_nats_server
  [[ $building == no ]] || "$builder" >&2
  [[ -x $sagactl ]] || die "sagactl is not built (omit --no-build)"
  folder=$(mktemp -d "${TMPDIR:-/tmp}/saga-bench.XXXXXX")
  trap clean_up EXIT
  trap 'exit 130' INT TERM HUP
}

clean_up() {
  trap '' INT TERM HUP
  local job
  for job in $(jobs -p); do kill "$job" 2>/dev/null || true; done
  stop_system
  if [[ $keep == yes ]]; then say "data and logs: $folder"; else rm -rf "$folder"; fi
}

# end: prints the results with --json. Fails if a check failed.
end() {
  if [[ $json == yes ]]; then jq . <<<"$results"; fi
  ((failed == 0))
}

# common_option OPTION: handles an option of all benchmarks.
common_option() {
  case $1 in
    -h | --help) usage && exit 0 ;;
    --json) json=yes ;;
    --keep) keep=yes ;;
    --no-build) building=no ;;
    *) reject_arguments "unknown option $1 (see: $(basename "$0") --help)" ;;
  esac
}

reject_arguments() {
  say "$(basename "$0"): $*"
  exit 2
}

# show TEXT…: prints to standard output, or to standard error with --json.
show() { if [[ $json == yes ]]; then printf '%s\n' "$@" >&2; else printf '%s\n' "$@"; fi; }
title() { show "" "== $*"; }
# must WHAT COMMAND…: a check.
must() {
  if "${@:2}"; then
    show "  ✔ $1"
  else
    show "  ✘ $1"
    failed=$((failed + 1))
  fi
}
# Definitions for jq: the median, rounding to three digits, and the median, minimum and maximum of ratios.
# shellcheck disable=SC2034,SC2016
spread='def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
  def round3: . * 1000 | round / 1000;
  def spread: {median: (median | round3), min: (min | round3), max: (max | round3)};'
# note NAME JSON: records a result.
note() { results=$(jq --arg name "$1" --argjson value "$2" '. + {($name): $value}' <<<"$results"); }

# start_system PROGRAMS OPTIONS…: starts a system on free ports; sets a variable for each service, such as $order, to its URL.
start_system() {
  local programs=$1 base urls
  shift
  base=$(free_ports)
  data=$folder/$(date +%s)-$base
  systems=("$programs/sagactl" "$data")
  if ! timeout 120 "$programs/sagactl" --data "$data" up --detach --port-base "$base" "$@" >"$folder/up.log" 2>&1; then
    tail -n 5 "$folder/up.log" >&2
    die "the system did not start"
  fi
  urls=$(status | jq -r --arg names "$services" '[.processes[] | {(.name): .url}] | add | [.[$names | split(" ")[]]] | join(" ")')
  # shellcheck disable=SC2034,SC2229 # a variable for each name
  read -r $services <<<"$urls"
}

stop_system() {
  ((${#systems[@]} > 0)) || return 0
  timeout 60 "${systems[0]}" --data "${systems[1]}" down >/dev/null 2>&1 || say "the system in ${systems[1]} could not be stopped"
  [[ $keep == yes ]] || rm -rf "${systems[1]}"
  systems=()
}

# The exit code of `status` tells whether the system is ready, which does not matter here.
status() { "${systems[0]}" --data "${systems[1]}" status --json || true; }
control() { "${systems[0]}" --data "${systems[1]}" "$@" >/dev/null 2>&1; }

# Prints the first of forty consecutive free ports, enough for three replicas of each service.
free_ports() {
  local base port
  while :; do
    base=$((20000 + RANDOM % 12000))
    for ((port = base; port < base + 40; port++)); do
      if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then continue 2; fi
    done
    echo "$base"
    return
  done
}

get() { curl --silent --show-error --max-time 60 "$1" | jq -r "$2"; }
send() {
  curl --silent --show-error --max-time 60 --request "$1" --header 'X-Operator: bench' \
    --header 'Content-Type: application/json' --data "$3" "$admin/api/admin/$2"
}
# Unix time in milliseconds; in old shells with a resolution of one second.
millis() { if [[ -n ${EPOCHREALTIME:-} ]]; then echo $((${EPOCHREALTIME/[.,]/} / 1000)); else echo $(($(date +%s) * 1000)); fi; }

# wait_for SECONDS COMMAND…: repeats it until it succeeds; fails after SECONDS.
wait_for() {
  local until=$((SECONDS + $1))
  until "${@:2}"; do
    ((SECONDS < until)) || return 1
    sleep 0.2
  done
}

ledgers_balance() { [[ $(get "$admin/api/admin/reconciliation?wait=30" .verdict) == BALANCED ]]; }
dead_letters_in() { get "$admin/api/admin/dlq/count" ".by_status.$1"; }
has_dead_letters() { [[ $(dead_letters_in "$1") == "$2" ]]; }
