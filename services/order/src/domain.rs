//! Pure: what may happen to an order, and the catalogue it is priced by.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use shared::contract::{CancelReason, Line, PaymentContext};
use shared::decider::{Decider, FieldValue};
use shared::money::Money;

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

/// An order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Not there.
    #[default]
    New,
    /// Waits for its stock and its payment.
    Pending(Placed),
    /// Stands.
    Confirmed(Placed),
    /// Is undone by everyone who did something for it.
    Cancelled(Placed, CancelReason),
}

/// A wish concerning an order.
#[derive(Debug, Clone)]
pub enum OrderCommand {
    /// Place it.
    Place(Placed),
    /// Its payment was captured: confirm it.
    Confirm,
    /// Cancel it.
    Cancel(CancelReason),
    /// It is now this late: cancel it if its deadline has passed.
    Expire(Timestamp),
}

/// What happened to an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderEvent {
    /// It was placed.
    Placed(Placed),
    /// It stands.
    Confirmed,
    /// It was cancelled.
    Cancelled(CancelReason),
}

/// Why an order says no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderRejection {
    /// There is no such order.
    Unknown,
    /// It is cancelled already; what was done for it is being undone.
    AlreadyCancelled(CancelReason),
    /// It is confirmed already; only people may still cancel it.
    AlreadyConfirmed,
}

impl fmt::Display for OrderRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("there is no such order"),
            Self::AlreadyCancelled(reason) => {
                write!(f, "the order is cancelled already ({})", reason.as_str())
            }
            Self::AlreadyConfirmed => f.write_str("the order is confirmed already"),
        }
    }
}

impl Decider for Order {
    const KIND: &'static str = "orders";
    const FIELDS: &'static [&'static str] = &["customer", "status"];
    type Command = OrderCommand;
    type Event = OrderEvent;
    type Rejection = OrderRejection;

    fn decide(&self, command: &OrderCommand) -> Result<Vec<OrderEvent>, OrderRejection> {
        use {Order as State, OrderCommand as Wish};
        match (self, command) {
            (State::New, Wish::Place(placed)) => Ok(vec![OrderEvent::Placed(placed.clone())]),
            (State::New, Wish::Confirm | Wish::Cancel(_) | Wish::Expire(_)) => Err(OrderRejection::Unknown),

            (State::Pending(_), Wish::Place(_)) => Ok(vec![]),
            (State::Pending(_), Wish::Confirm) => Ok(vec![OrderEvent::Confirmed]),
            (State::Pending(_), Wish::Cancel(reason)) => Ok(vec![OrderEvent::Cancelled(*reason)]),
            (State::Pending(placed), Wish::Expire(now)) if placed.deadline <= *now => {
                Ok(vec![OrderEvent::Cancelled(CancelReason::TimedOut)])
            }
            (State::Pending(_), Wish::Expire(_)) => Ok(vec![]),

            (State::Confirmed(_), Wish::Place(_) | Wish::Confirm | Wish::Expire(_)) => Ok(vec![]),
            (State::Confirmed(_), Wish::Cancel(reason)) => match reason {
                CancelReason::CustomerRequest | CancelReason::Operator => {
                    Ok(vec![OrderEvent::Cancelled(*reason)])
                }
                CancelReason::OutOfStock | CancelReason::PaymentFailed | CancelReason::TimedOut => {
                    Err(OrderRejection::AlreadyConfirmed)
                }
            },

            (State::Cancelled(..), Wish::Place(_) | Wish::Cancel(_) | Wish::Expire(_)) => Ok(vec![]),
            // Nothing to do about a late capture here: payment hears the cancellation too, and refunds it.
            (State::Cancelled(_, reason), Wish::Confirm) => Err(OrderRejection::AlreadyCancelled(*reason)),
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
            (
                unchanged @ (Self::New | Self::Cancelled(..)),
                OrderEvent::Confirmed | OrderEvent::Cancelled(_),
            ) => unchanged,
        };
    }

    fn event_name(event: &OrderEvent) -> &'static str {
        match event {
            OrderEvent::Placed(_) => "Placed",
            OrderEvent::Confirmed => "Confirmed",
            OrderEvent::Cancelled(_) => "Cancelled",
        }
    }

    fn fields(&self, _: &str) -> Vec<FieldValue> {
        let customer =
            self.placed().map_or(FieldValue::Null, |placed| placed.payment.customer.as_str().into());
        vec![customer, self.status().into()]
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

/// What inventory said about a product: both the wish and the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceHeard {
    /// The price.
    pub unit_price: Money,
    /// The product's revision at that price.
    pub revision: u64,
}

impl Decider for CatalogueItem {
    const KIND: &'static str = "catalogue_item";
    const FIELDS: &'static [&'static str] = &[];
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

    fn fields(&self, _: &str) -> Vec<FieldValue> {
        vec![]
    }
}
