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

/// What else has to happen before an order can end: a no that is heard, a call that is answered.
const BEFORE_THE_END: [&str; 2] = ["order-cancellation", "payment-charge"];

/// What a step, or a kind of task, does for a saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepRole {
    /// Brings the order to its end. Once that is reached, it does nothing any more.
    Forward,
    /// Undoes a stage of an order that was cancelled.
    Undoing,
    /// Neither; it is missed until it is done.
    Beside,
}

/// What this step, or this kind of task, does for a saga.
#[must_use]
pub fn role_of(step: &str) -> StepRole {
    if ORDER_SAGA.iter().any(|stage| stage.step == step) || BEFORE_THE_END.contains(&step) {
        StepRole::Forward
    } else if ORDER_SAGA.iter().any(|stage| stage.undoing_step == Some(step)) {
        StepRole::Undoing
    } else {
        StepRole::Beside
    }
}

/// The steps that a saga may wait for, those that undo something included.
pub fn steps() -> impl Iterator<Item = &'static str> {
    ORDER_SAGA.iter().flat_map(|stage| [Some(stage.step), stage.undoing_step]).flatten()
}

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
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum SagaStatus {
    /// Facts were heard of an order whose creation was not: it is still to come, or nobody created such an order.
    Unknown,
    /// Nobody has reacted yet.
    Started,
    /// Some stages are done.
    InProgress,
    /// A step on the way to the end is parked, and the deadline has not passed: a human may still save the order.
    Parked,
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
    /// A human has settled outside what was still owed, and nobody is waited for any more.
    Settled,
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
            Self::Completed | Self::Compensated | Self::Settled => true,
            Self::Unknown
            | Self::Started
            | Self::InProgress
            | Self::Parked
            | Self::TimedOut
            | Self::Compensating
            | Self::Failed => false,
        }
    }

    /// Whether a saga that stands like this, long after its deadline, is told as overdue: what has failed is told as that.
    #[must_use]
    pub const fn can_be_overdue(self) -> bool {
        !self.is_terminal() && !matches!(self, Self::Failed)
    }

    /// Whether a saga that stands like this still waits for what this step, or this kind of task, does: when it does
    /// not, doing it changes nothing.
    #[must_use]
    pub fn awaits(self, step: &str) -> bool {
        match (role_of(step), self) {
            (_, Self::Settled) => false,
            // What nobody has created yet, as far as the view has heard, may have been.
            (StepRole::Forward, Self::Unknown | Self::Started | Self::InProgress | Self::Parked)
            | (StepRole::Beside, _) => true,
            (
                StepRole::Forward,
                Self::Completed | Self::TimedOut | Self::Compensating | Self::Compensated | Self::Failed,
            )
            | (StepRole::Undoing, Self::Compensated) => false,
            // Who undoes may have heard of the cancellation before the view has.
            (
                StepRole::Undoing,
                Self::Unknown
                | Self::Started
                | Self::InProgress
                | Self::Parked
                | Self::Completed
                | Self::TimedOut
                | Self::Compensating
                | Self::Failed,
            ) => true,
        }
    }
}
