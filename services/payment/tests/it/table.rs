//! Pure: each state × command of payments, printed.
//!
//! The lists are complete: a new variant fails to compile in the `match` that walks them.

use std::iter::successors;

use contract::payment::PaymentFailure;
use payment::domain::{Payment, PaymentCommand, RefundReason, Resolved};

use crate::given::{REFERENCE, context};
use payment::extension::Extension;
use payment::manual_resolution::ManualResolution;
use payment::service::PaymentService;
use saga_core::decider::{Decider as _, RetentionPolicy};
use saga_core::service::Service as _;
use saga_engine::testing::decider::{Names, table};

#[test]
fn payment_state_table() {
    let names = Names { state: name_of_state, command: name_of_command, rejection: |no| format!("{no:?}") };
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("payment", table(&states(), &commands(), &names));
    });
}

/// An open payment may still end with a refund.
#[test]
fn only_ended_payments_may_be_purged() {
    let states = states();
    let over: Vec<_> = states.iter().filter(|payment| payment.is_finished()).map(Payment::status).collect();
    assert_eq!(over, ["CAPTURED", "FAILED", "FAILED", "REFUNDED", "VOID", "VOID"]);
}

#[test]
fn only_the_banks_ledger_is_kept_for_ever() {
    let kept = PaymentService::rows().into_iter().filter(|kind| kind.retention == RetentionPolicy::Keep);
    assert_eq!(kept.map(|kind| kind.name).collect::<Vec<_>>(), ["bank_ledger"]);
    assert!(Extension::default().is_finished() && ManualResolution::default().is_finished());
}

pub fn states() -> Vec<Payment> {
    let reference = || REFERENCE.to_owned();
    let next = |state: &Payment| match state {
        Payment::New => Some(Payment::Charging(context())),
        Payment::Charging(_) => Some(Payment::Expired { context: context(), may_be_sent: false }),
        Payment::Expired { may_be_sent: false, .. } => {
            Some(Payment::Expired { context: context(), may_be_sent: true })
        }
        Payment::Expired { .. } => Some(Payment::Doomed(context())),
        Payment::Doomed(_) => Some(Payment::Closing(context())),
        Payment::Closing(_) => Some(Payment::Captured(context(), reference())),
        Payment::Captured(..) => Some(Payment::Failed(context(), PaymentFailure::Declined)),
        Payment::Failed(_, PaymentFailure::Declined) => {
            Some(Payment::Failed(context(), PaymentFailure::Exhausted))
        }
        Payment::Failed(..) => Some(Payment::Reversing(context())),
        Payment::Reversing(_) => Some(Payment::Voiding(Some(context()))),
        Payment::Voiding(Some(_)) => Some(Payment::Voiding(None)),
        Payment::Voiding(None) => {
            Some(Payment::Refunding(context(), reference(), RefundReason::OrderCancelled))
        }
        Payment::Refunding(_, _, RefundReason::OrderCancelled) => {
            Some(Payment::Refunding(context(), reference(), RefundReason::Operator))
        }
        Payment::Refunding(_, _, RefundReason::Operator) => {
            Some(Payment::Refunded(context(), reference(), RefundReason::Operator))
        }
        Payment::Refunded(..) => Some(Payment::Void),
        Payment::Void => Some(Payment::Voided(context())),
        Payment::Voided(_) => Some(resolved(Payment::Doomed(context()), false)),
        Payment::ResolvedManually(current) => match (&current.before, current.is_call_abandoned) {
            (Payment::Doomed(_), _) => Some(resolved(Payment::Reversing(context()), false)),
            (Payment::Reversing(_), false) => Some(resolved(Payment::Reversing(context()), true)),
            (Payment::Reversing(_), true) => Some(resolved(Payment::Closing(context()), false)),
            (Payment::Closing(_), _) => {
                Some(resolved(Payment::Expired { context: context(), may_be_sent: true }, false))
            }
            (_, _) => None,
        },
    };
    successors(Some(Payment::New), next).collect()
}

