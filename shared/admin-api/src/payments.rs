//! Pure: the payment of an order, and its charge at the bank.

use contract::bank::ChargeView;
use contract::manual_resolution::ManualResolution;
use contract::payment::PaymentView;
use contract::saga_fact::DeadLetterRef;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::records::RecordedEvent;

/// Payment of an order, with all that is known of it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PaymentDetail {
    /// Payment, as the payment service has it.
    #[serde(flatten)]
    pub payment: PaymentView,
    /// Charge, as the bank has it; absent if it has none, or does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge: Option<ChargeView>,
    /// Reason why the bank did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bank_problem: Option<String>,
    /// Manual resolution of the saga; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manual_resolution: Option<ManualResolution>,
    /// Dead letters that block the saga, each with the step that failed; absent without any, or if it is resolved manually.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dead_letters: Vec<DeadLetterRef>,
    /// Events of the payment, oldest first.
    pub history: Vec<RecordedEvent>,
}
