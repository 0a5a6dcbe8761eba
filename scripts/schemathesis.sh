#!/usr/bin/env bash
# Tests the five services against their /openapi.json with Schemathesis, which sends valid and invalid requests to a separate
# system. Arguments select services: `scripts/schemathesis.sh order bank`.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The debug programs of the tests, from `cargo build --workspace --bins`.
programs=$target_dir/debug
schemathesis=$root/target/tools/schemathesis/bin/schemathesis
# The same requests every time.
seed=20260101
# Generated requests for each operation, in addition to the examples of its description.
max_examples=40

main() {
  local name failed=() tested=${*:-$services}
  "$root/scripts/setup.sh" --tests
  [[ -x $programs/sagactl ]] || die "no programs in $programs: run 'cargo build --workspace --bins', then this again"
  data=$(mktemp -d)
  trap clean_up EXIT
  trap 'exit 130' INT TERM HUP
  create_data
  start_system false
  for name in $tested; do
    say "testing $name"
    check_description "$name" || failed+=("$name")
  done
  ((${#failed[@]} == 0)) || die "these services violate their descriptions: ${failed[*]}"
}

# start_system FAULTS: starts the system; FAULTS (true or false) allows fault injection. Generated requests must not inject
# faults: one of them kills the service.
start_system() {
  local settings=() name
  for name in $services; do settings+=(--set "$name.faults.enabled=$1"); done
  # Whatever is set outside: notices of what is made up here are for nobody.
  settings+=(--set admin.service.notifications.webhook.url=)
  "$programs/sagactl" up --detach --data "$data" --port-base "$(free_ports)" "${settings[@]}" >"$data.log" 2>&1 ||
    { tail -n 20 "$data.log" >&2; die "the system did not start"; }
}

# free_ports: prints the first of six consecutive free ports.
free_ports() {
  python3 - <<'PYTHON'
import socket
for base in range(21080, 32000, 10):
    try:
        taken = [socket.create_server(("127.0.0.1", base + offset)) for offset in range(6)]
    except OSError:
        continue
    print(base)
    break
PYTHON
}

# Creates confirmed and cancelled orders and dead letters, because empty lists would test little.
create_data() {
  local order admin number
  start_system true
  order=$(url_of order) admin=$(url_of admin)
  place "$order" tok_ok 10
  place "$order" tok_declined 10
  quietly faults inject order fail_permanently --step order-confirmation
  for number in 1 2 3; do place "$order" tok_ok 0; done
  for number in {1..150}; do
    [[ $(curl -fsS "$admin/api/admin/dlq/count" | jq .total) != 3 ]] || break
    ((number < 150)) || die "three failed orders did not create three dead letters"
    sleep 0.2
  done
  quietly faults clear
  quietly down
}

# place ORDER_URL CARD SECONDS: places an order and waits up to SECONDS for its end.
place() {
  curl -fsS -o /dev/null -H "Prefer: wait=$3" --json \
    "{\"customer\":\"ada\",\"lines\":[{\"sku\":\"coffee-beans-1kg\",\"quantity\":1}],\"payment\":{\"token\":\"$2\"}}" \
    "$1/api/orders" || die "the order service rejects orders"
}

quietly() { "$programs/sagactl" "$@" --data "$data" >"$data.log" 2>&1 || { cat "$data.log" >&2; die "sagactl $1 failed"; }; }

url_of() { "$programs/sagactl" status --json --data "$data" | jq -r --arg name "$1" '.processes[] | select(.name == $name).url'; }

# Schemathesis writes files into the working directory.
check_description() (
  url=$(url_of "$1")
  cd "$data"
  SCHEMATHESIS_HOOKS=$root/scripts/schemathesis_hooks.py \
    "$schemathesis" --config-file "$root/scripts/schemathesis.toml" run "$url/openapi.json" --no-color \
    --seed "$seed" --max-examples "$max_examples"
)

clean_up() {
  # The clean-up must not be interrupted.
  trap '' INT TERM HUP
  "$programs/sagactl" down --data "$data" >/dev/null 2>&1 || true
  rm -rf "$data" "$data.log"
}

main "$@"
