#!/usr/bin/env bash
# Checks docker-compose.yml for real: builds the images, starts everything, misuses it, and sees that nothing is left.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

usage() {
  cat <<USAGE
usage: scripts/check-compose.sh [--no-build] [--no-scenarios]

  --no-build       check the images that are there (saga/order:0.1.0 and its likes) instead of building them
  --no-scenarios   leave out scripts/demo-scenarios.sh all --target compose, twice (some minutes each)

It needs docker with compose (2.24 or newer), curl, jq and python3, and the images that docker-compose.yml and services/Dockerfile
name: those that this machine has are used, the others are pulled. It works in projects of its own (saga-check…), on
ports of its own (from SAGA_CHECK_PORTS on, 18080), and ends without containers, volumes and networks of theirs.
Exit code 0 when everything holds, 1 when not.
USAGE
}

# What the images may weigh, and all of the system at rest but what watches it.
image_mb=60 rest_mib=500
# Who stops by himself does so in this time; docker kills after it.
stop_s=20

images="order inventory payment admin bank sagactl"
services="order inventory payment admin bank"
first=${SAGA_CHECK_PORTS:-18080}
failures=0 building=--build with_scenarios=yes

for word; do
  case $word in
    -h | --help) usage && exit 0 ;;
    --no-build) building=--no-build ;;
    --no-scenarios) with_scenarios=no ;;
    *) say "check-compose.sh: unknown flag $word (see: check-compose.sh --help)" && exit 2 ;;
  esac
done

pass() { printf '  ✔ %s\n' "$*"; }
fail() {
  failures=$((failures + 1))
  printf '  ✘ %s\n' "$*"
}
step() { printf '\n%s\n' "$*"; }
# expect WHAT WANTED FOUND
expect() { if [[ $2 == "$3" ]]; then pass "$1: $2"; else fail "$1: wanted $2, found $3"; fi; }
# holds WHAT COMMAND…
holds() { if "${@:2}" >/dev/null 2>&1; then pass "$1"; else fail "$1"; fi; }
# within SECONDS COMMAND…: whether it holds before the time is over.
within() {
  local until=$((SECONDS + $1))
  until "${@:2}" >/dev/null 2>&1; do
    ((SECONDS < until)) || return 1
    sleep 0.2
  done
}

unset COMPOSE_FILE COMPOSE_PROFILES COMPOSE_PROJECT_NAME COMPOSE_ENV_FILES
compose() { docker compose --project-name saga-check "$@"; }
# with FILES COMMAND…: with these files of settings, compose/FILE.env, split by commas.
with() {
  local COMPOSE_ENV_FILES
  COMPOSE_ENV_FILES=$(sed 's|[^,]*|compose/&.env|g' <<<"$1")
  export COMPOSE_ENV_FILES
  "${@:2}"
}
guarded() { compose --file docker-compose.yml --file docker-compose.tokens.yml "$@"; }
id_of() { compose ps --all --quiet "$1"; }
# inspected SERVICE FORMAT
inspected() { docker inspect --format "$2" "$(id_of "$1")"; }
url_of() { printf 'http://%s' "$(compose port "$1" "$2")"; }
up() { compose up --detach --wait --quiet-pull "$@" >"$scratch/up" 2>&1; }
# What a service said last for itself, when it did not start.
last_line_of() { docker logs "$(id_of "$1")" 2>&1 | grep "^$1: " | tail -n 1 || true; }

main() {
  scratch=$(mktemp -d)
  trap clean_up EXIT
  trap 'exit 130' INT TERM HUP
  what_it_needs
  publish_from "$first"
  remove_all
  as_it_is_written
  as_it_is_started
  as_it_is_used
  at_rest
  started_twice
  stopped_and_killed
  without_a_secret
  of_a_newer_schema
  with_the_doors_closed
  nothing_left saga-check "compose down -v"
  with postgres on_postgres
  with postgres nothing_left saga-check "compose down -v, with PostgreSQL"
  with postgres,cluster in_a_cluster
  with postgres,cluster nothing_left saga-check "compose down -v, with the cluster"
  if [[ $with_scenarios == yes ]]; then
    scenarios "by itself"
    with postgres,cluster scenarios "on PostgreSQL, with three brokers"
  fi
  echo
  if ((failures > 0)); then die "$failures of the checks failed"; fi
  echo "everything holds"
}

