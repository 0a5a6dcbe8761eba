#!/usr/bin/env bash
# Tests docker-compose.yml with docker: builds the images, starts everything, causes failures, and checks that nothing is left.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

usage() {
  cat <<USAGE
usage: scripts/check-compose.sh [--no-build] [--no-scenarios]

  --no-build       use the existing images (saga/order:0.1.0 and so on)
  --no-scenarios   omit scripts/demo-scenarios.sh all --target compose, which runs twice (some minutes each)

Requires docker with compose 2.24 or newer, curl, jq and python3. Missing third-party images are pulled. Uses separate projects
(saga-check…) and ports (from SAGA_CHECK_PORTS, 18080), and deletes their containers, volumes and networks at the end.
Exit codes: 0 all checks passed, 1 a check failed.
USAGE
}

# Limits for the size of an image, and for the memory of the idle system without monitoring.
image_mb=60 rest_mib=500
# Time for a graceful stop, after which docker kills a container.
stop_s=20

images="$services sagactl" count=$(wc -w <<<"$services" | tr -d ' ')
first=${SAGA_CHECK_PORTS:-18080}
failures=0 building=--build with_scenarios=yes

for word; do
  case $word in
    -h | --help) usage && exit 0 ;;
    --no-build) building=--no-build ;;
    --no-scenarios) with_scenarios=no ;;
    *) say "check-compose.sh: unknown option $word (see: check-compose.sh --help)" && exit 2 ;;
  esac
done

pass() { printf '  ✔ %s\n' "$*"; }
fail() {
  failures=$((failures + 1))
  printf '  ✘ %s\n' "$*"
}
step() { printf '\n%s\n' "$*"; }
# expect WHAT EXPECTED FOUND
expect() { if [[ $2 == "$3" ]]; then pass "$1: $2"; else fail "$1: expected $2, found $3"; fi; }
# check WHAT COMMAND…
check() { if "${@:2}" >/dev/null 2>&1; then pass "$1"; else fail "$1"; fi; }
# within SECONDS COMMAND…: repeats it until it succeeds; fails after SECONDS.
within() {
  local until=$((SECONDS + $1))
  until "${@:2}" >/dev/null 2>&1; do
    ((SECONDS < until)) || return 1
    sleep 0.2
  done
}

unset COMPOSE_FILE COMPOSE_PROFILES COMPOSE_PROJECT_NAME COMPOSE_ENV_FILES
compose() { docker compose --project-name saga-check "$@"; }
# with FILES COMMAND…: runs it with the settings of compose/FILE.env; several files are separated by commas.
with() {
  local COMPOSE_ENV_FILES
  COMPOSE_ENV_FILES=$(sed 's|[^,]*|compose/&.env|g' <<<"$1")
  export COMPOSE_ENV_FILES
  "${@:2}"
}
with_tokens() { compose --file docker-compose.yml --file docker-compose.tokens.yml "$@"; }
id_of() { compose ps --all --quiet "$1"; }
# inspected SERVICE FORMAT
inspected() { docker inspect --format "$2" "$(id_of "$1")"; }
url_of() { printf 'http://%s' "$(compose port "$1" "$2")"; }
up() { compose up --detach --wait --quiet-pull "$@" >"$scratch/up" 2>&1; }
# last_line_of SERVICE: prints its last own error message.
last_line_of() { docker logs "$(id_of "$1")" 2>&1 | grep "^$1: " | tail -n 1 || true; }

main() {
  scratch=$(mktemp -d)
  trap clean_up EXIT
  trap 'exit 130' INT TERM HUP
  check_requirements
  publish_from "$first"
  remove_all
  check_configuration
  check_start
  check_use
  check_memory
  check_second_start
  check_stop_and_kill
  check_missing_secret
  check_newer_schema
  check_tokens
  check_removal saga-check "compose down -v"
  with postgres check_postgres
  with postgres check_removal saga-check "compose down -v, with PostgreSQL"
  with postgres,cluster check_cluster
  with postgres,cluster check_removal saga-check "compose down -v, with the cluster"
  if [[ $with_scenarios == yes ]]; then
    scenarios "with SQLite and one broker"
    with postgres,cluster scenarios "with PostgreSQL and three brokers"
  fi
  echo
  if ((failures > 0)); then die "$failures of the checks failed"; fi
  echo "all checks passed"
}

# Sets separate ports, so that other systems can run.
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

