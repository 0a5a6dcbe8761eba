#!/usr/bin/env bash
# Builds everything and starts the system: nats-server and the five services. Flags: see `up.sh --help`.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

"$root/scripts/setup.sh"
build
exec "$sagactl" up "$@"
