//! Pure: payments as the reconciliation sees them.

use contract::FactType;
use contract::reconciliation::{PaymentEntry, PaymentState, PublishedFact};
use saga_core::row::PastEvent;
use uuid::Uuid;

use crate::domain::{Payment, PaymentEvent, RefundReason};

/// Builds the ledger entry of a payment.
#[must_use]
pub fn ledger_entry(order: Uuid, payment: &Payment, history: &[PastEvent<PaymentEvent>]) -> PaymentEntry {
    let state = match payment {
        Payment::New | Payment::Void | Payment::Voided(_) | Payment::Failed(..) => PaymentState::None,
        Payment::Charging(_)
        | Payment::Expired { .. }
        | Payment::Doomed(_)
        | Payment::Closing(_)
        | Payment::Reversing(_)
        | Payment::Voiding(_)
        | Payment::Refunding(..)
        // A manual resolution changes nothing at the bank.
        | Payment::ResolvedManually(_) => PaymentState::Open,
        Payment::Captured(..) => PaymentState::Captured,
        Payment::Refunded(..) => PaymentState::Refunded,
    };
    let context = payment.context();
    let amount = context.map(|context| context.total);
    let amounts = |is_wanted: fn(&PaymentEvent) -> bool| {
        history.iter().filter(|past| is_wanted(&past.event)).filter_map(|_| amount).collect()
    };
    PaymentEntry {
        order,
        state,
        customer: context.map(|context| context.customer.clone()),
        amount,
        reference: payment.reference().to_owned(),
        captured: amounts(|event| matches!(event, PaymentEvent::Captured(_))),
        refunded: amounts(|event| matches!(event, PaymentEvent::Refunded)),
        resolved_manually: matches!(payment, Payment::ResolvedManually(_)),
        refunded_by_operator: payment.refund_reason() == Some(RefundReason::Operator),
        published: PublishedFact::of(history, fact_of),
    }
}

/// Type of the fact that an event is published as.
#[must_use]
pub const fn fact_of(event: &PaymentEvent) -> Option<FactType> {
    match event {
        PaymentEvent::Captured(_) => Some(FactType::PaymentProcessed),
        PaymentEvent::Refused(_) | PaymentEvent::GivenUp => Some(FactType::PaymentFailed),
        PaymentEvent::Refunded => Some(FactType::PaymentRefunded),
        PaymentEvent::Voided | PaymentEvent::Reversed => Some(FactType::PaymentVoided),
        PaymentEvent::Requested(_)
        | PaymentEvent::Expired { .. }
        | PaymentEvent::Doomed
        | PaymentEvent::ClosureRequested(_)
        | PaymentEvent::ReversalRequested
        | PaymentEvent::RefundRequested(_)
        | PaymentEvent::ResolvedManually
        | PaymentEvent::ResolutionWithdrawn
        | PaymentEvent::CallAbandoned => None,
    }
}
