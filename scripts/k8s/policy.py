"""The registry of policies: rules that every rendering must satisfy, beyond what a cluster rejects by itself.

A policy is a function of a rendering and of what the rest of the repository says. It yields a complaint for each violation.

Why not checkov: its built-in checks cover 6 of the 28 policies (root, capabilities and seccomp; host namespaces; read-only
root file system; service account token; resources; the tag `latest`), about 40 lines here. The other policies compare
objects with each other or with the code (network paths, probes, mounted files, databases, brokers, autoscalers, rules). As
custom checks they would need the same Python. For that, checkov installs 100 packages (290 MB).
"""

POLICIES = {}


def policy(rule):
    POLICIES[rule.__name__] = rule
    return rule


def complaints(cluster, repository):
    for name, rule in POLICIES.items():
        for complaint in rule(cluster, repository):
            yield f"{cluster.name}: {name}: {complaint}"
