//! Pure: a payment as the API shows it.

use contract::payment::PaymentView;
use uuid::Uuid;

use crate::domain::Payment;

/// Builds the view of a payment; `None` if the order is unknown.
#[must_use]
pub fn view_of(order: Uuid, payment: &Payment) -> Option<PaymentView> {
    let failure = match payment {
        Payment::New => return None,
        Payment::Failed(_, failure) => Some(*failure),
        Payment::Charging(_)
        | Payment::Expired { .. }
        | Payment::Doomed(_)
        | Payment::Closing(_)
        | Payment::Captured(..)
        | Payment::Reversing(_)
        | Payment::Voiding(_)
        | Payment::Refunding(..)
        | Payment::Refunded(..)
        | Payment::Void
        | Payment::Voided(_)
        | Payment::ResolvedManually(_) => None,
    };
    let context = payment.context();
    Some(PaymentView {
        id: payment.id(order),
        order,
        status: payment.status().to_owned(),
        customer: context.map(|context| context.customer.clone()),
        amount: context.map(|context| context.total),
        bank_reference: payment.reference().to_owned(),
        failure,
    })
}
