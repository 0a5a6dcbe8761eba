#!/usr/bin/env bash
# Mutation tests: changes the code in a copy of the tree and checks that the tests of the crate fail.
# Usage: scripts/mutants.sh [CRATE ...] [-- OPTION ...]
# Crates: see scope() below; default all. OPTIONs are those of cargo mutants: --shard 0/8 takes the first eighth of the mutants,
# --re selects by name. .cargo/mutants.toml lists the excluded mutants. Not part of test.sh: there are thousands of mutants, each
# with a build. Exit code 1 if a mutant is missed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Results and logs, kept until the next run.
work=${MUTANTS_TARGET:-$target_dir/mutation}
tree=$work/tree
export CARGO_TARGET_DIR=$work/target CARGO_INCREMENTAL=1
export PATH=$root/target/tools/bin:$PATH

crates=(saga-core contract $services saga-engine loadgen)

# scope CRATE: sets the mutated files and the tests to run.
scope() {
  files=() tests=(--lib --test it)
  local file
  case $1 in
    saga-core | contract) ;;
    admin)
      for file in ledgers ledgers/account redrive dead_letters; do files+=("services/admin/src/$file/*.rs"); done
      files+=(services/admin/src/{command_handler,rows}.rs)
      ;;
    # Only the parts of the engine whose tests need no broker or process; the rest would take days.
    saga-engine)
      files=(shared/engine/src/{reloaded,runtime/clock,host/resilience}.rs 'shared/engine/src/host/settings/*.rs' 'shared/engine/src/host/metrics/*.rs')
      tests+=(-- reloaded:: settings:: metrics:: clock::)
      ;;
    loadgen)
      # Only the measurements; the rest needs a running system.
      files=(tools/loadgen/src/{backlog,ledger,measurements,options,percentiles,report,schedule}.rs)
      tests=(--lib)
      ;;
    *)
      [[ " $services " == *" $1 "* ]] || die "unknown crate $1; choose from: ${crates[*]}"
      for file in domain decider policy service extension replenishment bank_client bank_ledger bank_task; do
        [[ ! -e $root/services/$1/src/$file.rs ]] || files+=("services/$1/src/$file.rs")
      done
      ;;
  esac
  for file in ${files[@]+"${files[@]}"}; do
    compgen -G "$root/$file" >/dev/null || die "$1: $file does not exist; correct scope() in this script"
  done
}

case ${1:-} in -h | --help) sed -n '2,6s/^# //p' "$0"; exit ;; esac
chosen=() options=()
while (($# > 0)); do
  [[ $1 == -- ]] && shift && options=("$@") && break
  scope "$1"
  chosen+=("$1")
  shift
done
((${#chosen[@]} > 0)) || chosen=("${crates[@]}")

have cargo-mutants || cargo install cargo-mutants --version '^27' --locked --root "$root/target/tools"

# With cargo-nextest the first failing test ends the run.
tool=(--test-tool cargo) quick=()
! cargo nextest --version >/dev/null 2>&1 || tool=(--test-tool nextest) quick=(--max-fail 1:immediate)

# With new file times, so that cargo rebuilds what an interrupted run has left mutated, but not the dependencies.
copy_tree "$tree" -m

# The excluded "delete field" mutants. cargo mutants 27.1 ignores exclusions for them (its issue 632).
excluded_fields() { sed -n 's/^  "\(.* delete field .*\)",$/\1/p' "$root/.cargo/mutants.toml"; }

# plant CRATE: runs its mutants and prints the results; succeeds if none is missed.
plant() {
  local out=$work/$1 file name missed status=0 args=(--package "$1" --output "$work/$1" ${options[@]+"${options[@]}"})
  local -a counts=()
  scope "$1"
  for file in ${files[@]+"${files[@]}"}; do args+=(--file "$file"); done
  rm -rf "$out"
  mkdir -p "$out"
  (cd "$tree" && cargo mutants --in-place --profile mutants "${tool[@]}" "${args[@]}" -- \
    ${quick[@]+"${quick[@]}"} "${tests[@]}") \
    >"$out/progress.log" 2>&1 || status=$?
  # 2: some are missed; 3: some timed out, which counts as found.
  if ((status != 0 && status != 2 && status != 3)); then
    tail -n 20 "$out/progress.log" >&2
    say "$1: cargo mutants failed; see $out/progress.log"
    return 1
  fi
  missed=$out/missed.txt
  grep -vEf <(excluded_fields) "$out/mutants.out/missed.txt" >"$missed" || true
  for name in "$out"/mutants.out/{caught,unviable,timeout}.txt "$missed"; do counts+=("$(wc -l <"$name")"); done
  printf '%-12s %6d %7d %9d %8d %7d\n' "$1" "$((counts[0] + counts[1] + counts[2] + counts[3]))" "${counts[@]}"
  sed 's/^/  missed: /' "$missed"
  [[ ! -s $missed ]]
}

failed=0
printf '%-12s %6s %7s %9s %8s %7s\n' crate tried caught unviable timeouts missed
for crate in "${chosen[@]}"; do plant "$crate" || failed=1; done
exit "$failed"
