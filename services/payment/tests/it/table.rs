//! Pure: what every state of a payment answers to every command, printed.
//!
//! The lists are complete by construction: a new variant stops the build in the `match` that walks them.

use std::iter::successors;

use contract::payment::PaymentFailure;
use payment::domain::{Payment, PaymentCommand, RefundReason, Settled};

use crate::given::{REFERENCE, context};
use saga_core::decider::Decider as _;
use saga_engine::testing::decider::{Names, table};

#[test]
fn every_state_of_a_payment_answers_every_command() {
    let names = Names { state: name_of_state, command: name_of_command, rejection: |no| format!("{no:?}") };
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("payment", table(&states(), &commands(), &names));
    });
}

/// What is open may end with money that goes back.
#[test]
fn only_payments_that_are_over_may_leave() {
    let states = states();
    let over: Vec<_> = states.iter().filter(|payment| payment.is_finished()).map(Payment::status).collect();
    assert_eq!(over, ["CAPTURED", "FAILED", "FAILED", "REFUNDED", "VOID", "VOID"]);
}

pub fn states() -> Vec<Payment> {
    let reference = || REFERENCE.to_owned();
    let next = |state: &Payment| match state {
        Payment::New => Some(Payment::Charging(context())),
        Payment::Charging(_) => Some(Payment::Doomed(context())),
        Payment::Doomed(_) => Some(Payment::Captured(context(), reference())),
        Payment::Captured(..) => Some(Payment::Failed(context(), PaymentFailure::Declined)),
        Payment::Failed(_, PaymentFailure::Declined) => {
            Some(Payment::Failed(context(), PaymentFailure::Exhausted))
        }
        Payment::Failed(..) => Some(Payment::Reversing(context())),
        Payment::Reversing(_) => Some(Payment::Voiding(context())),
        Payment::Voiding(_) => Some(Payment::Refunding(context(), reference(), RefundReason::OrderCancelled)),
        Payment::Refunding(_, _, RefundReason::OrderCancelled) => {
            Some(Payment::Refunding(context(), reference(), RefundReason::Operator))
        }
        Payment::Refunding(_, _, RefundReason::Operator) => {
            Some(Payment::Refunded(context(), reference(), RefundReason::Operator))
        }
        Payment::Refunded(..) => Some(Payment::Void),
        Payment::Void => Some(Payment::Voided(context())),
        Payment::Voided(_) => Some(settled(Payment::Doomed(context()), false)),
        Payment::Settled(settled_one) => match (&settled_one.was, settled_one.is_stopped) {
            (Payment::Doomed(_), _) => Some(settled(Payment::Reversing(context()), false)),
            (Payment::Reversing(_), false) => Some(settled(Payment::Reversing(context()), true)),
            (_, _) => None,
        },
    };
    successors(Some(Payment::New), next).collect()
}

pub fn commands() -> Vec<PaymentCommand> {
    let next = |command: &PaymentCommand| match command {
        PaymentCommand::Charge(_) => Some(PaymentCommand::Expire),
        PaymentCommand::Expire => Some(PaymentCommand::Cancel),
        PaymentCommand::Cancel => Some(PaymentCommand::TakeCapture(REFERENCE.to_owned())),
        PaymentCommand::TakeCapture(_) => Some(PaymentCommand::TakeRefusal(PaymentFailure::Declined)),
        PaymentCommand::TakeRefusal(_) => Some(PaymentCommand::GiveUp),
        PaymentCommand::GiveUp => Some(PaymentCommand::Withdraw),
        PaymentCommand::Withdraw => Some(PaymentCommand::Reverse),
        PaymentCommand::Reverse => Some(PaymentCommand::TakeReversal),
        PaymentCommand::TakeReversal => Some(PaymentCommand::Refund),
        PaymentCommand::Refund => Some(PaymentCommand::TakeRefund),
        PaymentCommand::TakeRefund => Some(PaymentCommand::Settle),
        PaymentCommand::Settle => Some(PaymentCommand::Unsettle),
        PaymentCommand::Unsettle => Some(PaymentCommand::Stop),
        PaymentCommand::Stop => None,
    };
    successors(Some(PaymentCommand::Charge(context())), next).collect()
}

fn settled(was: Payment, is_stopped: bool) -> Payment {
    Payment::Settled(Box::new(Settled { was, is_stopped }))
}

fn name_of_state(state: &Payment) -> String {
    let detail = match state {
        Payment::Settled(settled) => {
            let stopped = if settled.is_stopped { ", stopped" } else { "" };
            return format!("SETTLED ({}{stopped})", name_of_state(&settled.was));
        }
        Payment::Failed(_, reason) => reason.as_str(),
        Payment::Refunding(_, _, RefundReason::Operator)
        | Payment::Refunded(_, _, RefundReason::Operator) => "kindness",
        Payment::Refunding(_, _, RefundReason::OrderCancelled)
        | Payment::Refunded(_, _, RefundReason::OrderCancelled) => "cancelled",
        Payment::New
        | Payment::Charging(_)
        | Payment::Doomed(_)
        | Payment::Captured(..)
        | Payment::Reversing(_)
        | Payment::Voiding(_)
        | Payment::Void => return state.status().to_owned(),
        Payment::Voided(_) => "under its id",
    };
    format!("{} ({detail})", state.status())
}

fn name_of_command(command: &PaymentCommand) -> String {
    let name = match command {
        PaymentCommand::Charge(_) => "Charge",
        PaymentCommand::Expire => "Expire",
        PaymentCommand::Cancel => "Cancel",
        PaymentCommand::TakeCapture(_) => "TakeCapture",
        PaymentCommand::TakeRefusal(_) => "TakeRefusal",
        PaymentCommand::GiveUp => "GiveUp",
        PaymentCommand::Withdraw => "Withdraw",
        PaymentCommand::Reverse => "Reverse",
        PaymentCommand::TakeReversal => "TakeReversal",
        PaymentCommand::Refund => "Refund",
        PaymentCommand::TakeRefund => "TakeRefund",
        PaymentCommand::Settle => "Settle",
        PaymentCommand::Unsettle => "Unsettle",
        PaymentCommand::Stop => "Stop",
    };
    name.to_owned()
}
