#!/usr/bin/env bash
# Plays incidents under load, and measures how soon the overview, notifications and alerts report each one, and how soon they are
# calm again. Uses a separate system and a real Prometheus, whose data stay in the folder.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<USAGE
usage: scripts/incidents.sh FOLDER [OPTIONS] [quiet|burst|bank|broker|inventory|admin|dead_letters]…

  --hold SECONDS  length of an incident (90)
  --calm SECONDS  time limit until nothing reports it any more (300)
  --draw          draw the dashboards at the end of each incident, into FOLDER/ACT
  --check         fail if a report or a picture is not as it should be

Without names, plays all of them.
USAGE
}

folder='' arguments=()
for word; do
  case $word in
    -h | --help) usage && exit 0 ;;
    --draw) arguments+=(--draw "$root/scripts/draw-dashboards.sh") ;;
    *) [[ -n $folder ]] && arguments+=("$word") || folder=$word ;;
  esac
done
[[ -n $folder && $folder != -* ]] || { usage >&2 && exit 2; }
# The debug programs of the tests, from `cargo build --workspace --bins`.
programs=${SAGA_PROGRAMS:-$target_dir/debug}
"$root/scripts/setup.sh" --tests
[[ -x $programs/sagactl ]] || die "no programs in $programs: run 'cargo build --workspace --bins', then this again"
exec python3 "$root/scripts/incidents.py" "$programs" "$(prometheus_program prometheus)" "$folder" ${arguments[@]+"${arguments[@]}"}
