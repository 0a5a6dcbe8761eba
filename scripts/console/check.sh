#!/usr/bin/env bash
# Checks the console: its libraries against npm, its types against the API, and each screen in Chromium against a real system.
# Needs the debug programs, Node.js, npm and Chromium; the packages are kept in target/tools/console.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

usage() {
  cat <<USAGE
usage: scripts/console/check.sh [--pictures FOLDER] [STORY…]

  --pictures FOLDER  keep a picture of each screen, light and dark
  STORY              files of scripts/console/stories, without .mjs; all of them by default
USAGE
}

stories=() pictures=''
while (($# > 0)); do
  case $1 in
    -h | --help) usage && exit 0 ;;
    --pictures) pictures=$(mkdir -p "$2" && cd "$2" && pwd) && shift ;;
    -*) usage >&2 && exit 2 ;;
    *) stories+=("$1") ;;
  esac
  shift
done

export SAGA_PROGRAMS=${SAGA_PROGRAMS:-$target_dir/debug}
"$root/scripts/setup.sh" --tests
[[ -x $SAGA_PROGRAMS/sagactl ]] || die "no programs in $SAGA_PROGRAMS: run 'cargo build --workspace --bins', then this again"
CHROMIUM=$(chromium_program) || die "no Chromium: scripts/setup.sh --tests installs it"
export_nats_server
export CHROMIUM PICTURES=$pictures

tools=$target_dir/tools/console
install_npm "$root/scripts/console/package.json" "$tools"
python3 "$root/scripts/console/vendor.py" --check

# The stories and the console are checked beside the packages, where their imports are found.
rm -rf "$tools/console" "$tools/stories"
cp "$root/scripts/console/tsconfig.json" "$tools/"
cp -r "$root/services/admin/console" "$root/scripts/console/stories" "$tools/"
cd "$tools"
node stories/lib/types.mjs
node node_modules/typescript/bin/tsc -p tsconfig.json

((${#stories[@]} > 0)) || for file in stories/*.mjs; do stories+=("$(basename "$file" .mjs)"); done
# One after another: each has a system of its own.
files=("${stories[@]/#/stories/}")
exec node --test --test-concurrency=1 --test-reporter=spec "${files[@]/%/.mjs}"
