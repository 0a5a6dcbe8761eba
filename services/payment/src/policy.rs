//! Pure: whenever they say X, the payment service does Y.

use contract::metrics::{MONEY, count_money};
use contract::money::{Currency, Money};
use contract::order::PaymentContext;
use contract::payment::{PaymentFailed, PaymentFailure, PaymentProcessed, PaymentRefunded, PaymentVoided};
use contract::topology::OPERATOR;
use contract::{Fact, FactType, payment_id};
use jiff::Timestamp;
use saga_core::message::{Message as _, Received};
use saga_core::retry::{FailedTry, FailureKind};
use saga_core::row::{RowKey, RowKind};
use saga_core::service::{HandlerError, HandlerResult, Service, Step, TaskResult};
use saga_core::{Policy, UnitOfWork};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::domain::{Payment, PaymentCommand, PaymentEvent, PaymentRejection, Settled};
use crate::extension::Extension;
use crate::settlement::{Settlements, Word};

/// Task: charge the customer.
pub const CHARGE: &str = "payment-charge";
/// Task: make undone what was, or may have been, captured. Named like the step that asks for it: money owed is
/// the same worry wherever it got stuck.
pub const GIVE_BACK: &str = "payment-refund";

/// The payment service's reactions.
#[derive(Debug)]
pub struct PaymentService;

/// Operator command: refund a captured payment. The order stands.
#[derive(Debug, Clone)]
pub struct Refund {
    pub order: Uuid,
}

/// A call to the bank, as the task keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BankCall {
    /// Charge the customer, unless the deadline has passed.
    Charge { context: PaymentContext, deadline: Timestamp },
    /// Give back what was captured.
    Refund,
    /// Undo a charge that may or may not have taken place, and keep it from taking place later.
    Reverse,
}

/// What a task keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BankTask {
    /// The order whose one payment the call is about.
    pub order: Uuid,
    /// Key of the charge at the bank.
    pub payment: Uuid,
    /// What the bank is asked to do.
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
        /// The bank's reason; it never says [`PaymentFailure::Exhausted`].
        reason: PaymentFailure,
    },
    /// Nothing is captured any more.
    Undone,
}

impl BankAnswer {
    /// What it says, in a sentence.
    fn told(&self) -> String {
        match self {
            Self::Captured { reference } => format!("the bank answered that it captured {reference}"),
            Self::Refused { reason } => format!("the bank refused: {}", reason.as_str()),
            Self::Undone => "the bank answered that nothing is captured".to_owned(),
        }
    }
}

/// A payment as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaymentView {
    /// An order has one payment, and says which before anything is charged.
    pub id: Uuid,
    /// The order it pays.
    pub order: Uuid,
    /// `CHARGING`, `DOOMED` (cancelled while the bank is asked), `CAPTURED`, `FAILED`, `REVERSING` (given up),
    /// `VOIDING` (over, and the bank may have heard of it), `REFUNDING`, `REFUNDED`, `VOID` for an order that was over
    /// before anything was captured, or `SETTLED` by an operator outside: the bank is not asked any more.
    pub status: String,
    /// Who pays; absent when `VOID`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// The order's total; absent when `VOID`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<Money>,
    /// The bank's id of the charge.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bank_reference: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<PaymentFailure>,
}

type Work<'a> = UnitOfWork<'a, Fact>;

