//! Pure: the budget of a saga as a page: the counts of each process, with their purpose.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use budget::{COUNTS, Cost, Figures, per_saga};
use serde_json::Value;

/// Processes in the order of a saga.
const PROCESSES: [&str; 6] = ["order", "inventory", "payment", "bank", "admin", "nats"];

const HEAD: &str = "# Cost of a saga\n\n\
    One saga is one confirmed order with two lines. Written with [the other results](README.md), or by \
    `cargo run --bin bench -- page docs/benchmarks/results.json docs/benchmarks`.\n\n";

const COUNTED: &str = "\n## Counted\n\n\
    These counts are the same on every machine. `tools/budget` runs a scripted batch through the real services, engines and \
    SQLite stores, one transaction after the other. It fails if they change; `BUDGET_UPDATE=1 cargo test -p budget` stores \
    new ones. ";

const COUNTED_HOW: &str = "Batches are larger under load and smaller at rest. The sagas of a batch share the cost of its transactions and \
    publishes; all other costs are per saga. HTTP, the broker and its client are not included.\n";

/// Measurements of the running system: name in the results, label, purpose.
const MEASURED: [(&str, &str, &str); 13] = [
    ("cpu_us", "CPU µs", "all threads, user and system time"),
    ("instructions", "instructions", "hardware counter"),
    ("switches", "context switches", "between the runtime, the writer thread of the database and the kernel"),
    (
        "fsyncs",
        "fsyncs",
        "services: one per transaction, which may contain several batches; broker: one per stored message, which may be a pack",
    ),
    ("syscalls", "system calls", "mostly those listed here, and waiting"),
    (
        "pwrite64",
        "pwrite calls",
        "two per page of the log (header and content), one per page that is checkpointed",
    ),
    ("reads", "read calls", "HTTP between client, order, payment and bank; messages; uncached pages"),
    ("writes", "write calls", "the same in the other direction; files of the broker"),
    ("inputs", "inputs", "commands, messages and task results"),
    ("transactions", "transactions", "committed batches of inputs"),
    ("published", "messages", "accepted by the broker"),
    (
        "wire_bytes",
        "bytes on the wire",
        "sent and received: HTTP, messages with headers and acknowledgements; each byte counts in two processes",
    ),
    ("bytes_written", "bytes on the disk", "pages of the log, checkpointed pages, streams of the broker"),
];

/// Default of `engine.max_batch_delay`.
const BATCH_DELAY_MS: u64 = 20;
/// Syncs per batch: by order, inventory, payment and bank, and by the broker for three of these.
const SYNCS_PER_BATCH: u64 = 7;

pub fn page(figures: &Figures, results: &Value) -> String {
    let mut page = String::from(HEAD);
    measured(&mut page, results);
    page.push_str(COUNTED);
    let Figures { warm_up, orders, batch, .. } = figures;
    let orders = *orders;
    let _ = writeln!(
        page,
        "Here {orders} orders in batches of {batch}, after {warm_up} to warm up.\n{COUNTED_HOW}"
    );
    let of_all = |cost: fn(&Cost) -> u64| figures.services.values().map(cost).sum::<u64>();
    let services: Vec<_> =
        PROCESSES.into_iter().filter(|name| figures.services.contains_key(*name)).collect();
    let _ = writeln!(
        page,
        "| per saga | {} | all |\n| --- |{} ---: |",
        services.join(" | "),
        " ---: |".repeat(services.len())
    );
    for count in &COUNTS {
        let each: Vec<_> =
            services.iter().map(|name| per_saga((count.of)(&figures.services[*name]), orders)).collect();
        let _ = writeln!(
            page,
            "| {} | {} | {} |",
            count.name,
            each.join(" | "),
            per_saga(of_all(count.of), orders)
        );
    }
    for name in services {
        let _ = writeln!(page, "\n### {name}\n");
        of_service(&mut page, &figures.services[name], orders);
    }
    page
}