check_requirements() {
  local tool image missing=()
  for tool in docker curl jq python3; do have "$tool" || die "$tool is not installed: install it"; done
  docker info >/dev/null 2>&1 || die "the docker daemon does not answer (docker info): start it"
  docker compose version >/dev/null 2>&1 || die "docker has no compose (v2): install its plugin"
  at_least 2.24 "$(docker compose version --short)" || die "compose is $(docker compose version --short): version 2.24 or newer is required"
  step "third-party images"
  for image in $(compose --profile '*' config --images | grep -v '^saga/' | sort -u) "${SAGA_RUST_IMAGE:-rust:1.95-bookworm}"; do
    if docker image inspect "$image" >/dev/null 2>&1 || docker pull --quiet "$image" >/dev/null 2>&1; then
      pass "$image"
    else
      missing+=("$image")
    fi
  done
  ((${#missing[@]} == 0)) || die "these images are missing and cannot be pulled: ${missing[*]}"
}

check_configuration() {
  local config=$scratch/config.json
  step "configuration"
  compose --profile '*' config --format json >"$config"
  expect "ports published beyond this machine" 0 \
    "$(jq '[.services[].ports[]? | select(.host_ip != "127.0.0.1")] | length' "$config")"
  expect "images without an exact version" 0 \
    "$(jq '[.services[].image | select((contains(":") | not) or endswith(":latest"))] | length' "$config")"
  expect "containers without a memory limit" 0 "$(jq '[.services[] | select(.mem_limit | not)] | length' "$config")"
  expect "services whose connections (36 KiB each) may use more than half of their memory" 0 "$(jq '
    [.services | to_entries[] | select(.value.environment // {} | keys | any(endswith("__HTTP__BIND")))
      | ([.value.environment | to_entries[] | select(.key | endswith("__HTTP__MAX_CONNECTIONS")) | .value | tonumber][0] // 10000) as $connections
      | select($connections * 36864 > (.value.mem_limit | tonumber) / 2)] | length' "$config")"
  expect "services, brokers and databases with a writable root file system" 0 \
    "$(jq '[.services[] | select((.image | test("^(saga/|nats:|postgres:)")) and (.read_only | not))] | length' "$config")"
  expect "secrets in the configuration" 0 "$(grep -c 'saga_[A-Za-z0-9]\{20\}\|SU[A-Z2-7]\{50\}' "$config" || true)"
  expect "databases" "5 sqlite" "$(stores)"
  expect "databases with compose/postgres.env" "5 postgres" "$(with postgres stores)"
  expect "separate projects" "saga saga-postgres saga-cluster saga-postgres-cluster" \
    "$(project) $(with postgres project) $(with cluster project) $(with postgres,cluster project)"
  expect "brokers and stream copies" "1 1" "$(brokers) $(copies)"
  expect "brokers and stream copies with compose/cluster.env" "3 3" "$(with cluster brokers) $(with cluster copies)"
  expect "brokers, stream copies and databases with both" "3 3, 5 postgres" "$(with postgres,cluster brokers) $(with postgres,cluster copies), $(with postgres,cluster stores)"
}

# set_to KEY [FILTER]: prints the values of a setting at all services, as JSON.
set_to() { compose config --format json | jq -r "[.services[].environment // {} | to_entries[] | select(.key | endswith(\"$1\")).value${2:-}]"; }
stores() { set_to __STORE__URL ' | split(":")[0]' | jq -r 'group_by(.) | map("\(length) \(.[0])") | join(", ")'; }
copies() { set_to __BUS__REPLICAS | jq -r 'unique | join(", ")'; }
brokers() { compose config --services | grep -c '^nats\(-[0-9]\)\?$'; }
project() { docker compose config --format json | jq -r .name; }

check_start() {
  local began=$SECONDS name size
  step "docker compose up -d $building --wait"
  compose up --detach "$building" --wait --quiet-pull >"$scratch/up" 2>&1 || { tail -n 30 "$scratch/up" && die "the system did not start"; }
  pass "healthy after $((SECONDS - began)) s"
  for name in $images; do
    size=$(($(docker image inspect --format '{{.Size}}' "saga/$name:0.1.0") / 1000000))
    check "saga/$name: $size MB (limit: $image_mb)" test "$size" -le "$image_mb"
    expect "saga/$name runs as" 65532:65532 "$(docker image inspect --format '{{.Config.User}}' "saga/$name:0.1.0")"
    if docker run --rm --network none --entrypoint /bin/sh "saga/$name:0.1.0" -c true >/dev/null 2>&1; then
      fail "saga/$name has a shell"
    fi
  done
  for name in nats $services prometheus grafana; do
    expect "$name" healthy "$(inspected "$name" '{{.State.Health.Status}}')"
  done
  for name in nats $services; do expect "$name: user of its process" 65532 "$(uid_of "$name")"; done
  expect "a service without tokens reports it" 1 \
    "$(curl -s "$(url_of order 8081)/readyz" | jq '[.remarks[] | select(contains("http.allow_unauthenticated"))] | length')"
}

uid_of() { docker top "$(id_of "$1")" -eo uid,pid 2>/dev/null | awk 'NR == 2 { print $1 }'; }

check_use() {
  local order placed
  step "use"
  order=$(url_of order 8081)
  check "the catalogue has the demo's products" test "$(curl -s "$(url_of inventory 8082)/api/products?limit=100" | jq '[.. | .sku? // empty] | length')" -ge 12
  placed=$(curl -s "$order/api/orders" -H 'content-type: application/json' -H 'Prefer: wait=20' \
    -d '{"customer":"ada","lines":[{"sku":"coffee-beans-1kg","quantity":2}],"payment":{"token":"tok_ok"}}')
  expect "an order" CONFIRMED "$(jq -r .status <<<"$placed")"
  check "sagactl status in the network: no operator is needed" compose run --rm sagactl status
  check "the broker rejects a client without a key" rejects_client_without_key
  expect "services that Prometheus scrapes" "$count up" "$(within 60 all_are_scraped && echo "$count up" || echo "$(scraped) up")"
  check "docker compose run load: orders succeed, and the ledgers balance" \
    env SAGA_LOAD_RATE=20 SAGA_LOAD_DURATION=10s docker compose --project-name saga-check --profile load run --rm load
}

# The client prints the same error for an unreachable broker, so this checks the log of the broker.
rejects_client_without_key() {
  local before
  before=$(auth_failures)
  ! compose --profile load run --rm --no-deps load load --by-name --rate=1 --duration=1s >"$scratch/no-key" 2>&1 &&
    (($(auth_failures) > before))
}
auth_failures() { docker logs "$(id_of nats)" 2>&1 | grep -c 'authentication error' || true; }

scraped() {
  curl -s "$(url_of prometheus 9090)/api/v1/targets" | jq '[.data.activeTargets[] | select(.labels.job == "saga" and .health == "up")] | length'
}
all_are_scraped() { [[ $(scraped) == "$count" ]]; }

check_memory() {
  local ids mib
  step "memory of the idle system"
  # shellcheck disable=SC2046 # several names
  ids=$(for name in nats $services; do id_of "$name"; done)
  # shellcheck disable=SC2086
  docker stats --no-stream --format '{{.Name}} {{.MemUsage}}' $ids | awk '{ print "    " $1 "  " $2 }'
  # shellcheck disable=SC2086
  mib=$(docker stats --no-stream --format '{{.MemUsage}}' $ids | awk '
    { value = $1; factor = 1; if (value ~ /GiB$/) factor = 1024; if (value ~ /KiB$/) factor = 1 / 1024; sub(/[A-Za-z]+$/, "", value); sum += value * factor }
    END { printf "%d", sum + 0.999 }')
  check "broker and services: $mib MiB (limit: $rest_mib)" test "$mib" -le "$rest_mib"
}

check_second_start() {
  local before after line
  step "second start"
  before=$(running)
  check "a second start succeeds" up
  after=$(running)
  expect "… and restarts nothing" same "$([[ $before == "$after" ]] && echo same || echo others)"
  # Another project with the same ports.
  if docker compose --project-name saga-check-other up --detach --no-deps order >"$scratch/other" 2>&1; then
    fail "a port in use was published twice"
  fi
  line=$(grep -oE "[^ ]*:${SAGA_ORDER_PORT}[^0-9].*(already|in use).*" "$scratch/other" | tail -n 1)
  check "the error names the port in use: $line" test -n "$line"
  check "… and its owner keeps running" curl -s --fail "$(url_of order 8081)/readyz"
  docker compose --project-name saga-check-other down --volumes >/dev/null 2>&1
}

# Prints running containers with their start times. A restarted container keeps its id.
running() {
  # shellcheck disable=SC2046 # several ids
  docker inspect --format '{{.Id}} {{.State.StartedAt}}' $(compose ps --quiet) | sort
}

check_stop_and_kill() {
  local name began
  step "stop and kill"
  for name in nats $services; do
    began=$SECONDS
    compose stop --timeout "$stop_s" "$name" >/dev/null 2>&1
    expect "$name stops on SIGTERM within $((SECONDS - began)) s, exit code" 0 "$(exit_code_of "$name")"
  done
  check "all start again" up
  compose kill --signal KILL order >/dev/null 2>&1
  expect "order, killed" 137 "$(exit_code_of order)"
  check "it starts again" up
}

# After a graceful stop the broker exits with 0 or 1. After an error it exits with 1 too, but without its last log line.
exit_code_of() {
  local code
  code=$(inspected "$1" '{{.State.ExitCode}}')
  if [[ $1 == nats && $code == 1 ]] && docker logs --tail 1 "$(id_of nats)" 2>&1 | grep -q 'Server Exiting'; then code=0; fi
  printf '%s' "$code"
}

# in_volume VOLUME COMMAND…: runs it as root in the image of the broker, which has a shell.
in_volume() {
  docker run --rm --interactive --network none --user 0 --volume "saga-check_$1:/volume" --entrypoint "$2" nats:2.15.1-alpine "${@:3}"
}

check_missing_secret() {
  local line
  step "missing secret"
  compose stop order >/dev/null 2>&1
  in_volume credentials-order rm /volume/broker.nk </dev/null
  compose up --detach --no-deps order >/dev/null 2>&1 || true
  within 30 reports order "bus.credentials" || true
  line=$(last_line_of order)
  check "order names the secret and the fix: $line" grep -q 'bus.credentials /credentials/broker.nk.*sagactl credentials' <<<"$line"
  # Only what the documentation says: the service retries by itself.
  compose run --rm credentials >"$scratch/made" 2>/dev/null || true
  check "a new secret is created: $(tail -n 1 "$scratch/made")" grep -q 'made order/broker.nk, nats/nats.conf' "$scratch/made"
  compose restart nats >/dev/null 2>&1
  check "… and after a restart of the broker order becomes ready" within 120 is_ready order 8081
  check "… and everything is healthy" up
}

is_ready() { json_matches '.ready and (.degraded | not)' "$(curl -s --fail "$(url_of "$1" "$2")/readyz")"; }

reports() { last_line_of "$1" | grep -q "$2"; }

check_newer_schema() {
  local before after line
  step "database with a newer schema"
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
  # The write-ahead log belongs to the database file.
  in_volume order-data sh -c "cd /volume; mkdir kept; mv order.db order.db-* kept; cat >order.db; chown 65532:65532 order.db" \
    <"$scratch/data/order.db"
  before=$(in_volume order-data sha256sum /volume/order.db </dev/null)
  compose up --detach --no-deps order >/dev/null 2>&1 || true
  within 30 reports order "schema" || true
  line=$(last_line_of order)
  check "order reports it and the fix: $line" grep -q 'schema.*start a newer build' <<<"$line"
  compose stop order >/dev/null 2>&1
  after=$(in_volume order-data sha256sum /volume/order.db </dev/null)
  expect "the file" unchanged "$([[ $before == "$after" ]] && echo unchanged || echo changed)"
  in_volume order-data sh -c "cd /volume; rm -f order.db order.db-*; mv kept/* .; rmdir kept" </dev/null
  check "with the original database everything is healthy" up
}

check_tokens() {
  step "docker-compose.tokens.yml: tokens required"
  check "healthy" with_tokens up --detach --wait
  expect "admin without a token" 401 "$(code_of "$(url_of admin 8080)/api/admin/sagas")"
  expect "metrics without a token" 401 "$(code_of "$(url_of order 8081)/metrics")"
  expect "the catalogue, which needs no token" 200 "$(code_of "$(url_of inventory 8082)/api/products")"
  expect "the payments without a token" 401 "$(code_of "$(url_of payment 8083)/api/payments")"
  expect "the bank without a token" 401 "$(code_of "$(url_of bank 8084)/v1/charges")"
  check "an order without a token is paid" confirmed
  check "sagactl with its token" with_tokens run --rm sagactl status
  check "fault injection is off" fault_injection_is_off
  expect "services that Prometheus scrapes with its token" "$count up" "$(within 60 all_are_scraped && echo "$count up" || echo "$(scraped) up")"
}

fault_injection_is_off() {
  ! with_tokens run --rm sagactl faults inject payment fail_permanently --step payment-processing --next 1 >"$scratch/fault" 2>&1 &&
    grep -q 'faults.enabled' "$scratch/fault"
}

code_of() { curl -s --output /dev/null --write-out '%{http_code}' "$1"; }

# confirmed: places an order; true if it is confirmed within 30 s.
confirmed() {
  local placed
  placed=$(curl -s --max-time 30 "$(url_of order 8081)/api/orders" -H 'content-type: application/json' -H 'Prefer: wait=25' \
    -d '{"customer":"ada","lines":[{"sku":"coffee-beans-1kg","quantity":1}],"payment":{"token":"tok_ok"}}')
  json_matches '.status == "CONFIRMED"' "$placed"
}

# Starts the system without monitoring.
up_without_monitoring() { up "$building" nats $services; }

check_postgres() {
  local name
  step "compose/postgres.env: a database and a user for each service"
  up_without_monitoring || { tail -n 30 "$scratch/up" && fail "the system does not start" && return; }
  check "an order is confirmed" within 30 confirmed
  for name in $services; do
    check "$name owns tables" test "$(owned_by "$name")" -gt 5
  done
  expect "databases that accept the password of order" order "$(opened_by_order)"
  check "there is no SQLite file" in_volume order-data test ! -e /volume/order.db </dev/null
  compose kill --signal KILL postgres >/dev/null 2>&1
  expect "the server is killed: who orders is told" 503 "$(within 20 is_503 && echo 503 || order_code)"
  holds "… it starts again" up_without_watchers
  holds "… and orders are confirmed, by services that were not restarted" within 60 confirmed
  holds "… and the ledgers balance" within 60 compose run --rm sagactl reconcile
}

# owned_by SERVICE: prints the number of tables in its database that its user owns.
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

check_cluster() {
  local name
  step "compose/postgres.env and compose/cluster.env: three brokers"
  up_without_monitoring || { tail -n 30 "$scratch/up" && fail "the system does not start" && return; }
  for name in nats nats-2 nats-3; do expect "$name: user of its process" 65532 "$(uid_of "$name")"; done
  check "an order is confirmed" within 30 confirmed
  expect "copies of the streams" "ADMIN 3, ADVISORY 3, INVENTORY 3, ORDER 3, PAYMENT 3" "$(copies_at_the_broker nats)"
  check "a broker without the password is rejected" rejects_broker_without_password
  for name in nats nats-2 nats-3; do
    compose kill --signal KILL "$name" >/dev/null 2>&1
    check "orders are confirmed after $name was killed" within 30 confirmed
    check "… it restarts" up_without_monitoring
    check "… and catches up" within 60 is_current
  done
  holds "the ledgers balance" within 60 compose run --rm sagactl reconcile
}

# streams_of BROKER: prints its view of the streams.
streams_of() { compose exec -T "$1" wget -q -O - 'http://127.0.0.1:8222/jsz?accounts=1&streams=1&config=1' | jq '[.account_details[].stream_detail[]?]'; }
copies_at_the_broker() { streams_of "$1" | jq -r 'map("\(.name) \(.config.num_replicas)") | sort | join(", ")'; }
# True if every copy is up to date, according to its leader.
is_current() {
  local name streams
  streams=$(for name in nats nats-2 nats-3; do
    streams_of "$name" | jq --arg name "${name/%nats/nats-1}" 'map(select(.cluster.leader == $name))'
  done | jq -s add)
  json_matches 'length == 5 and all(.[].cluster.replicas[]; .current)' "$streams"
}

rejects_broker_without_password() {
  local before
  before=$(auth_failures)
  timeout 5 docker run --rm --network saga-check_default nats:2.15.1-alpine --cluster_name saga --cluster nats://0.0.0.0:6222 \
    --routes nats://nats-1:6222 >"$scratch/intruder" 2>&1 || true
  grep -q 'Authorization Violation' "$scratch/intruder" && (($(auth_failures) > before))
}

# check_removal PROJECT WHAT: takes the project down and checks that nothing is left.
check_removal() {
  local kind
  step "$2"
  docker compose --project-name "$1" down --volumes >/dev/null 2>&1 || fail "$2"
  for kind in "container ls --all" volume\ ls network\ ls; do
    # shellcheck disable=SC2086 # words
    expect "remaining ${kind%% *}s" 0 "$(docker $kind --quiet --filter "label=com.docker.compose.project=$1" | wc -l | tr -d ' ')"
  done
}

# scenarios DESCRIPTION
scenarios() {
  step "scripts/demo-scenarios.sh all --target compose, $1"
  if COMPOSE_PROJECT_NAME=saga-check-demo SAGA_COMPOSE_BUILD=$building "$root/scripts/demo-scenarios.sh" all --target compose >"$scratch/scenarios" 2>&1; then
    pass "$(grep 'all checks passed' "$scratch/scenarios")"
  else
    grep -E '✘|━━' "$scratch/scenarios" || tail -n 30 "$scratch/scenarios"
    fail "some scenarios failed"
  fi
  check_removal saga-check-demo "clean-up after the scenarios"
}

main
