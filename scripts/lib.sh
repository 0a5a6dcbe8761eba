# shellcheck shell=bash disable=SC2034
# What the scripts share. To be sourced: `source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"`.
# Works in bash 3.2 (macOS) and later.

# The repository, whatever folder the script was called from.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Data of the local system, unless --data says otherwise; sagactl reads it too.
export SAGA_DATA=${SAGA_DATA:-$root/.saga}

# The release programs.
bin=${CARGO_TARGET_DIR:-$root/target}/release
sagactl=$bin/sagactl

# The oldest broker this system trusts; also checked by sagactl and by the services.
nats_minimum=2.15

say() { printf '%s\n' "$*" >&2; }
die() { say "$(basename "$0"): $*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# at_least WANTED FOUND: whether version FOUND (1.95.0) is WANTED (1.95) or newer.
at_least() {
  local wanted=$1 found=$2
  local wanted_major=${wanted%%.*} found_major=${found%%.*}
  local wanted_minor=${wanted#*.} found_minor=${found#*.}
  wanted_minor=${wanted_minor%%[!0-9]*} found_minor=${found_minor%%[!0-9]*}
  [[ $found_major =~ ^[0-9]+$ && $found_minor =~ ^[0-9]+$ ]] || return 1
  ((found_major > wanted_major || (found_major == wanted_major && found_minor >= wanted_minor)))
}

# version_of PROGRAM: the first version number that `PROGRAM --version` prints.
version_of() {
  local text
  text=$("$1" --version 2>/dev/null) || return 1
  [[ $text =~ ([0-9]+\.[0-9]+(\.[0-9]+)?) ]] && printf '%s\n' "${BASH_REMATCH[1]}"
}

# The oldest PostgreSQL that the store is for.
postgres_minimum=15

# postgres_programs: prints the folder of the newest server that is new enough; fails when there is none.
postgres_programs() {
  local candidate
  for candidate in "${POSTGRES_BIN:-}" "$(dirname "$(command -v postgres)" 2>/dev/null)" \
    $(ls -d /usr/lib/postgresql/*/bin /usr/pgsql-*/bin 2>/dev/null | sort -rV); do
    if [[ -x $candidate/postgres && -x $candidate/initdb ]] && at_least "$postgres_minimum.0" "$(version_of "$candidate/postgres")"; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  return 1
}

# start_postgres FOLDER FLAGS…: a PostgreSQL server of one's own (private-postgres.sh), whose URL is in FOLDER/postgres.url once
# this returns. It ends with stop_postgres, and with this shell: descriptor 9 is its input.
start_postgres() {
  local folder=$1
  shift
  mkfifo "$folder/postgres.input"
  "$root/scripts/private-postgres.sh" "$@" <"$folder/postgres.input" >"$folder/postgres.url" &
  of_postgres=$!
  exec 9>"$folder/postgres.input"
  rm "$folder/postgres.input"
  until [[ -s $folder/postgres.url ]]; do
    kill -0 "$of_postgres" 2>/dev/null || return 1
    sleep 0.1
  done
}

stop_postgres() {
  exec 9>&-
  [[ -z ${of_postgres:-} ]] || wait "$of_postgres" || true
  of_postgres=''
}

# rustc_host: the target that this rustc builds for where none is named.
rustc_host() { rustc -vV | sed -n 's/^host: //p'; }

# is_new_broker PROGRAM: whether it is a nats-server that is new enough.
is_new_broker() {
  local text
  text=$("$1" --version 2>/dev/null) && [[ $text == nats-server:* ]] && at_least "$nats_minimum" "${text##*v}"
}

# nats_server: prints the path of a nats-server that is new enough; fails when there is none.
nats_server() {
  local candidate
  if [[ -n ${NATS_SERVER_BIN:-} ]]; then
    is_new_broker "$NATS_SERVER_BIN" && printf '%s\n' "$NATS_SERVER_BIN"
    return
  fi
  for candidate in "$(command -v nats-server)" "$root/target/tools/nats-server"; do
    if [[ -x $candidate ]] && is_new_broker "$candidate"; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  return 1
}

# prometheus_of PROGRAM: prints the path of prometheus or promtool; fails when it is not there.
prometheus_of() {
  command -v "$1" && return
  [[ -x $root/target/tools/prometheus/$1 ]] && printf '%s\n' "$root/target/tools/prometheus/$1"
}

# build: every program in release mode. Cargo shows its own progress; one line when nothing is to do.
build() {
  # All programs of the local system; the simulation and the tools of the benchmarks are no part of it.
  cargo build --manifest-path "$root/Cargo.toml" --release --bins --workspace --exclude simulation --exclude bench
}

# true_of FILTER JSON: whether jq's FILTER is true of it; of nothing at all, where `jq -e` finds nothing wrong, it is not.
true_of() { jq -e -s ".[0] | $1" <<<"$2" >/dev/null; }