fn measured(page: &mut String, results: &Value) {
    let counts = &results["counts"];
    let Some(each) = counts["each"].as_object() else { return };
    let _ = writeln!(
        page,
        "## Measured\n\n`scripts/bench.sh counts`: of the running system, at {} orders per second, on the machine of that \
         page. No test checks them, as they vary between machines and runs.\n",
        counts["rate"]
    );
    let processes: Vec<_> = PROCESSES.into_iter().filter(|name| each.contains_key(*name)).collect();
    let _ = writeln!(
        page,
        "| per saga | {} | all | purpose |\n| --- |{} ---: | --- |",
        processes.join(" | "),
        " ---: |".repeat(processes.len())
    );
    for (name, label, purpose) in MEASURED {
        let of_each: Vec<_> = processes.iter().map(|process| of_process(&each[*process], name)).collect();
        if of_each.iter().all(Option::is_none) {
            if let Some(why) = counts["all"][name].as_str() {
                let _ = writeln!(page, "| {label} |{} {why} | {purpose} |", " |".repeat(processes.len()));
            }
            continue;
        }
        let all = of_each.iter().flatten().sum();
        let of_each: Vec<_> = of_each.into_iter().map(|of| of.map_or_else(String::new, shown)).collect();
        let _ = writeln!(page, "| {label} | {} | {} | {purpose} |", of_each.join(" | "), shown(all));
    }
    limits(page, counts["rate"].as_u64().unwrap_or_default());
}

/// Lower bounds of the measurements.
fn limits(page: &mut String, rate: u64) {
    let Some(of_a_hundred) = (100 * SYNCS_PER_BATCH * 1_000 / BATCH_DELAY_MS).checked_div(rate) else {
        return;
    };
    let _ = writeln!(
        page,
        "\n### Limits\n\n\
         - fsyncs: a service syncs per transaction, and the broker per pack, so both follow the batches. With slow commits \
         these start every {BATCH_DELAY_MS} ms (`engine.max_batch_delay`): {of_a_hundred} fsyncs per hundred sagas at this \
         rate, and more with fast commits. A longer delay saves fsyncs, and adds half of itself to each hop of a saga.\n\
         - context switches: the broker parks threads at each sync and whenever a connection has nothing to read, which are \
         most of its switches. Services switch with each batch and each HTTP request of the client and to the bank. \
         Involuntary switches happen when more threads are runnable than there are cores.\n\
         - full verification: every row of every service is folded from its events and compared, and the ledgers are \
         compared. With a million orders that takes 41 µs of processor time per order on both cores: 17 in admin, which folds \
         the views and reads four ledgers, 7 each in order and bank, 5 each in inventory and payment. No function takes more \
         than 6 %: copies between pages and buffers take 10 % in all, SQLite 8 %, JSON 8 %, comparisons 3 %. Five million \
         orders in a minute would need 24 µs per order, or a third core."
    );
}

/// Count of a process, which may be the sum of several.
fn of_process(counts: &Value, name: &str) -> Option<f64> {
    let parts: &[&str] = match name {
        "switches" => &["switches_voluntary", "switches_involuntary"],
        "fsyncs" => &["fsync", "fdatasync"],
        "reads" => &["read", "recvfrom", "pread64"],
        "writes" => &["write", "writev", "sendto"],
        _ => &[name],
    };
    let found: Vec<f64> = parts.iter().filter_map(|part| counts[*part].as_f64()).collect();
    (!found.is_empty()).then(|| found.into_iter().sum())
}

