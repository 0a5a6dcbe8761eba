//! Pure: the states of an order's payment, its commands and its events.

use contract::order::PaymentContext;
use contract::payment::PaymentFailure;
use contract::payment_id;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A payment. An order has exactly one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum Payment {
    #[default]
    New,
    /// The bank is being called.
    Charging(PaymentContext),
    /// The deadline passed before the bank answered. The charge is repeated if the deadline is extended, and undone once the
    /// order is cancelled.
    Expired {
        context: PaymentContext,
        /// True if the charge may have been sent.
        may_be_sent: bool,
    },
    /// The order was cancelled while the bank may have been called. A capture is refunded at once.
    Doomed(PaymentContext),
    /// Captured, with the bank's reference.
    Captured(PaymentContext, String),
    Failed(PaymentContext, PaymentFailure),
    /// The charge may have been requested before a loss of data. The bank is asked for its outcome, and blocks it if it
    /// has none.
    Closing(PaymentContext),
    /// The bank gave no clear answer. The charge is reversed, whether or not it was captured.
    Reversing(PaymentContext),
    /// The charge is not needed any more, and may have been sent. It is reversed, whether or not it was
    /// captured. There is no context if the request itself is forgotten.
    Voiding(Option<PaymentContext>),
    /// A refund is in progress.
    Refunding(PaymentContext, String, RefundReason),
    Refunded(PaymentContext, String, RefundReason),
    /// The order was over before a charge was requested. A late request has no effect.
    Void,
    /// The charge was requested, and the order was over before it was captured.
    #[strum(serialize = "VOID")]
    Voided(PaymentContext),
    /// An operator resolved an open refund or reversal by other means. The bank is not called any more.
    ResolvedManually(Box<Resolved>),
}

/// A payment that was resolved manually.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// State before the resolution, restored when that is withdrawn.
    pub before: Payment,
    /// True if the open call ended without being made. It is requested again when the resolution is
    /// withdrawn.
    pub is_call_abandoned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefundReason {
    OrderCancelled,
    /// An operator, as a gesture of goodwill. The order stands.
    Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PaymentCommand {
    Charge(PaymentContext),
    /// The deadline had passed when the charge was requested.
    Expire(PaymentContext),
    Cancel,
    /// The bank captured the money under this reference.
    RecordCapture(String),
    /// The bank refused the charge.
    RecordRefusal(PaymentFailure),
    /// No attempt got a clear answer.
    GiveUp,
    /// The charge is not needed any more.
    Withdraw {
        /// True if it may have been sent, and is not blocked.
        may_be_sent: bool,
    },
    /// The deadline has passed, and the charge may have been captured before a loss of data.
    Close(PaymentContext),
    /// The order is cancelled, and a charge may be forgotten.
    Reverse,
    /// The bank reversed the charge.
    RecordReversal,
    /// An operator wants the money refunded.
    Refund,
    /// The bank refunded the money.
    RecordRefund,
    /// An operator resolved the open call by other means.
    ResolveManually,
    /// An operator withdrew the resolution.
    WithdrawResolution,
    /// The call of a manually resolved payment ended without being made.
    AbandonCall,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum PaymentEvent {
    Requested(PaymentContext),
    /// The deadline passed before the charge was requested, or before the bank answered.
    Expired {
        context: PaymentContext,
        may_be_sent: bool,
    },
    /// The order was cancelled while the bank may have been called.
    Doomed,
    /// The bank is to be asked for the outcome of a charge that may be forgotten.
    ClosureRequested(PaymentContext),
    /// Nothing is captured, now or later.
    Voided,
    /// A charge that is not needed any more is to be reversed.
    ReversalRequested,
    Captured(String),
    Refused(PaymentFailure),
    /// No attempt got a clear answer; the charge is to be reversed.
    GivenUp,
    /// The charge without clear answer is reversed.
    Reversed,
    RefundRequested(RefundReason),
    Refunded,
    ResolvedManually,
    ResolutionWithdrawn,
    CallAbandoned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PaymentRejection {
    #[error("there is no such payment")]
    Unknown,
    #[error("the payment has captured nothing that could go back")]
    NothingCaptured,
}

impl Payment {
    #[must_use]
    pub fn status(&self) -> &'static str {
        self.into()
    }

    /// Id of the payment. Taken from the context where there is one, since deriving it costs allocations.
    #[must_use]
    pub fn id(&self, order: Uuid) -> Uuid {
        self.context().map_or_else(|| payment_id(order), |context| context.id)
    }

    /// Customer, amount and card; `None` if no charge was requested.
    #[must_use]
    pub fn context(&self) -> Option<&PaymentContext> {
        match self {
            Self::New | Self::Void => None,
            Self::Voiding(context) => context.as_ref(),
            Self::Charging(context)
            | Self::Expired { context, .. }
            | Self::Doomed(context)
            | Self::Closing(context)
            | Self::Captured(context, _)
            | Self::Failed(context, _)
            | Self::Reversing(context)
            | Self::Refunding(context, ..)
            | Self::Refunded(context, ..)
            | Self::Voided(context) => Some(context),
            Self::ResolvedManually(resolved) => resolved.before.context(),
        }
    }

    /// The bank's id of the charge; empty if nothing was captured.
    #[must_use]
    pub fn reference(&self) -> &str {
        match self {
            Self::Captured(_, reference)
            | Self::Refunding(_, reference, _)
            | Self::Refunded(_, reference, _) => reference,
            Self::ResolvedManually(resolved) => resolved.before.reference(),
            Self::New
            | Self::Charging(_)
            | Self::Expired { .. }
            | Self::Doomed(_)
            | Self::Closing(_)
            | Self::Failed(..)
            | Self::Reversing(_)
            | Self::Voiding(_)
            | Self::Void
            | Self::Voided(_) => "",
        }
    }

    #[must_use]
    pub fn refund_reason(&self) -> Option<RefundReason> {
        match self {
            Self::Refunding(_, _, reason) | Self::Refunded(_, _, reason) => Some(*reason),
            Self::ResolvedManually(resolved) => resolved.before.refund_reason(),
            Self::New
            | Self::Charging(_)
            | Self::Expired { .. }
            | Self::Doomed(_)
            | Self::Closing(_)
            | Self::Captured(..)
            | Self::Failed(..)
            | Self::Reversing(_)
            | Self::Voiding(_)
            | Self::Void
            | Self::Voided(_) => None,
        }
    }
}
