//! Pure: the ledger of payments for the reconciliation.

use contract::reconciliation::{PaymentEntry, PaymentState, PublishedFact};
use saga_core::row::PastEvent;
use uuid::Uuid;

use crate::domain::{Payment, PaymentEvent, RefundReason};
use crate::policy::fact_of;

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
        published: PublishedFact::of(history, fact_of),
    }
}
