//! Pure: what the reconciliation gets to see of payments, and which of them came to nothing without a word.

use contract::reconciliation::{PaymentEntry, PaymentState, Said, events};
use saga_core::row::StoredEvent;
use uuid::Uuid;

use crate::domain::{Payment, PaymentEvent, RefundReason};
use crate::policy::told;

/// What the reconciliation gets to see of a payment.
#[must_use]
pub fn ledger_entry(order: Uuid, payment: &Payment, history: &[StoredEvent]) -> PaymentEntry {
    let state = match payment {
        Payment::New | Payment::Void | Payment::Voided(_) | Payment::Failed(..) => PaymentState::None,
        Payment::Charging(_)
        | Payment::Doomed(_)
        | Payment::Reversing(_)
        | Payment::Voiding(_)
        | Payment::Refunding(..)
        // To the bank it is as open as it was.
        | Payment::Settled(_) => PaymentState::Open,
        Payment::Captured(..) => PaymentState::Captured,
        Payment::Refunded(..) => PaymentState::Refunded,
    };
    let context = payment.context();
    let amount = context.map(|context| context.total);
    let each =
        |is_it: fn(&PaymentEvent) -> bool| events(history).filter(is_it).filter_map(|_| amount).collect();
    PaymentEntry {
        order,
        state,
        customer: context.map(|context| context.customer.clone()),
        amount,
        reference: payment.reference().to_owned(),
        captured: each(|event| matches!(event, PaymentEvent::Captured(_))),
        refunded: each(|event| matches!(event, PaymentEvent::Refunded)),
        settled: matches!(payment, Payment::Settled(_)),
        refunded_by_operator: payment.refund_reason() == Some(RefundReason::Operator),
        said: Said::of(&said_in(history), told),
    }
}

/// What of a history was said. Where an answer had to be given later, what came of the payment was not said then.
fn said_in(history: &[StoredEvent]) -> Vec<StoredEvent> {
    let is_silence = |event: &&StoredEvent| !event.told && is_end(event);
    let is_answered_later = events(history).any(|event| matches!(event, PaymentEvent::Answered));
    history.iter().filter(|event| !(is_answered_later && is_silence(event))).cloned().collect()
}

/// Whether it is the end of a payment of which others must know that nothing is charged.
fn is_end(event: &StoredEvent) -> bool {
    let event = serde_json::from_str(&event.data).ok();
    matches!(event, Some(PaymentEvent::Voided | PaymentEvent::Reversed))
}

/// Whether a payment with this history came to nothing without a word to the others, as builds before
/// [`PaymentVoided`](contract::payment::PaymentVoided) left them.
#[must_use]
pub fn is_silent(history: &[StoredEvent]) -> bool {
    history.last().is_some_and(|last| !last.told && is_end(last))
}
