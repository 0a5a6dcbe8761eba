//! Pure: what may happen to the one payment of an order.

use contract::order::PaymentContext;
use contract::payment::PaymentFailure;
use contract::payment_id;
use saga_core::decider::{Decider, FieldValue, RetentionPolicy};
use serde::{Deserialize, Serialize};

/// A payment. There is one per order, whatever is asked how often.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Payment {
    /// Nothing is known of the order.
    #[default]
    New,
    /// The bank is being asked.
    Charging(PaymentContext),
    /// The order was cancelled while the bank may have been asked: what it captures goes back at once.
    Doomed(PaymentContext),
    /// The money is here, under this reference.
    Captured(PaymentContext, String),
    /// No money comes.
    Failed(PaymentContext, PaymentFailure),
    /// The bank never answered clearly: the charge is being reversed, whether or not it took place.
    Reversing(PaymentContext),
    /// Nobody wants the charge any more, and the bank may have heard of it: it is being reversed, whether or not
    /// it took place.
    Voiding(PaymentContext),
    /// The money is being given back.
    Refunding(PaymentContext, String, RefundReason),
    /// The money went back.
    Refunded(PaymentContext, String, RefundReason),
    /// Nothing is charged, nor will be: the order was over before anything was captured.
    Void,
    /// The same of a payment that was to be charged, under the id that its order said.
    Voided(PaymentContext),
    /// An operator has settled outside what was still open: the bank is not asked for it any more.
    Settled(Box<Settled>),
}

/// What was settled outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// The payment as it was, and will be again when that is taken back.
    pub was: Payment,
    /// Whether its call to the bank has ended without being made: it is made anew then.
    pub is_stopped: bool,
}

/// Who wants the money back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefundReason {
    /// The order was cancelled.
    OrderCancelled,
    /// An operator, out of kindness; the order stands.
    Operator,
}

/// What may be asked of a payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PaymentCommand {
    /// Charge the customer.
    Charge(PaymentContext),
    /// Charge nobody: the deadline of the order had passed when payment was asked to.
    Expire,
    /// The order was cancelled: undo what was done, stop what was not.
    Cancel,
    /// The bank captured the money.
    TakeCapture(String),
    /// The bank said no.
    TakeRefusal(PaymentFailure),
    /// No try got a clear answer.
    GiveUp,
    /// The charge that nobody wants any more was never sent, and never will be.
    Withdraw,
    /// The charge that nobody wants any more may have been sent.
    Reverse,
    /// The bank reversed the charge: nothing is captured, or no longer.
    TakeReversal,
    /// Give the money back.
    Refund,
    /// The bank gave the money back.
    TakeRefund,
    /// What is open was settled outside: ask the bank no more.
    Settle,
    /// It was not, after all.
    Unsettle,
    /// The call that was settled outside has ended without being made.
    Stop,
}

/// What happened to a payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum PaymentEvent {
    /// The bank is to be asked.
    Requested(PaymentContext),
    /// The order was cancelled meanwhile.
    Doomed,
    /// Nothing is charged, nor will be.
    Voided,
    /// The charge that nobody wants any more is to be undone, whether or not it took place.
    ReversalRequested,
    /// The money is here.
    Captured(String),
    /// The bank said no.
    Refused(PaymentFailure),
    /// The bank never answered clearly.
    GivenUp,
    /// The charge that was given up is undone, whether or not it took place.
    Reversed,
    /// The money is to go back.
    RefundRequested(RefundReason),
    /// The money went back.
    Refunded,
    /// What was open was settled outside.
    Settled,
    /// It was not, after all: it is open again.
    Unsettled,
    /// The call that was settled outside has ended without being made.
    Stopped,
}

/// Why a payment says no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PaymentRejection {
    /// There is no such payment.
    #[error("there is no such payment")]
    Unknown,
    /// No money is here that could go back.
    #[error("the payment has captured nothing that could go back")]
    NothingCaptured,
}

