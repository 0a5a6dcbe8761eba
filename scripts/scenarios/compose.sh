# shellcheck shell=bash disable=SC2034,SC2154
# Controls a system of containers with docker compose, for demo-scenarios.sh. local.sh defines the same functions for processes.

# The containers that scenarios use, stop or kill. Those without dependencies come first.
members="nats ${services#admin } admin"

# Checks that docker compose works.
prepare() {
  have docker || die "docker is not installed: install it, or omit --target compose"
  docker compose version >/dev/null 2>&1 || die "docker has no compose (v2): install its plugin, or omit --target compose"
  docker info >/dev/null 2>&1 || die "the docker daemon does not answer: start it, or omit --target compose"
}

compose() (cd "$root" && docker compose "$@")

is_running() { [[ -n $(running) ]]; }
running() { compose ps --services --status running 2>/dev/null | grep -xE "${members// /|}" || true; }

# Chooses the project in COMPOSE_PROJECT_NAME or the default one if it runs; otherwise a new one for the demo.
choose_system() {
  if [[ -z ${COMPOSE_PROJECT_NAME:-} ]] && ! is_running; then
    export COMPOSE_PROJECT_NAME=saga-demo
    fresh=(--fresh)
  fi
}

describe_system() { printf '%s\n' "with the compose project ${COMPOSE_PROJECT_NAME:-saga}"; }

# start_system DEADLINE: builds (unless SAGA_COMPOSE_BUILD=--no-build) and starts it without monitoring, with this deadline for
# orders. Shorter times than the defaults keep the demo short: see local.sh.
start_system() {
  export SAGA_ORDER_DEADLINE=$1 SAGA_ACK_WAIT=3s SAGA_BANK_OPEN_FOR=1s
  # shellcheck disable=SC2086 # several names
  if ((${#fresh[@]} > 0)) && ! is_running; then compose down --volumes >/dev/null 2>&1; fi
  compose up --detach "${SAGA_COMPOSE_BUILD:---build}" --wait $members >"$scratch/up" 2>&1 || { tail -n 20 "$scratch/up" >&2 && return 1; }
}

# Deadline of orders without --pause. Longer than in local.sh, because containers restart more slowly than processes.
short_deadline=20s

# Scenarios with several replicas or brokers need local.sh.
processes_of() { [[ $1 == nats || $1 == postgres ]] || printf '%s\n' "$1"; }
large_system="--target local, with the system of scripts/up.sh --detach --store postgres --replicas 3 --nats-nodes 3"

# Prints the base URLs of $services, in that order.
addresses() {
  local name addresses=''
  for name in $services; do addresses+="$(address_of "$name") " || return 1; done
  printf '%s\n' "${addresses% }"
}

address_of() {
  local published
  published=$(compose port "$1" "$(port_of "$1")") && printf 'http://%s\n' "$published"
}

stopped_members() {
  local up name
  up=$(running)
  for name in $members; do grep -qx "$name" <<<"$up" || printf '%s\n' "$name"; done
}

# control_process stop|start|kill NAME: controls one container while the others run, or all brokers of a cluster.
control_process() {
  local what=$1 name=$2
  case $what in
    # `start` would also start the dependencies.
    start) set -- up --detach --no-deps --no-recreate ;;
    stop) set -- stop ;;
    kill) set -- kill --signal KILL ;;
  esac
  # shellcheck disable=SC2046 # several names
  set -- "$@" $(compose config --services | grep -E "^$name(-[0-9])?\$" | sort)
  show "  ${blue}\$ docker compose $*${plain}"
  compose "$@" >"$scratch/control" 2>&1 || { cat "$scratch/control" && return 1; }
  [[ $what != start ]] || wait_until "$name is ready" 60 is_ready "$name"
}

# Services answer at their published port; docker knows the health of the broker.
is_ready() {
  case $1 in
    nats) [[ $(docker inspect --format '{{.State.Health.Status}}' "$(compose ps --quiet nats)") == healthy ]] ;;
    *) curl --silent --fail --max-time 5 --output /dev/null "$(address_of "$1")/readyz" ;;
  esac
}

# rebuild SERVICE KIND: rebuilds rows of a stopped service, in a container with its volume; prints a report.
rebuild() {
  show "  ${blue}\$ docker compose run --rm --no-deps $1 rebuild $2${plain}" >&2
  compose run --rm --no-deps -T "$1" rebuild "$2" 2>/dev/null
}

# Deletes the volumes of the demo's own project only.
stop_system() {
  local volumes=()
  ((${#fresh[@]} == 0)) || volumes=(--volumes)
  compose down ${volumes[@]+"${volumes[@]}"} >/dev/null 2>&1
}

stop_command() { printf '%s\n' "COMPOSE_PROJECT_NAME=${COMPOSE_PROJECT_NAME:-saga} docker compose down"; }
