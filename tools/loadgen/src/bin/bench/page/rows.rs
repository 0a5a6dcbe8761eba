//! Pure: rows of the table.

#![expect(clippy::float_arithmetic, reason = "shown to people")]

use serde_json::Value;

use super::text;

/// Row of the table: name, value, comparison with the floor.
pub struct Row {
    pub what: String,
    pub value: String,
    pub beside: String,
}

fn row(what: impl Into<String>, value: impl Into<String>, beside: impl Into<String>) -> Row {
    Row { what: what.into(), value: value.into(), beside: beside.into() }
}

/// Limits of the machine without the system, if they were measured.
struct Floor {
    fsync_ms: Option<f64>,
    sagas_per_s: Option<f64>,
}

impl Floor {
    fn of(results: &Value) -> Self {
        let floor = &results["floor"];
        Self {
            fsync_ms: number(&floor["fsync"]["p50_us"]).map(|us| us / 1_000.0),
            sagas_per_s: number(&floor["broker"]["sagas_per_s"]),
        }
    }

    /// Rate as a share of that of the broker alone.
    fn share(&self, rate: Option<f64>) -> String {
        match rate.zip(self.sagas_per_s) {
            Some((rate, most)) if most > 0.0 => format!("{:.0} % of the broker alone", rate * 100.0 / most),
            _ => String::new(),
        }
    }
}

/// Rows of the parts that have results.
pub fn rows(results: &Value) -> Vec<Row> {
    let parts: [fn(&Value, &Floor) -> Vec<Row>; 11] =
        [of_floor, idle, throughput, latency, drain, alone, mixed, overload, history, soak, counts];
    let floor = Floor::of(results);
    parts.into_iter().flat_map(|part| part(results, &floor)).collect()
}

fn of_floor(results: &Value, floor: &Floor) -> Vec<Row> {
    let Some((ms, sagas)) = floor.fsync_ms.zip(floor.sagas_per_s) else { return Vec::new() };
    let (store, broker) = (&results["floor"]["store"], &results["floor"]["broker"]);
    vec![
        row("floor: one fsync", format!("p50 {ms:.2} ms"), ""),
        row(
            "floor: the store, 256 per transaction",
            format!("{} events/s", text(&store["events_per_s"])),
            "",
        ),
        row(
            "floor: the broker, batches of 256",
            format!("{sagas:.0} sagas/s"),
            format!("{} µs of its CPU per saga", text(&broker["broker_cpu_us_per_saga"])),
        ),
    ]
}

fn idle(results: &Value, floor: &Floor) -> Vec<Row> {
    let Some(idle) = results.get("idle") else { return Vec::new() };
    let times = number(&idle["latency_ms"]["p50"]).zip(floor.fsync_ms).map(|(p50, fsync)| p50 / fsync);
    vec![
        row(
            "one order at rest",
            ms(&idle["latency_ms"]),
            times.map(|times| format!("{times:.1} fsyncs")).unwrap_or_default(),
        ),
        row("CPU while nothing happens", format!("{} ms per s", text(&idle["cpu_ms_per_s"])), ""),
    ]
}

fn throughput(results: &Value, floor: &Floor) -> Vec<Row> {
    let Some(throughput) = results.get("throughput") else { return Vec::new() };
    let rate = number(&throughput["sustained_per_s"]);
    let at = &throughput["at_sustained"];
    let mut rows = vec![
        row("sustained, p99 ≤ 250 ms", format!("{:.0} sagas/s", rate.unwrap_or(0.0)), floor.share(rate)),
        row("  its latency", ms(&at["latency_ms"]), ""),
        row("  its CPU, all processes", format!("{} ms per saga", text(&at["cpu_ms_per_order"])), ""),
        row(
            "  its memory, the five services",
            services_memory(&at["rss_mib"]),
            broker_memory(&at["rss_mib"]),
        ),
    ];
    rows.extend(list(&throughput["closed"]).iter().map(|closed| {
        let rate = number(&closed["rate_in_time"]);
        row(
            format!("{} clients that wait", text(&closed["clients"])),
            format!("{:.0} sagas/s, {}", rate.unwrap_or(0.0), ms(&closed["latency_ms"])),
            beside(floor.share(rate), closed),
        )
    }));
    rows
}

fn latency(results: &Value, _floor: &Floor) -> Vec<Row> {
    let at = list(&results["latency"]["at"]).iter();
    at.map(|at| {
        row(format!("at {} % ({}/s)", text(&at["percent"]), text(&at["rate"])), ms(&at["latency_ms"]), "")
    })
    .collect()
}

fn drain(results: &Value, _floor: &Floor) -> Vec<Row> {
    let Some(drain) = results.get("drain") else { return Vec::new() };
    vec![row(
        "drain after the broker's outage",
        format!("{} sagas/s", text(&drain["per_s"])),
        beside(format!("{} orders were queued", text(&drain["queued"])), drain),
    )]
}

