//! Pure: tasks that call the bank, and what the bank's answer means for the payment.

use contract::order::PaymentContext;
use contract::payment::PaymentFailure;
use jiff::Timestamp;
use saga_core::retry::{FailedAttempt, FailureKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::domain::PaymentCommand;

/// Task kind: charge the customer.
pub const CHARGE: &str = "payment-charge";
/// Task kind: refund, reverse or close a charge. Shares its name with the step that requests it, so both have one metric and
/// one alert.
pub const REFUND: &str = "payment-refund";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BankCall {
    /// Charge the customer, unless the deadline has passed.
    Charge {
        context: PaymentContext,
        deadline: Timestamp,
        /// True if an earlier task may have sent the charge.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        may_be_sent: bool,
    },
    Refund,
    /// Undo a charge with unknown outcome and block it for the future.
    Reverse,
    /// Ask for the outcome of a charge that may be forgotten. A charge without outcome is blocked for the future.
    Close,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BankTask {
    pub order: Uuid,
    /// Key of the charge at the bank.
    pub payment: Uuid,
    /// Ledger of the bank that must answer; none if it is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Uuid>,
    pub call: BankCall,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum BankAnswer {
    /// The money was captured, by this request or an earlier one with the same key.
    Captured {
        /// The bank's id of the charge.
        reference: String,
    },
    /// The bank refused the charge. The reason is never [`PaymentFailure::Exhausted`].
    Refused { reason: PaymentFailure },
    /// Nothing is captured any more.
    Undone,
}

impl BankAnswer {
    fn describe(&self) -> String {
        match self {
            Self::Captured { reference } => format!("the bank answered that it captured {reference}"),
            Self::Refused { reason } => format!("the bank refused: {}", reason.as_str()),
            Self::Undone => "the bank answered that nothing is captured".to_owned(),
        }
    }
}

/// Translates the result of a task into a command for the payment.
///
/// # Errors
/// If a refund, reversal or closure did not succeed. Money may be owed, so the task is dead-lettered with this reason.
pub(crate) fn payment_command(
    task: &BankTask,
    answer: Result<&Value, &FailedAttempt>,
) -> Result<PaymentCommand, String> {
    let answer = answer.cloned().map_err(FailedAttempt::clone).and_then(|answer| {
        serde_json::from_value(answer).map_err(|error| {
            FailedAttempt::new(FailureKind::Permanent, format!("unreadable answer: {error}"))
        })
    });
    Ok(match (&task.call, answer) {
        (BankCall::Charge { .. }, Ok(BankAnswer::Captured { reference })) if !reference.is_empty() => {
            PaymentCommand::RecordCapture(reference)
        }
        (BankCall::Charge { .. }, Ok(BankAnswer::Refused { reason })) => {
            PaymentCommand::RecordRefusal(reason)
        }
        (BankCall::Charge { may_be_sent, .. }, Err(failed)) => match failed.kind {
            FailureKind::NeverAttempted => PaymentCommand::Withdraw { may_be_sent: *may_be_sent },
            FailureKind::NoLongerNeeded => PaymentCommand::Withdraw { may_be_sent: true },
            // The charge may have been captured all the same: the payment fails, and the charge is reversed.
            FailureKind::Transient | FailureKind::Outage | FailureKind::Permanent => PaymentCommand::GiveUp,
        },
        // A contradictory answer: the outcome is as unknown as after a time-out.
        (BankCall::Charge { .. }, Ok(BankAnswer::Captured { .. } | BankAnswer::Undone)) => {
            PaymentCommand::GiveUp
        }
        (BankCall::Close, Ok(BankAnswer::Captured { reference })) if !reference.is_empty() => {
            PaymentCommand::RecordCapture(reference)
        }
        (BankCall::Close, Ok(BankAnswer::Refused { reason })) => PaymentCommand::RecordRefusal(reason),
        (BankCall::Close, Ok(BankAnswer::Undone)) => PaymentCommand::Withdraw { may_be_sent: false },
        (BankCall::Close, answer @ (Ok(BankAnswer::Captured { .. }) | Err(_))) => {
            let why = answer.map_or_else(|failed| failed.reason(), |answer| answer.describe());
            return Err(format!("the outcome of the payment of order {} is unknown: {why}", task.order));
        }
        (BankCall::Refund, Ok(BankAnswer::Undone)) => PaymentCommand::RecordRefund,
        (BankCall::Reverse, Ok(BankAnswer::Undone)) => PaymentCommand::RecordReversal,
        (
            BankCall::Refund | BankCall::Reverse,
            answer @ (Ok(BankAnswer::Captured { .. } | BankAnswer::Refused { .. }) | Err(_)),
        ) => {
            let why = answer.map_or_else(|failed| failed.reason(), |answer| answer.describe());
            return Err(format!("the money of order {} cannot be given back: {why}", task.order));
        }
    })
}
