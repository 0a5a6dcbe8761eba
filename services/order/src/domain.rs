//! Pure: what may happen to an order, and the catalogue it is priced by.

use contract::money::Money;
use contract::order::{CancelReason, Line, PaymentContext};
use jiff::Timestamp;
use saga_core::decider::{Decider, FieldValue, RetentionPolicy};
use serde::{Deserialize, Serialize};

/// An order as it was placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// Its lines, priced.
    pub lines: Vec<Line>,
    /// Who pays, how much, with what.
    pub payment: PaymentContext,
    /// When it was placed.
    pub placed_at: Timestamp,
    /// When it gives up.
    pub deadline: Timestamp,
}

/// An order, from before its placing to its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Nobody has placed it.
    #[default]
    New,
    /// Waits for its stock and its payment.
    Pending(Placed),
    /// Is paid, and stands.
    Confirmed(Placed),
    /// Is undone by everyone who did something for it.
    Cancelled(Placed, CancelReason),
}

/// What may be asked of an order.
#[derive(Debug, Clone)]
pub enum OrderCommand {
    /// Place it; once is enough, a second time does nothing.
    Place(Placed),
    /// Its payment was captured: confirm it.
    Confirm,
    /// Cancel it. Once it is confirmed only people may.
    Cancel(CancelReason),
    /// Let it wait longer.
    Extend {
        /// When it is to give up.
        until: Timestamp,
        /// What time it is.
        now: Timestamp,
    },
    /// It is now this late: cancel it if its deadline has passed.
    Expire(Timestamp),
}

/// What happened to an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum OrderEvent {
    /// It was placed.
    Placed(Placed),
    /// Its payment was captured, and it stands.
    Confirmed,
    /// It was cancelled.
    Cancelled(CancelReason),
    /// It waits longer, until then.
    DeadlineExtended(Timestamp),
}

/// Why an order says no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OrderRejection {
    /// There is no such order.
    #[error("there is no such order")]
    Unknown,
    /// It is cancelled already; what was done for it is being undone.
    #[error("the order is cancelled already ({})", .0.as_str())]
    AlreadyCancelled(CancelReason),
    /// It is confirmed already; only people may still cancel it.
    #[error("the order is confirmed already")]
    AlreadyConfirmed,
    /// Its deadline has passed: others may act on that already.
    #[error("the deadline of the order has passed")]
    TooLate,
}

impl Decider for Order {
    const KIND: &'static str = "order";
    const FIELDS: &'static [&'static str] = &["customer", "status"];
    /// Its customer may cancel it as long as it is here.
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
                Command::Confirm | Command::Cancel(_) | Command::Extend { .. } | Command::Expire(_),
            ) => Err(OrderRejection::Unknown),

            (State::Pending(_), Command::Place(_)) => Ok(vec![]),
            (State::Pending(_), Command::Confirm) => Ok(vec![OrderEvent::Confirmed]),
            (State::Pending(_), Command::Cancel(reason)) => Ok(vec![OrderEvent::Cancelled(*reason)]),
            (State::Pending(placed), Command::Expire(now)) if placed.deadline <= *now => {
                Ok(vec![OrderEvent::Cancelled(CancelReason::TimedOut)])
            }
            (State::Pending(_), Command::Expire(_)) => Ok(vec![]),
            (State::Pending(placed), Command::Extend { now, .. }) if placed.deadline <= *now => {
                Err(OrderRejection::TooLate)
            }
            (State::Pending(placed), Command::Extend { until, .. }) if placed.deadline < *until => {
                Ok(vec![OrderEvent::DeadlineExtended(*until)])
            }
            (State::Pending(_), Command::Extend { .. }) => Ok(vec![]),

            (State::Confirmed(_), Command::Place(_) | Command::Confirm | Command::Expire(_)) => Ok(vec![]),
            (State::Confirmed(_), Command::Extend { .. }) => Err(OrderRejection::AlreadyConfirmed),
            (State::Confirmed(_), Command::Cancel(reason)) => match reason {
                CancelReason::CustomerRequest | CancelReason::Operator => {
                    Ok(vec![OrderEvent::Cancelled(*reason)])
                }
                CancelReason::OutOfStock | CancelReason::PaymentFailed | CancelReason::TimedOut => {
                    Err(OrderRejection::AlreadyConfirmed)
                }
            },

            (State::Cancelled(..), Command::Place(_) | Command::Cancel(_) | Command::Expire(_)) => Ok(vec![]),
            // Nothing to do about a late capture here: payment hears the cancellation too, and refunds it.
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
        self.is_settled()
    }

    fn due(&self) -> Option<Timestamp> {
        match self {
            Self::Pending(placed) => Some(placed.deadline),
            Self::New | Self::Confirmed(_) | Self::Cancelled(..) => None,
        }
    }
}

impl Order {
    /// The status in the API.
    #[must_use]
    pub const fn status(&self) -> &'static str {
        match self {
            Self::New => "NEW",
            Self::Pending(_) => "PENDING",
            Self::Confirmed(_) => "CONFIRMED",
            Self::Cancelled(..) => "CANCELLED",
        }
    }

    /// The order as it was placed.
    #[must_use]
    pub const fn placed(&self) -> Option<&Placed> {
        match self {
            Self::New => None,
            Self::Pending(placed) | Self::Confirmed(placed) | Self::Cancelled(placed, _) => Some(placed),
        }
    }

    /// Why it was cancelled.
    #[must_use]
    pub const fn cancelled_because(&self) -> Option<CancelReason> {
        match self {
            Self::Cancelled(_, reason) => Some(*reason),
            Self::New | Self::Pending(_) | Self::Confirmed(_) => None,
        }
    }

    /// Whether the customer need not wait any longer.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        matches!(self, Self::Confirmed(_) | Self::Cancelled(..))
    }
}

/// A product as the order service knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogueItem {
    /// Its price; `None` while it is not known.
    pub unit_price: Option<Money>,
    /// The newest revision heard.
    pub revision: u64,
}

/// What inventory said about a product: both the command and the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceHeard {
    /// Price of one piece at that revision.
    pub unit_price: Money,
    /// The product's revision at that price.
    pub revision: u64,
}

impl Decider for CatalogueItem {
    const KIND: &'static str = "catalogue_item";
    type Command = PriceHeard;
    type Event = PriceHeard;
    type Rejection = std::convert::Infallible;

    fn decide(&self, heard: &PriceHeard) -> Result<Vec<PriceHeard>, Self::Rejection> {
        Ok(if heard.revision > self.revision { vec![*heard] } else { vec![] })
    }

    fn evolve(&mut self, heard: &PriceHeard) {
        *self = Self { unit_price: Some(heard.unit_price), revision: heard.revision };
    }

    fn event_name(_: &PriceHeard) -> &'static str {
        "PriceHeard"
    }
}
