//! Pure: the results of a run as a table for people, and as a page with charts.

#![expect(clippy::float_arithmetic, reason = "shown to people")]

use std::fmt::Write as _;

use serde_json::Value;

use crate::chart::{Series, bars, lines};
use crate::cost;

/// Of latencies, more is drawn no higher.
const HIGHEST_MS: f64 = 1_000.0;

/// A row of the table: what, how much, beside the machine's floor.
struct Row {
    what: String,
    value: String,
    beside: String,
}

/// The table, for a terminal.
pub fn table(results: &Value) -> String {
    let rows = rows(results);
    let wide = |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0);
    let (what, value) = (wide(|row| &row.what), wide(|row| &row.value));
    let mut text =
        head(results).into_iter().map(|(name, said)| format!("{name:12} {said}\n")).collect::<String>();
    text.push('\n');
    for row in &rows {
        let _ = writeln!(text, "{:what$}  {:>value$}  {}", row.what, row.value, row.beside);
    }
    for reason in reasons(results) {
        let _ = writeln!(text, "NOT VALID: {reason}");
    }
    text
}

/// The page and its charts, by file name.
pub fn files(results: &Value) -> serde_json::Result<Vec<(String, String)>> {
    let mut page = String::from(
        "# Benchmarks\n\nWritten by `scripts/bench.sh all --write`. What each part does: `scripts/bench.sh --help`.\n\
         The floor is what this machine can do without the system, in the same run: compare shares of it, not \
         numbers of different machines.\nWhat each part of a saga costs each process, and what for: \
         [budget.md](budget.md).\n\n| | |\n| --- | --- |\n",
    );
    for (name, said) in head(results) {
        let _ = writeln!(page, "| {name} | {said} |");
    }
    page.push_str("\n| what | | beside the floor |\n| --- | ---: | --- |\n");
    for row in rows(results) {
        let _ = writeln!(page, "| {} | {} | {} |", row.what, row.value, row.beside);
    }
    for reason in reasons(results) {
        let _ = writeln!(page, "\n**Not valid:** {reason}");
    }
    let mut files = Vec::new();
    for (name, svg) in charts(results) {
        let _ = writeln!(page, "\n![{name}]({name}.svg)");
        files.push((format!("{name}.svg"), svg));
    }
    files.push(("README.md".to_owned(), page));
    files.push(("budget.md".to_owned(), cost::page(&serde_json::from_str(budget::STORED)?, results)));
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
                "{}; rustc {}, nats-server {}, SQLite {}",
                of(versions, "revision"),
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
    if results["quick"] == true {
        head.push(("quick", "short runs: a trial, no result".to_owned()));
    }
    head
}

/// What each part that did not hold says against itself.
fn reasons(results: &Value) -> Vec<String> {
    let parts = results.as_object().into_iter().flatten();
    let of = |(part, result): (&String, &Value)| {
        let all = result["reasons"].as_array().cloned().unwrap_or_default();
        all.iter().map(|reason| format!("{part}: {}", text(reason))).collect::<Vec<_>>()
    };
    parts.flat_map(of).collect()
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64()
}

fn ms(of: &Value) -> String {
    match (number(&of["p50"]), number(&of["p99"])) {
        (Some(p50), Some(p99)) => format!("p50 {p50:.1} ms, p99 {p99:.1} ms"),
        _ => "not measured".to_owned(),
    }
}

