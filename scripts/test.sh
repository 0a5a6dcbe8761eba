#!/usr/bin/env bash
# Runs all checks and tests, as CI does. Installs what is missing; starts its own servers and stops only those.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
# The tests start systems of their own and must not use the developer's data.
export -n SAGA_DATA

for word; do
  case $word in
    -h | --help)
      echo "usage: scripts/test.sh [ARGUMENTS…]: run all checks and tests; ARGUMENTS go to cargo nextest run (or cargo test)"
      exit 0
      ;;
  esac
done

# step NAME: begins a step and records how long the previous one took.
step() {
  local now=$SECONDS
  [[ -z ${current:-} ]] || durations+=("$((now - step_start))s $current")
  printf '\n== %s\n' "$*"
  current=$* step_start=$now
}

# finish: stops what still runs in the background and prints the duration of each step.
finish() {
  local status=$?
  trap '' INT TERM HUP
  if [[ -n $background_pid ]]; then
    kill -- "-$background_pid" 2>/dev/null || true
    wait "$background_pid" || true
  fi
  # The server stops when its input is closed.
  stop_postgres
  rm -rf "$background_output" "$postgres_folder"
  durations+=("$((SECONDS - step_start))s $current" "${SECONDS}s in total")
  printf '\n'
  printf '%s\n' "${durations[@]}"
  exit "$status"
}

# start_in_background COMMAND…: runs it in a process group of its own and keeps its output for await_background.
start_in_background() {
  set -m
  "$@" >"$background_output" 2>&1 </dev/null &
  background_pid=$!
  set +m
}

# await_background: waits for the background command, prints its output, and returns its exit code.
await_background() {
  local status=0
  wait "$background_pid" || status=$?
  background_pid=''
  cat "$background_output"
  return "$status"
}

durations=() current=set-up step_start=0 background_pid='' background_output=$(mktemp) postgres_folder=$(mktemp -d)
trap finish EXIT
trap 'exit 130' INT TERM HUP

# Incremental compilation speeds up the next build and slows down the first.
[[ -d $target_dir/debug/incremental ]] || export CARGO_INCREMENTAL=0

scripts/setup.sh
# Later steps need mostly downloads.
start_in_background scripts/setup.sh --tests

step "format"
cargo fmt --all --check

step "lints"
cargo clippy --workspace --all-targets --locked --quiet -- -D warnings

step "tools for the tests"
await_background

step "links of the pages"
target/tools/lychee/bin/lychee --offline --include-fragments --no-progress README.md k8s/README.md shared/engine/README.md docs

# check_example: applies the example to a copy of the tree, always the same one, and checks that it compiles.
check_example() {
  local tree=$target_dir/example
  copy_tree "$tree"
  (cd "$tree" && GIT_CEILING_DIRECTORIES=$target_dir git apply docs/extending/fraud-check.diff)
  CARGO_TARGET_DIR=$target_dir cargo check --manifest-path "$tree/Cargo.toml" --workspace --all-targets --offline --quiet
}

step "the worked example of docs/extending.md"
check_example

step "dependencies"
scripts/check-dependencies.sh

step "programs and tests"
cargo build --workspace --bins --tests --examples --locked --quiet

# require_fresh_build: fails if cargo, called from another folder, compiles anything again.
require_fresh_build() {
  local artifacts rebuilt
  artifacts=$(cd / && cargo_at_root build "${system_programs[@]}" --locked --quiet --message-format json |
    jq -c 'select(.reason == "compiler-artifact") | {name: .target.name, fresh}')
  grep -q '"name":"sagactl"' <<<"$artifacts" || die "cargo named no program: $artifacts"
  rebuilt=$(jq -r 'select(.fresh | not).name' <<<"$artifacts" | sort -u | paste -s -d ' ' -)
  [[ -z $rebuilt ]] || die "a build from another folder compiled again: $rebuilt"
}

step "the same programs from another folder"
require_fresh_build

step "Kubernetes manifests"
scripts/check-k8s.sh

step "tests"
# One server for all tests; each test creates its own databases there.
start_postgres "$postgres_folder"
SAGA_TEST_POSTGRES=$(cat "$postgres_folder/postgres.url")
export SAGA_TEST_POSTGRES
if cargo nextest --version >/dev/null 2>&1; then
  # Two tests per core: most of them wait for a broker or another process.
  NEXTEST_TEST_THREADS=${NEXTEST_TEST_THREADS:-$((2 * $(getconf _NPROCESSORS_ONLN)))} \
    cargo nextest run --workspace --locked "$@"
else
  # cargo test has no time limit per test, so a hanging test would never end.
  limit=()
  ! command -v timeout >/dev/null || limit=(timeout 45m)
  ${limit[@]+"${limit[@]}"} cargo test --workspace --locked "$@"
fi

# check_interfaces: checks the HTTP APIs against their OpenAPI descriptions, builds the Rust documentation, and plays the stories of the
# console.
check_interfaces() {
  scripts/schemathesis.sh
  RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
  scripts/console/check.sh
}

# check_incidents: plays incidents, and checks what is reported and what the drawn dashboards show.
check_incidents() {
  local folder
  folder=$(mktemp -d)
  scripts/incidents.sh "$folder" --hold 35 --calm 5 --draw --check bank broker dead_letters ||
    die "incidents are not shown as they should be; pictures are in $folder"
  rm -rf "$folder"
}

# All these checks start a system of their own. Those of dashboards and incidents mostly wait.
start_in_background check_interfaces

step "dashboards, alerts and runbooks, with the fault of each alert"
scripts/check-dashboards.sh

step "incidents: what is reported, and what the drawn dashboards show"
check_incidents

step "OpenAPI descriptions, Rust documentation and the console"
await_background
