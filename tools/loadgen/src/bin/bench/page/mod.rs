//! Pure: results of a run as a table for a terminal, and as a page with charts.

mod charts;
mod rows;

use std::fmt::Write as _;

use serde_json::Value;

use self::charts::charts;
use self::rows::{Row, rows};
use crate::budget_page;

/// Parts of `scripts/bench.sh all` in addition to the floor.
const PARTS: [&str; 11] = [
    "idle",
    "throughput",
    "latency",
    "drain",
    "store",
    "relay",
    "mixed",
    "overload",
    "history",
    "soak",
    "counts",
];

pub fn table(results: &Value) -> String {
    let rows = rows(results);
    let wide = |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0);
    let (what, value) = (wide(|row| &row.what), wide(|row| &row.value));
    let mut text =
        head(results).into_iter().map(|(name, value)| format!("{name:12} {value}\n")).collect::<String>();
    text.push('\n');
    for row in &rows {
        let _ = writeln!(text, "{:what$}  {:>value$}  {}", row.what, row.value, row.beside);
    }
    for reason in reasons(results) {
        let _ = writeln!(text, "NOT VALID: {reason}");
    }
    text
}

/// Page and charts by file name.
pub fn files(results: &Value) -> anyhow::Result<Vec<(String, String)>> {
    let mut page = String::from(
        "# Benchmarks\n\nWritten by `scripts/bench.sh all --write`; `scripts/bench.sh --help` explains each part.\n\n\
         - **Latency** spans from sending `POST /api/orders` until the order is confirmed, seen by the client.\n\
         - A **sustained** rate holds for the whole run with p99 up to 250 ms, no growing backlog, and balanced ledgers.\n\
         - A **floor** is what this machine can do without the system, measured in the same run. Compare shares of it, not \
         numbers of different machines.\n\
         - [Cost of a saga](budget.md) in each process.\n\n| | |\n| --- | --- |\n",
    );
    for (name, value) in head(results) {
        let _ = writeln!(page, "| {name} | {value} |");
    }
    page.push_str("\n| measurement | result | compared with the floor; remarks |\n| --- | ---: | --- |\n");
    for row in rows(results) {
        let _ = writeln!(page, "| {} | {} | {} |", row.what, row.value, row.beside);
    }
    for reason in reasons(results) {
        let _ = writeln!(page, "\n**Not valid:** {reason}");
    }
    let mut files = Vec::new();
    for (name, svg) in charts(results)? {
        let _ = writeln!(page, "\n![{name}]({name}.svg)");
        files.push((format!("{name}.svg"), svg));
    }
    files.push(("README.md".to_owned(), page));
    files.push(("budget.md".to_owned(), budget_page::page(&serde_json::from_str(budget::STORED)?, results)));
    files.push(("results.json".to_owned(), format!("{}\n", serde_json::to_string_pretty(results)?)));
    Ok(files)
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn head(results: &Value) -> Vec<(&'static str, String)> {
    let (machine, versions, durability) = (&results["machine"], &results["versions"], &results["durability"]);
    let of = |from: &Value, name: &str| text(&from[name]);
    let mut head = vec![
        (
            "machine",
            format!(
                "{}, {} cores, {} MiB, Linux {}",
                of(machine, "cpu"),
                of(machine, "cores"),
                of(machine, "memory_mib"),
                of(machine, "kernel")
            ),
        ),
        ("disk", format!("{} on {}", of(machine, "file_system"), of(machine, "disk"))),
        (
            "versions",
            format!(
                "{} ({} profile); rustc {}, nats-server {}, SQLite {}",
                of(versions, "revision"),
                of(versions, "profile"),
                of(versions, "rustc"),
                of(versions, "nats_server"),
                of(versions, "sqlite")
            ),
        ),
        (
            "durability",
            format!(
                "SQLite synchronous={}, JetStream sync_interval={}",
                of(durability, "sqlite_synchronous"),
                of(durability, "jetstream_sync_interval")
            ),
        ),
    ];
    let left_out: Vec<_> = PARTS.into_iter().filter(|part| results.get(part).is_none()).collect();
    if !left_out.is_empty() {
        head.push(("left out", left_out.join(", ")));
    }
    if results["quick"] == true {
        head.push(("quick", "short runs: no valid result".to_owned()));
    }
    head
}

/// Reasons of the parts that failed.
fn reasons(results: &Value) -> Vec<String> {
    let parts = results.as_object().into_iter().flatten();
    let of = |(part, result): (&String, &Value)| {
        let all = result["reasons"].as_array().cloned().unwrap_or_default();
        all.iter().map(|reason| format!("{part}: {}", text(reason))).collect::<Vec<_>>()
    };
    parts.flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks");

    fn stored(name: &str) -> String {
        std::fs::read_to_string(format!("{FOLDER}/{name}")).unwrap_or_default()
    }

    fn results() -> Value {
        serde_json::from_str(&stored("results.json")).expect("results")
    }

    #[test]
    fn stored_page_and_charts_match_stored_results() {
        for (name, made) in files(&results()).expect("JSON") {
            assert!(
                stored(&name) == made,
                "{name} does not match the stored results; write it with: \
                 cargo run --bin bench -- page docs/benchmarks/results.json docs/benchmarks"
            );
        }
    }

    fn fixture() -> Value {
        json!({
            "machine": {"cpu": "X", "cores": 2, "memory_mib": 1, "kernel": "6", "file_system": "ext4", "disk": "vd"},
            "versions": {"revision": "abc", "profile": "dist", "rustc": "1", "nats_server": "2", "sqlite": "3"},
            "durability": {"sqlite_synchronous": "FULL", "jetstream_sync_interval": "always"},
            "floor": {"fsync": {"p50_us": 500}, "store": {"events_per_s": 9}, "broker": {"sagas_per_s": 4000, "broker_cpu_us_per_saga": 7}},
            "idle": {"latency_ms": {"p50": 6.0, "p99": 9.0}, "cpu_ms_per_s": 3},
            "throughput": {
                "sustained_per_s": 1000, "reasons": ["the backlog grew"],
                "at_sustained": {"latency_ms": {"p50": 1.0, "p99": 2.0}, "cpu_ms": {"order": 500}, "completed": 1000, "rss_mib": {"order": 60.6, "bank": 40, "nats": 160.2}},
                "steps": [{"target_rate": 400, "latency_ms": {"p50": 1.0, "p99": 2.0}}],
                "closed": [{"clients": 64, "rate_in_time": 900.0, "latency_ms": {"p50": 1.0, "p99": 2.0},
                    "settings": ["order.service.min_in_flight_limit=164"]}]
            },
            "overload": {"rate": 3000, "services_rss_mib_max": 310.5, "order_rss_mib_max": 75, "rss_mib": {"order": 70, "nats": 161}, "timeline": [{"at": 0, "ended": 5, "rejected": 1, "sent": 6, "p99_ms": 4.0}]},
            "history": {"orders": 5000, "target_rate": 750, "latency_ms": {"p50": 1.0, "p99": 2.0}, "rss_mib": {"admin": 300.4, "nats": 100},
                "full_verification": {"seconds": 60.5, "orders_read": 5600}, "incremental_verification": {"seconds": 0.025, "orders_read": 0}},
            "drain": {"per_s": 7000, "queued": 9900, "settings": ["order.service.deadline=30m", "order.service.max_publish_stall=10m"]},
            "store": {"sizes": [{"batch": 1, "events_per_s": 5000, "cpu_us_per_event": 106}, {"batch": 16, "events_per_s": 38000, "cpu_us_per_event": 19}]},
            "relay": {"entries_per_s": 200_000, "cpu_us_per_entry": 1},
            "mixed": {"rate": 500, "latency_ms": {"p50": 3.0, "p99": 4.0}},
            "soak": {"rate": 500, "duration_s": 1800, "latency_ms": {"p50": 5.0, "p99": 6.0}, "services_rss_mib_first": 290, "services_rss_mib_last": 300},
            "counts": {"rate": 950, "all": {"cpu_us": 400.5, "messages": 3.986, "instructions": "not counted here"}}
        })
    }

    #[test]
    fn each_part_has_rows() {
        let files = files(&fixture()).expect("JSON");
        let page = files.into_iter().find(|(name, _)| name == "README.md").expect("a page").1;
        for row in [
            "| 64 clients that wait | 900 sagas/s, p50 1.0 ms, p99 2.0 ms | \
             22 % of the broker alone; order.service.min_in_flight_limit=164 |",
            "|   its memory, the five services | 101 MiB | the broker 160 MiB |",
            "|   memory of the five services, highest | 310.5 MiB | order 75 MiB |",
            "|   memory after it, at half of the rate | 70 MiB | the broker 161 MiB |",
            "| beside 5000 finished orders, at 750/s | p50 1.0 ms, p99 2.0 ms | memory 300 MiB |",
            "| drain after the broker's outage | 7000 sagas/s | \
             9900 orders were queued; order.service.deadline=30m; order.service.max_publish_stall=10m |",
            "| store alone, 1 per transaction | 5000 events/s | 106 µs of CPU each |",
            "| store alone, 16 per transaction | 38000 events/s | 19 µs of CPU each |",
            "| relay alone | 200000 messages/s | 1 µs of CPU each |",
            "| mixed, at 500/s | p50 3.0 ms, p99 4.0 ms |  |",
            "| soak, 1800 s at 500/s | p50 5.0 ms, p99 6.0 ms | memory 290 → 300 MiB |",
            "| counts below, taken at | 950 sagas/s | 95 % of what is sustained |",
            "| per saga: CPU µs | 400.50 |  |",
            "| per saga: messages | 3.99 |  |",
        ] {
            assert!(page.contains(row), "{row}\n{page}");
        }
        assert!(!page.contains("per saga: instructions"), "not measured: {page}");
    }

    #[test]
    fn table_and_page_name_failures_and_omitted_parts() {
        let mut results = results();
        results["throughput"]["reasons"] = json!(["the backlog grew"]);
        results.as_object_mut().expect("an object").remove("latency");
        results["quick"] = true.into();
        let page = files(&results).expect("JSON").into_iter().find(|(name, _)| name == "README.md");
        let page = page.expect("a page").1;
        for (text, failure) in [(table(&results), "NOT VALID: "), (page, "**Not valid:** ")] {
            assert!(text.contains(&format!("{failure}throughput: the backlog grew")), "{text}");
            assert!(text.contains("left out") && text.contains("no valid result"), "{text}");
        }
        assert!(!table(&json!({})).contains("sagas/s"), "no results, no rows");
    }

    #[test]
    fn parts_match_the_script() {
        let script = include_str!("../../../../../../scripts/bench.sh");
        assert!(script.contains(&format!("\nparts=({})\n", PARTS.join(" "))));
    }
}