impl Decider for Payment {
    const KIND: &'static str = "payment";
    const FIELDS: &'static [&'static str] = &["status", "payment_id"];
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeRows;
    type Command = PaymentCommand;
    type Event = PaymentEvent;
    type Rejection = PaymentRejection;

    fn decide(&self, command: &PaymentCommand) -> Result<Vec<PaymentEvent>, PaymentRejection> {
        use {Payment as State, PaymentCommand as Command, PaymentEvent as Event};
        let back = Event::RefundRequested(RefundReason::OrderCancelled);
        match (self, command) {
            (State::New, Command::Charge(context)) => Ok(vec![Event::Requested(context.clone())]),
            (State::New, Command::Expire | Command::Cancel) => Ok(vec![Event::Voided]),
            (
                State::New,
                Command::TakeCapture(_)
                | Command::TakeRefusal(_)
                | Command::GiveUp
                | Command::Withdraw
                | Command::Reverse
                | Command::TakeReversal
                | Command::Refund
                | Command::TakeRefund,
            ) => Err(PaymentRejection::Unknown),

            (State::Settled(settled), command) => settled.decide(command),
            // A charge that is wanted is owed to nobody: its order's deadline ends it.
            (
                State::Doomed(_) | State::Reversing(_) | State::Voiding(_) | State::Refunding(..),
                Command::Settle,
            ) => Ok(vec![Event::Settled]),

            (State::Charging(_), Command::Cancel) => Ok(vec![Event::Doomed]),
            (State::Charging(_), Command::TakeCapture(reference)) => {
                Ok(vec![Event::Captured(reference.clone())])
            }
            (State::Doomed(_), Command::TakeCapture(reference)) => {
                Ok(vec![Event::Captured(reference.clone()), back])
            }
            (State::Charging(_) | State::Doomed(_), Command::TakeRefusal(failure)) => {
                Ok(vec![Event::Refused(*failure)])
            }
            (State::Charging(_), Command::GiveUp) => Ok(vec![Event::GivenUp]),
            (State::Charging(_) | State::Doomed(_), Command::Withdraw) => Ok(vec![Event::Voided]),
            (State::Charging(_), Command::Reverse)
            | (State::Doomed(_), Command::Reverse | Command::GiveUp) => Ok(vec![Event::ReversalRequested]),
            (State::Charging(_), Command::Charge(_) | Command::Expire)
            | (State::Doomed(_), Command::Charge(_) | Command::Expire | Command::Cancel) => Ok(vec![]),

            (State::Captured(..), Command::Cancel) => Ok(vec![back]),
            (State::Captured(..), Command::Refund) => {
                Ok(vec![Event::RefundRequested(RefundReason::Operator)])
            }
            (State::Reversing(_), Command::TakeReversal) => Ok(vec![Event::Reversed]),
            (State::Voiding(_), Command::TakeReversal) => Ok(vec![Event::Voided]),
            (State::Refunding(..), Command::TakeRefund) => Ok(vec![Event::Refunded]),
            (State::Refunding(..) | State::Refunded(..), Command::Refund) => Ok(vec![]),

            (
                State::Charging(_)
                | State::Doomed(_)
                | State::Failed(..)
                | State::Reversing(_)
                | State::Voiding(_)
                | State::Void
                | State::Voided(_),
                Command::Refund,
            ) => Err(PaymentRejection::NothingCaptured),

            // Everything else is a repetition, or an answer that is too late to change anything.
            (
                State::Captured(..)
                | State::Failed(..)
                | State::Reversing(_)
                | State::Voiding(_)
                | State::Refunding(..)
                | State::Refunded(..)
                | State::Void
                | State::Voided(_),
                Command::Charge(_)
                | Command::Expire
                | Command::Cancel
                | Command::TakeCapture(_)
                | Command::TakeRefusal(_)
                | Command::GiveUp
                | Command::Withdraw
                | Command::Reverse
                | Command::TakeReversal
                | Command::TakeRefund,
            )
            | (
                State::Charging(_) | State::Doomed(_),
                Command::TakeReversal | Command::TakeRefund,
            )
            // What is not open cannot be settled, and what is not settled goes on.
            | (_, Command::Settle | Command::Unsettle | Command::Stop) => Ok(vec![]),
        }
    }

    fn evolve(&mut self, event: &PaymentEvent) {
        let before = std::mem::take(self);
        *self = match (event, before.context().cloned()) {
            (PaymentEvent::Voided, Some(context)) => Self::Voided(context),
            (PaymentEvent::Voided, None) => Self::Void,
            (PaymentEvent::Settled, _) => Self::Settled(Box::new(Settled { was: before, is_stopped: false })),
            (PaymentEvent::Unsettled, _) => {
                if let Self::Settled(settled) = before {
                    settled.was
                } else {
                    before
                }
            }
            (PaymentEvent::Stopped, _) => {
                if let Self::Settled(settled) = before {
                    Self::Settled(settled.stopped())
                } else {
                    before
                }
            }
            (PaymentEvent::Requested(context), _) => Self::Charging(context.clone()),
            (PaymentEvent::Doomed, Some(context)) => Self::Doomed(context),
            (PaymentEvent::Captured(reference), Some(context)) => Self::Captured(context, reference.clone()),
            (PaymentEvent::Refused(failure), Some(context)) => Self::Failed(context, *failure),
            (PaymentEvent::GivenUp, Some(context)) => Self::Reversing(context),
            (PaymentEvent::ReversalRequested, Some(context)) => Self::Voiding(context),
            (PaymentEvent::Reversed, Some(context)) => Self::Failed(context, PaymentFailure::Exhausted),
            (PaymentEvent::RefundRequested(reason), Some(context)) => {
                Self::Refunding(context, before.reference().to_owned(), *reason)
            }
            (PaymentEvent::Refunded, Some(context)) => {
                let reason = before.refund_reason().unwrap_or(RefundReason::OrderCancelled);
                Self::Refunded(context, before.reference().to_owned(), reason)
            }
            (
                PaymentEvent::Doomed
                | PaymentEvent::Captured(_)
                | PaymentEvent::Refused(_)
                | PaymentEvent::GivenUp
                | PaymentEvent::ReversalRequested
                | PaymentEvent::Reversed
                | PaymentEvent::RefundRequested(_)
                | PaymentEvent::Refunded,
                None,
            ) => before,
        };
    }

    fn event_name(event: &PaymentEvent) -> &'static str {
        event.into()
    }

    fn fields(&self, order: &str) -> Vec<FieldValue> {
        let id = order.parse().map(|order| payment_id(order).to_string());
        vec![self.status().into(), id.map_or(FieldValue::Null, FieldValue::Text)]
    }

    fn is_finished(&self) -> bool {
        match self {
            Self::Captured(..) | Self::Failed(..) | Self::Refunded(..) | Self::Void | Self::Voided(_) => true,
            Self::New
            | Self::Charging(_)
            | Self::Doomed(_)
            | Self::Reversing(_)
            | Self::Voiding(_)
            | Self::Refunding(..)
            // What is settled outside may be taken up again.
            | Self::Settled(_) => false,
        }
    }
}

