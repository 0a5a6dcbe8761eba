//! Pure: the states of an order.

use contract::order::{CancelReason, Line, PaymentContext};
use jiff::Timestamp;
use saga_core::decider::{Decider, FieldValue, RetentionPolicy};
use serde::{Deserialize, Serialize};

/// Data of an order as it was placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    pub lines: Vec<Line>,
    pub payment: PaymentContext,
    pub placed_at: Timestamp,
    pub deadline: Timestamp,
}

/// An order. It cancels itself if its deadline passes before it is confirmed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum Order {
    #[default]
    New,
    /// Waits for stock and payment.
    Pending(Placed),
    Confirmed(Placed),
    /// Being undone, or undone, by every participant.
    Cancelled(Placed, CancelReason),
}

#[derive(Debug, Clone)]
pub enum OrderCommand {
    /// Repeating it has no effect.
    Place(Placed),
    Confirm,
    /// Cancels the order. Only a customer or an operator may cancel a confirmed order.
    Cancel(CancelReason),
    Extend {
        until: Timestamp,
        requested_at: Timestamp,
    },
    /// Cancels the order if its deadline has passed at this time.
    Expire(Timestamp),
    /// Keeps the order open until this time, although its deadline has passed: its outcome may be lost.
    Hold(Timestamp),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum OrderEvent {
    Placed(Placed),
    Confirmed,
    Cancelled(CancelReason),
    /// New deadline of the order.
    DeadlineExtended(Timestamp),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OrderRejection {
    #[error("there is no such order")]
    Unknown,
    #[error("the order is cancelled already ({})", .0.as_str())]
    AlreadyCancelled(CancelReason),
    #[error("the order is confirmed already")]
    AlreadyConfirmed,
    #[error("the deadline of the order has passed")]
    TooLate,
}

impl Decider for Order {
    const KIND: &'static str = "order";
    const FIELDS: &'static [&'static str] = &["customer", "status"];
    /// A customer may cancel an order as long as its row exists.
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeRowsFirst;
    type Command = OrderCommand;
    type Event = OrderEvent;
    type Rejection = OrderRejection;

    fn decide(&self, command: &OrderCommand) -> Result<Vec<OrderEvent>, OrderRejection> {
        use {Order as State, OrderCommand as Command};
        match (self, command) {
            (State::New, Command::Place(placed)) => Ok(vec![OrderEvent::Placed(placed.clone())]),
            (
                State::New,
                Command::Confirm
                | Command::Cancel(_)
                | Command::Extend { .. }
                | Command::Expire(_)
                | Command::Hold(_),
            ) => Err(OrderRejection::Unknown),

            (State::Pending(_), Command::Place(_)) => Ok(vec![]),
            (State::Pending(_), Command::Confirm) => Ok(vec![OrderEvent::Confirmed]),
            (State::Pending(_), Command::Cancel(reason)) => Ok(vec![OrderEvent::Cancelled(*reason)]),
            (State::Pending(placed), Command::Expire(now)) if placed.deadline <= *now => {
                Ok(vec![OrderEvent::Cancelled(CancelReason::TimedOut)])
            }
            (State::Pending(_), Command::Expire(_)) => Ok(vec![]),
            (State::Pending(placed), Command::Extend { requested_at, .. })
                if placed.deadline <= *requested_at =>
            {
                Err(OrderRejection::TooLate)
            }
            (State::Pending(placed), Command::Extend { until, .. }) if placed.deadline < *until => {
                Ok(vec![OrderEvent::DeadlineExtended(*until)])
            }
            (State::Pending(placed), Command::Hold(until)) if placed.deadline < *until => {
                Ok(vec![OrderEvent::DeadlineExtended(*until)])
            }
            (State::Pending(_), Command::Extend { .. } | Command::Hold(_)) => Ok(vec![]),

            (
                State::Confirmed(_),
                Command::Place(_) | Command::Confirm | Command::Expire(_) | Command::Hold(_),
            ) => Ok(vec![]),
            (State::Confirmed(_), Command::Extend { .. }) => Err(OrderRejection::AlreadyConfirmed),
            (State::Confirmed(_), Command::Cancel(reason)) => match reason {
                CancelReason::CustomerRequest | CancelReason::Operator => {
                    Ok(vec![OrderEvent::Cancelled(*reason)])
                }
                CancelReason::OutOfStock | CancelReason::PaymentFailed | CancelReason::TimedOut => {
                    Err(OrderRejection::AlreadyConfirmed)
                }
            },

            (
                State::Cancelled(..),
                Command::Place(_) | Command::Cancel(_) | Command::Expire(_) | Command::Hold(_),
            ) => Ok(vec![]),
            // A late capture needs no action here: payment consumes the cancellation too, and refunds it.
            (State::Cancelled(_, reason), Command::Confirm | Command::Extend { .. }) => {
                Err(OrderRejection::AlreadyCancelled(*reason))
            }
        }
    }

    fn evolve(&mut self, event: &OrderEvent) {
        *self = match (std::mem::take(self), event) {
            (_, OrderEvent::Placed(placed)) => Self::Pending(placed.clone()),
            (Self::Pending(placed) | Self::Confirmed(placed), OrderEvent::Confirmed) => {
                Self::Confirmed(placed)
            }
            (Self::Pending(placed) | Self::Confirmed(placed), OrderEvent::Cancelled(reason)) => {
                Self::Cancelled(placed, *reason)
            }
            (Self::Pending(placed), OrderEvent::DeadlineExtended(until)) => {
                Self::Pending(Placed { deadline: *until, ..placed })
            }
            (
                unchanged @ (Self::New | Self::Cancelled(..)),
                OrderEvent::Confirmed | OrderEvent::Cancelled(_) | OrderEvent::DeadlineExtended(_),
            )
            | (unchanged @ Self::Confirmed(_), OrderEvent::DeadlineExtended(_)) => unchanged,
        };
    }

    fn event_name(event: &OrderEvent) -> &'static str {
        event.into()
    }

    fn fields(&self, _: &str) -> Vec<FieldValue> {
        let customer =
            self.placed().map_or(FieldValue::Null, |placed| placed.payment.customer.as_str().into());
        vec![customer, self.status().into()]
    }

    fn is_finished(&self) -> bool {
        self.has_ended()
    }

    fn due(&self) -> Option<Timestamp> {
        match self {
            Self::Pending(placed) => Some(placed.deadline),
            Self::New | Self::Confirmed(_) | Self::Cancelled(..) => None,
        }
    }
}

impl Order {
    #[must_use]
    pub fn status(&self) -> &'static str {
        self.into()
    }

    /// Data of the order as placed.
    #[must_use]
    pub const fn placed(&self) -> Option<&Placed> {
        match self {
            Self::New => None,
            Self::Pending(placed) | Self::Confirmed(placed) | Self::Cancelled(placed, _) => Some(placed),
        }
    }

    #[must_use]
    pub const fn cancelled_because(&self) -> Option<CancelReason> {
        match self {
            Self::Cancelled(_, reason) => Some(*reason),
            Self::New | Self::Pending(_) | Self::Confirmed(_) => None,
        }
    }

    /// True once confirmed or cancelled.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        matches!(self, Self::Confirmed(_) | Self::Cancelled(..))
    }
}
