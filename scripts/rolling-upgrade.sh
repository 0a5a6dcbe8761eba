#!/usr/bin/env bash
# Replaces the replicas of an older build with the current one, one at a time, under load.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<USAGE
usage: scripts/rolling-upgrade.sh COMMIT [--back]

Builds the services of COMMIT and of this tree. Starts two replicas of each older service on PostgreSQL. Under load, replaces
each replica: admin first, then the others. The ledgers must balance at the end. With --back it then returns to the older build,
which additive migrations allow. Uses a temporary folder and ports from SAGA_UPGRADE_PORTS (26000). The older build is kept in
target/upgrade. Exit code 0: nothing was lost. 1: something was.
USAGE
}

commit='' back=no
for word; do
  case $word in
    -h | --help) usage && exit 0 ;;
    --back) back=yes ;;
    -*) say "rolling-upgrade.sh: unknown option $word (see: rolling-upgrade.sh --help)" && exit 2 ;;
    *) commit=$word ;;
  esac
done
[[ -n $commit ]] || { usage >&2 && exit 2; }
commit=$(git -C "$root" rev-parse --verify --quiet "$commit^{commit}") || die "there is no commit $commit"

# Consumers before producers: admin first, the others in the reverse order of the topology.
others='' && for name in ${services#admin }; do others="$name $others"; done
services="admin $others"
folder=$(mktemp -d "${TMPDIR:-/tmp}/saga-upgrade.XXXXXX")
# If started by root, PostgreSQL runs as another user, who must be able to enter the folder.
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

# take NAMES FOLDER: uses these programs from FOLDER from now on.
take() {
  local name
  for name in $1; do
    cp "$2/$name" "$folder/bin/$name.new"
    mv "$folder/bin/$name.new" "$folder/bin/$name"
  done
}

# replace FOLDER: replaces each replica with the program from FOLDER, while the other replica runs.
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
export_nats_server
"$used" --data "$data" up --detach --store postgres --replicas 2 --port-base "${SAGA_UPGRADE_PORTS:-26000}" >/dev/null

say "starting the load"
"$used" --data "$data" load --rate 30 --duration 120s --mix happy=90,declined=10 --drain 60s --may-shed --json >"$folder/load.json" 2>"$folder/load.err" &
loading=$!
replace "$bin"
if [[ $back == yes ]]; then
  say "returning to the older build"
  replace "$older"
fi
say "waiting for the load to end"
wait "$loading" || true
loading=''
unfinished=$(jq .unfinished "$folder/load.json") || die "no load: $(tail -n 3 "$folder/load.err")"
say "$(jq -r '"\(.started) orders: \(.completed) confirmed, \(.compensated) compensated, \(.unfinished) unfinished, \(.shed) rejected, \(.errors) got no answer; p50 \(.latency_ms.p50 | round) ms, p99 \(.latency_ms.p99 | round) ms"' "$folder/load.json")"
"$used" --data "$data" reconcile --wait 30s || die "the ledgers do not balance"
((unfinished == 0)) || die "$unfinished orders did not end"
