//! Pure: the books as they were closed: what the orders came to when all of them had ended and everything agreed, and how
//! far the history of each service had come. A look that begins there reads only what has changed since.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use jiff::Timestamp;
use saga_core::decider::Decider;
use saga_core::service_stats::HistoryPosition;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The id of the one row.
pub const THE_CLOSING: &str = "books";

/// What is carried forward.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closing {
    /// How far each service had come, by its name: everything up to there is in what follows.
    pub places: BTreeMap<String, HistoryPosition>,
    /// When that was.
    pub at: Timestamp,
    /// When the last look was closed that read everything.
    pub whole_at: Timestamp,
    /// What the orders came to.
    pub orders: Orders,
    /// What the reservations came to, by product.
    pub skus: BTreeMap<String, Pieces>,
    /// The orders that were settled outside and stand: each look holds them against that again.
    pub settled: BTreeSet<String>,
}

impl Closing {
    /// Whether the books were closed before this saga began.
    #[must_use]
    pub fn is_before(&self, saga: Uuid) -> bool {
        i128::try_from(saga.as_u128() >> 80).is_ok_and(|began| began >= i128::from(self.at.as_millisecond()))
    }
}

/// How many orders and charges there were, all of which had ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// Orders, whatever became of them.
    pub orders: u64,
    /// Orders that were neither confirmed nor cancelled.
    pub pending: u64,
    /// Orders that were confirmed.
    pub confirmed: u64,
    /// Orders that were cancelled.
    pub cancelled: u64,
    /// Charges that the bank held.
    pub captured: u64,
    /// Charges that the bank had given back.
    pub refunded: u64,
}

/// What orders have of a product.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pieces {
    /// Pieces that are held.
    pub held: u64,
    /// Pieces that are sold, those of reservations that had left by then as well.
    pub sold: u64,
}

/// The books were closed: as [`Closing`], with those products alone that came to something else than before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    places: BTreeMap<String, HistoryPosition>,
    at: Timestamp,
    whole_at: Timestamp,
    orders: Orders,
    skus: BTreeMap<String, Pieces>,
    gone: BTreeSet<String>,
    settled: BTreeSet<String>,
}

impl Decider for Closing {
    const KIND: &'static str = "closing";
    type Command = Self;
    type Event = Closed;
    type Rejection = Infallible;

    fn decide(&self, new: &Self) -> Result<Vec<Closed>, Infallible> {
        let is_news = new.places != self.places || new.whole_at != self.whole_at;
        if new.at < self.at || !is_news {
            return Ok(vec![]);
        }
        let differs = |(sku, pieces): &(&String, &Pieces)| self.skus.get(*sku) != Some(*pieces);
        let skus = new.skus.iter().filter(differs).map(|(sku, pieces)| (sku.clone(), *pieces)).collect();
        let is_gone = |sku: &&String| !new.skus.contains_key(*sku);
        Ok(vec![Closed {
            places: new.places.clone(),
            at: new.at,
            whole_at: new.whole_at,
            orders: new.orders,
            skus,
            gone: self.skus.keys().filter(is_gone).cloned().collect(),
            settled: new.settled.clone(),
        }])
    }

    fn evolve(&mut self, closed: &Closed) {
        self.places.clone_from(&closed.places);
        (self.at, self.whole_at, self.orders) = (closed.at, closed.whole_at, closed.orders);
        self.skus.retain(|sku, _| !closed.gone.contains(sku));
        self.skus.extend(closed.skus.iter().map(|(sku, pieces)| (sku.clone(), *pieces)));
        self.settled.clone_from(&closed.settled);
    }

    fn event_name(_: &Closed) -> &'static str {
        "Closed"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closing(second: i64, skus: &[(&str, u64)]) -> Closing {
        let place = HistoryPosition { event: second, ..HistoryPosition::default() };
        let at = Timestamp::from_second(second).unwrap_or_default();
        let skus = skus.iter().map(|(sku, sold)| ((*sku).to_owned(), Pieces { held: 0, sold: *sold }));
        Closing {
            places: BTreeMap::from([("order".to_owned(), place)]),
            at,
            whole_at: at,
            skus: skus.collect(),
            ..Closing::default()
        }
    }

    fn close(books: &mut Closing, new: &Closing) -> Vec<Closed> {
        let Ok(events) = books.decide(new);
        events.iter().for_each(|event| books.evolve(event));
        events
    }

    #[test]
    fn what_is_closed_is_carried_forward_and_only_what_changed_is_written() {
        let mut books = Closing::default();
        let (first, second) = (closing(1, &[("mug", 1), ("tea", 2)]), closing(2, &[("tea", 3), ("urn", 1)]));
        close(&mut books, &first);
        assert_eq!(books, first);
        let [closed] = &close(&mut books, &second)[..] else { panic!("one event") };
        assert_eq!(books, second);
        assert_eq!(closed.skus.keys().collect::<Vec<_>>(), ["tea", "urn"]);
        assert!(close(&mut books, &second).is_empty(), "nothing is new");
        assert!(close(&mut books, &first).is_empty(), "an earlier look that ends later");
        assert_eq!(books, second);
    }
}
