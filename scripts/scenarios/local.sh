# shellcheck shell=bash disable=SC2034,SC2154
# How demo-scenarios.sh handles a system of processes on this machine: by sagactl. compose.sh is its twin.

# What has to be there before anything is started.
prepare() { "$root/scripts/setup.sh"; }

is_running() { [[ -x $sagactl && $(system_status 2>/dev/null | jq 'any(.processes[]; .pid)') == true ]]; }

# Its exit code tells of readiness, which is not what is asked here.
system_status() { "$sagactl" status --json || true; }

# The usual system unless another is named; where it does not run, one of the demo's own.
choose_system() {
  if [[ -z $data_given ]] && ! is_running; then
    SAGA_DATA=$root/target/demo
    fresh=(--fresh)
  fi
}

where_it_is() { printf '%s\n' "in $SAGA_DATA"; }

# start_system DEADLINE: builds and starts it, with orders that give up after that long.
# Nobody watches for a minute: the broker hands out soon again what a killed process had, and a breaker that opened
# because the bank is away tries it again soon.
start_system() {
  local name settings=(--set "order.service.deadline=$1" --set payment.resilience.bank.breaker.open_for=1s)
  for name in order inventory payment admin; do settings+=(--set "$name.bus.ack_wait=3s"); done
  "$root/scripts/up.sh" --detach ${fresh[@]+"${fresh[@]}"} "${settings[@]}" >/dev/null
}

# How long orders live while nobody watches: scenario 6 waits for the end of one, and 7, 11 and 12 have to be done before.
hurried=12s

# "ADMIN ORDER INVENTORY PAYMENT BANK": where each is asked.
addresses() {
  system_status | jq -r '.urls | "\(.admin) \(.order) \(.inventory) \(.payment) \(.bank)"'
}

# processes_of KIND: their names, of one alone its own.
processes_of() { system_status | jq -r --arg kind "$1" '.processes[].name | select(test("^" + $kind + "(-[0-9])?$"))'; }

# leader_of STREAM|SERVICE: which of several brokers leads it; which of several replicas is given its messages first.
leader_of() { system_status | jq -r --arg stream "$1" '.processes[] | select(.leads // [] | index($stream)).name'; }

# How to start a system that the last scenarios can be played with.
large="scripts/up.sh --detach --store postgres --replicas 3 --nats-nodes 3"

what_is_down() { system_status | jq -r '.processes[] | select(.pid | not).name'; }

# control stop|start|kill NAME: one process, while the others go on.
control() {
  show "  ${blue}\$ sagactl $*${plain}"
  "$sagactl" "$@" 2>&1
}

# rebuild SERVICE KIND: of a stopped service; prints a report.
rebuild() {
  show "  ${blue}\$ sagactl rebuild $*${plain}" >&2
  "$sagactl" rebuild "$@"
}

stop_system() { "$sagactl" down; }

how_to_stop_it() { printf '%s\n' "SAGA_DATA=$SAGA_DATA scripts/down.sh"; }