fn shown(value: f64) -> String {
    if value < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

fn of_service(page: &mut String, cost: &Cost, orders: u64) {
    let list = |parts: &BTreeMap<String, u64>| {
        let parts: Vec<_> =
            parts.iter().map(|(name, count)| format!("{} {name}", per_saga(*count, orders))).collect();
        parts.join(", ")
    };
    let _ = writeln!(page, "Inputs: {}.", list(&cost.inputs));
    if !cost.messages.is_empty() {
        let _ = writeln!(page, "Messages: {}.", list(&cost.messages));
    }
    let inputs = budget::sum(&cost.inputs).max(1);
    let _ = writeln!(
        page,
        "Allocations: {} per input, including its payload and the published messages.\n",
        cost.allocations / inputs
    );
    let tables: BTreeSet<&str> =
        cost.statements.keys().filter_map(|name| Some(name.split_once(' ')?.1)).collect();
    page.push_str("| statement | per saga | purpose |\n| --- | ---: | --- |\n");
    for (name, count) in &cost.statements {
        let _ = writeln!(page, "| {name} | {} | {} |", per_saga(*count, orders), of_statement(name));
    }
    page.push_str("\n| pages of | per saga | purpose |\n| --- | ---: | --- |\n");
    for (name, count) in &cost.pages {
        let _ = writeln!(page, "| {name} | {} | {} |", per_saga(*count, orders), of_page(name, &tables));
    }
}

/// Purpose of a statement, by its verb and table.
fn of_statement(name: &str) -> &'static str {
    match name.split_once(' ').unwrap_or((name, "")) {
        ("BEGIN" | "COMMIT", _) => "one per transaction: one per batch, one per publish",
        ("SELECT", "event") => {
            "per batch: whether the database is still the one that was opened, and no older copy of it"
        }
        ("SELECT", "purged_before") => "per batch: whether rows of its sagas may have been purged",
        ("SELECT", "retry") => {
            "per transaction with messages: whether any message waits for a retry or is dead-lettered"
        }
        ("SELECT", "inbox") => {
            "per message: whether its step has processed it, retries it or dead-lettered it"
        }
        ("SELECT", "idempotency_key") => "per command with a key: whether it was answered",
        ("SELECT", "task") => "per task result: whether the task is still claimed by its lease",
        ("SELECT", "dead_letter") => "per operator command: the dead letter",
        ("SELECT", "outbox") => "per batch with outbox entries: whether an entry is out of sequence",
        ("SELECT", "lease") => "per publish: whether the relay still holds its lease",
        ("INSERT", "event") => "per event: the history, which folds to the row",
        ("INSERT", "inbox") => "per processed message: detection of duplicates",
        ("INSERT", "outbox") => "per message to publish",
        ("INSERT", "publication") => "per publish: the new sequence",
        ("INSERT", "message_count") => {
            "lifetime counts: processed messages per step and batch, published messages per subject and publish"
        }
        ("INSERT", "task") => "per new task",
        ("DELETE", "task") => "per completed task",
        ("INSERT", "idempotency_key") => "per command with a key: its answer",
        ("SELECT", table) if table.starts_with("row_") => "per row that the inputs of the batch name",
        ("INSERT", table) if table.starts_with("row_") => "per new row",
        ("UPDATE", table) if table.starts_with("row_") => "per row that the batch has changed",
        _ => "",
    }
}

/// Purpose of the pages of a table or index; `tables` are those that statements name.
fn of_page(name: &str, tables: &BTreeSet<&str>) -> &'static str {
    match name {
        "the first page" => "commit counter, once per commit",
        "free" => "freed pages",
        "event" => "history, appended",
        "event_by_row" => "index of the events of a row",
        "inbox" => "inbox entries by step and message; those of one time are adjacent",
        "outbox" => "messages, appended",
        "publication" | "publication_by_time" => "one row per publish",
        "message_count" => "a few rows in one page",
        "task" | "task_by_time" => "open tasks, a page or two",
        "idempotency_key" | "idempotency_key_by_time" => "answers to commands with a key",
        _ if tables.contains(name) => "rows by id",
        _ if name.starts_with("row_") => "index of rows by a field or by due time",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stored() -> Figures {
        serde_json::from_str(budget::STORED).expect("the stored figures")
    }

    #[test]
    fn every_cost_has_a_purpose() {
        for (service, cost) in stored().services {
            let tables = cost.statements.keys().filter_map(|name| Some(name.split_once(' ')?.1)).collect();
            let statements = cost.statements.keys().filter(|name| of_statement(name).is_empty());
            let pages = cost.pages.keys().filter(|name| of_page(name, &tables).is_empty());
            let missing: Vec<_> = statements.chain(pages).collect();
            assert!(missing.is_empty(), "{service}: without a purpose: {missing:?}");
        }
    }

    #[test]
    fn batch_delay_matches_the_engine() {
        let settings = saga_engine::host::settings::EngineSettings::default();
        assert_eq!(settings.max_batch_delay, std::time::Duration::from_millis(BATCH_DELAY_MS));
    }

    #[test]
    fn counts_that_the_machine_lacks_are_marked() {
        let results = json!({"counts": {"rate": 7, "all": {"instructions": "not counted here"}, "each": {
            "order": {"cpu_us": 2.5, "switches_voluntary": 1.0, "switches_involuntary": 0.5, "wire_bytes": 1234.5},
            "nats": {"cpu_us": 1.0}
        }}});
        let page = page(&stored(), &results);
        assert!(page.contains("at 7 orders per second"), "{page}");
        assert!(page.contains("| CPU µs | 2.50 | 1.00 | 3.50 | "), "{page}");
        assert!(page.contains("| context switches | 1.50 |  | 1.50 | "), "{page}");
        assert!(page.contains("| bytes on the wire | 1234 |  | 1234 | "), "{page}");
        assert!(page.contains("| instructions | | | not counted here | "), "{page}");
        assert!(page.contains("5000 fsyncs per hundred sagas at this"), "{page}");
        assert!(!page.contains("| fsyncs"), "not measured: {page}");
        assert!(!super::page(&stored(), &json!({})).contains("## Measured"));
    }
}
