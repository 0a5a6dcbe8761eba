#!/usr/bin/env bash
# Demonstrates the system in normal operation and under faults with HTTP requests, and checks the results.
set -euo pipefail
data_given=${SAGA_DATA:-}
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$(dirname "${BASH_SOURCE[0]}")/scenarios/lib.sh"

pausing=no keep=no started=no interrupted=no target=local
wanted=() fresh=() summary=() failed=0 skipped=0 failures=0

main() {
  parse "$@"
  scratch=$(mktemp -d)
  trap clean_up EXIT
  trap 'interrupted=yes; exit 130' INT TERM HUP
  # shellcheck disable=SC1090 # local.sh or compose.sh
  source "$root/scripts/scenarios/$target.sh"
  prepare
  find_or_start_system
  local number began=$SECONDS
  for number in "${wanted[@]}"; do run_scenario "$number"; done
  print_summary $((SECONDS - began))
  ((failed == 0))
}

usage() {
  cat <<USAGE
usage: scripts/demo-scenarios.sh list | all | N… [--target local|compose] [--pause] [--keep]

  list      list the scenarios
  all       run all scenarios in order
  N…        run these scenarios, e.g. "1 6"
  --target  local (default): processes on this machine, controlled by sagactl;
            compose: containers, controlled by docker compose
  --pause   wait for Enter between the steps (on a terminal)
  --keep    keep the system running if this command started it

Uses the running system, or starts one. SAGA_DATA selects another local system,
COMPOSE_PROJECT_NAME another compose project.
Exit codes: 0 all checks passed, 1 a check failed, 2 invalid arguments.
USAGE
}

reject_arguments() {
  say "demo-scenarios.sh: $*"
  exit 2
}

parse() {
  local word all=no list=no is_target=no
  for word in "$@"; do
    if [[ $is_target == yes ]]; then
      target=$word is_target=no
      continue
    fi
    case $word in
      --target) is_target=yes ;;
      --target=*) target=${word#*=} ;;
      -h | --help) usage && exit 0 ;;
      --pause) [[ ! -t 0 ]] || pausing=yes ;;
      --keep) keep=yes ;;
      all) all=yes ;;
      list) list=yes ;;
      -*) reject_arguments "unknown option $word (options: --target, --pause, --keep)" ;;
      *)
        { [[ $word =~ ^[1-9][0-9]?$ ]] && file_of "$word" >/dev/null; } ||
          reject_arguments "unknown scenario '$word' (see: demo-scenarios.sh list)"
        wanted+=("$word")
        ;;
    esac
  done
  [[ $is_target == no && $target =~ ^(local|compose)$ ]] || reject_arguments "--target must be local or compose"
  case $all,$list,${#wanted[@]} in
    yes,no,0) for word in $(numbers); do wanted+=("$word"); done ;;
    no,yes,0) list && exit 0 ;;
    no,no,0) usage >&2 && exit 2 ;;
    no,no,*) ;;
    *) reject_arguments "use either 'all', 'list' or numbers" ;;
  esac
}

file_of() {
  local file
  for file in "$root/scripts/scenarios/$(printf '%02d' "$1")"-*.sh; do
    [[ -f $file ]] && printf '%s\n' "$file" && return
  done
  return 1
}

numbers() {
  local file name
  for file in "$root"/scripts/scenarios/[0-9]*.sh; do
    name=$(basename "$file")
    printf '%d\n' "$((10#${name%%-*}))"
  done
}

title_of() (
  # shellcheck disable=SC1090 # one of scenarios/*.sh
  source "$(file_of "$1")"
  printf '%s\n' "$title"
)

list() {
  local number
  for number in $(numbers); do printf '%2d  %s\n' "$number" "$(title_of "$number")"; done
}

# Uses the running system, or starts one.
find_or_start_system() {
  choose_system
  if is_running; then
    show "using the system $(describe_system)"
    start_stopped_members
  else
    show "no system is running: building and starting one"
    started=yes
    # With pauses, orders need a longer deadline.
    start_system "$([[ $pausing == yes ]] && echo 40s || echo "$short_deadline")" || die "the system did not start"
  fi
  local urls
  urls=$(addresses) || die "the addresses of the services are unknown"
  # shellcheck disable=SC2034 # for the scenarios
  # shellcheck disable=SC2229 # a variable for each name
  read -r $services <<<"$urls"
  clean_up_faults || die "faults of an earlier run cannot be cleared"
}

# Starts what an interrupted or failed scenario left stopped.
start_stopped_members() {
  local name
  for name in $(stopped_members); do
    show "$name is not running: starting it"
    control_process start "$name"
  done
}

# run_scenario NUMBER: runs it in a subshell. Its definitions are local to that, and its first failed command ends it.
run_scenario() {
  local began=$SECONDS code=0 result="${green}✔ pass${plain}"
  number=$1 tag=$(date +%s)-$$-${#summary[@]} failures=0 keys=0 ended=no
  start_stopped_members
  set +e
  (
    set -e
    trap end_scenario EXIT
    trap 'ended=interrupted; exit 130' INT TERM HUP
    # shellcheck disable=SC1090 # one of scenarios/*.sh
    source "$(file_of "$number")"
    announce
    if ! is_supported; then
      show "  skipped: it needs $needs; start such a system with: $large_system"
      ended=yes
      exit 77
    fi
    scenario
    reconcile
    ended=yes
  )
  code=$?
  set -e
  if ((code == 77)); then
    result="${dim}– skip${plain}"
    skipped=$((skipped + 1))
  elif ((code != 0)); then
    result="${red}✘ FAIL${plain}"
    failed=$((failed + 1))
  fi
  summary+=("$(printf '  %2d  %-58s %s %5ds' "$number" "$(title_of "$number")" "$result" $((SECONDS - began)))")
}

print_summary() {
  show "" "${bold}summary${plain}" "${summary[@]}" ""
  ((skipped == 0)) || show "skipped: $skipped scenario(s), which need replicas or a cluster; start such a system with: $large_system"
  if ((failed == 0)); then
    show "${green}✔ all checks passed${plain} ($((${#summary[@]} - skipped)) scenario(s), ${1}s)"
  else
    show "${red}✘ $failed of ${#summary[@]} scenario(s) failed${plain}"
  fi
}

clean_up() {
  # The clean-up must not be interrupted.
  trap '' INT TERM HUP
  [[ $interrupted == no ]] || show "" "interrupted"
  rm -rf "$scratch"
  is_running || return 0
  if [[ $started == no ]]; then
    start_stopped_members
  elif [[ $keep == yes && $interrupted == no ]]; then
    show "" "the system keeps running:"
    show "  admin $admin/docs" "  order $order/docs" "  inventory $inventory/docs" "  payment $payment/docs" "  bank $bank/docs"
    show "stop it with: $(stop_command)"
  else
    show "" "stopping the system"
    stop_system
  fi
}

main "$@"
