//! Pure: what one order is held against, and what breaks a rule.

use std::collections::BTreeMap;
use std::fmt::Display;

use contract::money::Money;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::reconciliation::findings::Rule;

/// What one order must be held against, beside what is said of it.
#[derive(Debug, Clone, Copy)]
pub struct Standard<'a> {
    /// What time it is for the order service, whose clock the deadlines go by.
    pub now: Timestamp,
    /// Every price that a product ever had, by sku.
    pub prices: &'a BTreeMap<String, Vec<Money>>,
    /// What was said before need not have reached the view of the sagas.
    pub heard_since: Timestamp,
}

/// What breaks a rule, and how.
pub(super) type Fault = (Rule, String);

/// What was found so far.
#[derive(Default)]
pub(super) struct Faults(pub Vec<Fault>);

impl Faults {
    pub fn must(&mut self, holds: bool, rule: Rule, detail: impl FnOnce() -> String) {
        if !holds {
            self.0.push((rule, detail()));
        }
    }
}

/// A state by the name that the API has for it.
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
