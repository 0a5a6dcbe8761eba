//! Pure: manual resolution of a saga: an operator declares the rest done by other means, and accepts the discrepancies
//! known then, and no others.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::saga::SagaStatus;

/// Manual resolution of a saga.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ManualResolution {
    /// Name of the operator who resolved it.
    pub operator: String,
    /// Reason, and means by which the rest was done.
    pub reason: String,
    /// Time at which the saga was resolved.
    pub at: Timestamp,
    /// Status of the saga before.
    pub was: SagaStatus,
    /// Accepted discrepancies. Reconciliation reports all others.
    pub accepted: Vec<Accepted>,
    /// Revision of the request to payment. A lower one than before has no effect there.
    pub revision: u64,
}

/// Discrepancy that an operator accepted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct Accepted {
    /// Violated rule of the reconciliation.
    pub rule: String,
    /// Actual and expected state, for people.
    pub detail: String,
    /// Surplus, or shortage with a minus sign; absent if the rule counts nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
}

/// Withdrawal of a manual resolution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolutionWithdrawal {
    /// Name of the operator who withdrew it.
    pub operator: String,
    /// Reason of the withdrawal, as the operator gave it.
    pub reason: String,
    /// Time at which the resolution was withdrawn.
    pub at: Timestamp,
    /// Revision of the request to payment, as in [`ManualResolution::revision`].
    pub revision: u64,
}

/// Reason to reject a manual resolution or its withdrawal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResolutionRejection {
    /// Saga of which no fact was received.
    #[error("there is no such saga")]
    Unknown,
    /// Saga that is in flight and whose deadline has not passed.
    #[error("the saga is {} and goes on until {until}: there is nothing to resolve yet", .status.as_str())]
    InFlight {
        /// Status of the saga at the time of the request.
        status: SagaStatus,
        /// Deadline until which the saga goes on.
        until: Timestamp,
    },
    /// Saga that has ended without discrepancies.
    #[error("the saga is {}, and its books balance: there is nothing to resolve", .0.as_str())]
    Ended(SagaStatus),
    /// Saga that is resolved manually, with the same accepted discrepancies.
    #[error("the saga is resolved manually already, and there is no discrepancy that was not accepted then")]
    AlreadyResolved,
    /// Saga that is not resolved manually.
    #[error("the saga is {}, not resolved manually: there is nothing to withdraw", .0.as_str())]
    NotResolved(SagaStatus),
}
