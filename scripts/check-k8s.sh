#!/usr/bin/env bash
# Renders k8s/ and checks the result against the Kubernetes schemas and the policies in scripts/k8s/. Then checks that the
# policies find planted faults. Needs no cluster.
# --write generates the files that come from grafana/: the object with the alert rules, and the list of dashboards.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

case ${1:-} in
  "" | --write) ;;
  *)
    echo "usage: scripts/check-k8s.sh [--write]"
    [[ $1 == -h || $1 == --help ]]
    exit
    ;;
esac
"$root/scripts/setup.sh" --tests
PYTHONDONTWRITEBYTECODE=1 "$root/target/tools/k8s/bin/python" "$root/scripts/k8s/check.py" "$@" ||
  die "the manifests in k8s/ have the problems above"
