#!/usr/bin/env bash
# Renders k8s/ and holds what comes out against the schemas of Kubernetes and the policies of scripts/k8s/policies.py,
# and these against faults that are planted. No cluster is needed, nor asked.
# With --write it writes what is generated from grafana/: the object with the alert rules, the list of the dashboards.
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
  die "the manifests in k8s/ are not as they should be"
