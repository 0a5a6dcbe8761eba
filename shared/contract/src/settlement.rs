//! Pure: what an operator settled outside: that nobody is to wait for the rest of a saga, and what does not add up for
//! it. No more than that is accepted.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::saga::SagaStatus;

/// What was settled outside, by whom, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Settlement {
    /// Who settled it.
    pub operator: String,
    /// Why, and how.
    pub reason: String,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Where the saga stood then.
    pub was: SagaStatus,
    /// What did not add up then, and is accepted; nothing else is.
    pub accepted: Vec<Accepted>,
    /// Grows with each of these about one saga, as payment hears them. Earlier builds counted them.
    #[serde(default, skip_serializing_if = "saga_core::row::is_zero")]
    pub revision: u64,
}

/// Something that does not add up, and is accepted as it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct Accepted {
    /// The rule of the reconciliation that it breaks.
    pub rule: String,
    /// What is there, and what should be.
    pub detail: String,
    /// How much too much, or too little with a minus before it; absent where nothing is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
}

/// Who takes back what was settled, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsettlement {
    /// Who takes it back.
    pub operator: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Timestamp,
    /// As in [`Settlement::revision`].
    #[serde(default, skip_serializing_if = "saga_core::row::is_zero")]
    pub revision: u64,
}

/// Why a saga cannot be settled, or that not be taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SettlementRejection {
    /// Nobody has heard of it.
    #[error("there is no such saga")]
    Unknown,
    /// It goes on by itself until then.
    #[error("the saga is {} and goes on by itself until {until}: there is nothing to settle yet", .status.as_str())]
    UnderWay {
        /// Where it stands.
        status: SagaStatus,
        /// Its deadline.
        until: Timestamp,
    },
    /// It has ended, and everything adds up.
    #[error("the saga is {}, and its books balance: there is nothing to settle", .0.as_str())]
    Ended(SagaStatus),
    /// It is settled, and what does not add up is what was accepted.
    #[error("the saga is settled already, and nothing is wrong that was not accepted then")]
    Settled,
    /// It is not settled.
    #[error("the saga is {}, not settled: there is nothing to take back", .0.as_str())]
    NotSettled(SagaStatus),
}
