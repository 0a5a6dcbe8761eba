//! Pure: the budget of a saga as a page for people: what each count is of each process, and what for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use budget::{COUNTS, Cost, Figures, per_saga};
use serde_json::Value;

/// The order in which a saga comes by them.
const PROCESSES: [&str; 6] = ["order", "inventory", "payment", "bank", "admin", "nats"];

const HEAD: &str = "# What a saga costs\n\n\
    One saga is one order of two lines that is confirmed. Written with [the other results](README.md), or by \
    `cargo run --bin bench -- page docs/benchmarks/results.json docs/benchmarks`.\n\n";

const COUNTED: &str = "\n## Counted\n\n\
    The same on every machine. `tools/budget` runs a scripted batch through the real services, engines and SQLite \
    stores, one transaction after the other, and fails when these figures change; `BUDGET_UPDATE=1 cargo test -p budget` \
    stores new ones. ";

const COUNTED_HOW: &str = "Under load more go together, at rest fewer. What each transaction or publish costs is shared by \
    those that go together; all else is each saga's own. HTTP, the broker and its client are not part of it.\n";

/// What is measured of the running system: its name in the results, what people call it, and what it is for.
const MEASURED: [(&str, &str, &str); 13] = [
    ("cpu_us", "CPU µs", "all threads, in user and system"),
    ("instructions", "instructions", "as the processor counts them"),
    (
        "switches",
        "context switches",
        "between the runtime, the thread that writes the database and the kernel",
    ),
    (
        "fsyncs",
        "fsyncs",
        "one for each transaction, which may carry several batches; of the broker, one for each message that it stores, which may be a pack",
    ),
    ("syscalls", "system calls", "mostly those that are listed here, and waiting"),
    (
        "pwrite64",
        "pwrite calls",
        "two for each page of the log: its head, and itself; and one for each page that is copied back",
    ),
    (
        "reads",
        "read calls",
        "HTTP between client, order, payment and bank; the broker's messages; pages that are in no cache",
    ),
    ("writes", "write calls", "the same, the other way; the broker's files"),
    ("inputs", "inputs", "commands, messages and answers of the bank"),
    ("transactions", "transactions", "batches of inputs that were committed"),
    ("published", "messages", "taken by the broker"),
    (
        "wire_bytes",
        "bytes on the wire",
        "sent and received: HTTP, and messages with the broker's heads and acknowledgements; what one process sends, another of them receives",
    ),
    (
        "bytes_written",
        "bytes on the disk",
        "pages of the log, and pages copied back to the database; the broker's streams",
    ),
];

/// Milliseconds between two batches of a service, while storing one takes long: the default of `engine.max_batch_delay`.
const APART_MS: u64 = 20;
/// Who syncs for each batch: order, inventory, payment and bank; and the broker, for what three of these publish.
const SYNCS_PER_BATCH: u64 = 7;

/// The page.
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
         page. Nothing is held against it, as no two machines and no two moments are the same.\n",
        counts["rate"]
    );
    let processes: Vec<_> = PROCESSES.into_iter().filter(|name| each.contains_key(*name)).collect();
    let _ = writeln!(
        page,
        "| per saga | {} | all | what for |\n| --- |{} ---: | --- |",
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

/// What keeps these from falling further.
fn limits(page: &mut String, rate: u64) {
    let Some(of_a_hundred) = (100 * SYNCS_PER_BATCH * 1_000 / APART_MS).checked_div(rate) else { return };
    let _ = writeln!(
        page,
        "\n### What limits that\n\n\
         - fsyncs: a service syncs for each transaction, and the broker for each pack. Both come as often as batches begin, \
         which is each {APART_MS} ms where storing one takes long (`engine.max_batch_delay`): {of_a_hundred} for a hundred sagas at this \
         rate, and more while storing takes less. Further apart there are fewer, and each hop of a saga waits longer by half \
         of that.\n\
         - context switches: the runtime of the broker parks its threads at each sync, and when a connection has nothing to \
         read, which is most of the broker's. Those of the services come with each batch, and with each HTTP request of the \
         client and to the bank; when all that run want both cores, they take turns, which is what is involuntary.\n\
         - the books from nothing: every row of every service is folded from its events and compared, and the ledgers are laid \
         beside each other. With a million orders that takes 41 µs of processor time an order, and both cores whole: 17 of \
         admin, which folds the views and reads four ledgers, 7 each of order and the bank, 5 each of inventory and payment. No \
         function takes more than 6 %: copying between pages and buffers takes 10 % in all, the steps of SQLite 8 %, JSON 8 %, \
         comparing 3 %. Five million orders in a minute would be 24 µs, or a third core."
    );
}

/// A count of a process, which may be the sum of several.
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
    let said = |parts: &BTreeMap<String, u64>| {
        let parts: Vec<_> =
            parts.iter().map(|(name, count)| format!("{} {name}", per_saga(*count, orders))).collect();
        parts.join(", ")
    };
    let _ = writeln!(page, "Inputs: {}.", said(&cost.inputs));
    if !cost.messages.is_empty() {
        let _ = writeln!(page, "Messages: {}.", said(&cost.messages));
    }
    let inputs = budget::sum(&cost.inputs).max(1);
    let _ = writeln!(
        page,
        "Allocations: {} for each input, with what it says and what is published of that.\n",
        cost.allocations / inputs
    );
    let tables: BTreeSet<&str> =
        cost.statements.keys().filter_map(|name| Some(name.split_once(' ')?.1)).collect();
    page.push_str("| statement | per saga | what for |\n| --- | ---: | --- |\n");
    for (name, count) in &cost.statements {
        let _ = writeln!(page, "| {name} | {} | {} |", per_saga(*count, orders), of_statement(name));
    }
    page.push_str("\n| pages of | per saga | what for |\n| --- | ---: | --- |\n");
    for (name, count) in &cost.pages {
        let _ = writeln!(page, "| {name} | {} | {} |", per_saga(*count, orders), of_page(name, &tables));
    }
}

