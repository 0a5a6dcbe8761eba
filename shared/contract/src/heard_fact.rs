//! Pure: what the view of a saga keeps of each message it hears.

use jiff::Timestamp;
use saga_core::dead_letter::{DeadLetterMessage, OperatorMessage};
use saga_core::message::{Message as _, Received};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::fact::Fact;
use crate::money::Money;
use crate::order::{CancelReason, StockLine};
use crate::payment::PaymentFailure;

/// A fact of the saga, as the view keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeardFact {
    /// Its message's id.
    pub message_id: Uuid,
    /// Name of its type, as the envelope has it, e.g. `OrderCreated`.
    #[serde(rename = "type")]
    pub message_type: String,
    /// Who said it.
    pub producer: String,
    /// What caused it.
    pub causation_id: Uuid,
    /// When it was decided.
    #[schema(value_type = String, format = DateTime)]
    pub occurred_at: Timestamp,
    /// What people want to know of it.
    pub detail: FactDetail,
}

/// What the view takes out of a fact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FactDetail {
    /// Who ordered; of `OrderCreated` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// The order's total.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Money>,
    /// The order's deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline: Option<Timestamp>,
    /// Why it was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_because: Option<CancelReason>,
    /// Why its payment failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payment_failed_because: Option<PaymentFailure>,
    /// Anything else, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What is parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked: Option<Parked>,
    /// The dead letter that was replayed and is handled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Uuid>,
}

/// A dead letter in a saga's way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Parked {
    /// The dead letter.
    #[serde(rename = "letter")]
    pub dead_letter: Uuid,
    /// The step that failed, or the kind of task.
    pub step: String,
}

impl HeardFact {
    /// What the view keeps of a message.
    #[must_use]
    pub fn of(message: &Received<OperatorMessage<Fact>>) -> Self {
        Self {
            message_id: message.id,
            message_type: message.fact.message_type().name.to_owned(),
            producer: message.producer.clone(),
            causation_id: message.causation_id,
            occurred_at: message.occurred_at,
            detail: match &message.fact {
                OperatorMessage::Fact(fact) => FactDetail::of(fact),
                OperatorMessage::DeadLetter(message) => FactDetail::of_dead_letter(message),
            },
        }
    }
}

impl FactDetail {
    fn of(fact: &Fact) -> Self {
        let note = |note: String| Self { note: Some(note), ..Self::default() };
        match fact {
            Fact::OrderCreated(fact) => Self {
                customer: Some(fact.payment.customer.clone()),
                total: Some(fact.payment.total),
                deadline: Some(fact.deadline),
                note: Some(format!("{} line(s), {}", fact.lines.len(), fact.payment.total)),
                ..Self::default()
            },
            Fact::OrderCancelled(fact) => Self { cancelled_because: Some(fact.reason), ..Self::default() },
            Fact::StockReservationFailed(fact) => note(
                fact.shortages
                    .iter()
                    .map(|short| format!("{}: {} of {}", short.sku, short.available, short.requested))
                    .collect::<Vec<_>>()
                    .join(", "),
            ),
            Fact::PaymentProcessed(fact) => note(format!("{}, bank {}", fact.amount, fact.bank_reference)),
            Fact::PaymentFailed(fact) => Self {
                payment_failed_because: Some(fact.reason),
                note: Some(fact.reason.as_str().to_owned()),
                ..Self::default()
            },
            Fact::PaymentRefunded(fact) => note(fact.amount.to_string()),
            Fact::StockReserved(fact) => note(pieces(&fact.lines)),
            Fact::StockReleased(fact) => note(pieces(&fact.lines)),
            Fact::DeadlineExtended(fact) => {
                Self { deadline: Some(fact.deadline), ..note(format!("until {}", fact.deadline)) }
            }
            Fact::OrderConfirmed(_)
            | Fact::StockReplenished(_)
            | Fact::ProductListed(_)
            | Fact::PriceChanged(_)
            | Fact::PaymentVoided(_)
            | Fact::DeadlineExtensionRequested(_)
            | Fact::ManualResolutionRequested(_) => Self::default(),
        }
    }

    fn of_dead_letter(message: &DeadLetterMessage) -> Self {
        match message {
            DeadLetterMessage::DeadLettered(said) => Self {
                parked: Some(Parked { dead_letter: said.id, step: said.step.clone() }),
                note: Some(format!("{}: {}", said.step, said.reason)),
                ..Self::default()
            },
            DeadLetterMessage::DeadLetterResolved(said) => Self {
                resolved: Some(said.dead_letter),
                note: Some(format!("{}, replay {}", said.step, said.replays)),
                ..Self::default()
            },
            DeadLetterMessage::DeadLetterForgotten(_)
            | DeadLetterMessage::ReplayRequested(_)
            | DeadLetterMessage::DeadLetterDiscarded(_)
            | DeadLetterMessage::DeadLetterRestored(_) => Self::default(),
        }
    }
}

fn pieces(lines: &[StockLine]) -> String {
    format!("{} piece(s)", lines.iter().map(|line| u64::from(line.quantity)).sum::<u64>())
}
