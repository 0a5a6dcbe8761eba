//! Pure: facts of the payment service: money captured, declined, refunded.

use saga_core::ids;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::money::Money;

/// Id of an order's only payment, derived from the order id. Also the idempotency key at the bank, so that a
/// repeated request charges once.
#[must_use]
pub fn payment_id(order: Uuid) -> Uuid {
    ids::derived_beside(order, &["payment", &order.to_string()])
}

/// Payment: the money was captured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentProcessed {
    /// Id of the paid order, which is the saga's.
    pub order: Uuid,
    /// Id of the order's only payment.
    pub payment: Uuid,
    /// Amount that the bank captured.
    pub amount: Money,
    /// Id of the charge at the bank.
    pub bank_reference: String,
}

/// Payment: the payment of an order failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentFailed {
    /// Id of the unpaid order, which is the saga's.
    pub order: Uuid,
    /// Id of the order's only payment.
    pub payment: Uuid,
    /// Reason why the payment failed.
    pub reason: PaymentFailure,
}

/// Payment: the captured money was refunded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentRefunded {
    /// Id of the refunded order, which is the saga's.
    pub order: Uuid,
    /// Id of the order's only payment.
    pub payment: Uuid,
    /// Amount that the bank refunded.
    pub amount: Money,
}

/// Payment: nothing is captured, and nothing will be. The order ended before a capture, or a possible capture was
/// reversed.
///
/// A cancellation is answered by this or by [`PaymentRefunded`], unless the payment was clearly declined before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentVoided {
    /// Id of the unpaid order, which is the saga's.
    pub order: Uuid,
    /// Id of the order's only payment.
    pub payment: Uuid,
}

/// Payment: an operator requested a refund. [`PaymentRefunded`] follows when the bank has made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefundAudited {
    /// Id of the refunded order.
    pub order: Uuid,
    /// Amount that the bank is to refund.
    pub amount: Money,
    /// Name of the operator, as the audit log shows it.
    pub operator: String,
}

/// Operator: the rest of this order's payment is resolved manually, or that is withdrawn. Addressed to the payment
/// service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManualResolutionRequested {
    /// Id of the order, which is the saga's.
    pub order: Uuid,
    /// True to resolve, false to withdraw.
    pub resolved: bool,
    /// Revision of the request. A lower one than before has no effect.
    pub revision: u64,
    /// True if the order was known to be cancelled: a later `OrderCancelled` then starts no compensation of what is
    /// resolved.
    pub cancelled: bool,
}

/// The payment of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaymentView {
    /// Id of the payment. An order has exactly one.
    pub id: Uuid,
    /// The order it pays.
    pub order: Uuid,
    /// `CHARGING`, `EXPIRED` (the deadline passed; the order will be cancelled or extended), `DOOMED` (cancelled while the
    /// bank is called), `CLOSING` (a charge may be forgotten, and the bank is asked), `CAPTURED`, `FAILED`, `REVERSING` (no
    /// clear answer), `VOIDING` (the order is over and the charge may have been sent), `REFUNDING`, `REFUNDED`, `VOID` (the
    /// order was over before anything was captured) or `RESOLVED_MANUALLY` (by an operator; the bank is not called any more).
    pub status: String,
    /// Customer who pays; absent if no charge was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// Total of the order; absent if no charge was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<Money>,
    /// The bank's id of the charge; absent if nothing was captured.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bank_reference: String,
    /// Reason of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<PaymentFailure>,
}

/// Reason of a failed payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PaymentFailure {
    /// The bank declined the card.
    Declined,
    /// The bank does not know the card, as with a mistyped token.
    UnknownCard,
    /// The account does not hold the amount.
    InsufficientFunds,
    /// The amount exceeds the bank's limit.
    LimitExceeded,
    /// The bank gave no clear answer in all attempts. The charge is being reversed.
    Exhausted,
}

impl PaymentFailure {
    /// True if money may have been captured all the same, so that [`PaymentVoided`] will follow.
    #[must_use]
    pub const fn is_unclear(self) -> bool {
        match self {
            Self::Exhausted => true,
            Self::Declined | Self::UnknownCard | Self::InsufficientFunds | Self::LimitExceeded => false,
        }
    }

    /// Name in JSON and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