/// What a statement is for, by its verb and table.
fn of_statement(name: &str) -> &'static str {
    match name.split_once(' ').unwrap_or((name, "")) {
        ("BEGIN" | "COMMIT", _) => "one of each transaction: one for each batch, one for each publish",
        ("SELECT", "purged_before") => "of each batch: sagas so old that their rows may have been purged",
        ("SELECT", "retry") => {
            "one of each transaction that handles messages: whether any waits or is parked, so that each is looked for there"
        }
        ("SELECT", "inbox") => {
            "of each message: whether its step has had it, tries it again, or has parked it"
        }
        ("SELECT", "idempotency_key") => "of each command with a key: whether it was answered",
        ("SELECT", "task") => "of each answer of a call: whether its task is still claimed as it was",
        ("SELECT", "dead_letter") => "of each command of an operator: the dead letter",
        ("SELECT", "outbox") => "of each batch that promises anything: whether something stands out of line",
        ("SELECT", "lease") => "of each publish: whether the relay still holds its lease",
        ("SELECT", "publication") => "of each publish: up to where everything is published",
        ("INSERT", "event") => "each event: the history, of which each row is the fold",
        ("INSERT", "inbox") => "each message that was handled: if it comes again, it is known",
        ("INSERT", "outbox") => "each message that is promised",
        ("INSERT", "publication") => "of each publish: up to where everything is published now",
        ("INSERT", "message_count") => {
            "lifetime counts: messages handled, by step and batch; published, by subject and publish"
        }
        ("INSERT", "task") => "each call that is to be made",
        ("DELETE", "task") => "each call that was answered",
        ("INSERT", "idempotency_key") => "each command with a key: its answer",
        ("SELECT", table) if table.starts_with("row_") => {
            "each row that inputs of the batch name, there or not, once"
        }
        ("INSERT", table) if table.starts_with("row_") => "each new row",
        ("UPDATE", table) if table.starts_with("row_") => "each row that the batch has changed, once",
        _ => "",
    }
}

/// What the pages of a table or index are for; `tables` are those that statements name.
fn of_page(name: &str, tables: &BTreeSet<&str>) -> &'static str {
    match name {
        "the first page" => "how many commits there were: once for each",
        "free" => "what became empty",
        "event" => "the history, one event behind the other",
        "event_by_row" => "where the events of a row are",
        "inbox" => "marks, by step and message: those of one time lie together",
        "outbox" => "messages, one behind the other",
        "publication" | "publication_by_time" => "one row for each publish",
        "message_count" => "a few rows, which fit in one page",
        "task" | "task_by_time" => "calls under way: a page or two",
        "idempotency_key" | "idempotency_key_by_time" => "answers to commands with a key",
        _ if tables.contains(name) => "rows, by id",
        _ if name.starts_with("row_") => "an index of rows: by a field, or by when they are due",
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
    fn everything_that_a_saga_costs_is_for_something() {
        for (service, cost) in stored().services {
            let tables = cost.statements.keys().filter_map(|name| Some(name.split_once(' ')?.1)).collect();
            let statements = cost.statements.keys().filter(|name| of_statement(name).is_empty());
            let pages = cost.pages.keys().filter(|name| of_page(name, &tables).is_empty());
            let unsaid: Vec<_> = statements.chain(pages).collect();
            assert!(unsaid.is_empty(), "{service}: nobody has said what these are for: {unsaid:?}");
        }
    }

    #[test]
    fn batches_are_as_far_apart_as_the_engine_has_it() {
        let settings = saga_engine::host::settings::EngineSettings::default();
        assert_eq!(settings.max_batch_delay, std::time::Duration::from_millis(APART_MS));
    }

    #[test]
    fn what_the_machine_does_not_count_is_said() {
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
        assert!(page.contains("5000 for a hundred sagas at this rate"), "{page}");
        assert!(!page.contains("| fsyncs"), "not measured: {page}");
        assert!(!super::page(&stored(), &json!({})).contains("## Measured"));
    }
}
