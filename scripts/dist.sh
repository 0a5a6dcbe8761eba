#!/usr/bin/env bash
# Builds the programs for images and benchmarks: with link-time and profile-guided optimisation.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$root/scripts/bench-lib.sh"

usage() {
  cat <<USAGE
usage: scripts/dist.sh [--unguided]

Builds every program with the Cargo profile dist and prints their folder. An instrumented build first processes orders for some
seconds and reconciles. The compiler uses the recorded profile. This needs an llvm-profdata that matches rustc: \$LLVM_PROFDATA,
\`rustup component add llvm-tools\`, or one on the PATH (also llvm-profdata-21 and the like). Without one, and with --unguided,
there is only link-time optimisation.

A recorded profile is used until a source file is newer.
USAGE
}

profile_folder=$target_dir/pgo
# The name of a profile contains the compiler and a hash of the content, so that cargo rebuilds when either changes.
compiler=$(rustc -vV | sha256sum | cut -c1-12)
# With a named target, build scripts and macros are neither instrumented nor guided.
host=$(rustc_host)
training_clients=64 training_s=20

main() {
  local guided=yes programs=$target_dir/$host/dist
  case ${1-} in
    '') ;;
    --unguided) guided=no ;;
    -h | --help) usage && exit 0 ;;
    *) say "dist.sh: unknown option $1 (see: dist.sh --help)" && exit 2 ;;
  esac
  if [[ $guided == yes ]] && profdata=$(llvm_profdata); then
    is_trained || train
    profile_data=$(profile)
    cargo_dist "$target_dir" "-Cprofile-use=$profile_data" >&2
    is_guided "$programs/payment" || die "the profile $profile_data does not match the functions of the programs"
    touch "$programs/guided"
  else
    [[ $guided == no ]] || say "no profile-guided optimisation: there is no llvm-profdata for this rustc (rustup component add llvm-tools)"
    cargo_dist "$target_dir" '' >&2
    rm -f "$programs/guided"
  fi
  printf '%s\n' "$programs"
}

# cargo_dist FOLDER FLAGS: builds every program, including the benchmark tools.
cargo_dist() {
  CARGO_TARGET_DIR=$1 RUSTFLAGS="${RUSTFLAGS-} $2" cargo_at_root build --locked --profile dist \
    --target "$host" --bins --workspace --exclude simulation
}

# llvm_profdata: prints an llvm-profdata that can read a profile of this rustc; fails if there is none.
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

# profile: prints the recorded profile of this compiler, if any.
profile() { find "$profile_folder" -maxdepth 1 -name "$compiler-*.profdata" 2>/dev/null | head -n 1; }

# is_trained: true if there is a profile and no source file is newer.
is_trained() {
  local found newer
  found=$(profile)
  [[ -n $found ]] || return 1
  newer=$(cd "$root" && find Cargo.toml Cargo.lock shared services tools -type f -newer "$found" \
    \( -name '*.rs' -o -name '*.sql' -o -name 'Cargo.*' \) -print -quit)
  [[ -z $newer ]]
}

# is_guided PROGRAM: true if the profile contains functions of the program, by their symbol names.
is_guided() {
  local known
  known=$(comm -12 <(nm --format=posix "$1" | cut -d' ' -f1 | sort -u) \
    <("$profdata" show --all-functions "$profile_data" | sed -n 's/^  \([^ ]*\):$/\1/p' | sort -u) | wc -l)
  say "the profile contains $known functions of ${1##*/}"
  ((known >= 1000))
}

# train: records a profile of orders of all kinds and of a reconciliation. The instrumented programs use the same Cargo profile,
# because symbol names differ between profiles.
train() {
  local instrumented=$profile_folder/$host/dist recorded=$profile_folder/recorded merged=$profile_folder/merged
  say "building instrumented programs"
  cargo_dist "$profile_folder" "-Cprofile-generate=$recorded" >&2
  say "recording a profile"
  sagactl=$instrumented/sagactl building=no json=yes
  begin
  rm -rf "$recorded"
  start_system "$instrumented"
  control load --clients "$training_clients" --warmup 1s --duration "${training_s}s" \
    --mix happy=80,declined=10,out_of_stock=5,cancelled=5 || die "the orders of the profile went wrong"
  control reconcile --full || die "the ledgers of the profile do not balance"
  stop_system
  "$profdata" merge --output "$merged" "$recorded"/*.profraw >&2
  rm -f "$profile_folder"/*.profdata
  mv "$merged" "$profile_folder/$compiler-$(sha256sum "$merged" | cut -c1-12).profdata"
}

main "$@"
