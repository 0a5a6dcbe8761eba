#!/usr/bin/env bash
# Tests dashboards, alerts and runbooks with a separate system and a real Prometheus. Causes the fault of each alert, and checks
# that the alert fires, that the commands of its runbook work, and that each query of each panel returns data.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The debug programs of the tests, from `cargo build --workspace --bins`.
programs=$target_dir/debug

"$root/scripts/setup.sh" --tests
[[ -x $programs/sagactl ]] || die "no programs in $programs: run 'cargo build --workspace --bins', then this again"
prometheus=$(prometheus_program prometheus) promtool=$(prometheus_program promtool)

python3 "$root/grafana/dashboards.py" --check
# Only the syntax: its files exist only in the container.
"$promtool" check config --syntax-only "$root/grafana/prometheus/prometheus.yml" >/dev/null
"$promtool" check rules "$root"/grafana/prometheus/rules/*.yml >/dev/null
"$promtool" test rules "$root"/grafana/prometheus/tests/*.yml >/dev/null
exec python3 "$root/scripts/check_dashboards.py" "$programs" "$prometheus"
