#!/usr/bin/env bash
# Draws the dashboards with Grafana's own components, from a running Prometheus: a picture of each, and a list of what its panels
# show. Needs Node.js, npm and Chromium; the packages are kept in target/tools/draw.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  echo "usage: scripts/draw-dashboards.sh PROMETHEUS FOLDER [--to SECONDS_SINCE_1970] [--minutes N (15)] [--closed] [--light]"
  echo "         [--vision protanopia|deuteranopia|tritanopia|achromatopsia|none]"
}

[[ ${1:-} == -h || ${1:-} == --help ]] && usage && exit 0
[[ -n ${2:-} ]] || { usage >&2 && exit 2; }
tools=$target_dir/tools/draw
install_npm "$root/scripts/draw/package.json" "$tools"
CHROMIUM=$(chromium_program) || die "no Chromium: scripts/setup.sh --tests installs it"
export CHROMIUM
cp "$root"/scripts/draw/*.mjs "$root"/scripts/draw/*.jsx "$tools/"
exec node "$tools/draw.mjs" "$root/grafana/dashboards" "$@"
