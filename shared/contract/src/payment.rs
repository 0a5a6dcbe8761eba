//! Pure: what the payment service says: money captured, refused, given back.

use saga_core::ids;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::money::Money;

/// Id of an order's one payment, derived from the order's id. The bank knows the charge by it, so a repeated request
/// never charges twice.
#[must_use]
pub fn payment_id(order: Uuid) -> Uuid {
    ids::derived_beside(order, &["payment", &order.to_string()])
}

/// Payment: the money was captured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentProcessed {
    /// The order that is paid; also the saga's id.
    pub order: Uuid,
    /// The order's one payment.
    pub payment: Uuid,
    /// What was captured.
    pub amount: Money,
    /// The bank's id of the charge.
    pub bank_reference: String,
}

/// Payment: no money will come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentFailed {
    /// The order that is not paid; also the saga's id.
    pub order: Uuid,
    /// The order's one payment.
    pub payment: Uuid,
    /// The bank's no, or that it never gave a clear answer.
    pub reason: PaymentFailure,
}

/// Payment: the captured money went back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentRefunded {
    /// The order whose money went back; also the saga's id.
    pub order: Uuid,
    /// The order's one payment.
    pub payment: Uuid,
    /// What went back.
    pub amount: Money,
}

/// Payment: no money is here, and none will come: the order was over before anything was captured, or what may have
/// been captured is undone. With [`PaymentRefunded`] its answer to a cancellation; a clear no was said before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentVoided {
    /// The order that is not paid; also the saga's id.
    pub order: Uuid,
    /// The order's one payment.
    pub payment: Uuid,
}

/// Operator request to the payment service: money still owed for this order is resolved manually, or that is withdrawn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManualResolutionRequested {
    /// The order; also the saga's id.
    pub order: Uuid,
    /// True to resolve, false to withdraw an earlier resolution.
    pub resolved: bool,
    /// Increases with each request for one order. An older request has no effect.
    pub revision: u64,
    /// True if the order was known to be cancelled. A cancellation that arrives later then refunds nothing.
    pub cancelled: bool,
}

/// Why a payment failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PaymentFailure {
    /// The bank refused the card.
    Declined,
    /// The account does not hold the amount.
    InsufficientFunds,
    /// The amount is over the bank's limit.
    LimitExceeded,
    /// The bank gave no clear answer in all attempts; the charge is being reversed.
    Exhausted,
}

impl PaymentFailure {
    /// Whether money may have been captured all the same, so that [`PaymentVoided`] is still to come.
    #[must_use]
    pub const fn is_unclear(self) -> bool {
        match self {
            Self::Exhausted => true,
            Self::Declined | Self::InsufficientFunds | Self::LimitExceeded => false,
        }
    }

    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
