# shellcheck shell=bash disable=SC2034
# Functions and paths that all scripts use. To be sourced: `source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"`.
# Works in bash 3.2 (macOS) and later.

# The repository, independent of the working directory.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Default data folder of the local system; --data overrides it. sagactl reads this variable.
export SAGA_DATA=${SAGA_DATA:-$root/.saga}

# curl asks the local system without a proxy of the environment, which does not reach it.
export NO_PROXY="localhost,127.0.0.1,::1,${no_proxy:-${NO_PROXY:-}}"
export no_proxy=$NO_PROXY

# Absolute, because cargo runs in the repository and the programs are started from the caller's folder.
if [[ -n ${CARGO_TARGET_DIR:-} ]]; then
  [[ $CARGO_TARGET_DIR == /* ]] || CARGO_TARGET_DIR=$PWD/$CARGO_TARGET_DIR
  export CARGO_TARGET_DIR
fi
target_dir=${CARGO_TARGET_DIR:-$root/target}

# The topology: name, port and true or false for a stream, one service a line, admin first.
topology=$(grep -oE 'name: "[a-z]+|port: [0-9]+|has_stream: (true|false)' "$root/shared/contract/src/topology.rs" |
  sed 's/.*[ "]//' | paste -d ' ' - - -)
services=$(awk '{ print $1 }' <<<"$topology" | xargs)
# The services that publish.
publishers=$(awk '$3 == "true" { print $1 }' <<<"$topology" | xargs)

# port_of SERVICE: its default port.
port_of() { awk -v name="$1" '$1 == name { print $2 }' <<<"$topology"; }

# The release programs.
bin=$target_dir/release
sagactl=$bin/sagactl

# The oldest supported nats-server. sagactl and the services check it as well.
nats_minimum=2.15

say() { printf '%s\n' "$*" >&2; }
die() { say "$(basename "$0"): $*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# at_least MINIMUM FOUND: true if version FOUND (1.95.0) is MINIMUM (1.95) or newer.
at_least() {
  local minimum=$1 found=$2
  local minimum_major=${minimum%%.*} found_major=${found%%.*}
  local minimum_minor=${minimum#*.} found_minor=${found#*.}
  minimum_minor=${minimum_minor%%[!0-9]*} found_minor=${found_minor%%[!0-9]*}
  [[ $found_major =~ ^[0-9]+$ && $found_minor =~ ^[0-9]+$ ]] || return 1
  ((found_major > minimum_major || (found_major == minimum_major && found_minor >= minimum_minor)))
}

# version_of PROGRAM: the first version number that `PROGRAM --version` prints.
version_of() {
  local text
  text=$("$1" --version 2>/dev/null) || return 1
  [[ $text =~ ([0-9]+\.[0-9]+(\.[0-9]+)?) ]] && printf '%s\n' "${BASH_REMATCH[1]}"
}

# The oldest PostgreSQL that the store supports.
postgres_minimum=15

# postgres_programs: prints the program folder of the newest supported PostgreSQL server; fails if there is none.
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

# start_postgres FOLDER FLAGS…: starts a private PostgreSQL server (private-postgres.sh) and writes its URL to
# FOLDER/postgres.url. The server stops with stop_postgres or when this shell ends, because descriptor 9 is its input.
start_postgres() {
  local folder=$1
  shift
  mkfifo "$folder/postgres.input"
  "$root/scripts/private-postgres.sh" "$@" <"$folder/postgres.input" >"$folder/postgres.url" &
  postgres_pid=$!
  exec 9>"$folder/postgres.input"
  rm "$folder/postgres.input"
  until [[ -s $folder/postgres.url ]]; do
    kill -0 "$postgres_pid" 2>/dev/null || return 1
    sleep 0.1
  done
}

stop_postgres() {
  exec 9>&-
  [[ -z ${postgres_pid:-} ]] || wait "$postgres_pid" || true
  postgres_pid=''
}

# rustc_host: prints the default target of this rustc.
rustc_host() { rustc -vV | sed -n 's/^host: //p'; }

# is_supported_broker PROGRAM: true if the program is a nats-server that is new enough.
is_supported_broker() {
  local text
  text=$("$1" --version 2>/dev/null) && [[ $text == nats-server:* ]] && at_least "$nats_minimum" "${text##*v}"
}

# nats_server: prints the path of a supported nats-server; fails if there is none.
nats_server() {
  local candidate
  if [[ -n ${NATS_SERVER_BIN:-} ]]; then
    is_supported_broker "$NATS_SERVER_BIN" && printf '%s\n' "$NATS_SERVER_BIN"
    return
  fi
  for candidate in "$(command -v nats-server)" "$root/target/tools/nats-server"; do
    if [[ -x $candidate ]] && is_supported_broker "$candidate"; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  return 1
}

# export_nats_server: sets NATS_SERVER_BIN, by which sagactl finds the program also from another target folder. Without one,
# sagactl explains what is missing.
export_nats_server() {
  local program
  program=$(nats_server) || return 0
  export NATS_SERVER_BIN=$program
}

# install_npm FILE TOOLS: installs the packages of a package.json in the folder TOOLS, again when a version changes.
install_npm() {
  mkdir -p "$2"
  if ! cmp --silent "$1" "$2/installed.json"; then
    cp "$1" "$2/package.json"
    (cd "$2" && npm install --no-audit --no-fund --no-package-lock --silent) || die "the packages of $1 cannot be installed from npm"
    cp "$1" "$2/installed.json"
  fi
}

# chromium_program: prints the path of Chromium, or fails.
chromium_program() { command -v chromium || command -v chromium-browser || command -v google-chrome; }

# prometheus_program NAME: prints the path of prometheus or promtool; fails if it is missing.
prometheus_program() {
  command -v "$1" && return
  [[ -x $root/target/tools/prometheus/$1 ]] && printf '%s\n' "$root/target/tools/prometheus/$1"
}

# cargo_at_root ARGUMENTS…: runs cargo in the repository. Cargo looks for .cargo/config.toml in the working directory. From
# another folder SQLite would get other compiler flags, and everything that depends on it would be rebuilt.
cargo_at_root() { (cd "$root" && cargo "$@"); }

# copy_tree FOLDER [OPTION]: replaces a folder by a copy of the tracked files, with their times. OPTIONs are those of tar -x.
copy_tree() {
  local tree=$1
  rm -rf "$tree"
  mkdir -p "$tree"
  (cd "$root" && git ls-files -z | tar --null -T - -c -f -) | tar -x -f - -C "$tree" "${@:2}"
}

# The programs of the local system. The simulation and the benchmark tools are not part of it.
system_programs=(--workspace --bins --exclude simulation --exclude loadgen)

# build [ARGUMENTS…]: builds the release programs. Cargo shows its own progress.
build() { cargo_at_root build --release "${system_programs[@]}" "$@"; }

# require_programs: fails if a program of the local system has not been built.
require_programs() {
  local name missing=()
  for name in sagactl $services; do
    [[ -x $bin/$name ]] || missing+=("$name")
  done
  ((${#missing[@]} == 0)) || die "not built: ${missing[*]} (in $bin); run this without --no-build once"
}

# build_or_require yes|no: sets up the tools and builds the programs, or requires those of the last build.
build_or_require() {
  if [[ $1 == yes ]]; then
    "$root/scripts/setup.sh"
    build
  else
    require_programs
  fi
}

# json_matches FILTER JSON: true if jq's FILTER is true for the document. Unlike `jq -e`, false for an empty document.
json_matches() { jq -e -s ".[0] | $1" <<<"$2" >/dev/null; }