fn rows(results: &Value) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row = |what: String, value: String, beside: String| rows.push(Row { what, value, beside });
    let floor = &results["floor"];
    let fsync_ms = number(&floor["fsync"]["p50_us"]).map(|us| us / 1_000.0);
    let broker = number(&floor["broker"]["sagas_per_s"]);
    let share = |rate: Option<f64>| match (rate, broker) {
        (Some(rate), Some(most)) if most > 0.0 => format!("{:.0} % of the broker alone", rate * 100.0 / most),
        _ => String::new(),
    };
    if let (Some(ms), Some(sagas)) = (fsync_ms, broker) {
        row("floor: one fsync".into(), format!("p50 {ms:.2} ms"), String::new());
        let events = text(&floor["store"]["events_per_s"]);
        row("floor: the store, 256 per transaction".into(), format!("{events} events/s"), String::new());
        let cpu = text(&floor["broker"]["broker_cpu_us_per_saga"]);
        row(
            "floor: the broker, batches of 256".into(),
            format!("{sagas:.0} sagas/s"),
            format!("{cpu} µs of its CPU per saga"),
        );
    }
    if let Some(idle) = results.get("idle") {
        let times = number(&idle["latency_ms"]["p50"]).zip(fsync_ms).map(|(p50, fsync)| p50 / fsync);
        let beside = times.map(|times| format!("{times:.1} fsyncs")).unwrap_or_default();
        row("one order at rest".into(), ms(&idle["latency_ms"]), beside);
        row(
            "CPU while nothing happens".into(),
            format!("{} ms per s", text(&idle["cpu_ms_per_s"])),
            String::new(),
        );
    }
    if let Some(throughput) = results.get("throughput") {
        let rate = number(&throughput["sustained_per_s"]);
        row("sustained, p99 ≤ 250 ms".into(), format!("{:.0} sagas/s", rate.unwrap_or(0.0)), share(rate));
        let at = &throughput["at_sustained"];
        row("  its latency".into(), ms(&at["latency_ms"]), String::new());
        row(
            "  its CPU, all processes".into(),
            format!("{} ms per saga", text(&at["cpu_ms_per_order"])),
            String::new(),
        );
        row(
            "  its memory, all processes".into(),
            format!("{} MiB", text(&at["rss_mib_total"])),
            String::new(),
        );
        for closed in throughput["closed"].as_array().into_iter().flatten() {
            let rate = number(&closed["rate_in_time"]);
            let what = format!("{} clients that wait", text(&closed["clients"]));
            row(
                what,
                format!("{:.0} sagas/s, {}", rate.unwrap_or(0.0), ms(&closed["latency_ms"])),
                share(rate),
            );
        }
    }
    for at in results["latency"]["at"].as_array().into_iter().flatten() {
        let what = format!("at {} % ({}/s)", text(&at["percent"]), text(&at["rate"]));
        row(what, ms(&at["latency_ms"]), String::new());
    }
    of_the_rest(results, &mut row);
    rows
}

fn of_the_rest(results: &Value, row: &mut impl FnMut(String, String, String)) {
    if let Some(drain) = results.get("drain") {
        let beside = format!("{} orders were queued", text(&drain["queued"]));
        row("drain after the broker's outage".into(), format!("{} sagas/s", text(&drain["per_s"])), beside);
    }
    for of in results["store"]["sizes"].as_array().into_iter().flatten() {
        let beside = format!("{} µs of CPU each", text(&of["cpu_us_per_event"]));
        row(
            format!("store alone, {} per transaction", text(&of["batch"])),
            format!("{} events/s", text(&of["events_per_s"])),
            beside,
        );
    }
    if let Some(relay) = results.get("relay") {
        let beside = format!("{} µs of CPU each", text(&relay["cpu_us_per_entry"]));
        row("relay alone".into(), format!("{} messages/s", text(&relay["entries_per_s"])), beside);
    }
    if let Some(mixed) = results.get("mixed") {
        row(format!("mixed, at {}/s", text(&mixed["rate"])), ms(&mixed["latency_ms"]), String::new());
    }
    if let Some(overload) = results.get("overload") {
        let beside = format!(
            "{} refused, p99 {} ms",
            text(&overload["shed"]),
            text(&overload["shed_latency_ms"]["p99"])
        );
        row(format!("overload, {}/s", text(&overload["rate"])), ms(&overload["latency_ms"]), beside);
        row(
            "  memory, highest".into(),
            format!("{} MiB", text(&overload["rss_mib_max"])),
            format!("order {} MiB", text(&overload["order_rss_mib_max"])),
        );
    }
    if let Some(history) = results.get("history") {
        let books = |audit: &Value| {
            format!("{} s, {} orders read", text(&audit["seconds"]), text(&audit["orders_read"]))
        };
        row(
            format!(
                "beside {} finished orders, at {}/s",
                text(&history["orders"]),
                text(&history["rate_wanted"])
            ),
            ms(&history["latency_ms"]),
            format!("memory {} MiB", text(&history["rss_mib_total"])),
        );
        row("  their books, from nothing".into(), books(&history["audit_whole"]), String::new());
        row("  their books, then".into(), books(&history["audit_again"]), String::new());
    }
    if let Some(soak) = results.get("soak") {
        let memory = format!("memory {} → {} MiB", text(&soak["rss_mib_first"]), text(&soak["rss_mib_last"]));
        row(
            format!("soak, {} s at {}/s", text(&soak["duration_s"]), text(&soak["rate"])),
            ms(&soak["latency_ms"]),
            memory,
        );
    }
    let Some(counts) = results.get("counts") else { return };
    for (name, label) in [
        ("cpu_us", "CPU µs"),
        ("switches", "context switches"),
        ("fsync", "fsyncs"),
        ("pwrite", "pwrite calls, two for a page of a write-ahead log"),
        ("write", "writes"),
        ("syscalls", "system calls"),
        ("instructions", "instructions"),
        ("transactions", "transactions"),
        ("messages", "messages"),
        ("wire_bytes", "bytes on the wire"),
        ("bytes_written", "bytes on the disk"),
    ] {
        if let Some(value) = number(&counts["all"][name]) {
            row(format!("per saga: {label}"), format!("{value:.2}"), String::new());
        }
    }
}

