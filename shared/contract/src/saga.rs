//! Pure: the order saga's shape, declared once.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fact::FactType;

/// One stage of the saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Stage {
    /// The step that does it.
    pub step: &'static str,
    /// The service that owes it.
    pub owner: &'static str,
    /// The fact that asks for it; `None` for the start.
    pub after: Option<FactType>,
    /// The fact that tells it is done.
    pub says: FactType,
    /// The fact that tells it cannot be done, and that there is nothing to undo.
    pub refuses: Option<FactType>,
    /// The facts of which one tells that nothing of it is left, when seeing to that is somebody's duty: the first
    /// when it was done before, the last when it never was. Every cancellation is answered, unless the stage has
    /// been refused.
    pub undone_by: &'static [FactType],
    /// The step that undoes it.
    pub undoing_step: Option<&'static str>,
}

/// The order saga. All stages share one deadline, the order's; when it passes, or anyone refuses, the order
/// says [`FactType::OrderCancelled`], and everyone undoes their own stage.
pub const ORDER_SAGA: [Stage; 4] = [
    Stage {
        step: "order-placement",
        owner: "order",
        after: None,
        says: FactType::OrderCreated,
        refuses: None,
        undone_by: &[],
        undoing_step: None,
    },
    Stage {
        step: "inventory-stock-reservation",
        owner: "inventory",
        after: Some(FactType::OrderCreated),
        says: FactType::StockReserved,
        refuses: Some(FactType::StockReservationFailed),
        undone_by: &[FactType::StockReleased],
        undoing_step: Some("inventory-stock-release"),
    },
    Stage {
        step: "payment-processing",
        owner: "payment",
        after: Some(FactType::StockReserved),
        says: FactType::PaymentProcessed,
        refuses: Some(FactType::PaymentFailed),
        undone_by: &[FactType::PaymentRefunded, FactType::PaymentVoided],
        undoing_step: Some("payment-refund"),
    },
    Stage {
        step: "order-confirmation",
        owner: "order",
        after: Some(FactType::PaymentProcessed),
        says: FactType::OrderConfirmed,
        refuses: None,
        undone_by: &[],
        undoing_step: None,
    },
];

/// Where a saga stands, seen from outside.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    ToSchema,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum SagaStatus {
    /// Nobody has reacted yet.
    Started,
    /// Some stages are done.
    InProgress,
    /// The order is confirmed.
    Completed,
    /// The deadline passed and nothing is undone yet.
    TimedOut,
    /// The order is cancelled and something is still to be undone.
    Compensating,
    /// The order is cancelled and everything is undone.
    Compensated,
    /// A compensation is parked: a human is needed.
    Failed,
}

impl SagaStatus {
    /// Every status there is.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether nobody owes anything any more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Compensated => true,
            Self::Started | Self::InProgress | Self::TimedOut | Self::Compensating | Self::Failed => false,
        }
    }
}
