"""The registry of policies: rules that every rendering must satisfy, beyond what a cluster rejects by itself.

A policy is a function of a rendering and of what the rest of the repository says. It yields a complaint for each violation.

Why not checkov: the built-in checks of checkov 3.3.30 found 14 of the first 125 planted faults (root, added capabilities, seccomp,
host network, read-only root file system, service account token, memory limits, missing tags and probes). The other policies
compare objects with each other or with the code, and would need the same Python as custom checks. checkov also installs 100
packages (290 MB).
"""

POLICIES = {}


def policy(rule):
    POLICIES[rule.__name__] = rule
    return rule


def complaints(cluster, repository):
    for name, rule in POLICIES.items():
        for complaint in rule(cluster, repository):
            yield f"{cluster.name}: {name}: {complaint}"