impl Settled {
    /// What becomes known all the same counts as it always does: money that came goes back, money that went is gone.
    fn decide(&self, command: &PaymentCommand) -> Result<Vec<PaymentEvent>, PaymentRejection> {
        use PaymentCommand as Command;
        match command {
            Command::Unsettle => Ok(vec![PaymentEvent::Unsettled]),
            // The bank was asked in vain, or is not to be: either way it is not asked again.
            Command::Stop | Command::GiveUp | Command::Reverse => {
                Ok(if self.is_stopped { vec![] } else { vec![PaymentEvent::Stopped] })
            }
            Command::Settle | Command::Cancel => Ok(vec![]),
            Command::Charge(_)
            | Command::Expire
            | Command::TakeCapture(_)
            | Command::TakeRefusal(_)
            | Command::Withdraw
            | Command::TakeReversal
            | Command::Refund
            | Command::TakeRefund => self.was.decide(command),
        }
    }

    /// A charge that may have been sent is to be reversed, should anybody take up again what was settled.
    fn stopped(self) -> Box<Self> {
        let was = match self.was {
            Payment::Doomed(context) => Payment::Voiding(context),
            was @ (Payment::New
            | Payment::Charging(_)
            | Payment::Captured(..)
            | Payment::Failed(..)
            | Payment::Reversing(_)
            | Payment::Voiding(_)
            | Payment::Refunding(..)
            | Payment::Refunded(..)
            | Payment::Void
            | Payment::Voided(_)
            | Payment::Settled(_)) => was,
        };
        Box::new(Self { was, is_stopped: true })
    }
}

impl Payment {
    /// The status in the API.
    #[must_use]
    pub const fn status(&self) -> &'static str {
        match self {
            Self::New => "NEW",
            Self::Charging(_) => "CHARGING",
            Self::Doomed(_) => "DOOMED",
            Self::Captured(..) => "CAPTURED",
            Self::Failed(..) => "FAILED",
            Self::Reversing(_) => "REVERSING",
            Self::Voiding(_) => "VOIDING",
            Self::Refunding(..) => "REFUNDING",
            Self::Refunded(..) => "REFUNDED",
            Self::Void | Self::Voided(_) => "VOID",
            Self::Settled(_) => "SETTLED",
        }
    }

    /// What was to be paid.
    #[must_use]
    pub fn context(&self) -> Option<&PaymentContext> {
        match self {
            Self::New | Self::Void => None,
            Self::Charging(context)
            | Self::Doomed(context)
            | Self::Captured(context, _)
            | Self::Failed(context, _)
            | Self::Reversing(context)
            | Self::Voiding(context)
            | Self::Refunding(context, ..)
            | Self::Refunded(context, ..)
            | Self::Voided(context) => Some(context),
            Self::Settled(settled) => settled.was.context(),
        }
    }

    /// The bank's id of the charge; empty when nothing was captured.
    #[must_use]
    pub fn reference(&self) -> &str {
        match self {
            Self::Captured(_, reference)
            | Self::Refunding(_, reference, _)
            | Self::Refunded(_, reference, _) => reference,
            Self::Settled(settled) => settled.was.reference(),
            Self::New
            | Self::Charging(_)
            | Self::Doomed(_)
            | Self::Failed(..)
            | Self::Reversing(_)
            | Self::Voiding(_)
            | Self::Void
            | Self::Voided(_) => "",
        }
    }

    /// Who wanted the money back.
    #[must_use]
    pub fn refund_reason(&self) -> Option<RefundReason> {
        match self {
            Self::Refunding(_, _, reason) | Self::Refunded(_, _, reason) => Some(*reason),
            Self::Settled(settled) => settled.was.refund_reason(),
            Self::New
            | Self::Charging(_)
            | Self::Doomed(_)
            | Self::Captured(..)
            | Self::Failed(..)
            | Self::Reversing(_)
            | Self::Voiding(_)
            | Self::Void
            | Self::Voided(_) => None,
        }
    }
}