/// Whenever something happens to a payment, the bank is called or the others hear of it. A cancellation is always
/// answered, at once or when the bank has done its part: refunded, void, or failed before.
impl Policy<Fact> for Payment {
    fn whenever(event: &PaymentEvent, id: &str, before: &Self, work: &mut Work<'_>) {
        let order = order_id(id);
        let (payment, amount) = (payment_id(order), amount(before));
        match event {
            PaymentEvent::Requested(context) => {
                let deadline = match work.message() {
                    Some(Fact::StockReserved(reserved)) => reserved.deadline,
                    other => panic!("only a stock reservation requests a charge, and this is {other:?}"),
                };
                let deadline = extended(order, deadline, work);
                let call = BankCall::Charge { context: context.clone(), deadline };
                work.add_task(CHARGE, &BankTask { order, payment, call });
            }
            PaymentEvent::Captured(reference) => {
                let bank_reference = reference.clone();
                count_money(&MONEY, amount, "captured", work);
                work.publish(PaymentProcessed { order, payment, amount, bank_reference });
            }
            PaymentEvent::Refused(reason) => {
                work.publish(PaymentFailed { order, payment, reason: *reason });
            }
            // The order does not wait for the reversal: no money will come, whatever it finds.
            PaymentEvent::GivenUp => {
                work.add_task(GIVE_BACK, &BankTask { order, payment, call: BankCall::Reverse });
                work.publish(PaymentFailed { order, payment, reason: PaymentFailure::Exhausted });
            }
            PaymentEvent::ReversalRequested => {
                work.add_task(GIVE_BACK, &BankTask { order, payment, call: BankCall::Reverse });
            }
            PaymentEvent::RefundRequested(_) => {
                work.add_task(GIVE_BACK, &BankTask { order, payment, call: BankCall::Refund });
            }
            PaymentEvent::Refunded => {
                count_money(&MONEY, amount, "refunded", work);
                work.publish(PaymentRefunded { order, payment, amount });
            }
            PaymentEvent::Voided | PaymentEvent::Reversed => {
                work.publish(PaymentVoided { order, payment });
            }
            PaymentEvent::Unsettled => {
                if let Payment::Settled(settled) = before {
                    ask_again(order, settled, work);
                }
            }
            PaymentEvent::Doomed | PaymentEvent::Settled | PaymentEvent::Stopped => {}
        }
    }
}

/// A call that ended unmade is made anew. One that did not is still open, or parked.
fn ask_again(order: Uuid, settled: &Settled, work: &mut Work<'_>) {
    let call = match &settled.was {
        _ if !settled.is_stopped => return,
        Payment::Refunding(..) => BankCall::Refund,
        Payment::Reversing(_) | Payment::Voiding(_) => BankCall::Reverse,
        Payment::New
        | Payment::Charging(_)
        | Payment::Doomed(_)
        | Payment::Captured(..)
        | Payment::Failed(..)
        | Payment::Refunded(..)
        | Payment::Void
        | Payment::Voided(_)
        | Payment::Settled(_) => return,
    };
    work.add_task(GIVE_BACK, &BankTask { order, payment: payment_id(order), call });
}

/// Nobody is told what was heard of an order.
impl Policy<Fact> for Settlements {}
impl Policy<Fact> for Extension {}

