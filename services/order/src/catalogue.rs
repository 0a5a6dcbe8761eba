//! Pure: the local copy of the catalogue, by which orders are priced.

use std::convert::Infallible;

use contract::money::Money;
use saga_core::decider::{Decider, RetentionPolicy};
use serde::{Deserialize, Serialize};

/// A product as the order service knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogueItem {
    /// Price of one piece; `None` while unknown.
    pub unit_price: Option<Money>,
    pub revision: u64,
}

/// Price published by inventory, as command and as event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceUpdate {
    pub unit_price: Money,
    /// Increases with each change of the product.
    pub revision: u64,
}

impl Decider for CatalogueItem {
    const KIND: &'static str = "catalogue_item";
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeEvents;
    type Command = PriceUpdate;
    type Event = PriceUpdate;
    type Rejection = Infallible;

    fn decide(&self, update: &PriceUpdate) -> Result<Vec<PriceUpdate>, Infallible> {
        Ok(if update.revision > self.revision { vec![*update] } else { vec![] })
    }

    fn evolve(&mut self, update: &PriceUpdate) {
        *self = Self { unit_price: Some(update.unit_price), revision: update.revision };
    }

    fn event_name(_: &PriceUpdate) -> &'static str {
        "PriceUpdated"
    }
}
