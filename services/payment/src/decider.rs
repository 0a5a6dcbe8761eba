//! Pure: the decisions of a payment for each state and command, and the effect of its events.

use contract::order::PaymentContext;
use contract::payment::PaymentFailure;
use saga_core::decider::{Decider, FieldValue, RetentionPolicy};

use crate::domain::{Payment, PaymentCommand, PaymentEvent, PaymentRejection, RefundReason, Resolved};

type Decision = Result<Vec<PaymentEvent>, PaymentRejection>;

impl Decider for Payment {
    const KIND: &'static str = "payment";
    const FIELDS: &'static [&'static str] = &["status", "payment_id"];
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeRows;
    type Command = PaymentCommand;
    type Event = PaymentEvent;
    type Rejection = PaymentRejection;

    fn decide(&self, command: &PaymentCommand) -> Result<Vec<PaymentEvent>, PaymentRejection> {
        decide(self, command)
    }

    fn evolve(&mut self, event: &PaymentEvent) {
        let before = std::mem::take(self);
        *self = match (event, before.context().cloned()) {
            (PaymentEvent::Voided, Some(context)) => Self::Voided(context),
            (PaymentEvent::Voided, None) => Self::Void,
            (PaymentEvent::ResolvedManually, _) => {
                Self::ResolvedManually(Box::new(Resolved { before, is_call_abandoned: false }))
            }
            (PaymentEvent::ResolutionWithdrawn, _) => {
                if let Self::ResolvedManually(resolved) = before {
                    resolved.before
                } else {
                    before
                }
            }
            (PaymentEvent::CallAbandoned, _) => {
                if let Self::ResolvedManually(resolved) = before {
                    Self::ResolvedManually(resolved.with_call_abandoned())
                } else {
                    before
                }
            }
            (PaymentEvent::Requested(context), _) => Self::Charging(context.clone()),
            (PaymentEvent::Expired { context, may_be_sent }, _) => {
                Self::Expired { context: context.clone(), may_be_sent: *may_be_sent }
            }
            (PaymentEvent::ClosureRequested(context), _) => Self::Closing(context.clone()),
            (PaymentEvent::Doomed, Some(context)) => Self::Doomed(context),
            (PaymentEvent::Captured(reference), Some(context)) => Self::Captured(context, reference.clone()),
            (PaymentEvent::Refused(failure), Some(context)) => Self::Failed(context, *failure),
            (PaymentEvent::GivenUp, Some(context)) => Self::Reversing(context),
            (PaymentEvent::ReversalRequested, context) => Self::Voiding(context),
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
        let id = order.parse().map(|order| self.id(order).to_string());
        vec![self.status().into(), id.map_or(FieldValue::Null, FieldValue::Text)]
    }

    fn is_finished(&self) -> bool {
        match self {
            Self::Captured(..) | Self::Failed(..) | Self::Refunded(..) | Self::Void | Self::Voided(_) => true,
            Self::New
            | Self::Charging(_)
            | Self::Expired { .. }
            | Self::Doomed(_)
            | Self::Closing(_)
            | Self::Reversing(_)
            | Self::Voiding(_)
            | Self::Refunding(..)
            // The resolution may be withdrawn.
            | Self::ResolvedManually(_) => false,
        }
    }
}

fn decide(payment: &Payment, command: &PaymentCommand) -> Decision {
    match payment {
        Payment::New => decide_new(command),
        Payment::Charging(context) => decide_charging(context, command),
        Payment::Expired { may_be_sent, .. } => decide_expired(*may_be_sent, command),
        Payment::Doomed(_) => decide_doomed(command),
        Payment::Closing(_) => decide_closing(command),
        Payment::Captured(..)
        | Payment::Failed(..)
        | Payment::Reversing(_)
        | Payment::Voiding(_)
        | Payment::Refunding(..)
        | Payment::Refunded(..)
        | Payment::Void
        | Payment::Voided(_) => decide_answered(payment, command),
        Payment::ResolvedManually(resolved) => decide_resolved(resolved, command),
    }
}

fn decide_new(command: &PaymentCommand) -> Decision {
    use PaymentCommand as Command;
    match command {
        Command::Charge(context) => Ok(vec![PaymentEvent::Requested(context.clone())]),
        Command::Expire(context) => Ok(vec![expired(context, false)]),
        Command::Cancel => Ok(vec![PaymentEvent::Voided]),
        Command::Close(context) => Ok(vec![PaymentEvent::ClosureRequested(context.clone())]),
        Command::Reverse => Ok(vec![PaymentEvent::ReversalRequested]),
        Command::RecordCapture(_)
        | Command::RecordRefusal(_)
        | Command::GiveUp
        | Command::Withdraw { .. }
        | Command::RecordReversal
        | Command::Refund
        | Command::RecordRefund => Err(PaymentRejection::Unknown),
        Command::ResolveManually | Command::WithdrawResolution | Command::AbandonCall => Ok(vec![]),
    }
}

