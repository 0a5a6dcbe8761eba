# shellcheck shell=bash disable=SC2034,SC2154
# Controls a local system with sagactl, for demo-scenarios.sh. compose.sh defines the same functions for containers.

# Installs the required tools.
prepare() { "$root/scripts/setup.sh"; }

is_running() { [[ -x $sagactl && $(system_status 2>/dev/null | jq 'any(.processes[]; .pid)') == true ]]; }

# The exit code tells whether the system is ready, which does not matter here.
system_status() { "$sagactl" status --json || true; }

# Chooses the system in SAGA_DATA or the default one if it runs; otherwise a separate one for the demo.
choose_system() {
  if [[ -z $data_given ]] && ! is_running; then
    SAGA_DATA=$root/target/demo
    fresh=(--fresh)
  fi
}

describe_system() { printf '%s\n' "in $SAGA_DATA"; }

# start_system DEADLINE: builds and starts it, with this deadline for orders. Shorter times than the defaults keep the demo
# short: for redelivery after a process was killed, and for the first probe of an open breaker.
start_system() {
  local name settings=(--set "order.service.deadline=$1" --set payment.resilience.bank.breaker.open_for=1s)
  for name in $publishers; do settings+=(--set "$name.bus.ack_wait=3s"); done
  "$root/scripts/up.sh" --detach ${fresh[@]+"${fresh[@]}"} "${settings[@]}" >/dev/null
}

# Deadline of orders without --pause. Scenario 6 waits for it; scenarios 7, 11 and 12 must finish before it.
short_deadline=12s

# Prints the base URLs of $services, in that order.
addresses() {
  system_status | jq -r --arg names "$services" '[.urls[$names | split(" ")[]]] | join(" ")'
}

# processes_of KIND: prints the names of its processes.
processes_of() { system_status | jq -r --arg kind "$1" '.processes[].name | select(test("^" + $kind + "(-[0-9])?$"))'; }

# leader_of STREAM|SERVICE: prints the broker that leads the stream, or the leader among the replicas.
leader_of() { system_status | jq -r --arg stream "$1" '.processes[] | select(.leads // [] | index($stream)).name'; }

# Starts a system for the last scenarios.
large_system="scripts/up.sh --detach --store postgres --replicas 3 --nats-nodes 3"

stopped_members() { system_status | jq -r '.processes[] | select(.pid | not).name'; }

# control_process stop|start|kill NAME: controls one process while the others run.
control_process() {
  show "  ${blue}\$ sagactl $*${plain}"
  "$sagactl" "$@" 2>&1
}

# rebuild SERVICE KIND: rebuilds rows of a stopped service; prints a report.
rebuild() {
  show "  ${blue}\$ sagactl rebuild $*${plain}" >&2
  "$sagactl" rebuild "$@"
}

stop_system() { "$sagactl" down; }

stop_command() { printf '%s\n' "SAGA_DATA=$SAGA_DATA scripts/down.sh"; }