fn charts(results: &Value) -> Vec<(&'static str, String)> {
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
            per_process.iter().map(|(name, ms)| (name.clone(), number(ms).unwrap_or(0.0))).collect();
        let orders = number(&results["throughput"]["at_sustained"]["completed"]).unwrap_or(1.0).max(1.0);
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
            ("p99 of a refusal", "refusal_p99_ms"),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn results() -> Value {
        json!({
            "machine": {"cpu": "X", "cores": 2, "memory_mib": 1, "kernel": "6", "file_system": "ext4", "disk": "vd"},
            "versions": {"revision": "abc, dirty", "rustc": "1", "nats_server": "2", "sqlite": "3"},
            "durability": {"sqlite_synchronous": "FULL", "jetstream_sync_interval": "always"},
            "floor": {"fsync": {"p50_us": 500}, "store": {"events_per_s": 9}, "broker": {"sagas_per_s": 4000, "broker_cpu_us_per_saga": 7}},
            "idle": {"latency_ms": {"p50": 6.0, "p99": 9.0}, "cpu_ms_per_s": 3},
            "throughput": {
                "sustained_per_s": 1000, "reasons": ["orders piled up"],
                "at_sustained": {"latency_ms": {"p50": 1.0, "p99": 2.0}, "cpu_ms": {"order": 500}, "completed": 1000},
                "steps": [{"rate_wanted": 400, "latency_ms": {"p50": 1.0, "p99": 2.0}}],
                "closed": [{"clients": 64, "rate_in_time": 900.0, "latency_ms": {"p50": 1.0, "p99": 2.0}}]
            },
            "overload": {"rate": 3000, "timeline": [{"at": 0, "ended": 5, "refused": 1, "sent": 6, "p99_ms": 4.0}]},
            "history": {"orders": 5000, "rate_wanted": 750, "latency_ms": {"p50": 1.0, "p99": 2.0}, "rss_mib_total": 300.5,
                "audit_whole": {"seconds": 60.5, "orders_read": 5600}, "audit_again": {"seconds": 0.025, "orders_read": 0}}
        })
    }

    #[test]
    fn results_stand_beside_the_floor_and_what_did_not_hold_is_said() {
        let shown = table(&results());
        assert!(shown.contains("1000 sagas/s  25 % of the broker alone"), "{shown}");
        assert!(shown.contains("12.0 fsyncs") && shown.contains("SQLite synchronous=FULL"), "{shown}");
        assert!(shown.contains("beside 5000 finished orders, at 750/s"), "{shown}");
        assert!(shown.contains("60.5 s, 5600 orders read"), "{shown}");
        assert!(shown.contains("NOT VALID: throughput: orders piled up"), "{shown}");
    }

    #[test]
    fn a_page_names_its_charts() {
        let files = files(&results()).expect("JSON");
        let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
        let charts = ["latency.svg", "cpu.svg", "overload.svg", "overload-latency.svg"];
        let wanted = [&charts[..], &["README.md", "budget.md", "results.json"]].concat();
        assert_eq!(names, wanted);
        let page = &files[4].1;
        assert!(charts.iter().all(|name| page.contains(&format!("({name})"))), "{page}");
        assert!(!table(&json!({})).contains("sagas/s"), "of nothing nothing is said");
    }

    #[test]
    fn all_that_the_repository_shows_is_made_of_the_results_and_figures_that_it_stores() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks");
        let read = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).unwrap_or_default();
        let results = serde_json::from_str(&read("results.json")).expect("results");
        for (name, made) in files(&results).expect("JSON") {
            assert!(
                read(&name) == made,
                "{name} is of other results or figures; write it anew: \
                 cargo run -p bench -- page docs/benchmarks/results.json docs/benchmarks"
            );
        }
    }
}