impl Service for PaymentService {
    const NAME: &'static str = crate::NAME;
    const OPERATOR: Option<&'static str> = Some(OPERATOR);
    const SECRETS: &'static [&'static str] = &contract::order::SECRETS;
    type Fact = Fact;
    type Command = Refund;
    type Reply = PaymentView;
    type Rejection = PaymentRejection;

    fn rows() -> Vec<RowKind> {
        vec![RowKind::of::<Payment>(), RowKind::of::<Extension>(), RowKind::of::<Settlements>()]
    }

    fn steps() -> &'static [Step] {
        &crate::STEPS
    }

    fn rows_of_command(&self, command: &Refund) -> Vec<RowKey> {
        vec![RowKey::of::<Payment>(command.order)]
    }

    fn on_command(
        &self,
        Refund { order }: &Refund,
        work: &mut Work<'_>,
    ) -> Result<PaymentView, HandlerError<PaymentRejection>> {
        work.decide::<Payment>(order, &PaymentCommand::Refund)?;
        PaymentView::of(*order, work.row::<Payment>(order)).ok_or_else(|| PaymentRejection::Unknown.into())
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "most facts concern the payment alone")]
    fn rows_of_message(&self, message: &Received<Fact>) -> Vec<RowKey> {
        let Some(order) = message.fact.saga() else { return vec![] };
        match message.fact.fact_type() {
            FactType::StockReserved => both(order),
            FactType::DeadlineExtended => vec![RowKey::of::<Extension>(order)],
            FactType::SettlementRequested | FactType::OrderCancelled => {
                vec![RowKey::of::<Payment>(order), RowKey::of::<Settlements>(order)]
            }
            _ => vec![RowKey::of::<Payment>(order)],
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the engine hands in what the step subscribes to, no more"
    )]
    fn on_message(
        &self,
        step: &'static Step,
        message: &Received<Fact>,
        work: &mut Work<'_>,
    ) -> HandlerResult<Self> {
        match &message.fact {
            Fact::StockReserved(fact) => {
                let deadline = extended(fact.order, fact.deadline, work);
                let command = match deadline <= work.now() {
                    true => PaymentCommand::Expire,
                    false => PaymentCommand::Charge(fact.payment.clone()),
                };
                work.decide::<Payment>(fact.order, &command)?;
            }
            Fact::OrderCancelled(fact) => {
                work.decide::<Payment>(fact.order, &PaymentCommand::Cancel)?;
                // Whoever settled it knew of this already, though payment did not.
                if work.row::<Settlements>(fact.order).outlasts_cancellation() {
                    work.decide::<Payment>(fact.order, &PaymentCommand::Settle)?;
                }
            }
            Fact::DeadlineExtended(fact) => {
                let Ok(_) = work.decide::<Extension>(fact.order, &fact.deadline);
            }
            Fact::SettlementRequested(asked) => {
                let outlasts_cancellation = asked.settled && asked.cancelled;
                let word = Word { revision: asked.revision, outlasts_cancellation };
                let Ok(is_news) = work.decide::<Settlements>(asked.order, &word);
                if is_news {
                    let settle =
                        if asked.settled { PaymentCommand::Settle } else { PaymentCommand::Unsettle };
                    work.decide::<Payment>(asked.order, &settle)?;
                }
            }
            _ => return Err(HandlerError::unhandled(step, message)),
        }
        Ok(())
    }

    fn rows_of_result(&self, result: &TaskResult<'_>) -> Vec<RowKey> {
        let task = serde_json::from_str::<BankTask>(result.payload).ok();
        task.map(|task| both(task.order)).unwrap_or_default()
    }

    /// A charge is not sent to the bank once the order is over; what is owed always is, unless it was settled outside.
    fn is_task_needed(&self, result: &TaskResult<'_>, work: &mut Work<'_>) -> bool {
        match serde_json::from_str::<BankTask>(result.payload) {
            Ok(BankTask { order, call: BankCall::Charge { deadline, .. }, .. }) => {
                let is_charging = matches!(work.row::<Payment>(order), Payment::Charging(_));
                is_charging && work.now() < extended(order, deadline, work)
            }
            Ok(BankTask { order, call: BankCall::Refund | BankCall::Reverse, .. }) => {
                !is_settled(order, work)
            }
            // Of a task that is none the result will say what is wrong.
            Err(_) => true,
        }
    }

    fn on_task_result(&self, result: &TaskResult<'_>, work: &mut Work<'_>) -> HandlerResult<Self> {
        let task = serde_json::from_str::<BankTask>(result.payload)
            .map_err(|error| HandlerError::Permanent(format!("a task that is none: {error}")))?;
        let command = match meaning(&task, result.answer) {
            Ok(command) => command,
            // Nobody waits for it any more, and nobody need look at it.
            Err(_) if is_settled(task.order, work) => PaymentCommand::Stop,
            Err(why) => return Err(HandlerError::Permanent(why)),
        };
        work.decide::<Payment>(task.order, &command)?;
        Ok(())
    }
}

