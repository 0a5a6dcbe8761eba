#!/usr/bin/env bash
# Checks the dependencies: locked, from the public registry, under permitted licences, with a single TLS provider. The pure
# crates depend on no runtime, broker, database, HTTP or logging crate. No package is compiled twice with different features,
# and no target with `test = false` contains tests.
set -euo pipefail
cd "$(dirname "$0")/.."

metadata=$(cargo metadata --locked --format-version 1) || {
  echo "dependencies: Cargo.lock is not up to date; run cargo update --workspace and commit it" >&2
  exit 1
}
failed=0
# complain WHAT [PACKAGES]: reports the packages, one per line, if there are any. Must not be the last command of a pipeline:
# that runs in a subshell, which would lose `failed`.
complain() {
  [[ -z $2 ]] && return
  printf 'dependencies: %s:\n%s\n' "$1" "$2" >&2
  failed=1
}

# A licence expression passes if one side of every OR has only permitted licences. AND binds tighter than OR; parentheses
# bind tightest: "(MIT OR Apache-2.0) AND Unicode-3.0".
found=$(jq -r '
  ["MIT","MIT-0","Apache-2.0","Apache-2.0 WITH LLVM-exception","BSD-2-Clause","BSD-3-Clause","ISC","Zlib",
   "0BSD","Unlicense","CC0-1.0","Unicode-3.0","BSL-1.0","CDLA-Permissive-2.0","OpenSSL","MPL-2.0"] as $allowed
  | def is_allowed: . as $licence | $allowed | index([$licence]) != null;
  def ok: gsub(" ?/ ?"; " OR ") | gsub("\\((?<inner>[^()]*)\\)"; .inner | gsub(" OR "; "|"))
    | split(" OR ") | any(.[]; split(" AND ") | all(.[]; split("|") | any(.[]; is_allowed)));
  .packages[] | select(.source != null) | select((.license // "") | ok | not)
  | "  \(.name) \(.version): \(.license // "no licence")"' <<<"$metadata")
complain "licences that are not on the list in $0" "$found"

found=$(jq -r '.packages[] | select(.source != null and (.source | startswith("registry+") | not))
  | "  \(.name) \(.version): \(.source)"' <<<"$metadata")
complain "not from the registry" "$found"

found=$(cargo tree --workspace --edges normal --prefix none --locked |
  awk '$1 == "ring" || $1 == "openssl-sys" {print "  " $1 " " $2}' | sort -u)
complain "a second TLS provider beside aws-lc-rs" "$found"

for crate in saga-core contract; do
  found=$(cargo tree -p "$crate" --all-features --edges normal --prefix none --locked |
    awk '$1 ~ /^(tokio|futures|async-|rusqlite|sqlx|axum|tower|hyper|reqwest|http$|tracing|log$|fastrand|rand$|config$|saga-engine)/ {print "  " $1 " " $2}' |
    sort -u)
  complain "$crate is pure, and cannot depend on" "$found"
done

# compiled ARGUMENTS…: each package with the features that it is compiled with.
compiled() {
  cargo tree --workspace --prefix none --format '{p} {f}' --locked "$@" | sed 's/ ([*])$//' | sort -u
}
all_programs=$(compiled --edges normal,build)
found=$(comm -23 <(echo "$all_programs") <(compiled --edges normal,build,dev) | sed 's/^/  /')
complain "compiled again for tests, because they enable more features" "$found"

# The arguments of lib.sh's build.
found=$(comm -13 <(echo "$all_programs") <(compiled --edges normal,build --exclude simulation --exclude loadgen) | sed 's/^/  /')
complain "compiled again for the local system, which does not include simulation and bench" "$found"

# All files of a library, the main file of a program.
found=$(jq -r '.packages[] | select(.source == null) | .targets[] | select(.test | not)
  | if .kind == ["lib"] then .src_path | rtrimstr("/lib.rs") elif .kind == ["bin"] then .src_path else empty end' <<<"$metadata" |
  xargs -r grep -rlE '^ *#\[(tokio::)?test' | sed 's/^/  /' || true)
complain "tests in what is never compiled as a test (test = false)" "$found"

[[ $failed == 0 ]] && echo "dependencies: $(jq '[.packages[] | select(.source != null)] | length' <<<"$metadata") checked"
exit "$failed"
