"""Runs scripts/k8s-apply.sh with the real kubectl against a stand-in for an API server."""

import os
import subprocess

import yaml

from api_server import Server

LOCAL, PRODUCTION = "k8s/overlays/local", "k8s/overlays/production"


def complaints(root):
    """What the script did wrong, in a copy of the manifests that it may change."""
    server = Server()
    try:
        (root / "kubeconfig").write_text(yaml.safe_dump(server.config()))
        yield from steps(root, server)
    finally:
        server.close()


def steps(root, server):
    run = lambda folder: apply(root, folder)
    if (done := run(f"{LOCAL}-and-all")).returncode != 0:
        yield f"k8s-apply.sh does not create an overlay: {done.stderr}"
        return
    first = names(server)
    # Made by others, with the label of this system.
    server.objects[("v1", "secrets", "saga", "other")] = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "other", "labels": {"app.kubernetes.io/part-of": "saga"}},
    }
    (root / LOCAL / "secrets/order/broker.nk").write_text("another\n")
    if (done := run(LOCAL)).returncode != 0:
        yield f"k8s-apply.sh does not update an overlay: {done.stderr}"
    left = names(server)
    keys = [name for name in left if name.startswith("secrets/saga-order-")]
    if len(keys) != 1 or keys[0] in first:
        yield f"k8s-apply.sh does not replace a key: {', '.join(keys)}"
    removed = ["networkpolicies/to-collector", "servicemonitors/saga", "configmaps/dashboard-saga-overview"]
    if kept := [name for name in removed if name in left or name not in first]:
        yield f"k8s-apply.sh does not delete the objects of removed components: {', '.join(kept)}"
    if not {"secrets/other", "namespaces/saga", "statefulsets/order"} <= left:
        yield "k8s-apply.sh deletes what it has not made, or still needs"

    kustomization = root / PRODUCTION / "kustomization.yaml"
    kustomization.write_text(kustomization.read_text().replace("namespace: saga-production", "namespace: saga"))
    before = repr(server.objects)
    if run(PRODUCTION).returncode == 0 or repr(server.objects) != before:
        yield "k8s-apply.sh applies a part of an overlay that the API server rejects"


def names(server):
    return {f"{resource}/{name}" for _, resource, _, name in server.objects}


def apply(root, folder):
    environment = {**os.environ, "KUBECONFIG": str(root / "kubeconfig"), "HOME": str(root)}
    command = [root / "scripts/k8s-apply.sh", folder]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=300)
