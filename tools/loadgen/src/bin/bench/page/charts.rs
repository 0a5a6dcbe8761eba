//! Pure: which charts the page has, and of what.

#![expect(clippy::float_arithmetic, reason = "shown to people")]

use serde_json::Value;

use crate::chart::{Series, bars, lines};

/// Of latencies, more is drawn no higher.
const HIGHEST_MS: f64 = 1_000.0;

/// Those of which there are results, by name.
pub fn charts(results: &Value) -> Vec<(&'static str, String)> {
    let mut charts = Vec::new();
    let points = |from: &Value, x: &[&str], y: &[&str]| {
        let at = |value: &Value, path: &[&str]| {
            path.iter().fold(value.clone(), |value, name| value[name].clone()).as_f64()
        };
        let mut points: Vec<_> =
            from.as_array().into_iter().flatten().filter_map(|of| Some((at(of, x)?, at(of, y)?))).collect();
        points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        points
    };
    let steps = &results["throughput"]["steps"];
    if steps.as_array().is_some_and(|steps| !steps.is_empty()) {
        let series = ["p50", "p99"]
            .map(|name| Series { name, points: points(steps, &["rate_wanted"], &["latency_ms", name]) });
        charts.push((
            "latency",
            lines("Latency by rate, open loop", "orders/s", "ms", &series, Some(HIGHEST_MS)),
        ));
    }
    let per_process = results["throughput"]["at_sustained"]["cpu_ms"].as_object();
    if let Some(per_process) = per_process {
        let all: Vec<_> =
            per_process.iter().map(|(name, ms)| (name.clone(), ms.as_f64().unwrap_or(0.0))).collect();
        let orders = results["throughput"]["at_sustained"]["completed"].as_f64().unwrap_or(1.0).max(1.0);
        let shares: Vec<_> = all.into_iter().map(|(name, ms)| (name, ms / orders)).collect();
        charts.push(("cpu", bars("CPU per saga, by process", "ms", &shares)));
    }
    let seconds = &results["overload"]["timeline"];
    if seconds.is_array() {
        let series = [("ended/s", "ended"), ("refused/s", "refused"), ("sent/s", "sent")]
            .map(|(name, field)| Series { name, points: points(seconds, &["at"], &[field]) });
        charts.push(("overload", lines("Overload, second by second", "s", "orders/s", &series, None)));
        let series = [
            ("p99 of what ended", "p99_ms"),
            ("p99 of a refusal", "rejection_p99_ms"),
            ("MiB held", "rss_mib"),
        ]
        .map(|(name, field)| Series { name, points: points(seconds, &["at"], &[field]) });
        charts.push((
            "overload-latency",
            lines("Overload, latency and memory", "s", "ms, MiB", &series, Some(HIGHEST_MS)),
        ));
    }
    charts
}
