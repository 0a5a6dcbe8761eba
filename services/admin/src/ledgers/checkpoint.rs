//! Pure: the last checkpoint: the totals of a reconciliation in which all orders had ended and all ledgers agreed, and the
//! history position of each service. An incremental verification reads only what has changed since.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use jiff::Timestamp;
use saga_core::decider::{Decider, RetentionPolicy};
use saga_core::ids::first_at;
use saga_core::service_stats::HistoryPosition;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Id of the only row.
pub const CHECKPOINT: &str = "last";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// History position of each service, by name. The totals include everything up to it.
    pub positions: BTreeMap<String, HistoryPosition>,
    pub at: Timestamp,
    /// Time of the last checkpoint after a full verification.
    pub full_at: Timestamp,
    pub orders: OrderTotals,
    /// Totals of reservations, by SKU.
    pub skus: BTreeMap<String, SkuTotals>,
    /// Manually resolved orders. Every verification reads them again.
    pub resolved: BTreeSet<String>,
}

impl Checkpoint {
    /// True if the saga started after the checkpoint.
    pub fn is_before(&self, saga: Uuid) -> bool {
        first_at(self.at).is_none_or(|first| saga >= first)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderTotals {
    pub orders: u64,
    pub pending: u64,
    pub confirmed: u64,
    pub cancelled: u64,
    pub captured: u64,
    pub refunded: u64,
}

/// Totals of one product in reservations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkuTotals {
    pub held: u64,
    /// Sold pieces, those of purged reservations included.
    pub sold: u64,
}

/// Event: a new checkpoint, with only those products whose totals changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointSet {
    positions: BTreeMap<String, HistoryPosition>,
    at: Timestamp,
    full_at: Timestamp,
    orders: OrderTotals,
    skus: BTreeMap<String, SkuTotals>,
    gone: BTreeSet<String>,
    resolved: BTreeSet<String>,
}

impl Decider for Checkpoint {
    const KIND: &'static str = "reconciliation_checkpoint";
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeEvents;
    type Command = Self;
    type Event = CheckpointSet;
    type Rejection = Infallible;

    fn decide(&self, new: &Self) -> Result<Vec<CheckpointSet>, Infallible> {
        let is_news = new.positions != self.positions || new.full_at != self.full_at;
        if new.at < self.at || !is_news {
            return Ok(vec![]);
        }
        let differs = |(sku, pieces): &(&String, &SkuTotals)| self.skus.get(*sku) != Some(*pieces);
        let skus = new.skus.iter().filter(differs).map(|(sku, pieces)| (sku.clone(), *pieces)).collect();
        let is_gone = |sku: &&String| !new.skus.contains_key(*sku);
        Ok(vec![CheckpointSet {
            positions: new.positions.clone(),
            at: new.at,
            full_at: new.full_at,
            orders: new.orders,
            skus,
            gone: self.skus.keys().filter(is_gone).cloned().collect(),
            resolved: new.resolved.clone(),
        }])
    }

    fn evolve(&mut self, set: &CheckpointSet) {
        self.positions.clone_from(&set.positions);
        (self.at, self.full_at, self.orders) = (set.at, set.full_at, set.orders);
        self.skus.retain(|sku, _| !set.gone.contains(sku));
        self.skus.extend(set.skus.iter().map(|(sku, pieces)| (sku.clone(), *pieces)));
        self.resolved.clone_from(&set.resolved);
    }

    fn event_name(_: &CheckpointSet) -> &'static str {
        "CheckpointSet"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(second: i64, skus: &[(&str, u64)]) -> Checkpoint {
        let place = HistoryPosition { event: second, ..HistoryPosition::default() };
        let at = Timestamp::from_second(second).unwrap_or_default();
        let skus = skus.iter().map(|(sku, sold)| ((*sku).to_owned(), SkuTotals { held: 0, sold: *sold }));
        Checkpoint {
            positions: BTreeMap::from([("order".to_owned(), place)]),
            at,
            full_at: at,
            skus: skus.collect(),
            ..Checkpoint::default()
        }
    }

    fn set(last: &mut Checkpoint, new: &Checkpoint) -> Vec<CheckpointSet> {
        let Ok(events) = last.decide(new);
        events.iter().for_each(|event| last.evolve(event));
        events
    }

    #[test]
    fn checkpoint_event_holds_only_changed_products() {
        let mut last = Checkpoint::default();
        let (first, second) =
            (checkpoint(1, &[("mug", 1), ("tea", 2)]), checkpoint(2, &[("tea", 3), ("urn", 1)]));
        set(&mut last, &first);
        assert_eq!(last, first);
        let [event] = &set(&mut last, &second)[..] else { panic!("one event") };
        assert_eq!(last, second);
        assert_eq!(event.skus.keys().collect::<Vec<_>>(), ["tea", "urn"]);
        assert!(set(&mut last, &second).is_empty(), "nothing is new");
        assert!(set(&mut last, &first).is_empty(), "an older reconciliation that ends later");
        assert_eq!(last, second);
    }
}
