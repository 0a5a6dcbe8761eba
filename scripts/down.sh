#!/usr/bin/env bash
# Stops the local system that up.sh started.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[[ -x $sagactl ]] || die "sagactl is not built, so no system was started from this repository"
exec "$sagactl" down "$@"