/// What the bank's answer asks of the payment; otherwise why a human must take over.
fn meaning(task: &BankTask, answer: Result<&Value, &FailedTry>) -> Result<PaymentCommand, String> {
    let answer = answer.cloned().map_err(FailedTry::clone).and_then(|answer| {
        serde_json::from_value(answer)
            .map_err(|error| FailedTry::new(FailureKind::Permanent, format!("no answer: {error}")))
    });
    Ok(match (&task.call, answer) {
        (BankCall::Charge { .. }, Ok(BankAnswer::Captured { reference })) if !reference.is_empty() => {
            PaymentCommand::TakeCapture(reference)
        }
        (BankCall::Charge { .. }, Ok(BankAnswer::Refused { reason })) => PaymentCommand::TakeRefusal(reason),
        (BankCall::Charge { .. }, Err(failed)) => match failed.kind {
            FailureKind::Untried => PaymentCommand::Withdraw,
            FailureKind::Unwanted => PaymentCommand::Reverse,
            // It may have been charged all the same. No money is counted on, and what came unseen is reversed.
            FailureKind::Transient | FailureKind::Outage | FailureKind::Permanent => PaymentCommand::GiveUp,
        },
        // An answer that makes no sense.
        (BankCall::Charge { .. }, Ok(BankAnswer::Captured { .. } | BankAnswer::Undone)) => {
            PaymentCommand::GiveUp
        }
        (BankCall::Refund, Ok(BankAnswer::Undone)) => PaymentCommand::TakeRefund,
        (BankCall::Reverse, Ok(BankAnswer::Undone)) => PaymentCommand::TakeReversal,
        // Money owed is never dropped.
        (
            BankCall::Refund | BankCall::Reverse,
            why @ (Ok(BankAnswer::Captured { .. } | BankAnswer::Refused { .. }) | Err(_)),
        ) => {
            let why = why.map_or_else(|failed| failed.reason(), |answer| answer.told());
            return Err(format!("the money of order {} cannot be given back: {why}", task.order));
        }
    })
}

fn is_settled(order: Uuid, work: &mut Work<'_>) -> bool {
    matches!(work.row::<Payment>(order), Payment::Settled(_))
}

/// The later of this deadline and the one that the order was given since.
fn extended(order: Uuid, deadline: Timestamp, work: &mut Work<'_>) -> Timestamp {
    work.row::<Extension>(order).of(deadline)
}

/// What a charge depends on.
fn both(order: Uuid) -> Vec<RowKey> {
    vec![RowKey::of::<Payment>(order), RowKey::of::<Extension>(order)]
}

fn amount(payment: &Payment) -> Money {
    payment.context().map_or(Money::new(0, Currency::XXX), |context| context.total)
}

/// The order that a payment's row is of.
fn order_id(row: &str) -> Uuid {
    match row.parse() {
        Ok(order) => order,
        Err(error) => panic!("{row:?} is no order's id: {error}"),
    }
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
            | Payment::Voiding(_)
            | Payment::Refunding(..)
            | Payment::Refunded(..)
            | Payment::Void
            | Payment::Voided(_)
            | Payment::Settled(_) => None,
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

/// The fact that others learn an event by.
#[must_use]
pub const fn fact_of(event: &PaymentEvent) -> Option<FactType> {
    match event {
        PaymentEvent::Captured(_) => Some(FactType::PaymentProcessed),
        PaymentEvent::Refused(_) | PaymentEvent::GivenUp => Some(FactType::PaymentFailed),
        PaymentEvent::Refunded => Some(FactType::PaymentRefunded),
        PaymentEvent::Voided | PaymentEvent::Reversed => Some(FactType::PaymentVoided),
        PaymentEvent::Requested(_)
        | PaymentEvent::Doomed
        | PaymentEvent::ReversalRequested
        | PaymentEvent::RefundRequested(_)
        | PaymentEvent::Settled
        | PaymentEvent::Unsettled
        | PaymentEvent::Stopped => None,
    }
}
