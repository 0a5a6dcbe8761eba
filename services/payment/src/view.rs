//! Pure: a payment as the API shows it.

use contract::money::Money;
use contract::payment::PaymentFailure;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::domain::Payment;

/// The payment of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaymentView {
    /// Id of the payment. An order has exactly one.
    pub id: Uuid,
    /// The order it pays.
    pub order: Uuid,
    /// `CHARGING`, `DOOMED` (cancelled while the bank is called), `CLOSING` (a charge may be forgotten, and the bank is
    /// asked), `CAPTURED`, `FAILED`, `REVERSING` (no clear answer), `VOIDING` (the order is over and the charge may have
    /// been sent), `REFUNDING`, `REFUNDED`, `VOID` (the order was over before anything was captured) or
    /// `RESOLVED_MANUALLY` (by an operator; the bank is not called any more).
    pub status: String,
    /// Customer who pays; absent if no charge was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// Total of the order; absent if no charge was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<Money>,
    /// The bank's id of the charge; absent if nothing was captured.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bank_reference: String,
    /// Reason of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<PaymentFailure>,
}

impl PaymentView {
    /// Builds the view; `None` if the order is unknown.
    #[must_use]
    pub fn of(order: Uuid, payment: &Payment) -> Option<Self> {
        let failure = match payment {
            Payment::New => return None,
            Payment::Failed(_, failure) => Some(*failure),
            Payment::Charging(_)
            | Payment::Doomed(_)
            | Payment::Closing(_)
            | Payment::Captured(..)
            | Payment::Reversing(_)
            | Payment::Voiding(_)
            | Payment::Refunding(..)
            | Payment::Refunded(..)
            | Payment::Void
            | Payment::Voided(_)
            | Payment::ResolvedManually(_) => None,
        };
        let context = payment.context();
        Some(Self {
            id: payment.id(order),
            order,
            status: payment.status().to_owned(),
            customer: context.map(|context| context.customer.clone()),
            amount: context.map(|context| context.total),
            bank_reference: payment.reference().to_owned(),
            failure,
        })
    }
}
