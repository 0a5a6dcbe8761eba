//! Pure: whenever this happens to a payment, call the bank or publish that.

use contract::Fact;
use contract::metrics::{MONEY, count_money};
use contract::money::{Currency, Money};
use contract::order::order_id;
use contract::payment::{PaymentFailed, PaymentFailure, PaymentProcessed, PaymentRefunded, PaymentVoided};
use saga_core::{Policy, UnitOfWork};
use uuid::Uuid;

use crate::bank_ledger::{BANK, BankLedger};
use crate::bank_task::{BankCall, BankTask, CHARGE, REFUND};
use crate::domain::{Payment, PaymentEvent, Resolved};
use crate::extension::Extension;
use crate::manual_resolution::ManualResolution;

/// Each cancellation gets one answer: refunded or voided, at once or when the bank has done its part. A payment that
/// was refused has been answered by [`PaymentFailed`] before.
impl Policy<Fact> for Payment {
    fn whenever(event: &PaymentEvent, id: &str, before: &Self, work: &mut UnitOfWork<'_, Fact>) {
        let order = order_id(id);
        let amount = amount(before);
        let payment =
            if let PaymentEvent::Requested(context) | PaymentEvent::ClosureRequested(context) = event {
                context.id
            } else {
                before.id(order)
            };
        match event {
            PaymentEvent::Requested(context) => {
                let deadline = match work.message() {
                    Some(Fact::StockReserved(reserved)) => reserved.deadline,
                    Some(Fact::DeadlineExtended(extended)) => extended.deadline,
                    other => panic!("no charge is requested by {other:?}"),
                };
                let deadline = work.row::<Extension>(order).latest(deadline);
                let may_be_sent = matches!(before, Self::Expired { may_be_sent: true, .. });
                let call = BankCall::Charge { context: context.clone(), deadline, may_be_sent };
                let ledger = work.row::<BankLedger>(BANK).0;
                work.add_task(CHARGE, &BankTask { order, payment, ledger, call });
            }
            PaymentEvent::Captured(reference) => {
                let bank_reference = reference.clone();
                count_money(&MONEY, amount, "captured", work);
                work.publish(PaymentProcessed { order, payment, amount, bank_reference });
            }
            PaymentEvent::Refused(reason) => {
                work.publish(PaymentFailed { order, payment, reason: *reason });
            }
            // The order need not wait for the reversal: no money will come, whatever its outcome.
            PaymentEvent::GivenUp => {
                call_bank(order, payment, BankCall::Reverse, work);
                work.publish(PaymentFailed { order, payment, reason: PaymentFailure::Exhausted });
            }
            PaymentEvent::ReversalRequested => {
                call_bank(order, payment, BankCall::Reverse, work);
            }
            PaymentEvent::ClosureRequested(_) => {
                call_bank(order, payment, BankCall::Close, work);
            }
            PaymentEvent::RefundRequested(_) => {
                call_bank(order, payment, BankCall::Refund, work);
            }
            PaymentEvent::Refunded => {
                count_money(&MONEY, amount, "refunded", work);
                work.publish(PaymentRefunded { order, payment, amount });
            }
            PaymentEvent::Voided | PaymentEvent::Reversed => work.publish(PaymentVoided { order, payment }),
            PaymentEvent::ResolutionWithdrawn => {
                if let Payment::ResolvedManually(resolved) = before {
                    repeat_abandoned_call(order, resolved, work);
                }
            }
            // The order is cancelled or extended next, and either is answered.
            PaymentEvent::Expired { .. }
            | PaymentEvent::Doomed
            | PaymentEvent::ResolvedManually
            | PaymentEvent::CallAbandoned => {}
        }
    }
}

/// Requests the call again that was abandoned while the payment was resolved manually. Any other call is still open or
/// dead-lettered.
fn repeat_abandoned_call(order: Uuid, resolved: &Resolved, work: &mut UnitOfWork<'_, Fact>) {
    let call = match &resolved.before {
        _ if !resolved.is_call_abandoned => return,
        Payment::Refunding(..) => BankCall::Refund,
        Payment::Closing(_) => BankCall::Close,
        Payment::Reversing(_) | Payment::Voiding(_) => BankCall::Reverse,
        Payment::New
        | Payment::Charging(_)
        | Payment::Expired { .. }
        | Payment::Doomed(_)
        | Payment::Captured(..)
        | Payment::Failed(..)
        | Payment::Refunded(..)
        | Payment::Void
        | Payment::Voided(_)
        | Payment::ResolvedManually(_) => return,
    };
    call_bank(order, resolved.before.id(order), call, work);
}

/// Requests a refund, a reversal or a closure. Its first call asks for the ledger.
fn call_bank(order: Uuid, payment: Uuid, call: BankCall, work: &mut UnitOfWork<'_, Fact>) {
    work.add_task(REFUND, &BankTask { order, payment, ledger: None, call });
}

impl Policy<Fact> for ManualResolution {}
impl Policy<Fact> for Extension {}
impl Policy<Fact> for BankLedger {}

fn amount(payment: &Payment) -> Money {
    payment.context().map_or(Money::new(0, Currency::XXX), |context| context.total)
}

/// Fact by which the order learns the outcome of its payment; `None` while there is none that concerns it.
pub(crate) fn outcome(order: Uuid, payment: &Payment) -> Option<Fact> {
    let id = payment.id(order);
    match payment {
        Payment::Captured(context, reference) => Some(Fact::PaymentProcessed(PaymentProcessed {
            order,
            payment: id,
            amount: context.total,
            bank_reference: reference.clone(),
        })),
        Payment::Failed(_, reason) => {
            Some(Fact::PaymentFailed(PaymentFailed { order, payment: id, reason: *reason }))
        }
        Payment::New
        | Payment::Charging(_)
        | Payment::Expired { .. }
        | Payment::Doomed(_)
        | Payment::Closing(_)
        | Payment::Reversing(_)
        | Payment::Voiding(_)
        | Payment::Refunding(..)
        | Payment::Refunded(..)
        | Payment::Void
        | Payment::Voided(_)
        | Payment::ResolvedManually(_) => None,
    }
}