pub fn commands() -> Vec<PaymentCommand> {
    let next = |command: &PaymentCommand| match command {
        PaymentCommand::Charge(_) => Some(PaymentCommand::Expire(context())),
        PaymentCommand::Expire(_) => Some(PaymentCommand::Cancel),
        PaymentCommand::Cancel => Some(PaymentCommand::RecordCapture(REFERENCE.to_owned())),
        PaymentCommand::RecordCapture(_) => Some(PaymentCommand::RecordRefusal(PaymentFailure::Declined)),
        PaymentCommand::RecordRefusal(_) => Some(PaymentCommand::GiveUp),
        PaymentCommand::GiveUp => Some(PaymentCommand::Withdraw { may_be_sent: false }),
        PaymentCommand::Withdraw { may_be_sent: false } => {
            Some(PaymentCommand::Withdraw { may_be_sent: true })
        }
        PaymentCommand::Withdraw { .. } => Some(PaymentCommand::Close(context())),
        PaymentCommand::Close(_) => Some(PaymentCommand::Reverse),
        PaymentCommand::Reverse => Some(PaymentCommand::RecordReversal),
        PaymentCommand::RecordReversal => Some(PaymentCommand::Refund),
        PaymentCommand::Refund => Some(PaymentCommand::RecordRefund),
        PaymentCommand::RecordRefund => Some(PaymentCommand::ResolveManually),
        PaymentCommand::ResolveManually => Some(PaymentCommand::WithdrawResolution),
        PaymentCommand::WithdrawResolution => Some(PaymentCommand::AbandonCall),
        PaymentCommand::AbandonCall => None,
    };
    successors(Some(PaymentCommand::Charge(context())), next).collect()
}

fn resolved(before: Payment, is_call_abandoned: bool) -> Payment {
    Payment::ResolvedManually(Box::new(Resolved { before, is_call_abandoned }))
}

fn name_of_state(state: &Payment) -> String {
    let detail = match state {
        Payment::ResolvedManually(resolved) => {
            let call = if resolved.is_call_abandoned { ", call abandoned" } else { "" };
            return format!("RESOLVED_MANUALLY ({}{call})", name_of_state(&resolved.before));
        }
        Payment::Failed(_, reason) => reason.as_str(),
        Payment::Refunding(_, _, RefundReason::Operator)
        | Payment::Refunded(_, _, RefundReason::Operator) => "kindness",
        Payment::Refunding(_, _, RefundReason::OrderCancelled)
        | Payment::Refunded(_, _, RefundReason::OrderCancelled) => "cancelled",
        Payment::New
        | Payment::Charging(_)
        | Payment::Doomed(_)
        | Payment::Closing(_)
        | Payment::Captured(..)
        | Payment::Reversing(_)
        | Payment::Voiding(Some(_))
        | Payment::Void => return state.status().to_owned(),
        Payment::Expired { may_be_sent: false, .. } => "never sent",
        Payment::Expired { .. } => "may be sent",
        Payment::Voiding(None) => "its request is forgotten",
        Payment::Voided(_) => "under its id",
    };
    format!("{} ({detail})", state.status())
}

fn name_of_command(command: &PaymentCommand) -> String {
    let name = match command {
        PaymentCommand::Charge(_) => "Charge",
        PaymentCommand::Expire(_) => "Expire",
        PaymentCommand::Cancel => "Cancel",
        PaymentCommand::RecordCapture(_) => "RecordCapture",
        PaymentCommand::RecordRefusal(_) => "RecordRefusal",
        PaymentCommand::GiveUp => "GiveUp",
        PaymentCommand::Withdraw { may_be_sent: false } => "Withdraw (never sent)",
        PaymentCommand::Withdraw { .. } => "Withdraw (may be sent)",
        PaymentCommand::Close(_) => "Close",
        PaymentCommand::Reverse => "Reverse",
        PaymentCommand::RecordReversal => "RecordReversal",
        PaymentCommand::Refund => "Refund",
        PaymentCommand::RecordRefund => "RecordRefund",
        PaymentCommand::ResolveManually => "ResolveManually",
        PaymentCommand::WithdrawResolution => "WithdrawResolution",
        PaymentCommand::AbandonCall => "AbandonCall",
    };
    name.to_owned()
}