fn alone(results: &Value, _floor: &Floor) -> Vec<Row> {
    let of_store = |of: &Value, what: &str, whose: &str| {
        row(
            format!("{what}, {} per transaction", text(&of["batch"])),
            format!("{} events/s", text(&of["events_per_s"])),
            format!("{} µs of CPU each{whose}", text(&of["cpu_us_per_event"])),
        )
    };
    let sqlite = list(&results["store"]["sizes"]).iter();
    let postgres = list(&results["store"]["postgres"]).iter();
    let store = sqlite
        .map(|of| of_store(of, "store alone", ""))
        .chain(postgres.map(|of| of_store(of, "store on PostgreSQL", ", without the server's")));
    let relay = results.get("relay").map(|relay| {
        row(
            "relay alone",
            format!("{} messages/s", text(&relay["entries_per_s"])),
            format!("{} µs of CPU each", text(&relay["cpu_us_per_entry"])),
        )
    });
    store.chain(relay).collect()
}

fn mixed(results: &Value, _floor: &Floor) -> Vec<Row> {
    let Some(mixed) = results.get("mixed") else { return Vec::new() };
    vec![row(format!("mixed, at {}/s", text(&mixed["rate"])), ms(&mixed["latency_ms"]), "")]
}

fn overload(results: &Value, _floor: &Floor) -> Vec<Row> {
    let Some(overload) = results.get("overload") else { return Vec::new() };
    let (shed, shed_p99_ms) = (text(&overload["shed"]), text(&overload["shed_latency_ms"]["p99"]));
    let mut rows = vec![row(
        format!("overload, {}/s", text(&overload["rate"])),
        ms(&overload["latency_ms"]),
        format!("{shed} rejected, p99 {shed_p99_ms} ms"),
    )];
    rows.extend(number(&overload["services_rss_mib_max"]).map(|most| {
        row(
            "  memory of the five services, highest",
            format!("{most} MiB"),
            format!("order {} MiB", text(&overload["order_rss_mib_max"])),
        )
    }));
    rows.push(row(
        "  memory after it, at half of the rate",
        services_memory(&overload["rss_mib"]),
        broker_memory(&overload["rss_mib"]),
    ));
    rows
}

fn history(results: &Value, _floor: &Floor) -> Vec<Row> {
    let Some(history) = results.get("history") else { return Vec::new() };
    let (orders, rate) = (text(&history["orders"]), text(&history["target_rate"]));
    let verification =
        |of: &Value| format!("{} s, {} orders read", text(&of["seconds"]), text(&of["orders_read"]));
    vec![
        row(
            format!("beside {orders} finished orders, at {rate}/s"),
            ms(&history["latency_ms"]),
            format!("memory {}", services_memory(&history["rss_mib"])),
        ),
        row("  full verification of them", verification(&history["full_verification"]), ""),
        row("  incremental verification after that", verification(&history["incremental_verification"]), ""),
    ]
}

fn soak(results: &Value, _floor: &Floor) -> Vec<Row> {
    let Some(soak) = results.get("soak") else { return Vec::new() };
    let rejected = match number(&soak["shed"]) {
        Some(shed) => format!("; {shed:.0} of {} orders rejected", text(&soak["started"])),
        None => String::new(),
    };
    vec![row(
        format!("soak, {} s at {}/s", text(&soak["duration_s"]), text(&soak["rate"])),
        ms(&soak["latency_ms"]),
        match (number(&soak["services_rss_mib_first"]), number(&soak["services_rss_mib_last"])) {
            (Some(first), Some(last)) => format!("memory {first} → {last} MiB{rejected}"),
            _ => String::new(),
        },
    )]
}

/// Costs of a saga: name in the results, label.
const COUNTS: [(&str, &str); 11] = [
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
];

fn counts(results: &Value, _floor: &Floor) -> Vec<Row> {
    let counts = &results["counts"];
    let Some(rate) = number(&counts["rate"]) else { return Vec::new() };
    let most = number(&results["throughput"]["sustained_per_s"]).filter(|most| *most > 0.0);
    let share = most.map(|most| format!("{:.0} % of what is sustained", rate * 100.0 / most));
    let mut rows =
        vec![row("counts below, taken at", format!("{rate:.0} sagas/s"), share.unwrap_or_default())];
    rows.extend(COUNTS.into_iter().filter_map(|(name, label)| {
        Some(row(format!("per saga: {label}"), format!("{:.2}", number(&counts["all"][name])?), ""))
    }));
    rows
}

/// Comparison, followed by settings that differ from the defaults.
fn beside(comparison: String, of: &Value) -> String {
    let settings = list(&of["settings"]).iter().map(text);
    let all: Vec<_> = [comparison].into_iter().chain(settings).filter(|text| !text.is_empty()).collect();
    all.join("; ")
}

/// Memory of all processes except the broker.
fn services_memory(rss_mib: &Value) -> String {
    let services = rss_mib.as_object().into_iter().flatten().filter(|(process, _)| *process != "nats");
    format!("{:.0} MiB", services.filter_map(|(_, mib)| number(mib)).sum::<f64>())
}

fn broker_memory(rss_mib: &Value) -> String {
    format!("the broker {:.0} MiB", number(&rss_mib["nats"]).unwrap_or(0.0))
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn ms(of: &Value) -> String {
    match number(&of["p50"]).zip(number(&of["p99"])) {
        Some((p50, p99)) => format!("p50 {p50:.1} ms, p99 {p99:.1} ms"),
        None => "not measured".to_owned(),
    }
}
