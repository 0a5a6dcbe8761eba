#!/usr/bin/env bash
# Builds the programs as they are measured: optimised across crates, and guided by a profile of a run.
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

profile_folder=$target_dir/pgo
# What was counted is named by the compiler that counted it, and by its content: cargo builds anew when the name changes.
compiler=$(rustc -vV | sha256sum | cut -c1-12)
# Build scripts and macros run while building: only what is built for a named target is counted and guided.
host=$(rustc_host)
training_clients=64 training_s=20

main() {
  local guided=yes programs=$target_dir/$host/dist
  case ${1-} in
    '') ;;
    --unguided) guided=no ;;
    -h | --help) usage && exit 0 ;;
    *) say "dist.sh: there is no '$1' (see: dist.sh --help)" && exit 2 ;;
  esac
  if [[ $guided == yes ]] && profdata=$(llvm_profdata); then
    is_trained || train
    profile_data=$(profile)
    cargo_dist "$target_dir" "-Cprofile-use=$profile_data" >&2
    is_guided "$programs/payment" || die "the programs are not guided by $profile_data: it knows their functions by other names"
    touch "$programs/guided"
  else
    [[ $guided == no ]] || say "not guided by a profile: there is no llvm-profdata that reads what this rustc counts (rustup component add llvm-tools)"
    cargo_dist "$target_dir" '' >&2
    rm -f "$programs/guided"
  fi
  printf '%s\n' "$programs"
}

# cargo_dist FOLDER FLAGS: every program of this system and of its benchmarks.
cargo_dist() {
  CARGO_TARGET_DIR=$1 RUSTFLAGS="${RUSTFLAGS-} $2" cargo_at_root build --locked --profile dist \
    --target "$host" --bins --workspace --exclude simulation
}

# llvm_profdata: one that reads what this rustc counts, which is known once it has tried; fails when there is none.
llvm_profdata() {
  local trial=$profile_folder/trial tools candidate candidates
  tools=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata
  rm -rf "$trial" && mkdir -p "$trial"
  rustc --crate-name nothing "-Cprofile-generate=$trial" -o "$trial/nothing" - <<<'fn main() {}' 2>/dev/null || return 1
  LLVM_PROFILE_FILE=$trial/nothing.profraw "$trial/nothing"
  mapfile -t candidates < <(compgen -c llvm-profdata- | sort --version-sort --reverse --unique)
  for candidate in "${LLVM_PROFDATA-}" "$tools" llvm-profdata "${candidates[@]}"; do
    if have "$candidate" && "$candidate" merge --output "$trial/nothing.profdata" "$trial/nothing.profraw" 2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  return 1
}

# profile: the one of this compiler, if there is one.
profile() { find "$profile_folder" -maxdepth 1 -name "$compiler-*.profdata" 2>/dev/null | head -n 1; }

# is_trained: whether there is a profile, and no source is newer.
is_trained() {
  local found newer
  found=$(profile)
  [[ -n $found ]] || return 1
  newer=$(cd "$root" && find Cargo.toml Cargo.lock shared services tools -type f -newer "$found" \
    \( -name '*.rs' -o -name '*.sql' -o -name 'Cargo.*' \) -print -quit)
  [[ -z $newer ]]
}

# is_guided PROGRAM: whether the profile has counts of the program's functions, which it finds by their names.
is_guided() {
  local known
  known=$(comm -12 <(nm --format=posix "$1" | cut -d' ' -f1 | sort -u) \
    <("$profdata" show --all-functions "$profile_data" | sed -n 's/^  \([^ ]*\):$/\1/p' | sort -u) | wc -l)
  say "the profile knows $known functions of ${1##*/}"
  ((known >= 1000))
}

# train: a profile of orders of all kinds, and of books that are reconciled. By programs of the very profile that is built:
# a function has another name in another.
train() {
  local counting=$profile_folder/$host/dist counted=$profile_folder/counted merged=$profile_folder/merged
  say "building programs that count what they run"
  cargo_dist "$profile_folder" "-Cprofile-generate=$counted" >&2
  say "letting them take orders"
  sagactl=$counting/sagactl building=no json=yes
  begin
  rm -rf "$counted"
  start_system "$counting"
  control load --clients "$training_clients" --warmup 1s --duration "${training_s}s" \
    --mix happy=80,declined=10,out_of_stock=5,cancelled=5 || die "the orders of the profile went wrong"
  control audit --whole || die "the books of the profile do not balance"
  stop_system
  "$profdata" merge --output "$merged" "$counted"/*.profraw >&2
  rm -f "$profile_folder"/*.profdata
  mv "$merged" "$profile_folder/$compiler-$(sha256sum "$merged" | cut -c1-12).profdata"
}

main "$@"
