//! Pure: what a saga costs each service, counted, and whether that is still what was stored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What is stored: [`Figures`] as JSON.
pub const STORED: &str = include_str!("../figures.json");

/// What a scripted batch of orders costs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Orders before these.
    pub past: u64,
    /// Orders that were counted, all of them confirmed.
    pub orders: u64,
    /// Orders that go together: inputs of one transaction, messages of one publish.
    pub together: u64,
    /// What they cost in all, by service.
    pub services: BTreeMap<String, Cost>,
}

/// What the orders cost one service, in all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Inputs, by what reacts to them.
    pub inputs: BTreeMap<String, u64>,
    /// Write transactions.
    pub transactions: u64,
    /// Statements that SQLite has run inside of transactions, `BEGIN` and `COMMIT` among them, by verb and table.
    pub statements: BTreeMap<String, u64>,
    /// Pages written to the write-ahead log, by table or index.
    pub pages: BTreeMap<String, u64>,
    /// By how much the write-ahead log has grown.
    pub log_bytes: u64,
    /// By how much the database has grown.
    pub database_bytes: u64,
    /// Messages that were published, by subject.
    pub messages: BTreeMap<String, u64>,
    /// Their payloads.
    pub message_bytes: u64,
    /// Allocations of the code in Rust; SQLite's own are not among them.
    pub allocations: u64,
    /// What these asked for.
    pub allocated_bytes: u64,
}

/// What is counted of a service.
#[derive(Debug, Clone, Copy)]
pub struct Count {
    /// As people call it.
    pub name: &'static str,
    /// By how many of a thousand it may differ.
    pub tolerance: u64,
    /// Of a cost.
    pub of: fn(&Cost) -> u64,
    /// What it is made of, if that is counted apart.
    pub parts: fn(&Cost) -> Option<&BTreeMap<String, u64>>,
}

/// All that is counted. What is decided by the inputs alone may not differ. Where things lie in pages may a little; what is
/// allocated does by a thousandth from run to run, and one more for each input is five to ten.
pub const COUNTS: [Count; 9] = [
    Count { name: "inputs", tolerance: 0, of: |of| sum(&of.inputs), parts: |of| Some(&of.inputs) },
    Count { name: "transactions", tolerance: 0, of: |of| of.transactions, parts: |_| None },
    Count {
        name: "statements",
        tolerance: 0,
        of: |of| sum(&of.statements),
        parts: |of| Some(&of.statements),
    },
    Count { name: "page writes", tolerance: 20, of: |of| sum(&of.pages), parts: |of| Some(&of.pages) },
    Count { name: "bytes of the log", tolerance: 20, of: |of| of.log_bytes, parts: |_| None },
    Count { name: "bytes of the database", tolerance: 20, of: |of| of.database_bytes, parts: |_| None },
    Count { name: "messages", tolerance: 0, of: |of| sum(&of.messages), parts: |of| Some(&of.messages) },
    Count { name: "bytes of messages", tolerance: 10, of: |of| of.message_bytes, parts: |_| None },
    Count { name: "allocations", tolerance: 5, of: |of| of.allocations, parts: |_| None },
];

/// The sum of the parts.
#[must_use]
pub fn sum(parts: &BTreeMap<String, u64>) -> u64 {
    parts.values().sum()
}

/// What of the new figures is not what was stored, a sentence each.
#[must_use]
pub fn complaints(stored: &Figures, new: &Figures) -> Vec<String> {
    if (stored.past, stored.orders, stored.together) != (new.past, new.orders, new.together) {
        let of = |figures: &Figures| {
            let Figures { past, orders, together, .. } = figures;
            format!("{orders} orders, {together} together, after {past}")
        };
        return vec![format!("the figures are of {}, the batch is of {}", of(stored), of(new))];
    }
    let names: Vec<_> = stored.services.keys().chain(new.services.keys()).collect();
    let mut complaints = Vec::new();
    for (index, name) in names.iter().enumerate() {
        match (stored.services.get(*name), new.services.get(*name)) {
            (Some(before), Some(now)) if index < stored.services.len() => {
                complaints
                    .extend(COUNTS.iter().filter_map(|count| count.complaint(name, before, now, new.orders)));
            }
            (Some(_), Some(_)) => {}
            (Some(_), None) => complaints.push(format!("{name} is no more")),
            (None, _) => complaints.push(format!("{name} is new")),
        }
    }
    complaints
}

