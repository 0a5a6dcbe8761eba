#!/usr/bin/env bash
# Holds dashboards, alerts and runbooks against a system of its own, on free ports, with a real Prometheus: under load and
# with the fault of every alert, each query of each panel and alert returns what it is there for, and every command of
# every runbook does what the runbook says. Exit code 0 when all of that held.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The programs that the tests use; `cargo build --workspace --bins` makes them.
programs=$target_dir/debug

"$root/scripts/setup.sh" --tests
[[ -x $programs/sagactl ]] || die "no programs in $programs: run 'cargo build --workspace --bins', then this again"
prometheus=$(prometheus_program prometheus) promtool=$(prometheus_program promtool)

python3 "$root/grafana/dashboards.py" --check
# Its files are where it runs.
"$promtool" check config --syntax-only "$root/grafana/prometheus/prometheus.yml" >/dev/null
"$promtool" check rules "$root"/grafana/prometheus/rules/*.yml >/dev/null
"$promtool" test rules "$root"/grafana/prometheus/tests/*.yml >/dev/null
exec python3 "$root/scripts/check_dashboards.py" "$root" "$programs" "$prometheus"
