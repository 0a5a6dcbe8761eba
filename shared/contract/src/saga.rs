//! Pure: the order saga: its stages, and the statuses of a saga.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fact::FactType;

/// Stage of the saga, with its compensation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Stage {
    /// Step that performs the stage; the first stage is a command of a customer, and no step.
    pub step: &'static str,
    /// Service that owns the step.
    pub owner: &'static str,
    /// Fact that triggers the stage; `None` for the first.
    pub triggered_by: Option<FactType>,
    /// Fact that reports the stage as done.
    pub completed_by: FactType,
    /// Fact that reports a rejection, with nothing to undo.
    pub rejected_by: Option<FactType>,
    /// Facts that report the compensation, if the stage has one. A stage that was done reports the first, a stage
    /// that was never done the last, and a rejected stage nothing.
    pub compensated_by: &'static [FactType],
    /// Step that performs the compensation.
    pub compensation_step: Option<&'static str>,
}

/// The order saga. All stages share the deadline of the order.
///
/// If it passes or a stage is rejected, the order service publishes [`FactType::OrderCancelled`], and each
/// participant undoes its own stage.
pub const ORDER_SAGA: [Stage; 4] = [
    Stage {
        step: "order-placement",
        owner: "order",
        triggered_by: None,
        completed_by: FactType::OrderCreated,
        rejected_by: None,
        compensated_by: &[],
        compensation_step: None,
    },
    Stage {
        step: "inventory-stock-reservation",
        owner: "inventory",
        triggered_by: Some(FactType::OrderCreated),
        completed_by: FactType::StockReserved,
        rejected_by: Some(FactType::StockReservationFailed),
        compensated_by: &[FactType::StockReleased],
        compensation_step: Some("inventory-stock-release"),
    },
    Stage {
        step: "payment-processing",
        owner: "payment",
        triggered_by: Some(FactType::StockReserved),
        completed_by: FactType::PaymentProcessed,
        rejected_by: Some(FactType::PaymentFailed),
        compensated_by: &[FactType::PaymentRefunded, FactType::PaymentVoided],
        compensation_step: Some("payment-refund"),
    },
    Stage {
        step: "order-confirmation",
        owner: "order",
        triggered_by: Some(FactType::PaymentProcessed),
        completed_by: FactType::OrderConfirmed,
        rejected_by: None,
        compensated_by: &[],
        compensation_step: None,
    },
];

/// Other steps before the end of an order: its cancellation, and the call to the bank.
const OTHER_FORWARD_STEPS: [&str; 2] = ["order-cancellation", "payment-charge"];

/// Role of a step, or kind of task, in a saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepRole {
    /// Moves the order towards its end, and has no effect after it.
    Forward,
    /// Undoes a stage of a cancelled order.
    Compensation,
    /// Neither: it remains due until it is done.
    Independent,
}

/// Role of this step, or kind of task.
#[must_use]
pub fn role_of(step: &str) -> StepRole {
    if ORDER_SAGA.iter().any(|stage| stage.step == step) || OTHER_FORWARD_STEPS.contains(&step) {
        StepRole::Forward
    } else if ORDER_SAGA.iter().any(|stage| stage.compensation_step == Some(step)) {
        StepRole::Compensation
    } else {
        StepRole::Independent
    }
}

/// Steps that a saga may wait for, including compensations.
pub fn steps() -> impl Iterator<Item = &'static str> {
    ORDER_SAGA.iter().flat_map(|stage| [Some(stage.step), stage.compensation_step]).flatten()
}

/// Status of a saga, derived from its facts.
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
    /// Facts of an order without its creation, which is still to come or never was.
    Unknown,
    /// Created, without any reaction yet.
    Started,
    /// Some stages are done, and others are due.
    InProgress,
    /// A forward step is a dead letter and the deadline has not passed: an operator may still save the order.
    DeadLettered,
    /// The order is confirmed.
    Completed,
    /// The deadline passed, and nothing is undone yet.
    TimedOut,
    /// The order is cancelled, and something is left to undo.
    Compensating,
    /// The order is cancelled, and everything is undone.
    Compensated,
    /// Cancelled, and a compensation is a dead letter: an operator must act. A saga that merely ended in a
    /// cancellation is [`SagaStatus::Compensated`].
    CompensationStuck,
    /// Resolved manually: an operator declared the rest done by other means, and the saga waits for nobody.
    ResolvedManually,
}

impl SagaStatus {
    /// Every status, in the order of declaration.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Name in the API, in metrics and in tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// True if no step is due any more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Compensated | Self::ResolvedManually => true,
            Self::Unknown
            | Self::Started
            | Self::InProgress
            | Self::DeadLettered
            | Self::TimedOut
            | Self::Compensating
            | Self::CompensationStuck => false,
        }
    }

    /// True if the deadline of the order ends a saga of this status.
    #[must_use]
    pub const fn has_deadline(self) -> bool {
        match self {
            Self::Started | Self::InProgress | Self::DeadLettered => true,
            Self::Unknown
            | Self::Completed
            | Self::TimedOut
            | Self::Compensating
            | Self::Compensated
            | Self::CompensationStuck
            | Self::ResolvedManually => false,
        }
    }

    /// True if a saga of this status counts as overdue after its deadline. One whose compensation is stuck is
    /// reported as that instead.
    #[must_use]
    pub const fn can_be_overdue(self) -> bool {
        !self.is_terminal() && !matches!(self, Self::CompensationStuck)
    }

    /// True if the order is cancelled and nothing blocks its compensation.
    #[must_use]
    pub const fn is_cancelled(self) -> bool {
        match self {
            Self::TimedOut | Self::Compensating | Self::Compensated => true,
            Self::Unknown
            | Self::Started
            | Self::InProgress
            | Self::DeadLettered
            | Self::Completed
            | Self::CompensationStuck
            | Self::ResolvedManually => false,
        }
    }

    /// True if a saga of this status waits for this step, or kind of task. If not, performing it changes nothing.
    #[must_use]
    pub fn awaits(self, step: &str) -> bool {
        match (role_of(step), self) {
            (_, Self::ResolvedManually) => false,
            // The order may exist although the view has not received its creation.
            (StepRole::Forward, Self::Unknown | Self::Started | Self::InProgress | Self::DeadLettered)
            | (StepRole::Independent, _) => true,
            (
                StepRole::Forward,
                Self::Completed
                | Self::TimedOut
                | Self::Compensating
                | Self::Compensated
                | Self::CompensationStuck,
            )
            | (StepRole::Compensation, Self::Compensated) => false,
            // The participant may have received the cancellation before the view.
            (
                StepRole::Compensation,
                Self::Unknown
                | Self::Started
                | Self::InProgress
                | Self::DeadLettered
                | Self::Completed
                | Self::TimedOut
                | Self::Compensating
                | Self::CompensationStuck,
            ) => true,
        }
    }
}
