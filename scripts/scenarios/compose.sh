# shellcheck shell=bash disable=SC2034,SC2154
# How demo-scenarios.sh handles a system of containers: by docker compose. local.sh is its twin.

# Everybody whom the scenarios ask, stop or kill, those first who wait for nobody.
members="nats bank order inventory payment admin"

# What has to be there before anything is started.
prepare() {
  have docker || die "docker is not there: install it, or leave --target compose out"
  docker compose version >/dev/null 2>&1 || die "docker has no compose (v2): install its plugin, or leave --target compose out"
  docker info >/dev/null 2>&1 || die "no docker daemon answers: start it, or leave --target compose out"
}

compose() (cd "$root" && docker compose "$@")

is_running() { [[ -n $(running) ]]; }
running() { compose ps --services --status running 2>/dev/null | grep -xE "${members// /|}" || true; }

# The usual project if it runs, or the one that is named; otherwise one of the demo's own, which begins anew.
choose_system() {
  if [[ -z ${COMPOSE_PROJECT_NAME:-} ]] && ! is_running; then
    export COMPOSE_PROJECT_NAME=saga-demo
    fresh=(--fresh)
  fi
}

where_it_is() { printf '%s\n' "of containers, project ${COMPOSE_PROJECT_NAME:-saga}"; }

# start_system DEADLINE: builds (unless SAGA_COMPOSE_BUILD=--no-build) and starts it, with orders that give up after that
# long. What watches it stays away.
# Nobody watches for a minute: the broker hands out soon again what a killed process had, and a breaker that opened
# because the bank is away tries it again soon.
start_system() {
  export SAGA_ORDER_DEADLINE=$1 SAGA_ACK_WAIT=3s SAGA_BANK_OPEN_FOR=1s
  # shellcheck disable=SC2086 # names, one by one
  if ((${#fresh[@]} > 0)) && ! is_running; then compose down --volumes >/dev/null 2>&1; fi
  compose up --detach "${SAGA_COMPOSE_BUILD:---build}" --wait $members >"$scratch/up" 2>&1 || { tail -n 20 "$scratch/up" >&2 && return 1; }
}

# How long orders live while nobody watches. As in local.sh, but a container takes longer to come back than a process.
hurried=20s

# The scenarios that ask for several processes of a kind are played with those of this machine: see local.sh.
processes_of() { [[ $1 == nats || $1 == postgres ]] || printf '%s\n' "$1"; }
large="--target local, with the system of scripts/up.sh --detach --store postgres --replicas 3 --nats-nodes 3"

# "ADMIN ORDER INVENTORY PAYMENT BANK": where each is asked.
addresses() {
  local name addresses=''
  for name in admin order inventory payment bank; do addresses+="$(address_of "$name") " || return 1; done
  printf '%s\n' "${addresses% }"
}

address_of() {
  local ports=" admin:8080 order:8081 inventory:8082 payment:8083 bank:8084 " port published
  port=${ports#* "$1":}
  published=$(compose port "$1" "${port%% *}") && printf 'http://%s\n' "$published"
}

what_is_down() {
  local up name
  up=$(running)
  for name in $members; do grep -qx "$name" <<<"$up" || printf '%s\n' "$name"; done
}

# control stop|start|kill NAME: one container, while the others go on; of a cluster of brokers (compose/cluster.env) all.
control() {
  local what=$1 name=$2
  case $what in
    # `up`, because `start` would start those it depends on as well.
    start) set -- up --detach --no-deps --no-recreate ;;
    stop) set -- stop ;;
    kill) set -- kill --signal KILL ;;
  esac
  # shellcheck disable=SC2046 # names, one by one
  set -- "$@" $(compose config --services | grep -E "^$name(-[0-9])?\$" | sort)
  show "  ${blue}\$ docker compose $*${plain}"
  compose "$@" >"$scratch/control" 2>&1 || { cat "$scratch/control" && return 1; }
  [[ $what != start ]] || wait_until "$name is ready" 60 is_ready "$name"
}

# Asked where it is published; of the broker docker knows.
is_ready() {
  case $1 in
    nats) [[ $(docker inspect --format '{{.State.Health.Status}}' "$(compose ps --quiet nats)") == healthy ]] ;;
    *) curl --silent --fail --max-time 5 --output /dev/null "$(address_of "$1")/readyz" ;;
  esac
}

# rebuild SERVICE KIND: of a stopped service, in a container that has its volume; prints a report.
rebuild() {
  show "  ${blue}\$ docker compose run --rm --no-deps $1 rebuild $2${plain}" >&2
  compose run --rm --no-deps -T "$1" rebuild "$2" 2>/dev/null
}

# What was the demo's own leaves nothing; the volumes of a project that was named stay.
stop_system() {
  local volumes=()
  ((${#fresh[@]} == 0)) || volumes=(--volumes)
  compose down ${volumes[@]+"${volumes[@]}"} >/dev/null 2>&1
}

how_to_stop_it() { printf '%s\n' "COMPOSE_PROJECT_NAME=${COMPOSE_PROJECT_NAME:-saga} docker compose down"; }
