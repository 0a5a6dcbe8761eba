#!/usr/bin/env bash
# Applies a folder of k8s/ with kubectl, in an order that leaves nothing half done:
# 1. creates the namespace, which the check needs;
# 2. lets the API server check every object, and ends before the first change if it rejects one;
# 3. applies, and waits until all pods are updated;
# 4. deletes what an earlier version of the folder had and this one lacks, such as old keys and removed components.
# Volumes, namespaces, and objects that `kubectl apply` did not make are never deleted.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage="usage: scripts/k8s-apply.sh FOLDER     for example: scripts/k8s-apply.sh k8s/overlays/local"
folder=${1:-}
case $folder in
  -h | --help) say "$usage"; exit ;;
  "" | -*) die "$usage" ;;
esac
[[ -f $folder/kustomization.yaml ]] || die "$folder has no kustomization.yaml; $usage"
have jq || die "jq is missing"
# May be several words, such as `sudo k3s kubectl`.
kubectl() { command ${KUBECTL:-kubectl} "$@"; }

# What a folder may contain. scripts/check-k8s.sh compares this with the manifests.
kinds='configmaps secrets services statefulsets.apps cronjobs.batch horizontalpodautoscalers.autoscaling
  networkpolicies.networking.k8s.io poddisruptionbudgets.policy
  prometheusrules.monitoring.coreos.com servicemonitors.monitoring.coreos.com'
part_of=app.kubernetes.io/part-of=saga
# One line for each object, such as `Secret.v1./saga-order` and `StatefulSet.v1.apps/order`.
identity='(.apiVersion | split("/") | [""] + . | .[-2:]) as [$group, $version]
  | "\(.kind).\($version).\($group)/\(.metadata.name)"'

namespace=$(kubectl apply -k "$folder" -l app.kubernetes.io/component=namespace -o name)
namespace=${namespace#namespace/}
[[ -n $namespace && $namespace != *[!a-z0-9-]* ]] || die "$folder must have one namespace, and has: ${namespace:-none}"

wanted=$(kubectl apply -k "$folder" --dry-run=server -o json | jq -r ".items[] | $identity" | sort) ||
  die "the API server rejects $folder, so nothing was changed"

kubectl apply -k "$folder"
for workload in $(grep '^StatefulSet\.' <<<"$wanted"); do
  kubectl -n "$namespace" rollout status "$workload" --timeout=15m ||
    die "$workload is not updated; correct it and run this again; nothing was deleted"
done

# Only after the update: an old pod that restarts still needs its old Secret. Kinds of operators may be missing.
served=$(kubectl api-resources --namespaced -o name | grep -xF -f <(xargs -n 1 <<<"$kinds") | paste -sd , -)
found=$(kubectl -n "$namespace" get "$served" -l "$part_of" -o json | jq -r ".items[]
  | select(.metadata.annotations[\"kubectl.kubernetes.io/last-applied-configuration\"]) | $identity" | sort)
comm -13 <(printf '%s\n' "$wanted") <(printf '%s\n' "$found") | while read -r stale; do
  [[ -z $stale ]] || kubectl -n "$namespace" delete "$stale"
done
