#!/usr/bin/env bash
# Replaces the replicas of an older build by those of this one, one after the other, while orders come in.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<USAGE
usage: scripts/rolling-upgrade.sh COMMIT [--back]

Builds the services of COMMIT and those of this tree, starts two replicas of each of the older ones on PostgreSQL, and under load
stops each and starts this tree's in its place: admin first, then those who are called. The books have to balance at the
end. With --back the older ones take the place of the newer ones again afterwards, which builds that know of additive
migrations can do. It works in a temporary folder, on ports from SAGA_UPGRADE_PORTS on (26000); the older build is kept in
target/upgrade. Exit code 0 when nothing was lost, 1 when something was.
USAGE
}

commit='' back=no
for word; do
  case $word in
    -h | --help) usage && exit 0 ;;
    --back) back=yes ;;
    -*) say "rolling-upgrade.sh: unknown flag $word (see: rolling-upgrade.sh --help)" && exit 2 ;;
    *) commit=$word ;;
  esac
done
[[ -n $commit ]] || { usage >&2 && exit 2; }
commit=$(git -C "$root" rev-parse --verify --quiet "$commit^{commit}") || die "there is no commit $commit"

services="admin bank payment inventory order"
folder=$(mktemp -d "${TMPDIR:-/tmp}/saga-upgrade.XXXXXX")
# The server of root runs as somebody else, who must be able to pass.
chmod 711 "$folder"
used=$folder/bin/sagactl data=$folder/data loading=''

stop() {
  trap '' INT TERM HUP EXIT
  [[ -z $loading ]] || kill "$loading" 2>/dev/null || true
  [[ ! -x $used ]] || "$used" --data "$data" down >/dev/null 2>&1 || true
  git -C "$root" worktree remove --force "$folder/tree" 2>/dev/null || true
  rm -rf "$folder"
}
trap stop EXIT
trap 'exit 130' INT TERM HUP

# take NAMES FOLDER: these programs are those that start from now on.
take() {
  local name
  for name in $1; do
    cp "$2/$name" "$folder/bin/$name.new"
    mv "$folder/bin/$name.new" "$folder/bin/$name"
  done
}

# replace FOLDER: each replica by one of its programs, while the other goes on.
replace() {
  local service number
  for service in $services; do
    take "$service" "$1"
    for number in 1 2; do
      "$used" --data "$data" stop "$service-$number"
      "$used" --data "$data" start "$service-$number"
    done
  done
}

"$root/scripts/setup.sh"
say "building $commit"
git -C "$root" worktree add --quiet --detach "$folder/tree" "$commit"
older=$root/target/upgrade/$commit
if [[ ! -x $older/order ]]; then
  (cd "$folder/tree" && CARGO_TARGET_DIR=$root/target/upgrade/build cargo build --release "${system_programs[@]}")
  mkdir -p "$older"
  for name in $services; do cp "$root/target/upgrade/build/release/$name" "$older"; done
fi
build

mkdir "$folder/bin"
take sagactl "$bin"
take "$services" "$older"
export NATS_SERVER_BIN=${NATS_SERVER_BIN:-$root/target/tools/nats-server}
"$used" --data "$data" up --detach --store postgres --replicas 2 --port-base "${SAGA_UPGRADE_PORTS:-26000}" >/dev/null

say "orders come in"
"$used" --data "$data" load --rate 30 --duration 120s --mix happy=90,declined=10 --drain 60s --may-shed --json >"$folder/load.json" 2>"$folder/load.err" &
loading=$!
replace "$bin"
if [[ $back == yes ]]; then
  say "and back"
  replace "$older"
fi
say "waiting for the load to end"
wait "$loading" || true
loading=''
unfinished=$(jq .unfinished "$folder/load.json") || die "no load: $(tail -n 3 "$folder/load.err")"
say "$(jq -r '"\(.started) orders: \(.completed) confirmed, \(.compensated) undone, \(.unfinished) unfinished, \(.shed) refused, \(.errors) got no answer; p50 \(.latency_ms.p50 | round) ms, p99 \(.latency_ms.p99 | round) ms"' "$folder/load.json")"
"$used" --data "$data" audit --wait 30s || die "the books do not balance"
((unfinished == 0)) || die "$unfinished orders did not end"
