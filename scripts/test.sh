#!/usr/bin/env bash
# Everything that CI checks. Installs what it needs, starts its own servers, stops exactly those.
set -euo pipefail
cd "$(dirname "$0")/.."

for word; do
  case $word in
    -h | --help)
      echo "usage: scripts/test.sh [ARGUMENTS…]: all checks and tests; the arguments go to cargo nextest run (or cargo test)"
      exit 0
      ;;
  esac
done

step() { printf '\n== %s\n' "$*"; }

scripts/setup.sh --tests

step "format"
cargo fmt --all --check

step "lints"
cargo clippy --workspace --all-targets --locked --quiet -- -D warnings

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet

step "dependencies"
scripts/check-dependencies.sh

step "programs for the end-to-end tests"
cargo build --workspace --bins --locked --quiet

step "Kubernetes manifests"
scripts/check-k8s.sh

step "tests"
if cargo nextest --version >/dev/null 2>&1; then
  cargo nextest run --workspace --locked "$@"
else
  # It knows no time limit for a test: a hanging one would hang for ever.
  limit=()
  ! command -v timeout >/dev/null || limit=(timeout 45m)
  ${limit[@]+"${limit[@]}"} cargo test --workspace --locked "$@"
fi

step "the services, held against their descriptions"
scripts/schemathesis.sh

step "dashboards, alerts and runbooks, held against a system with every fault they are for"
scripts/check-dashboards.sh
