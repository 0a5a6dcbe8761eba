#!/usr/bin/env bash
# Holds the five services against what their /openapi.json promises: a system of its own, on free ports, asked by
# Schemathesis whatever the descriptions allow, and what they do not. Exit code 0 when nothing was answered otherwise.
# With arguments, only these services: `scripts/schemathesis.sh order bank`.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The programs that the tests use; `cargo build --workspace --bins` makes them.
programs=$target_dir/debug
schemathesis=$root/target/tools/schemathesis/bin/schemathesis
# The same requests every time.
seed=20260101
# Requests that are made up for an operation, beside those that follow from its description.
made_up=40

main() {
  local services=("$@") name failed=()
  ((${#services[@]} > 0)) || services=(order inventory payment bank admin)
  "$root/scripts/setup.sh" --tests
  [[ -x $programs/sagactl ]] || die "no programs in $programs: run 'cargo build --workspace --bins', then this again"
  data=$(mktemp -d)
  trap clean_up EXIT
  trap 'exit 130' INT TERM HUP
  leave_something_to_see
  start_system false
  for name in "${services[@]}"; do
    say "asking $name"
    hold_against_description "$name" || failed+=("$name")
  done
  ((${#failed[@]} == 0)) || die "not as described: ${failed[*]}"
}

# start_system FAULTS: whether faults may be injected. Not while it is asked: any of them may be made up, and a service
# that kills itself answers nothing.
start_system() {
  local settings=() name
  for name in order inventory payment bank admin; do settings+=(--set "$name.faults.enabled=$1"); done
  # Whatever is set outside: notices of what is made up here are for nobody.
  settings+=(--set admin.service.push.webhook.url=)
  "$programs/sagactl" up --detach --data "$data" --port-base "$(free_ports)" "${settings[@]}" >"$data.log" 2>&1 ||
    { tail -n 20 "$data.log" >&2; die "the system did not start"; }
}

# free_ports: the first of six ports in a row that nobody uses.
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

# Orders that were confirmed, one that was cancelled, and dead letters: empty lists prove little.
leave_something_to_see() {
  local order admin number
  start_system true
  order=$(url_of order) admin=$(url_of admin)
  place "$order" tok_ok 10
  place "$order" tok_declined 10
  quietly faults inject order fail_permanently --step order-confirmation
  for number in 1 2 3; do place "$order" tok_ok 0; done
  for number in {1..150}; do
    [[ $(curl -fsS "$admin/api/admin/dlq/count" | jq .total) != 3 ]] || break
    ((number < 150)) || die "three orders that fail left no three dead letters"
    sleep 0.2
  done
  quietly faults clear
  quietly down
}

# place ORDER_URL CARD SECONDS: an order, and so long a wait for its end.
place() {
  curl -fsS -o /dev/null -H "Prefer: wait=$3" --json \
    "{\"customer\":\"ada\",\"lines\":[{\"sku\":\"coffee-beans-1kg\",\"quantity\":1}],\"payment\":{\"token\":\"$2\"}}" \
    "$1/api/orders" || die "no order is taken"
}

quietly() { "$programs/sagactl" "$@" --data "$data" >"$data.log" 2>&1 || { cat "$data.log" >&2; die "sagactl $1 failed"; }; }

url_of() { "$programs/sagactl" status --json --data "$data" | jq -r --arg name "$1" '.processes[] | select(.name == $name).url'; }

# It leaves notes for a later run where it is started.
hold_against_description() (
  url=$(url_of "$1")
  cd "$data"
  SCHEMATHESIS_HOOKS=$root/scripts/schemathesis_hooks.py \
    "$schemathesis" --config-file "$root/scripts/schemathesis.toml" run "$url/openapi.json" --no-color \
    --seed "$seed" --max-examples "$made_up"
)

clean_up() {
  # From here on nothing is to be interrupted.
  trap '' INT TERM HUP
  "$programs/sagactl" down --data "$data" >/dev/null 2>&1 || true
  rm -rf "$data" "$data.log"
}

main "$@"
