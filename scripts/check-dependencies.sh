#!/usr/bin/env bash
# Dependencies: locked, from the public registry only, under licences we may ship, one TLS provider; none of the pure
# crates knows a runtime, a broker, a database, HTTP or a log; nothing is compiled twice for the sake of tests, and no
# test is where none is run.
set -euo pipefail
cd "$(dirname "$0")/.."

metadata=$(cargo metadata --locked --format-version 1) || {
  echo "dependencies: Cargo.lock is not up to date; run cargo update --workspace and commit it" >&2
  exit 1
}
failed=0
# complain WHAT [PACKAGES]: one package per line; none, and all is well. Called in this very shell, never at the end of
# a pipeline, where what it remembers is lost.
complain() {
  [[ -z $2 ]] && return
  printf 'dependencies: %s:\n%s\n' "$1" "$2" >&2
  failed=1
}

# An expression passes when one side of every OR consists of allowed licences only; AND binds tighter, and what stands
# in brackets binds tightest: "(MIT OR Apache-2.0) AND Unicode-3.0".
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

# made_of EDGES: each package with the features that it is compiled with.
made_of() {
  cargo tree --workspace --edges "$1" --prefix none --format '{p} {f}' --locked | sed 's/ ([*])$//' | sort -u
}
found=$(comm -23 <(made_of normal,build) <(made_of normal,build,dev) | sed 's/^/  /')
complain "compiled once for programs and again for tests, which want more features of them" "$found"

# Of a library all files, of a program its first.
found=$(jq -r '.packages[] | select(.source == null) | .targets[] | select(.test | not)
  | if .kind == ["lib"] then .src_path | rtrimstr("/lib.rs") elif .kind == ["bin"] then .src_path else empty end' <<<"$metadata" |
  xargs -r grep -rlE '^ *#\[(tokio::)?test' | sed 's/^/  /' || true)
complain "tests in what is never compiled as a test (test = false)" "$found"

[[ $failed == 0 ]] && echo "dependencies: $(jq '[.packages[] | select(.source != null)] | length' <<<"$metadata") checked"
exit "$failed"
