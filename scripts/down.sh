#!/usr/bin/env bash
# Stops what up.sh started.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[[ -x $sagactl ]] || die "sagactl is not built, so nothing was started from here"
exec "$sagactl" down "$@"
