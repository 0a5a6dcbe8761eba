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
