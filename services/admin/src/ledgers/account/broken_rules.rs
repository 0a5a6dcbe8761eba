//! Pure: the rules that an order breaks, and the reference that it is compared with.

use std::collections::BTreeMap;
use std::fmt::Display;

use contract::fact::FactType;
use contract::money::Money;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::ledgers::rules::Rule;

/// Data that an order is compared with, beside its own entries.
#[derive(Debug, Clone, Copy)]
pub struct Reference<'a> {
    /// Time of the order service, whose clock deadlines follow.
    pub now: Timestamp,
    /// Every price that a product ever had, by SKU.
    pub prices: &'a BTreeMap<String, Vec<Money>>,
    /// Facts published before this may be missing in the saga view.
    pub view_complete_since: Timestamp,
    /// Time of the last accepted loss of data, by service. What it published before may be missing in its history, or
    /// stand there with the later time at which it was decided again.
    pub losses: &'a BTreeMap<String, Timestamp>,
}

impl Reference<'_> {
    /// True if a fact of this time may be missing in the history of its service.
    pub(super) fn may_be_lost(&self, fact: FactType, at: Timestamp) -> bool {
        self.losses.get(fact.producer()).is_some_and(|lost| at <= *lost)
    }
}

/// A violated rule with its detail.
pub(super) type Broken = (Rule, String);

#[derive(Default)]
pub(super) struct Violations(pub Vec<Broken>);

impl Violations {
    pub fn require(&mut self, holds: bool, rule: Rule, detail: impl FnOnce() -> String) {
        if !holds {
            self.0.push((rule, detail()));
        }
    }
}

/// Returns the name that the API has for a state.
pub(super) fn named(state: Option<impl Serialize>) -> String {
    match state.map(serde_json::to_value) {
        None => "none".to_owned(),
        Some(Ok(Value::String(name))) => name,
        Some(other) => other.map(|value| value.to_string()).unwrap_or_default(),
    }
}

pub(super) fn list(items: impl IntoIterator<Item = impl Display>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { "nothing".to_owned() } else { items.join(", ") }
}
