//! Pure: what the reconciliation gets to see of payments, and which of them came to nothing without a word.

use contract::reconciliation::{PaymentEntry, PaymentState, Said};
use saga_core::row::{PastEvent, StoredEvent};
use uuid::Uuid;

use crate::domain::{Payment, PaymentEvent, RefundReason};
use crate::policy::told;

/// What the reconciliation gets to see of a payment.
#[must_use]
pub fn ledger_entry(order: Uuid, payment: &Payment, history: &[PastEvent<PaymentEvent>]) -> PaymentEntry {
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
    let each = |is_it: fn(&PaymentEvent) -> bool| {
        history.iter().filter(|it| is_it(&it.event)).filter_map(|_| amount).collect()
    };
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
        said: said_in(history),
    }
}

/// What of a history was said. Where an answer had to be given later, what came of the payment was not said then.
fn said_in(history: &[PastEvent<PaymentEvent>]) -> Vec<Said> {
    let is_answered_later = history.iter().any(|it| matches!(it.event, PaymentEvent::Answered));
    let said = |PastEvent { event, at, told: is_told }: &PastEvent<PaymentEvent>| {
        let is_silence = !is_told && is_end(event);
        let fact = told(event).filter(|_| !(is_answered_later && is_silence))?;
        Some(Said { fact, at: *at })
    };
    history.iter().filter_map(said).collect()
}

/// Whether it is the end of a payment of which others must know that nothing is charged.
const fn is_end(event: &PaymentEvent) -> bool {
    matches!(event, PaymentEvent::Voided | PaymentEvent::Reversed)
}

/// Whether a payment with this history came to nothing without a word to the others, as builds before
/// [`PaymentVoided`](contract::payment::PaymentVoided) left them.
#[must_use]
pub fn is_silent(history: &[StoredEvent]) -> bool {
    let is_end = |last: &StoredEvent| serde_json::from_str(&last.data).is_ok_and(|event| is_end(&event));
    history.last().is_some_and(|last| !last.told && is_end(last))
}
