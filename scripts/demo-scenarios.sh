#!/usr/bin/env bash
# Shows what the system does when things go well and when they break, by plain HTTP, and checks all of it.
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
  for number in "${wanted[@]}"; do play "$number"; done
  print_summary $((SECONDS - began))
  ((failed == 0))
}

usage() {
  cat <<USAGE
usage: scripts/demo-scenarios.sh list | all | N… [--target local|compose] [--pause] [--keep]

  list      the scenarios
  all       all of them, in order
  N…        these, e.g. "1 6"
  --target  local: processes of this machine, which sagactl starts and stops (without it, too);
            compose: containers, which docker compose starts and stops
  --pause   wait for Enter between the steps (on a terminal)
  --keep    leave the system running, if it was started here

It uses the system that runs already, or starts one. SAGA_DATA names the folder of another
local system, COMPOSE_PROJECT_NAME another project of containers.
Exit code 0 when every expectation holds, 1 when not, 2 when the command makes no sense.
USAGE
}

refuse() {
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
      -*) refuse "unknown flag $word (there are --target, --pause and --keep)" ;;
      *)
        { [[ $word =~ ^[1-9][0-9]?$ ]] && file_of "$word" >/dev/null; } ||
          refuse "there is no scenario '$word' (see: demo-scenarios.sh list)"
        wanted+=("$word")
        ;;
    esac
  done
  [[ $is_target == no && $target =~ ^(local|compose)$ ]] || refuse "--target is local or compose"
  case $all,$list,${#wanted[@]} in
    yes,no,0) for word in $(numbers); do wanted+=("$word"); done ;;
    no,yes,0) list && exit 0 ;;
    no,no,0) usage >&2 && exit 2 ;;
    no,no,*) ;;
    *) refuse "say 'all' or 'list' or numbers, not several of them" ;;
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

# The system that is named; without that the usual one if it runs, or else one of the demo's own.
find_or_start_system() {
  choose_system
  if is_running; then
    show "using the system $(where_it_is)"
    start_what_is_down
  else
    show "no system runs: building and starting one"
    started=yes
    # Whoever reads between the steps needs more time than one who does not.
    start_system "$([[ $pausing == yes ]] && echo 40s || echo "$hurried")" || die "the system did not start"
  fi
  local urls
  urls=$(addresses) || die "it is not to be seen where the services are published"
  # shellcheck disable=SC2034 # for the scenarios
  read -r admin order inventory payment bank <<<"$urls"
  mend_what_faults_left || die "what an earlier run left cannot be put right"
}

# What a scenario left stopped because it failed or was interrupted.
start_what_is_down() {
  local name
  for name in $(what_is_down); do
    show "$name does not run: starting it"
    control start "$name"
  done
}

# A scenario runs in a subshell: what it defines ends with it, and its first failed command or wait ends it.
play() {
  local began=$SECONDS code=0 result="${green}✔ pass${plain}"
  number=$1 tag=$(date +%s)-$$-${#summary[@]} failures=0 keys=0 ended=no
  start_what_is_down
  set +e
  (
    set -e
    trap end_scenario EXIT
    trap 'ended=interrupted; exit 130' INT TERM HUP
    # shellcheck disable=SC1090 # one of scenarios/*.sh
    source "$(file_of "$number")"
    announce
    if ! possible; then
      show "  skipped: it needs $needs; start one with $large"
      ended=yes
      exit 77
    fi
    scenario
    audit_the_books
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
  ((skipped == 0)) || show "skipped: $skipped, for which the system has to have several of a kind: $large"
  if ((failed == 0)); then
    show "${green}✔ every expectation held${plain} ($((${#summary[@]} - skipped)) scenario(s), ${1}s)"
  else
    show "${red}✘ $failed of ${#summary[@]} scenario(s) failed${plain}"
  fi
}

clean_up() {
  # From here on nothing is to be interrupted.
  trap '' INT TERM HUP
  [[ $interrupted == no ]] || show "" "interrupted"
  rm -rf "$scratch"
  is_running || return 0
  if [[ $started == no ]]; then
    start_what_is_down
  elif [[ $keep == yes && $interrupted == no ]]; then
    show "" "the system goes on:"
    show "  admin $admin/docs" "  order $order/docs" "  inventory $inventory/docs" "  payment $payment/docs" "  bank $bank/docs"
    show "stop it with: $(how_to_stop_it)"
  else
    show "" "stopping the system"
    stop_system
  fi
}

main "$@"
