#!/usr/bin/env bash
# Plays incidents under load, and measures how soon the overview, notifications and alerts report each one, and how soon they are
# calm again. Uses a separate system and a real Prometheus, whose data stay in the folder.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  echo "usage: scripts/incidents.sh FOLDER [--hold SECONDS] [--calm SECONDS] [quiet|burst|bank|broker|inventory|admin|dead_letters]…"
}

[[ ${1:-} == -h || ${1:-} == --help ]] && usage && exit 0
[[ -n ${1:-} && $1 != -* ]] || { usage >&2 && exit 2; }
# The debug programs of the tests, from `cargo build --workspace --bins`.
programs=$target_dir/debug
"$root/scripts/setup.sh" --tests
[[ -x $programs/sagactl ]] || die "no programs in $programs: run 'cargo build --workspace --bins', then this again"
exec python3 "$root/scripts/incidents.py" "$programs" "$(prometheus_program prometheus)" "$@"