# What is published where, so that a system that runs is in nobody's way.
publish_from() {
  export SAGA_ADMIN_PORT=$1 SAGA_ORDER_PORT=$(($1 + 1)) SAGA_INVENTORY_PORT=$(($1 + 2)) SAGA_PAYMENT_PORT=$(($1 + 3))
  export SAGA_BANK_PORT=$(($1 + 4)) SAGA_PROMETHEUS_PORT=$(($1 + 5)) SAGA_GRAFANA_PORT=$(($1 + 6))
}

remove_all() {
  local project
  for project in saga-check saga-check-other saga-check-demo; do
    docker compose --project-name "$project" --profile '*' down --volumes --remove-orphans >/dev/null 2>&1 || true
  done
}

clean_up() {
  trap '' INT TERM HUP
  remove_all
  rm -rf "$scratch"
}

what_it_needs() {
  local tool image missing=()
  for tool in docker curl jq python3; do have "$tool" || die "$tool is not there: install it"; done
  docker info >/dev/null 2>&1 || die "no docker daemon answers (docker info): start one"
  docker compose version >/dev/null 2>&1 || die "docker has no compose (v2): install its plugin"
  at_least 2.24 "$(docker compose version --short)" || die "compose is $(docker compose version --short): 2.24 or newer is needed"
  step "images that others make"
  for image in $(compose --profile '*' config --images | grep -v '^saga/' | sort -u) "${SAGA_RUST_IMAGE:-rust:1.95-bookworm}"; do
    if docker image inspect "$image" >/dev/null 2>&1 || docker pull --quiet "$image" >/dev/null 2>&1; then
      pass "$image"
    else
      missing+=("$image")
    fi
  done
  ((${#missing[@]} == 0)) || die "these images are not here and cannot be pulled: ${missing[*]}"
}

as_it_is_written() {
  local config=$scratch/config.json
  step "as it is written"
  compose --profile '*' config --format json >"$config"
  expect "ports that others than this machine reach" 0 \
    "$(jq '[.services[].ports[]? | select(.host_ip != "127.0.0.1")] | length' "$config")"
  expect "images without a version of their own" 0 \
    "$(jq '[.services[].image | select((contains(":") | not) or endswith(":latest"))] | length' "$config")"
  expect "containers without a bound on memory" 0 "$(jq '[.services[] | select(.mem_limit | not)] | length' "$config")"
  expect "services that may hold more connections (36 KiB each) than half of their memory is for" 0 "$(jq '
    [.services | to_entries[] | select(.value.environment // {} | keys | any(endswith("__HTTP__BIND")))
      | ([.value.environment | to_entries[] | select(.key | endswith("__HTTP__MAX_CONNECTIONS")) | .value | tonumber][0] // 10000) as $held
      | select($held * 36864 > (.value.mem_limit | tonumber) / 2)] | length' "$config")"
  expect "ours, the broker and the database that may write to their root file system" 0 \
    "$(jq '[.services[] | select((.image | test("^(saga/|nats:|postgres:)")) and (.read_only | not))] | length' "$config")"
  expect "secrets in it" 0 "$(grep -c 'saga_[A-Za-z0-9]\{20\}\|SU[A-Z2-7]\{50\}' "$config" || true)"
  expect "where the data are, by itself" "5 sqlite" "$(stores)"
  expect "… with compose/postgres.env" "5 postgres" "$(with postgres stores)"
  expect "a system of its own with each" "saga saga-postgres saga-cluster saga-postgres-cluster" \
    "$(project) $(with postgres project) $(with cluster project) $(with postgres,cluster project)"
  expect "brokers and copies of a stream, by itself" "1 1" "$(brokers) $(copies)"
  expect "… with compose/cluster.env" "3 3" "$(with cluster brokers) $(with cluster copies)"
  expect "… with both" "3 3, 5 postgres" "$(with postgres,cluster brokers) $(with postgres,cluster copies), $(with postgres,cluster stores)"
}

# set_to KEY [FILTER]: what a setting is at each service, as JSON.
set_to() { compose config --format json | jq -r "[.services[].environment // {} | to_entries[] | select(.key | endswith(\"$1\")).value${2:-}]"; }
stores() { set_to __STORE__URL ' | split(":")[0]' | jq -r 'group_by(.) | map("\(length) \(.[0])") | join(", ")'; }
copies() { set_to __BUS__REPLICAS | jq -r 'unique | join(", ")'; }
brokers() { compose config --services | grep -c '^nats\(-[0-9]\)\?$'; }
project() { docker compose config --format json | jq -r .name; }

as_it_is_started() {
  local began=$SECONDS name size
  step "docker compose up -d $building --wait"
  compose up --detach "$building" --wait --quiet-pull >"$scratch/up" 2>&1 || { tail -n 30 "$scratch/up" && die "it did not start"; }
  pass "healthy after $((SECONDS - began)) s"
  for name in $images; do
    size=$(($(docker image inspect --format '{{.Size}}' "saga/$name:0.1.0") / 1000000))
    holds "saga/$name: $size MB, at most $image_mb" test "$size" -le "$image_mb"
    expect "saga/$name runs as" 65532:65532 "$(docker image inspect --format '{{.Config.User}}' "saga/$name:0.1.0")"
    if docker run --rm --network none --entrypoint /bin/sh "saga/$name:0.1.0" -c true >/dev/null 2>&1; then
      fail "saga/$name has a shell"
    fi
  done
  for name in nats $services prometheus grafana; do
    expect "$name" healthy "$(inspected "$name" '{{.State.Health.Status}}')"
  done
  for name in nats $services; do expect "$name: owner of its process" 65532 "$(uid_of "$name")"; done
  expect "a service that listens without tokens says so" 1 \
    "$(curl -s "$(url_of order 8081)/readyz" | jq '[.remarks[] | select(contains("http.allow_unauthenticated"))] | length')"
}

uid_of() { docker top "$(id_of "$1")" -eo uid,pid 2>/dev/null | awk 'NR == 2 { print $1 }'; }

as_it_is_used() {
  local order placed
  step "as it is used"
  order=$(url_of order 8081)
  holds "the catalogue has the demo's products" test "$(curl -s "$(url_of inventory 8082)/api/products?limit=100" | jq '[.. | .sku? // empty] | length')" -ge 12
  placed=$(curl -s "$order/api/orders" -H 'content-type: application/json' -H 'Prefer: wait=20' \
    -d '{"customer":"ada","lines":[{"sku":"coffee-beans-1kg","quantity":2}],"payment":{"token":"tok_ok"}}')
  expect "an order" CONFIRMED "$(jq -r .status <<<"$placed")"
  holds "sagactl status, in the network: nobody is needed" compose run --rm sagactl status
  holds "who has no key does not get in at the broker" who_has_no_key
  expect "services that Prometheus reads" "5 up" "$(within 60 all_are_read && echo 5 up || echo "$(are_read) up")"
  holds "docker compose run load: orders at a rate, and the books balance" \
    env SAGA_LOAD_RATE=20 SAGA_LOAD_DURATION=10s docker compose --project-name saga-check --profile load run --rm load
}

# The program says the same when the broker is away: the broker has to say that it turned somebody away.
who_has_no_key() {
  local before
  before=$(turned_away)
  ! compose --profile load run --rm --no-deps load load --by-name --rate=1 --duration=1s >"$scratch/no-key" 2>&1 &&
    (($(turned_away) > before))
}
turned_away() { docker logs "$(id_of nats)" 2>&1 | grep -c 'authentication error' || true; }

are_read() {
  curl -s "$(url_of prometheus 9090)/api/v1/targets" | jq '[.data.activeTargets[] | select(.labels.job == "saga" and .health == "up")] | length'
}
all_are_read() { [[ $(are_read) == 5 ]]; }

at_rest() {
  local ids mib
  step "at rest"
  # shellcheck disable=SC2046 # names, one by one
  ids=$(for name in nats $services; do id_of "$name"; done)
  # shellcheck disable=SC2086
  docker stats --no-stream --format '{{.Name}} {{.MemUsage}}' $ids | awk '{ print "    " $1 "  " $2 }'
  # shellcheck disable=SC2086
  mib=$(docker stats --no-stream --format '{{.MemUsage}}' $ids | awk '
    { value = $1; factor = 1; if (value ~ /GiB$/) factor = 1024; if (value ~ /KiB$/) factor = 1 / 1024; sub(/[A-Za-z]+$/, "", value); sum += value * factor }
    END { printf "%d", sum + 0.999 }')
  holds "broker and services: $mib MiB, at most $rest_mib" test "$mib" -le "$rest_mib"
}

started_twice() {
  local before after line
  step "started twice"
  before=$(running)
  holds "the same file again: nothing fails" up
  after=$(running)
  expect "… and nothing was started anew" same "$([[ $before == "$after" ]] && echo same || echo others)"
  # Another project, on the same ports.
  if docker compose --project-name saga-check-other up --detach --no-deps order >"$scratch/other" 2>&1; then
    fail "a port that is in use was taken twice"
  fi
  line=$(grep -oE "[^ ]*:${SAGA_ORDER_PORT}[^0-9].*(already|in use).*" "$scratch/other" | tail -n 1)
  holds "a port that is in use is named: $line" test -n "$line"
  holds "… and whoever has it goes on" curl -s --fail "$(url_of order 8081)/readyz"
  docker compose --project-name saga-check-other down --volumes >/dev/null 2>&1
}

# Who runs, and since when: a container that is restarted in place keeps its id.
running() {
  # shellcheck disable=SC2046 # ids, one by one
  docker inspect --format '{{.Id}} {{.State.StartedAt}}' $(compose ps --quiet) | sort
}

stopped_and_killed() {
  local name began
  step "stopped and killed"
  for name in nats $services; do
    began=$SECONDS
    compose stop --timeout "$stop_s" "$name" >/dev/null 2>&1
    expect "$name stops on SIGTERM within $((SECONDS - began)) s, exit code" 0 "$(exit_code_of "$name")"
  done
  holds "all start again" up
  compose kill --signal KILL order >/dev/null 2>&1
  expect "order, killed" 137 "$(exit_code_of order)"
  holds "it starts again" up
}

# For a signal that it has obeyed the broker says 0 or 1; for much else it says 1 too, and then not that it is done.
exit_code_of() {
  local code
  code=$(inspected "$1" '{{.State.ExitCode}}')
  if [[ $1 == nats && $code == 1 ]] && docker logs --tail 1 "$(id_of nats)" 2>&1 | grep -q 'Server Exiting'; then code=0; fi
  printf '%s' "$code"
}

# in_volume VOLUME COMMAND…: as root in the broker's image, which has a shell.
in_volume() {
  docker run --rm --interactive --network none --user 0 --volume "saga-check_$1:/volume" --entrypoint "$2" nats:2.15.1-alpine "${@:3}"
}

without_a_secret() {
  local line
  step "a secret is missing"
  compose stop order >/dev/null 2>&1
  in_volume credentials-order rm /volume/broker.nk </dev/null
  compose up --detach --no-deps order >/dev/null 2>&1 || true
  within 30 said order "bus.credentials" || true
  line=$(last_line_of order)
  holds "order says which, and what to do: $line" grep -q 'bus.credentials /credentials/broker.nk.*sagactl credentials' <<<"$line"
  # What README.md says to do, and nothing else: the service tries again by itself all the while.
  compose run --rm credentials >"$scratch/made" 2>/dev/null || true
  holds "another is made: $(tail -n 1 "$scratch/made")" grep -q 'made order/broker.nk, nats/nats.conf' "$scratch/made"
  compose restart nats >/dev/null 2>&1
  holds "… the broker is started again, and knows it: order is ready by itself" within 120 is_ready order 8081
  holds "… and all is healthy" up
}

is_ready() { json_matches '.ready and (.degraded | not)' "$(curl -s --fail "$(url_of "$1" "$2")/readyz")"; }

said() { last_line_of "$1" | grep -q "$2"; }

of_a_newer_schema() {
  local before after line
  step "a volume of a newer schema"
  compose stop order >/dev/null 2>&1
  docker cp --quiet "$(id_of order):/data" "$scratch/data" 2>/dev/null || docker cp "$(id_of order):/data" "$scratch/data" >/dev/null
  python3 - "$scratch/data/order.db" <<'PYTHON'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("INSERT INTO migration SELECT max(number) + 1, 'of a newer build', 0 FROM migration")
db.commit()
db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
db.close()
PYTHON
  # Its log of changes stays beside a database that was stopped: it goes with it.
  in_volume order-data sh -c "cd /volume; mkdir kept; mv order.db order.db-* kept; cat >order.db; chown 65532:65532 order.db" \
    <"$scratch/data/order.db"
  before=$(in_volume order-data sha256sum /volume/order.db </dev/null)
  compose up --detach --no-deps order >/dev/null 2>&1 || true
  within 30 said order "schema" || true
  line=$(last_line_of order)
  holds "order says so, and what to do: $line" grep -q 'schema.*start a newer build' <<<"$line"
  compose stop order >/dev/null 2>&1
  after=$(in_volume order-data sha256sum /volume/order.db </dev/null)
  expect "the file" unchanged "$([[ $before == "$after" ]] && echo unchanged || echo changed)"
  in_volume order-data sh -c "cd /volume; rm -f order.db order.db-*; mv kept/* .; rmdir kept" </dev/null
  holds "with the volume as it was, all is healthy" up
}

with_the_doors_closed() {
  step "docker-compose.tokens.yml: the doors are closed"
  holds "healthy" guarded up --detach --wait
  expect "admin, asked without a token" 401 "$(code_of "$(url_of admin 8080)/api/admin/sagas")"
  expect "metrics, asked without a token" 401 "$(code_of "$(url_of order 8081)/metrics")"
  expect "the shop, which needs none" 200 "$(code_of "$(url_of inventory 8082)/api/products")"
  holds "sagactl, which has one" guarded run --rm sagactl status
  holds "faults cannot be injected" no_fault_can_be_injected
  expect "services that Prometheus reads, by its own" "5 up" "$(within 60 all_are_read && echo 5 up || echo "$(are_read) up")"
}

no_fault_can_be_injected() {
  ! guarded run --rm sagactl faults inject payment fail_permanently --step payment-processing --next 1 >"$scratch/fault" 2>&1 &&
    grep -q 'faults.enabled' "$scratch/fault"
}

code_of() { curl -s --output /dev/null --write-out '%{http_code}' "$1"; }

# confirmed: whether an order is confirmed within half a minute.
confirmed() {
  local placed
  placed=$(curl -s --max-time 30 "$(url_of order 8081)/api/orders" -H 'content-type: application/json' -H 'Prefer: wait=25' \
    -d '{"customer":"ada","lines":[{"sku":"coffee-beans-1kg","quantity":1}],"payment":{"token":"tok_ok"}}')
  json_matches '.status == "CONFIRMED"' "$placed"
}

# What the five services need, without what watches over them.
up_without_watchers() { up "$building" nats $services; }

on_postgres() {
  local name
  step "compose/postgres.env: a database and a user for each service"
  up_without_watchers || { tail -n 30 "$scratch/up" && fail "it does not start" && return; }
  holds "an order is confirmed" within 30 confirmed
  for name in $services; do
    holds "$name has tables, which are its own" test "$(owned_by "$name")" -gt 5
  done
  expect "databases that order's password opens" order "$(opened_by_order)"
  holds "the volume of its file of SQLite is empty" in_volume order-data test ! -e /volume/order.db </dev/null
  compose kill --signal KILL postgres >/dev/null 2>&1
  expect "the server is killed: who orders is told" 503 "$(within 20 is_503 && echo 503 || order_code)"
  holds "… it starts again" up_without_watchers
  holds "… and orders are confirmed, by services that were not restarted" within 60 confirmed
  holds "… and the books balance" within 60 compose run --rm sagactl audit
}

# owned_by SERVICE: how many tables of its database are its user's.
owned_by() {
  compose exec -T postgres psql -U postgres -d "$1" -Atc "SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tableowner = '$1'"
}

opened_by_order() {
  local name open=()
  for name in $services postgres; do
    # shellcheck disable=SC2016 # in the container
    if compose run --rm --no-deps --volume saga-check_credentials-order:/order:ro --env DATABASE="$name" --user 0 \
      --cap-add DAC_OVERRIDE --entrypoint sh postgres -c \
      'PGPASSWORD=$(cat /order/store.password) psql -h postgres -U order -d "$DATABASE" -c "SELECT 1"' >/dev/null 2>&1; then
      open+=("$name")
    fi
  done
  printf '%s' "${open[*]}"
}

order_code() {
  curl -s --max-time 20 --output /dev/null --write-out '%{http_code}' "$(url_of order 8081)/api/orders" -H 'content-type: application/json' \
    -d '{"customer":"ada","lines":[{"sku":"coffee-beans-1kg","quantity":1}],"payment":{"token":"tok_ok"}}'
}
is_503() { [[ $(order_code) == 503 ]]; }

in_a_cluster() {
  local name
  step "compose/postgres.env and compose/cluster.env: three brokers"
  up_without_watchers || { tail -n 30 "$scratch/up" && fail "it does not start" && return; }
  for name in nats nats-2 nats-3; do expect "$name: owner of its process" 65532 "$(uid_of "$name")"; done
  holds "an order is confirmed" within 30 confirmed
  expect "copies of the streams" "ADMIN 3, ADVISORY 3, INVENTORY 3, ORDER 3, PAYMENT 3" "$(copies_at_the_broker nats)"
  holds "who has no password is no broker" who_has_no_password
  for name in nats nats-2 nats-3; do
    compose kill --signal KILL "$name" >/dev/null 2>&1
    holds "$name is killed: orders are confirmed" within 30 confirmed
    holds "… it starts again" up_without_watchers
    holds "… and has what it missed" within 60 is_current
  done
  holds "the books balance" within 60 compose run --rm sagactl audit
}

# What a broker knows of the streams.
streams_of() { compose exec -T "$1" wget -q -O - 'http://127.0.0.1:8222/jsz?accounts=1&streams=1&config=1' | jq '[.account_details[].stream_detail[]?]'; }
copies_at_the_broker() { streams_of "$1" | jq -r 'map("\(.name) \(.config.num_replicas)") | sort | join(", ")'; }
# Whether every copy has all that its leader has, as each leader says.
is_current() {
  local name streams
  streams=$(for name in nats nats-2 nats-3; do
    streams_of "$name" | jq --arg name "${name/%nats/nats-1}" 'map(select(.cluster.leader == $name))'
  done | jq -s add)
  json_matches 'length == 5 and all(.[].cluster.replicas[]; .current)' "$streams"
}

who_has_no_password() {
  local before
  before=$(turned_away)
  timeout 5 docker run --rm --network saga-check_default nats:2.15.1-alpine --cluster_name saga --cluster nats://0.0.0.0:6222 \
    --routes nats://nats-1:6222 >"$scratch/intruder" 2>&1 || true
  grep -q 'Authorization Violation' "$scratch/intruder" && (($(turned_away) > before))
}

# nothing_left PROJECT WHAT: takes it down and looks for remains.
nothing_left() {
  local kind
  step "$2"
  docker compose --project-name "$1" down --volumes >/dev/null 2>&1 || fail "$2"
  for kind in "container ls --all" volume\ ls network\ ls; do
    # shellcheck disable=SC2086 # words
    expect "left of ${kind%% *}s" 0 "$(docker $kind --quiet --filter "label=com.docker.compose.project=$1" | wc -l | tr -d ' ')"
  done
}

# scenarios HOW
scenarios() {
  step "scripts/demo-scenarios.sh all --target compose, $1"
  if COMPOSE_PROJECT_NAME=saga-check-demo SAGA_COMPOSE_BUILD=$building "$root/scripts/demo-scenarios.sh" all --target compose >"$scratch/scenarios" 2>&1; then
    pass "$(grep 'every expectation held' "$scratch/scenarios")"
  else
    grep -E '✘|━━' "$scratch/scenarios" || tail -n 30 "$scratch/scenarios"
    fail "some scenarios failed"
  fi
  nothing_left saga-check-demo "what the scenarios have left"
}

main
