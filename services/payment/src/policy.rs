//! Pure: whenever they say X, the payment service does Y.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::books::{PaymentEntry, PaymentState};
use shared::contract::{
    Fact, PaymentContext, PaymentFailed, PaymentFailure, PaymentProcessed, PaymentRefunded,
};
use shared::envelope::Message;
use shared::ids::payment_id;
use shared::money::Money;
use shared::retry::FailedTry;
use shared::row::{RowKey, RowKind};
use shared::service::{Heard, Refusal, Service, Step};
use shared::unit::Unit;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::domain::{Payment, PaymentCommand, PaymentRejection, RefundReason};

/// Task: charge the customer.
pub const CHARGE: &str = "payment-charge";
/// Task: make undone what was, or may have been, captured. Named like the step that asks for it: money owed is
/// the same worry wherever it got stuck.
pub const GIVE_BACK: &str = "payment-refund";

/// The payment service's reactions.
pub struct PaymentService;

/// What people may ask: give an order's money back.
#[derive(Debug, Clone, Copy)]
pub struct Refund {
    /// The order.
    pub order: Uuid,
}

/// A call to the bank, as the task keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BankCall {
    /// Charge the customer.
    Charge(PaymentContext),
    /// Give back what was captured.
    Refund,
    /// Undo a charge that may or may not have taken place, and keep it from taking place later.
    Reverse,
}

/// What a task keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BankTask {
    /// The order.
    pub order: Uuid,
    /// The call.
    pub call: BankCall,
}

/// What the bank answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum BankAnswer {
    /// The money was captured, now or when this was first asked.
    Captured {
        /// The bank's id of the charge.
        reference: String,
    },
    /// The bank says no.
    Refused {
        /// Why.
        reason: PaymentFailure,
    },
    /// Nothing is captured any more.
    Undone,
}

/// A payment as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaymentView {
    /// Its id.
    pub id: Uuid,
    /// The order it pays.
    pub order: Uuid,
    /// `CHARGING`, `DOOMED` (cancelled while the bank is asked), `CAPTURED`, `FAILED`, `REVERSING`, `REFUNDING`,
    /// `REFUNDED`, or `VOID` for an order whose cancellation came first.
    pub status: String,
    /// Who pays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// How much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<Money>,
    /// The bank's id of the charge.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bank_reference: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<PaymentFailure>,
}

/// The answer to a command.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Reply {
    /// The payment after it.
    pub payment: Option<PaymentView>,
}

type Reaction = Result<Reply, Refusal<PaymentRejection>>;

impl Service for PaymentService {
    const NAME: &'static str = crate::NAME;
    type Command = Refund;
    type Reply = Reply;
    type Rejection = PaymentRejection;

    fn rows() -> Vec<RowKind> {
        vec![RowKind::of::<Payment>()]
    }

    fn steps() -> &'static [Step] {
        &crate::STEPS
    }

    fn reads(&self, heard: &Heard<'_, Refund>) -> Vec<RowKey> {
        match heard {
            Heard::Command(refund) => vec![RowKey::of::<Payment>(refund.order)],
            Heard::Message(_, message) => {
                message.fact.saga().map(RowKey::of::<Payment>).into_iter().collect()
            }
            Heard::Called { payload, .. } => {
                let task = serde_json::from_str::<BankTask>(payload).ok();
                task.map(|task| RowKey::of::<Payment>(task.order)).into_iter().collect()
            }
            Heard::Due(key) => vec![(*key).clone()],
        }
    }

    fn react(&self, heard: &Heard<'_, Refund>, unit: &mut Unit<'_>) -> Reaction {
        match heard {
            Heard::Command(refund) => decide(refund.order, &PaymentCommand::Refund, unit),
            Heard::Message(step, message) => hear(step, message, unit),
            Heard::Called { payload, answer, .. } => match serde_json::from_str::<BankTask>(payload) {
                Ok(task) => take_answer(&task, *answer, unit),
                Err(error) => Err(Refusal::Broken(format!("a task that is none: {error}"))),
            },
            Heard::Due(key) => Err(Refusal::Broken(format!("no payment is ever due ({key:?})"))),
        }
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the engine hands in what the step subscribes to, no more"
)]
fn hear(step: &Step, message: &Message, unit: &mut Unit<'_>) -> Reaction {
    match &message.fact {
        Fact::StockReserved(fact) => decide(fact.order, &PaymentCommand::Charge(fact.payment.clone()), unit),
        Fact::OrderCancelled(fact) => decide(fact.order, &PaymentCommand::Cancel, unit),
        _ => Err(Refusal::unheard(step, message)),
    }
}

