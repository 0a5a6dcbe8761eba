//! Pure: the ledger of the bank that this service works with.
//!
//! Each call names it, so that another ledger rejects the call. A ledger without the earlier charges would capture a repeated
//! charge again. A call without the id only asks for it. The first id is stored before anything is charged.

use std::convert::Infallible;

use saga_core::decider::Decider;
use saga_core::row::RowKey;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

/// Id of the only row.
pub const BANK: Uuid = Uuid::nil();

/// Ledger that calls name; none before the first call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BankLedger(pub Option<Uuid>);

/// Ledger that answered a call which named none or another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// Ledger that the call named.
    pub named: Option<Uuid>,
    /// Ledger that answered. It is another one only if its operator has accepted the loss of the named one.
    pub by: Uuid,
}

impl Decider for BankLedger {
    const KIND: &'static str = "bank_ledger";
    type Command = Answered;
    /// Ledger that calls name from now on.
    type Event = Uuid;
    type Rejection = Infallible;

    /// A late answer to a call that named an earlier ledger changes nothing.
    fn decide(&self, answered: &Answered) -> Result<Vec<Uuid>, Infallible> {
        let is_news = answered.named == self.0 && self.0 != Some(answered.by);
        Ok(if is_news { vec![answered.by] } else { vec![] })
    }

    fn evolve(&mut self, ledger: &Uuid) {
        self.0 = Some(*ledger);
    }

    fn event_name(_: &Uuid) -> &'static str {
        "Named"
    }
}

/// Key of the only row.
pub(crate) fn row() -> RowKey {
    RowKey::of::<BankLedger>(BANK)
}

/// Member of a result with the ledger that answered.
const LEDGER: &str = "ledger";

/// Result of a call that only asked for the ledger, because none was known.
pub(crate) fn introduction(ledger: Uuid) -> Value {
    json!({ "introduced": true, LEDGER: ledger })
}

/// True if nothing was requested yet but the id of the ledger.
pub(crate) fn is_introduction(answer: &Value) -> bool {
    answer.get("introduced").is_some()
}

/// Adds the ledger that answered to a result.
pub(crate) fn with_ledger(mut answer: Value, ledger: Option<Uuid>) -> Value {
    if let (Some(members), Some(ledger)) = (answer.as_object_mut(), ledger) {
        members.insert(LEDGER.to_owned(), json!(ledger));
    }
    answer
}

/// Reads the ledger that answered.
pub(crate) fn ledger_of(answer: &Value) -> Option<Uuid> {
    answer.get(LEDGER)?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_names_its_ledger_and_only_an_introduction_is_one() {
        let ledger = Uuid::from_u128(11);
        let answer = with_ledger(json!({ "outcome": "captured" }), Some(ledger));
        assert_eq!(
            [introduction(ledger), answer.clone()].map(|answer| ledger_of(&answer)),
            [Some(ledger); 2]
        );
        assert!(is_introduction(&introduction(ledger)) && !is_introduction(&answer));
        assert_eq!(answer["outcome"], "captured");
    }
}
