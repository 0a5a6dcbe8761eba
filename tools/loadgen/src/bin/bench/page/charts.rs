//! Pure: charts of the page.

use serde_json::Value;

use crate::chart::{Series, lines};

/// Latencies above this are drawn at it.
const MAX_MS: f64 = 1_000.0;

/// Charts by name, as far as there are results.
pub fn charts(results: &Value) -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut charts = Vec::new();
    let steps = &results["throughput"]["steps"];
    if steps.as_array().is_some_and(|steps| !steps.is_empty()) {
        let of =
            |name| Series { name, points: points(steps, "/target_rate", &format!("/latency_ms/{name}")) };
        let series = ["p50", "p99"].map(of);
        charts.push((
            "latency",
            lines("Latency by rate, open loop", ("orders/s", "ms"), &series, Some(MAX_MS))?,
        ));
    }
    let seconds = &results["overload"]["timeline"];
    if seconds.is_array() {
        let of = |(name, field): (&'static str, &str)| Series {
            name,
            points: points(seconds, "/at", &format!("/{field}")),
        };
        let series = [("ended/s", "ended"), ("rejected/s", "rejected"), ("sent/s", "sent")].map(of);
        charts.push(("overload", lines("Overload, second by second", ("s", "orders/s"), &series, None)?));
        let series = [
            ("p99 of ended orders", "p99_ms"),
            ("p99 of rejections", "rejection_p99_ms"),
            ("memory in MiB", "rss_mib"),
        ]
        .map(of);
        charts.push((
            "overload-latency",
            lines("Overload, latency and memory", ("s", "ms, MiB"), &series, Some(MAX_MS))?,
        ));
    }
    Ok(charts)
}

/// Points of a line, in the order of x, from the items of a list.
fn points(items: &Value, x: &str, y: &str) -> Vec<(f64, f64)> {
    let at = |item: &Value, path: &str| item.pointer(path).and_then(Value::as_f64);
    let items = items.as_array().into_iter().flatten();
    let mut points: Vec<_> = items.filter_map(|item| Some((at(item, x)?, at(item, y)?))).collect();
    points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    points
}
