#!/usr/bin/env bash
# Measures how long each serious finding takes from its cause to the receiver of notifications, with the default settings.
# Fails if one takes more than ten seconds. Uses a separate system.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The debug programs of the tests, from `cargo build --workspace --bins`.
programs=$target_dir/debug
[[ -x $programs/sagactl ]] || die "no programs in $programs: run 'cargo build --workspace --bins', then this again"
exec python3 "$root/scripts/notice_latency.py" "$programs" "$@"
