#!/usr/bin/env bash
# Everything that CI checks. Installs what it needs, starts its own servers, stops exactly those.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
# No test is about the system that somebody has here.
export -n SAGA_DATA

for word; do
  case $word in
    -h | --help)
      echo "usage: scripts/test.sh [ARGUMENTS…]: all checks and tests; the arguments go to cargo nextest run (or cargo test)"
      exit 0
      ;;
  esac
done

# step NAME: what is said from here on is about it; how long the last one took is kept for the end.
step() {
  local now=$SECONDS
  [[ -z ${current:-} ]] || took+=("$((now - since))s $current")
  printf '\n== %s\n' "$*"
  current=$* since=$now
}

# at_the_end: how long each step took; nothing that was started beside them is left.
at_the_end() {
  local status=$?
  trap '' INT TERM HUP
  if [[ -n $beside ]]; then
    kill -- "-$beside" 2>/dev/null || true
    wait "$beside" || true
  fi
  # The server of the tests ends when its input does.
  stop_postgres
  rm -rf "$said" "$posted"
  took+=("$((SECONDS - since))s $current" "${SECONDS}s in all")
  printf '\n'
  printf '%s\n' "${took[@]}"
  exit "$status"
}

# start_beside COMMAND…: it runs while others do, in a process group of its own, and is silent until it is awaited.
start_beside() {
  set -m
  "$@" >"$said" 2>&1 </dev/null &
  beside=$!
  set +m
}

# await_beside: shows what it said, and fails as it did.
await_beside() {
  local status=0
  wait "$beside" || status=$?
  beside=
  cat "$said"
  return "$status"
}

took=() current=set-up since=0 beside='' said=$(mktemp) posted=$(mktemp -d)
trap at_the_end EXIT
trap 'exit 130' INT TERM HUP

# What makes the next build quicker makes the first one slower.
[[ -d ${CARGO_TARGET_DIR:-target}/debug/incremental ]] || export CARGO_INCREMENTAL=0

scripts/setup.sh
# What only later steps need comes over the network, mostly.
start_beside scripts/setup.sh --tests

step "format"
cargo fmt --all --check

step "lints"
cargo clippy --workspace --all-targets --locked --quiet -- -D warnings

step "what the tests need"
await_beside

step "dependencies"
scripts/check-dependencies.sh

step "programs and tests"
cargo build --workspace --bins --tests --examples --locked --quiet

step "Kubernetes manifests"
scripts/check-k8s.sh

step "tests"
# One server for all tests that need one; each makes databases of its own there.
start_postgres "$posted"
SAGA_TEST_POSTGRES=$(cat "$posted/postgres.url")
export SAGA_TEST_POSTGRES
if cargo nextest --version >/dev/null 2>&1; then
  # Most tests wait most of their time, for a broker or for what another process does: twice as many as there are cores.
  NEXTEST_TEST_THREADS=${NEXTEST_TEST_THREADS:-$((2 * $(getconf _NPROCESSORS_ONLN)))} \
    cargo nextest run --workspace --locked "$@"
else
  # It knows no time limit for a test: a hanging one would hang for ever.
  limit=()
  ! command -v timeout >/dev/null || limit=(timeout 45m)
  ${limit[@]+"${limit[@]}"} cargo test --workspace --locked "$@"
fi

# descriptions: what the services say of themselves, over HTTP and to who reads the code.
descriptions() {
  scripts/schemathesis.sh
  RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
}

# The dashboards mostly wait, for what comes over minutes. Each has a system of its own.
start_beside descriptions

step "dashboards, alerts and runbooks, held against a system with every fault they are for"
scripts/check-dashboards.sh

step "the services, held against their descriptions, and documentation"
await_beside