fn decide_charging(context: &PaymentContext, command: &PaymentCommand) -> Decision {
    use PaymentCommand as Command;
    match command {
        Command::Cancel => Ok(vec![PaymentEvent::Doomed]),
        Command::RecordCapture(reference) => Ok(vec![PaymentEvent::Captured(reference.clone())]),
        Command::RecordRefusal(failure) => Ok(vec![PaymentEvent::Refused(*failure)]),
        Command::GiveUp => Ok(vec![PaymentEvent::GivenUp]),
        Command::Withdraw { may_be_sent } => Ok(vec![expired(context, *may_be_sent)]),
        Command::Reverse => Ok(vec![PaymentEvent::ReversalRequested]),
        Command::Close(context) => Ok(vec![PaymentEvent::ClosureRequested(context.clone())]),
        Command::Refund => Err(PaymentRejection::NothingCaptured),
        // No money is owed yet, so nothing can be resolved: the charge ends with its order's deadline.
        Command::ResolveManually
        | Command::WithdrawResolution
        | Command::AbandonCall
        | Command::Charge(_)
        | Command::Expire(_)
        | Command::RecordReversal
        | Command::RecordRefund => Ok(vec![]),
    }
}

/// Decides for a charge that ended at its deadline. Under the same key it is captured only once, however often it is sent.
fn decide_expired(may_be_sent: bool, command: &PaymentCommand) -> Decision {
    use PaymentCommand as Command;
    match command {
        Command::Charge(context) => Ok(vec![PaymentEvent::Requested(context.clone())]),
        Command::Close(context) => Ok(vec![PaymentEvent::ClosureRequested(context.clone())]),
        Command::Cancel if !may_be_sent => Ok(vec![PaymentEvent::Voided]),
        Command::Refund if !may_be_sent => Err(PaymentRejection::NothingCaptured),
        // An operator need not wait for the cancellation, which may be lost.
        Command::Cancel | Command::Reverse | Command::Refund => Ok(vec![PaymentEvent::ReversalRequested]),
        Command::ResolveManually => Ok(vec![PaymentEvent::ResolvedManually]),
        Command::Expire(_)
        | Command::RecordCapture(_)
        | Command::RecordRefusal(_)
        | Command::GiveUp
        | Command::Withdraw { .. }
        | Command::RecordReversal
        | Command::RecordRefund
        | Command::WithdrawResolution
        | Command::AbandonCall => Ok(vec![]),
    }
}

fn decide_doomed(command: &PaymentCommand) -> Decision {
    use PaymentCommand as Command;
    match command {
        Command::RecordCapture(reference) => {
            Ok(vec![PaymentEvent::Captured(reference.clone()), refund_of_cancelled()])
        }
        Command::RecordRefusal(failure) => Ok(vec![PaymentEvent::Refused(*failure)]),
        Command::Withdraw { may_be_sent: false } => Ok(vec![PaymentEvent::Voided]),
        Command::Withdraw { may_be_sent: true } | Command::Reverse | Command::GiveUp | Command::Close(_) => {
            Ok(vec![PaymentEvent::ReversalRequested])
        }
        Command::Refund => Err(PaymentRejection::NothingCaptured),
        Command::ResolveManually => Ok(vec![PaymentEvent::ResolvedManually]),
        Command::Charge(_)
        | Command::Expire(_)
        | Command::Cancel
        | Command::RecordReversal
        | Command::RecordRefund
        | Command::WithdrawResolution
        | Command::AbandonCall => Ok(vec![]),
    }
}

/// Decides for a payment whose outcome the bank is asked for. A capture stands, unless the order is cancelled.
fn decide_closing(command: &PaymentCommand) -> Decision {
    use PaymentCommand as Command;
    match command {
        Command::Cancel => Ok(vec![PaymentEvent::Doomed]),
        Command::RecordCapture(reference) => Ok(vec![PaymentEvent::Captured(reference.clone())]),
        Command::RecordRefusal(failure) => Ok(vec![PaymentEvent::Refused(*failure)]),
        Command::Withdraw { may_be_sent: false } => Ok(vec![PaymentEvent::Voided]),
        Command::Refund => Err(PaymentRejection::NothingCaptured),
        Command::ResolveManually => Ok(vec![PaymentEvent::ResolvedManually]),
        Command::Charge(_)
        | Command::Expire(_)
        | Command::Withdraw { may_be_sent: true }
        | Command::GiveUp
        | Command::Close(_)
        | Command::Reverse
        | Command::RecordReversal
        | Command::RecordRefund
        | Command::WithdrawResolution
        | Command::AbandonCall => Ok(vec![]),
    }
}