impl Count {
    fn complaint(&self, service: &str, before: &Cost, now: &Cost, orders: u64) -> Option<String> {
        let (old, new) = ((self.of)(before), (self.of)(now));
        if old.abs_diff(new).saturating_mul(1_000) <= self.tolerance.saturating_mul(old) {
            return None;
        }
        let per_saga = |count| per_saga(count, orders);
        let mut said =
            format!("{service}: {} of a saga: {}, stored are {}", self.name, per_saga(new), per_saga(old));
        if let (Some(before), Some(now)) = ((self.parts)(before), (self.parts)(now)) {
            let of = |parts: &BTreeMap<String, u64>, part: &str| parts.get(part).copied().unwrap_or(0);
            let mut parts: Vec<_> = before.keys().chain(now.keys()).collect();
            parts.sort_unstable();
            parts.dedup();
            for part in parts.into_iter().filter(|part| of(before, part) != of(now, part)) {
                let (before, now) = (per_saga(of(before, part)), per_saga(of(now, part)));
                said.push_str(&format!("\n    {part}: {now}, stored are {before}"));
            }
        }
        Some(said)
    }
}

/// The share of one saga, to a thousandth.
#[must_use]
pub fn per_saga(count: u64, orders: u64) -> String {
    let thousandths = count.saturating_mul(1_000) / orders.max(1);
    let text = format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(change: impl FnOnce(&mut Cost)) -> Figures {
        let parts =
            |parts: &[(&str, u64)]| parts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let mut cost = Cost {
            inputs: parts(&[("command", 200)]),
            transactions: 8,
            statements: parts(&[("INSERT event", 400), ("SELECT inbox", 200)]),
            pages: parts(&[("event", 100)]),
            log_bytes: 412_000,
            database_bytes: 100_000,
            messages: parts(&[("order.created", 200)]),
            message_bytes: 100_000,
            allocations: 10_000,
            allocated_bytes: 1_000_000,
        };
        change(&mut cost);
        Figures { past: 9, orders: 200, together: 50, services: [("order".to_owned(), cost)].into() }
    }

    #[test]
    fn what_differs_by_little_is_taken_and_what_differs_by_more_is_named() {
        let stored = figures(|_| {});
        assert_eq!(complaints(&stored, &stored), Vec::<String>::new());
        assert_eq!(complaints(&stored, &figures(|cost| cost.allocations = 10_050)), Vec::<String>::new());
        for allocations in [10_051, 9_949] {
            let found = complaints(&stored, &figures(|cost| cost.allocations = allocations));
            assert!(found.len() == 1 && found[0].starts_with("order: allocations of a saga: "), "{found:?}");
        }
        let dearer = figures(|cost| *cost.statements.entry("SELECT inbox".to_owned()).or_default() += 200);
        let found = complaints(&stored, &dearer);
        let wanted = "order: statements of a saga: 4, stored are 3\n    SELECT inbox: 2, stored are 1";
        assert_eq!(found, [wanted]);
    }

    #[test]
    fn every_count_is_looked_at() {
        let stored = figures(|_| {});
        let dearer = figures(|cost| {
            for parts in [&mut cost.inputs, &mut cost.statements, &mut cost.pages, &mut cost.messages] {
                parts.insert("more".to_owned(), 1_000);
            }
            (cost.transactions, cost.log_bytes, cost.database_bytes) = (9, 500_000, 200_000);
            (cost.message_bytes, cost.allocations) = (102_000, 20_000);
        });
        assert_eq!(complaints(&stored, &dearer).len(), COUNTS.len());
    }

    #[test]
    fn other_orders_and_other_services_are_no_comparison() {
        let stored = figures(|_| {});
        let found = complaints(&stored, &Figures { orders: 100, ..stored.clone() });
        assert_eq!(
            found,
            [
                "the figures are of 200 orders, 50 together, after 9, the batch is of 100 orders, 50 together, after 9"
            ]
        );
        let none = Figures { services: BTreeMap::new(), ..stored.clone() };
        assert_eq!(complaints(&stored, &none), ["order is no more"]);
        assert_eq!(complaints(&none, &stored), ["order is new"]);
    }

    #[test]
    fn a_share_is_said_to_a_thousandth() {
        let said =
            [(0, 200), (200, 200), (8, 200), (201, 200), (1, 3)].map(|(count, of)| per_saga(count, of));
        assert_eq!(said, ["0", "1", "0.04", "1.005", "0.333"]);
    }
}
