//! Pure: the resources that one saga uses in each service, and the comparison with the stored figures.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub const STORED: &str = include_str!("../figures.json");

/// Resources used by a scripted series of orders.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Orders before the counted ones.
    pub warm_up: u64,
    /// Counted orders, all of them confirmed.
    pub orders: u64,
    /// Orders per batch: inputs of one transaction, messages of one publish.
    pub batch: u64,
    pub services: BTreeMap<String, Cost>,
}

/// Total cost of the counted orders in one service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Inputs, by step, command or task kind.
    pub inputs: BTreeMap<String, u64>,
    pub transactions: u64,
    /// Statements that SQLite ran inside transactions, with `BEGIN` and `COMMIT`, by verb and table.
    pub statements: BTreeMap<String, u64>,
    /// Pages written to the write-ahead log, by table or index.
    pub pages: BTreeMap<String, u64>,
    /// Growth of the write-ahead log.
    pub log_bytes: u64,
    pub database_bytes: u64,
    pub messages: BTreeMap<String, u64>,
    pub message_bytes: u64,
    /// Allocations of Rust code, without those of SQLite.
    pub allocations: u64,
    pub allocated_bytes: u64,
}

/// A figure that is compared.
#[derive(Debug, Clone, Copy)]
pub struct Count {
    pub name: &'static str,
    /// Permitted difference from the stored figure, in thousandths.
    pub tolerance: u64,
    pub of: fn(&Cost) -> u64,
    /// Parts of the figure, if they are counted separately.
    pub parts: fn(&Cost) -> Option<&BTreeMap<String, u64>>,
}

/// All compared figures. Those that follow from the inputs alone must be equal. The layout of pages varies
/// slightly. Allocations vary by a thousandth between runs, while one more per input is five to ten
/// thousandths.
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

pub fn sum(parts: &BTreeMap<String, u64>) -> u64 {
    parts.values().sum()
}

/// Describes each difference between stored and new figures in one sentence.
pub fn differences(stored: &Figures, new: &Figures) -> Vec<String> {
    if (stored.warm_up, stored.orders, stored.batch) != (new.warm_up, new.orders, new.batch) {
        let of = |figures: &Figures| {
            let Figures { warm_up, orders, batch, .. } = figures;
            format!("{orders} orders in batches of {batch} after {warm_up} to warm up")
        };
        return vec![format!("not comparable: stored are {}, counted are {}", of(stored), of(new))];
    }
    let names: Vec<_> = stored.services.keys().chain(new.services.keys()).collect();
    let mut differences = Vec::new();
    for (index, name) in names.iter().enumerate() {
        match (stored.services.get(*name), new.services.get(*name)) {
            (Some(before), Some(now)) if index < stored.services.len() => {
                differences.extend(
                    COUNTS.iter().filter_map(|count| count.difference(name, before, now, new.orders)),
                );
            }
            (Some(_), Some(_)) => {}
            (Some(_), None) => differences.push(format!("{name}: no longer counted")),
            (None, _) => differences.push(format!("{name}: not stored yet")),
        }
    }
    differences
}

impl Count {
    fn difference(&self, service: &str, before: &Cost, now: &Cost, orders: u64) -> Option<String> {
        let (old, new) = ((self.of)(before), (self.of)(now));
        if old.abs_diff(new).saturating_mul(1_000) <= self.tolerance.saturating_mul(old) {
            return None;
        }
        let per_saga = |count| per_saga(count, orders);
        let mut text =
            format!("{service}: {} per saga: {}, stored: {}", self.name, per_saga(new), per_saga(old));
        if let (Some(before), Some(now)) = ((self.parts)(before), (self.parts)(now)) {
            let of = |parts: &BTreeMap<String, u64>, part: &str| parts.get(part).copied().unwrap_or(0);
            let mut parts: Vec<_> = before.keys().chain(now.keys()).collect();
            parts.sort_unstable();
            parts.dedup();
            for part in parts.into_iter().filter(|part| of(before, part) != of(now, part)) {
                let (before, now) = (per_saga(of(before, part)), per_saga(of(now, part)));
                text.push_str(&format!("\n    {part}: {now}, stored: {before}"));
            }
        }
        Some(text)
    }
}

/// Formats the share of one saga, to a thousandth.
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
        Figures { warm_up: 9, orders: 200, batch: 50, services: [("order".to_owned(), cost)].into() }
    }

    #[test]
    fn differences_within_tolerance_are_accepted_and_others_named() {
        let stored = figures(|_| {});
        assert_eq!(differences(&stored, &stored), Vec::<String>::new());
        assert_eq!(differences(&stored, &figures(|cost| cost.allocations = 10_050)), Vec::<String>::new());
        for allocations in [10_051, 9_949] {
            let found = differences(&stored, &figures(|cost| cost.allocations = allocations));
            assert!(found.len() == 1 && found[0].starts_with("order: allocations per saga: "), "{found:?}");
        }
        let dearer = figures(|cost| *cost.statements.entry("SELECT inbox".to_owned()).or_default() += 200);
        let found = differences(&stored, &dearer);
        let wanted = "order: statements per saga: 4, stored: 3\n    SELECT inbox: 2, stored: 1";
        assert_eq!(found, [wanted]);
    }

    #[test]
    fn every_count_is_compared() {
        let stored = figures(|_| {});
        let dearer = figures(|cost| {
            for parts in [&mut cost.inputs, &mut cost.statements, &mut cost.pages, &mut cost.messages] {
                parts.insert("more".to_owned(), 1_000);
            }
            (cost.transactions, cost.log_bytes, cost.database_bytes) = (9, 500_000, 200_000);
            (cost.message_bytes, cost.allocations) = (102_000, 20_000);
        });
        assert_eq!(differences(&stored, &dearer).len(), COUNTS.len());
    }

    #[test]
    fn figures_of_other_orders_or_services_are_not_compared() {
        let stored = figures(|_| {});
        let found = differences(&stored, &Figures { orders: 100, ..stored.clone() });
        assert_eq!(
            found,
            [
                "not comparable: stored are 200 orders in batches of 50 after 9 to warm up, counted are 100 orders in batches of 50 after 9 to warm up"
            ]
        );
        let none = Figures { services: BTreeMap::new(), ..stored.clone() };
        assert_eq!(differences(&stored, &none), ["order: no longer counted"]);
        assert_eq!(differences(&none, &stored), ["order: not stored yet"]);
    }

    #[test]
    fn share_per_saga_is_formatted_to_thousandths() {
        let shares =
            [(0, 200), (200, 200), (8, 200), (201, 200), (1, 3)].map(|(count, of)| per_saga(count, of));
        assert_eq!(shares, ["0", "1", "0.04", "1.005", "0.333"]);
    }
}
