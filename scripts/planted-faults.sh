#!/usr/bin/env bash
# Applies each patch of tools/simulation/planted to a copy of the tree and checks that the simulation finds the fault.
# Usage: scripts/planted-faults.sh [NAME ...]
# The simulation plants other faults itself (--planted-fault, and in its tests). Not part of test.sh: each patch needs a build.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Number of seeds after which a fault counts as missed.
seeds=${PLANTED_SEEDS:-3000}
planted=$root/tools/simulation/planted
export CARGO_TARGET_DIR=${PLANTED_TARGET:-$target_dir/planted} CARGO_INCREMENTAL=1
tree=$CARGO_TARGET_DIR/tree

# One copy for all patches, with the original file times, so that only patched crates are rebuilt. Patched files get new times:
# otherwise cargo would reuse what an interrupted run has built with a fault.
copy_tree "$tree"
sed -n 's#^+++ b/##p' "$planted"/*.patch | sort -u | (cd "$tree" && xargs touch)

change() { patch --quiet --strip=1 --directory="$tree" "$@" >/dev/null; }
report() { printf '%-36s %-6s %s\n' "$1" "$2" "$3"; }

# plant NAME: succeeds if the simulation finds the fault.
plant() {
  local name=$1 found seed law
  change --input="$planted/$name.patch" || { report "$name" - 'the patch does not apply'; return 1; }
  (cd "$tree" && cargo build --quiet --release --offline --package simulation) ||
    { report "$name" - 'does not compile'; return 1; }
  # One job, so that the first failing seed is the smallest.
  if found=$("$CARGO_TARGET_DIR/release/simulation" --seeds "$seeds" --jobs 1 2>&1); then
    report "$name" - 'NOT FOUND'
    return 1
  fi
  seed=$(sed -n 's/^seed \([0-9]*\):.*/\1/p' <<<"$found" | head -n 1)
  law=$(sed -n '/^seed [0-9]*:$/{n;s/^ *//p;q;}' <<<"$found" | cut -c 1-110)
  report "$name" "$((seed + 1))" "$law"
}

(($# > 0)) || set -- $(cd "$planted" && ls -- *.patch | sed 's/\.patch$//')
missed=0
report 'planted fault' seeds 'violated law'
for name; do
  plant "$name" || missed=1
  change --reverse --input="$planted/$name.patch" || true
done
exit "$missed"
