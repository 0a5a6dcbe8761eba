#!/usr/bin/env bash
# Builds the programs as they are measured and released: optimised across crates, and guided by a profile of a run.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$root/scripts/bench-lib.sh"

usage() {
  cat <<USAGE
usage: scripts/dist.sh [--unguided]

Builds every program with the profile dist, and prints the folder in which they are. First a build that counts what it
runs takes orders for some seconds and reconciles its books; by what it counted the compiler lays out the programs. That
takes an llvm-profdata which reads what this rustc counts: \$LLVM_PROFDATA, of \`rustup component add llvm-tools\`, or one
on the PATH, also under the name of its version (llvm-profdata-21). Where there is none, and with --unguided, the
programs are only optimised across crates.

A profile is used again until a source is newer.
USAGE
}

target=${CARGO_TARGET_DIR:-$root/target}
profile_folder=$target/pgo
profile_data=$profile_folder/merged.profdata
# Build scripts and macros run while building: only what is built for a named target is counted and guided.
host=$(rustc_host)
training_clients=64 training_s=20

main() {
  local guided=yes programs=$target/$host/dist
  case ${1-} in
    '') ;;
    --unguided) guided=no ;;
    -h | --help) usage && exit 0 ;;
    *) say "dist.sh: there is no '$1' (see: dist.sh --help)" && exit 2 ;;
  esac
  if [[ $guided == yes ]] && profdata=$(llvm_profdata); then
    is_trained || train
    cargo_dist dist "$target" "-Cprofile-use=$profile_data" >&2
    touch "$programs/guided"
  else
    [[ $guided == no ]] || say "not guided by a profile: there is no llvm-profdata that reads what this rustc counts (rustup component add llvm-tools)"
    cargo_dist dist "$target" '' >&2
    rm -f "$programs/guided"
  fi
  printf '%s\n' "$programs"
}

# cargo_dist PROFILE FOLDER FLAGS: every program of this system and of its benchmarks.
cargo_dist() {
  CARGO_TARGET_DIR=$2 RUSTFLAGS="${RUSTFLAGS-} $3" cargo build --manifest-path "$root/Cargo.toml" --locked --profile "$1" \
    --target "$host" --bins --workspace --exclude simulation
}

# llvm_profdata: one that reads what this rustc counts, which is known once it has tried; fails when there is none.
llvm_profdata() {
  local trial=$profile_folder/trial tools candidate
  tools=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata
  rm -rf "$trial" && mkdir -p "$trial"
  rustc --crate-name nothing "-Cprofile-generate=$trial" -o "$trial/nothing" - <<<'fn main() {}' 2>/dev/null || return 1
  LLVM_PROFILE_FILE=$trial/nothing.profraw "$trial/nothing"
  {
    printf '%s\n' "${LLVM_PROFDATA-}" "$tools" llvm-profdata
    compgen -c llvm-profdata- | sort --version-sort --reverse --unique
  } | while read -r candidate; do
    if have "$candidate" && "$candidate" merge --output "$trial/nothing.profdata" "$trial/nothing.profraw" 2>/dev/null; then
      printf '%s\n' "$candidate"
      break
    fi
  done | grep .
}

# is_trained: whether there is a profile, and no source is newer.
is_trained() {
  local newer
  [[ -s $profile_data ]] || return 1
  newer=$(cd "$root" && find Cargo.toml Cargo.lock shared services tools -type f -newer "$profile_data" \
    \( -name '*.rs' -o -name '*.sql' -o -name 'Cargo.*' \) | head -n 1)
  [[ -z $newer ]]
}

# train: a profile of orders of all kinds, and of books that are reconciled.
train() {
  local counting=$profile_folder/$host/release counted=$profile_folder/counted
  say "building programs that count what they run"
  # Where what is counted stands in the source, which no optimisation across crates changes.
  CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 cargo_dist release "$profile_folder" "-Cprofile-generate=$counted" >&2
  say "letting them take orders"
  sagactl=$counting/sagactl building=no json=yes
  begin
  rm -rf "$counted"
  start_system "$counting"
  control load --clients "$training_clients" --warmup 1s --duration "${training_s}s" \
    --mix happy=80,declined=10,out_of_stock=5,cancelled=5 || die "the orders of the profile went wrong"
  control audit --whole || die "the books of the profile do not balance"
  stop_system
  "$profdata" merge --output "$profile_data" "$counted"/*.profraw >&2
}

main "$@"