fn take_answer(task: &BankTask, answer: Result<&Value, &FailedTry>, unit: &mut Unit<'_>) -> Reaction {
    let answer = answer.map_err(FailedTry::reason).and_then(|answer| {
        serde_json::from_value(answer.clone()).map_err(|error| format!("no answer: {error}"))
    });
    let command = match (&task.call, answer) {
        (BankCall::Charge(_), Ok(BankAnswer::Captured { reference })) if !reference.is_empty() => {
            PaymentCommand::TakeCapture(reference)
        }
        (BankCall::Charge(_), Ok(BankAnswer::Refused { reason })) => PaymentCommand::TakeRefusal(reason),
        // No clear answer, or one that makes no sense: it may have been charged all the same. No money is
        // counted on, and what came unseen is reversed.
        (BankCall::Charge(_), Ok(BankAnswer::Captured { .. } | BankAnswer::Undone) | Err(_)) => {
            PaymentCommand::GiveUp
        }
        (BankCall::Refund, Ok(BankAnswer::Undone)) => PaymentCommand::TakeRefund,
        (BankCall::Reverse, Ok(BankAnswer::Undone)) => PaymentCommand::TakeReversal,
        // Money owed is never dropped: a human takes over.
        (
            BankCall::Refund | BankCall::Reverse,
            why @ (Ok(BankAnswer::Captured { .. } | BankAnswer::Refused { .. }) | Err(_)),
        ) => {
            let why = why.map_or_else(|reason| reason, |answer| format!("the bank answered {answer:?}"));
            let order = task.order;
            return Err(Refusal::Broken(format!("the money of order {order} cannot be given back: {why}")));
        }
    };
    decide(task.order, &command, unit)
}

/// Decides, then does what the payment's new state asks for: that is all there is to do about any change.
fn decide(order: Uuid, command: &PaymentCommand, unit: &mut Unit<'_>) -> Reaction {
    let was_captured = !unit.row::<Payment>(order).reference().is_empty();
    if unit.decide::<Payment>(order, command).map_err(Refusal::Rejected)? {
        let payment = unit.row::<Payment>(order).clone();
        if !was_captured && !payment.reference().is_empty() {
            unit.publish(captured(order, &payment));
        }
        follow_up(order, &payment, unit);
    }
    Ok(Reply { payment: PaymentView::of(order, unit.row::<Payment>(order)) })
}

fn captured(order: Uuid, payment: &Payment) -> Fact {
    Fact::PaymentProcessed(PaymentProcessed {
        order,
        payment: payment_id(order),
        amount: amount(payment),
        bank_reference: payment.reference().to_owned(),
    })
}

fn follow_up(order: Uuid, payment: &Payment, unit: &mut Unit<'_>) {
    let failed = |reason| Fact::PaymentFailed(PaymentFailed { order, payment: payment_id(order), reason });
    let mut call = |kind, call| {
        unit.note(kind, &BankTask { order, call });
    };
    match payment {
        Payment::Charging(context) => call(CHARGE, BankCall::Charge(context.clone())),
        Payment::Refunding(..) => call(GIVE_BACK, BankCall::Refund),
        Payment::Reversing(_) => {
            call(GIVE_BACK, BankCall::Reverse);
            unit.publish(failed(PaymentFailure::Exhausted));
        }
        // A reversal that is done was told when it began.
        Payment::Failed(_, PaymentFailure::Exhausted) => {}
        Payment::Failed(_, reason) => unit.publish(failed(*reason)),
        Payment::Refunded(..) => {
            let (payment, amount) = (payment_id(order), amount(payment));
            unit.publish(Fact::PaymentRefunded(PaymentRefunded { order, payment, amount }));
        }
        Payment::New | Payment::Doomed(_) | Payment::Captured(..) | Payment::Void => {}
    }
}

fn amount(payment: &Payment) -> Money {
    payment.context().map_or(Money::new(0, shared::money::Currency::XXX), |context| context.total)
}

impl PaymentView {
    /// The view of a payment; `None` when nothing is known of it.
    #[must_use]
    pub fn of(order: Uuid, payment: &Payment) -> Option<Self> {
        let failure = match payment {
            Payment::New => return None,
            Payment::Failed(_, failure) => Some(*failure),
            Payment::Charging(_)
            | Payment::Doomed(_)
            | Payment::Captured(..)
            | Payment::Reversing(_)
            | Payment::Refunding(..)
            | Payment::Refunded(..)
            | Payment::Void => None,
        };
        let context = payment.context();
        Some(Self {
            id: payment_id(order),
            order,
            status: payment.status().to_owned(),
            customer: context.map(|context| context.customer.clone()),
            amount: context.map(|context| context.total),
            bank_reference: payment.reference().to_owned(),
            failure,
        })
    }
}

/// What the audit gets to see of a payment.
#[must_use]
pub fn book_entry(order: Uuid, payment: &Payment) -> PaymentEntry {
    let state = match payment {
        Payment::New | Payment::Void | Payment::Failed(..) => PaymentState::None,
        Payment::Charging(_) | Payment::Doomed(_) | Payment::Reversing(_) | Payment::Refunding(..) => {
            PaymentState::Open
        }
        Payment::Captured(..) => PaymentState::Captured,
        Payment::Refunded(..) => PaymentState::Refunded,
    };
    let refunded_by_operator = payment.refund_reason() == Some(RefundReason::Operator);
    let amount = payment.context().map(|context| context.total);
    PaymentEntry { order, state, amount, refunded_by_operator }
}
