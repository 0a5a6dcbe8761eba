#!/usr/bin/env bash
# Plants each fault of tools/simulation/planted in a copy of the tree, and wants the simulation to find it.
# Usage: scripts/planted-faults.sh [NAME ...]
# Faults that the simulation can plant by itself are its --sabotage, and in its tests. Not part of test.sh: each
# of these is a build.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# A fault that is not found within so many seeds counts as missed.
seeds=${PLANTED_SEEDS:-3000}
planted=$root/tools/simulation/planted
export CARGO_TARGET_DIR=${PLANTED_TARGET:-$target_dir/planted} CARGO_INCREMENTAL=1
tree=$CARGO_TARGET_DIR/tree

# One copy for all, with the files' times: only what a patch touches is built again. What patches touch gets new times,
# or what an interrupted run has built with a fault would be taken for built already.
rm -rf "$tree"
mkdir -p "$tree"
(cd "$root" && git ls-files -z | tar --null -T - -c -f -) | tar -x -f - -C "$tree"
sed -n 's#^+++ b/##p' "$planted"/*.patch | sort -u | (cd "$tree" && xargs touch)

change() { patch --quiet --strip=1 --directory="$tree" "$@" >/dev/null; }
report() { printf '%-36s %-6s %s\n' "$1" "$2" "$3"; }

# plant NAME: 0 when it is found.
plant() {
  local name=$1 found seed law
  change --input="$planted/$name.patch" || { report "$name" - 'the patch does not apply'; return 1; }
  (cd "$tree" && cargo build --quiet --release --offline --package simulation) ||
    { report "$name" - 'does not compile'; return 1; }
  # One at a time: the first that breaks a law is the least.
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
report 'planted fault' seeds 'the law that it broke'
for name; do
  plant "$name" || missed=1
  change --reverse --input="$planted/$name.patch" || true
done
exit "$missed"
