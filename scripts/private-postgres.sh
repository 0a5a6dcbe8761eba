#!/usr/bin/env bash
# Runs a private PostgreSQL server on loopback with temporary data, until its standard input is closed or it gets a signal.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<USAGE
usage: scripts/private-postgres.sh [PORT] [--durable] [--standby-of URL]

Prints the URL of a new, empty database server as soon as it answers. Runs until its standard input is closed, or until SIGTERM
or Ctrl-C, and then deletes the data. The default PORT is a free one. The user saga needs no password; all others do. Writes are
synced to the disk only with --durable. With --standby-of it follows another such server. If started by root, the server runs as the user postgres, or nobody.
USAGE
}

port='' syncs=off primary=''
while [[ $# != 0 ]]; do
  word=$1
  shift
  case $word in
    -h | --help) usage && exit 0 ;;
    --durable) syncs=on ;;
    --standby-of) primary=${1:?"private-postgres.sh: --standby-of needs a URL"} && shift ;;
    [0-9]*) port=$word ;;
    *) say "private-postgres.sh: unknown argument $word (see: private-postgres.sh --help)" && exit 2 ;;
  esac
done

programs=$(postgres_programs) ||
  die "no PostgreSQL $postgres_minimum or newer: install its server (Debian: postgresql), or put initdb and postgres on PATH"

as_user=()
if [[ $(id -u) == 0 ]]; then
  user=postgres
  id "$user" >/dev/null 2>&1 || user=nobody
  as_user=(setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups env HOME=/tmp)
fi

# A background process does not get the standard input.
exec 3<&0
folder=$(mktemp -d "${TMPDIR:-/tmp}/saga-postgres.XXXXXX")
server=''
stop() {
  trap '' INT TERM HUP EXIT
  if [[ -n $server ]]; then
    # An immediate stop: the data is deleted anyway.
    kill -QUIT "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  rm -rf "$folder"
}
trap stop EXIT
trap 'exit 0' INT TERM HUP

[[ ${#as_user[@]} == 0 ]] || chown "$user" "$folder"

if [[ -n $primary ]]; then
  copies=$(PATH="$programs:$PATH" command -v pg_basebackup) || die "no pg_basebackup beside $programs/postgres or on PATH"
  ${as_user[@]+"${as_user[@]}"} "$copies" --dbname "$primary" --pgdata "$folder/data" --write-recovery-conf \
    --checkpoint fast --no-sync >"$folder/initdb.log" 2>&1 || { tail -n 5 "$folder/initdb.log" >&2; die "pg_basebackup failed in $folder"; }
else
  ${as_user[@]+"${as_user[@]}"} "$programs/initdb" --pgdata "$folder/data" --username saga --auth trust --encoding UTF8 --locale C --no-sync \
    >"$folder/initdb.log" 2>&1 || { tail -n 5 "$folder/initdb.log" >&2; die "initdb failed in $folder"; }
fi

# The owner needs no password; all other users do.
printf 'host %s 127.0.0.1/32 %s\n' 'all saga' trust 'replication saga' trust 'all all' scram-sha-256 >"$folder/pg_hba.conf"

# answers: true if the server accepts queries. Its port accepts connections earlier, so this reads its log.
answers() { grep -qE 'database system is ready to accept (read-only )?connections' "$folder/log" 2>/dev/null; }

# Another process may take the port first; then another port is tried.
for try in 1 2 3 4 5; do
  taken=${port:-$((20000 + RANDOM % 20000))}
  # `exec`, so that signals reach the server itself.
  (exec ${as_user[@]+"${as_user[@]}"} "$programs/postgres" -D "$folder/data" -c hba_file="$folder/pg_hba.conf" -p "$taken" \
    -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c max_connections=400 -c fsync=$syncs \
    -c full_page_writes=$syncs -c synchronous_commit=on -c shared_buffers=64MB >"$folder/log" 2>&1 </dev/null 3<&-) &
  server=$! port_of_try=$port port=$taken
  until answers; do
    kill -0 "$server" 2>/dev/null || break
    sleep 0.05
  done
  ! kill -0 "$server" 2>/dev/null || break
  port=$port_of_try
  [[ -z $port && $try != 5 ]] || { tail -n 5 "$folder/log" >&2; die "no server could be started on port $taken"; }
done

printf 'postgres://saga@127.0.0.1:%s\n' "$port"
# Waits until the caller closes the input or ends.
cat <&3 >/dev/null &
wait "$!" || true