/// Decides for a payment whose charge has ended. Commands without effect are repetitions, or answers that arrive too
/// late to change anything.
fn decide_answered(payment: &Payment, command: &PaymentCommand) -> Decision {
    use {Payment as State, PaymentCommand as Command, PaymentEvent as Event};
    match (payment, command) {
        (State::Captured(..), Command::Cancel) => Ok(vec![refund_of_cancelled()]),
        (State::Captured(..), Command::Refund) => Ok(vec![Event::RefundRequested(RefundReason::Operator)]),
        (State::Reversing(_), Command::RecordReversal) => Ok(vec![Event::Reversed]),
        (State::Voiding(_), Command::RecordReversal) => Ok(vec![Event::Voided]),
        (State::Refunding(..), Command::RecordRefund) => Ok(vec![Event::Refunded]),
        (State::Refunding(..) | State::Refunded(..), Command::Refund) => Ok(vec![]),
        (_, Command::Refund) => Err(PaymentRejection::NothingCaptured),
        (State::Reversing(_) | State::Voiding(_) | State::Refunding(..), Command::ResolveManually) => {
            Ok(vec![Event::ResolvedManually])
        }
        (
            _,
            Command::Charge(_)
            | Command::Expire(_)
            | Command::Cancel
            | Command::RecordCapture(_)
            | Command::RecordRefusal(_)
            | Command::GiveUp
            | Command::Withdraw { .. }
            | Command::Close(_)
            | Command::Reverse
            | Command::RecordReversal
            | Command::RecordRefund
            | Command::ResolveManually
            | Command::WithdrawResolution
            | Command::AbandonCall,
        ) => Ok(vec![]),
    }
}

/// Applies results of the bank as before the resolution: a late capture is refunded, a refund is recorded.
fn decide_resolved(resolved: &Resolved, command: &PaymentCommand) -> Decision {
    use PaymentCommand as Command;
    let is_expired = matches!(resolved.before, Payment::Expired { .. });
    match command {
        Command::WithdrawResolution => Ok(vec![PaymentEvent::ResolutionWithdrawn]),
        // No further call is made.
        Command::AbandonCall
        | Command::GiveUp
        | Command::Withdraw { may_be_sent: true }
        | Command::Reverse
        | Command::Close(_) => {
            Ok(if resolved.is_call_abandoned { vec![] } else { vec![PaymentEvent::CallAbandoned] })
        }
        // The charge is reversed if the resolution is withdrawn.
        Command::Cancel if is_expired => Ok(vec![PaymentEvent::CallAbandoned]),
        Command::Refund if is_expired => Err(PaymentRejection::NothingCaptured),
        Command::ResolveManually | Command::Cancel | Command::Charge(_) | Command::Expire(_) => Ok(vec![]),
        Command::RecordCapture(_)
        | Command::RecordRefusal(_)
        | Command::Withdraw { may_be_sent: false }
        | Command::RecordReversal
        | Command::Refund
        | Command::RecordRefund => decide(&resolved.before, command),
    }
}

fn expired(context: &PaymentContext, may_be_sent: bool) -> PaymentEvent {
    PaymentEvent::Expired { context: context.clone(), may_be_sent }
}

const fn refund_of_cancelled() -> PaymentEvent {
    PaymentEvent::RefundRequested(RefundReason::OrderCancelled)
}

impl Resolved {
    /// Marks the call as abandoned. A charge that may have been sent is reversed if the resolution is
    /// withdrawn.
    fn with_call_abandoned(self) -> Box<Self> {
        let before = match self.before {
            Payment::Doomed(context) | Payment::Expired { context, .. } => Payment::Voiding(Some(context)),
            before @ (Payment::New
            | Payment::Charging(_)
            | Payment::Closing(_)
            | Payment::Captured(..)
            | Payment::Failed(..)
            | Payment::Reversing(_)
            | Payment::Voiding(_)
            | Payment::Refunding(..)
            | Payment::Refunded(..)
            | Payment::Void
            | Payment::Voided(_)
            | Payment::ResolvedManually(_)) => before,
        };
        Box::new(Self { before, is_call_abandoned: true })
    }
}
