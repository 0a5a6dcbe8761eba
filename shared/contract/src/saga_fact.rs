//! Pure: a fact, as the view of a saga keeps it.

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

/// Fact of a saga, as its view keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SagaFact {
    /// Id of the message, as in its envelope.
    pub message_id: Uuid,
    /// Name of the type, as in the envelope, e.g. `OrderCreated`.
    #[serde(rename = "type")]
    pub message_type: String,
    /// Name of the service that published it.
    pub producer: String,
    /// Id of the input that caused the fact.
    pub causation_id: Uuid,
    /// Time at which the input was decided.
    pub occurred_at: Timestamp,
    /// Members that the view shows.
    pub detail: FactDetail,
}

/// Members of a fact that the view shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FactDetail {
    /// Customer of the order, from `OrderCreated`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// Total price of the order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Money>,
    /// Deadline of the order, after all extensions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Reason why the order was cancelled, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_because: Option<CancelReason>,
    /// Reason of the failed payment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payment_failed_because: Option<PaymentFailure>,
    /// Summary of other members, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Dead letter that was announced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_lettered: Option<DeadLetterRef>,
    /// Dead letter that a replay resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Uuid>,
}

/// Dead letter of a saga.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterRef {
    /// Id of the dead letter.
    pub dead_letter: Uuid,
    /// Step that failed, or kind of task.
    pub step: String,
}

impl SagaFact {
    /// Extracts what the view keeps of a message.
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
            | Fact::ManualResolutionRequested(_)
            | Fact::ProductChangeAudited(_)
            | Fact::RefundAudited(_) => Self::default(),
        }
    }

    fn of_dead_letter(message: &DeadLetterMessage) -> Self {
        match message {
            DeadLetterMessage::DeadLettered(message) => Self {
                dead_lettered: Some(DeadLetterRef { dead_letter: message.id, step: message.step.clone() }),
                note: Some(format!("{}: {}", message.step, message.reason)),
                ..Self::default()
            },
            DeadLetterMessage::DeadLetterResolved(message) => Self {
                resolved: Some(message.dead_letter),
                note: Some(format!("{}, replay {}", message.step, message.replays)),
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
