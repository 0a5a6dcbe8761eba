//! Pure: everything that the services of this shop tell each other, as one type.
//!
//! A new fact is a struct in its producer's file and a variant here; the compiler names every place that has to
//! decide about it. `shared/contract/tests/it/wire.rs` holds the JSON of each against a golden file.

use saga_core::message::{Message, MessageType, raw};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use strum::{EnumDiscriminants, EnumString, IntoStaticStr, VariantArray};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::inventory::{
    PriceChanged, ProductListed, StockReleased, StockReplenished, StockReservationFailed, StockReserved,
};
use crate::order::{
    DeadlineExtended, DeadlineExtensionRequested, OrderCancelled, OrderConfirmed, OrderCreated,
};
use crate::payment::{
    ManualResolutionRequested, PaymentFailed, PaymentProcessed, PaymentRefunded, PaymentVoided,
};
use crate::topology::OPERATOR;

/// Everything that services tell each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, EnumDiscriminants)]
#[serde(untagged)]
#[strum_discriminants(name(FactType), doc = "The type of a fact, as the envelope names it.")]
#[strum_discriminants(derive(PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema))]
#[strum_discriminants(expect(missing_docs, reason = "each variant is documented at its struct"))]
#[strum_discriminants(derive(EnumString, IntoStaticStr, VariantArray))]
#[expect(missing_docs, reason = "each variant is documented at its struct")]
pub enum Fact {
    OrderCreated(OrderCreated),
    OrderConfirmed(OrderConfirmed),
    OrderCancelled(OrderCancelled),
    StockReserved(StockReserved),
    StockReservationFailed(StockReservationFailed),
    StockReleased(StockReleased),
    StockReplenished(StockReplenished),
    ProductListed(ProductListed),
    PriceChanged(PriceChanged),
    PaymentProcessed(PaymentProcessed),
    PaymentFailed(PaymentFailed),
    PaymentRefunded(PaymentRefunded),
    PaymentVoided(PaymentVoided),
    DeadlineExtended(DeadlineExtended),
    DeadlineExtensionRequested(DeadlineExtensionRequested),
    ManualResolutionRequested(ManualResolutionRequested),
}

impl FactType {
    /// Every type there is.
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    /// The type as the engine knows it: name, version, subject.
    #[must_use]
    pub const fn message_type(self) -> MessageType {
        match self {
            Self::OrderCreated => MessageType::new("OrderCreated", "created"),
            Self::OrderConfirmed => MessageType::new("OrderConfirmed", "confirmed"),
            Self::OrderCancelled => MessageType::new("OrderCancelled", "cancelled"),
            Self::StockReserved => MessageType::new("StockReserved", "stock_reserved"),
            Self::StockReservationFailed => {
                MessageType::new("StockReservationFailed", "stock_reservation_failed")
            }
            Self::StockReleased => MessageType::new("StockReleased", "stock_released"),
            Self::StockReplenished => MessageType::new("StockReplenished", "stock_replenished"),
            Self::ProductListed => MessageType::new("ProductListed", "product_listed"),
            Self::PriceChanged => MessageType::new("PriceChanged", "price_changed"),
            Self::PaymentProcessed => MessageType::new("PaymentProcessed", "processed"),
            Self::PaymentFailed => MessageType::new("PaymentFailed", "failed"),
            Self::PaymentRefunded => MessageType::new("PaymentRefunded", "refunded"),
            Self::PaymentVoided => MessageType::new("PaymentVoided", "voided"),
            Self::DeadlineExtended => MessageType::new("DeadlineExtended", "deadline_extended"),
            Self::DeadlineExtensionRequested => {
                MessageType::new("DeadlineExtensionRequested", "deadline_extension_requested")
            }
            Self::ManualResolutionRequested => {
                MessageType::new("ManualResolutionRequested", "manual_resolution_requested")
            }
        }
    }

    /// The one service that says it.
    #[must_use]
    pub const fn producer(self) -> &'static str {
        match self {
            Self::OrderCreated | Self::OrderConfirmed | Self::OrderCancelled | Self::DeadlineExtended => {
                "order"
            }
            Self::DeadlineExtensionRequested | Self::ManualResolutionRequested => OPERATOR,
            Self::StockReserved
            | Self::StockReservationFailed
            | Self::StockReleased
            | Self::StockReplenished
            | Self::ProductListed
            | Self::PriceChanged => "inventory",
            Self::PaymentProcessed | Self::PaymentFailed | Self::PaymentRefunded | Self::PaymentVoided => {
                "payment"
            }
        }
    }

    /// Every type that this service says.
    pub fn said_by(service: &str) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |fact| fact.producer() == service)
    }

    /// The name in the envelope.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.message_type().name
    }

    /// The type with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

impl Fact {
    /// Its type alone, without what it says.
    #[must_use]
    pub fn fact_type(&self) -> FactType {
        self.into()
    }

    /// What an edit of this fact may not change, and `edited` does: whose it is, what was ordered, how much is paid.
    /// Others act on that already, each by its own record. `None` when all of it is kept.
    #[must_use]
    pub fn broken_promise(&self, edited: &Self) -> Option<Promise> {
        let is_kept = match (self, edited) {
            (Self::OrderCreated(was), Self::OrderCreated(is)) => vec![
                (Promise::LINES, was.lines == is.lines),
                (Promise::PAYMENT, was.payment.is_kept_by(&is.payment)),
            ],
            (Self::StockReserved(was), Self::StockReserved(is)) => vec![
                (Promise::LINES, was.lines == is.lines),
                (Promise::PAYMENT, was.payment.is_kept_by(&is.payment)),
            ],
            (Self::PaymentProcessed(was), Self::PaymentProcessed(is)) => vec![
                (Promise::MOVED_BY, was.payment == is.payment),
                (Promise::MOVED, was.amount == is.amount),
            ],
            (Self::PaymentRefunded(was), Self::PaymentRefunded(is)) => vec![
                (Promise::MOVED_BY, was.payment == is.payment),
                (Promise::MOVED, was.amount == is.amount),
            ],
            (_, _) => vec![],
        };
        let is_of_the_same = [(Promise::OF_WHOM, self.saga() == edited.saga())];
        let broken = is_of_the_same.into_iter().chain(is_kept).find(|(_, is_kept)| !is_kept);
        broken.map(|(promise, _)| promise)
    }
}

/// A member of a fact that others act on already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// Its name.
    pub member: &'static str,
    /// What would come of another value, for people.
    pub consequence: &'static str,
}

impl Promise {
    /// Whose order it is.
    pub const OF_WHOM: Self = Self {
        member: "order",
        consequence: "another order would go on, and the one that waits for this would wait in vain",
    };
    const LINES: Self = Self {
        member: "lines",
        consequence: "other goods would be reserved and sold than the order has, at prices that nobody agreed to",
    };
    const PAYMENT: Self = Self {
        member: "payment",
        consequence: "another customer would be charged, or another amount than the total",
    };
    const MOVED_BY: Self = Self {
        member: "payment",
        consequence: "a refund would look for a charge that the bank does not know",
    };
    const MOVED: Self =
        Self { member: "amount", consequence: "the order would go by money that the bank never moved" };
}

impl Message for Fact {
    fn message_type(&self) -> MessageType {
        self.fact_type().message_type()
    }

    fn named(name: &str) -> Option<MessageType> {
        FactType::named(name).map(FactType::message_type)
    }

    fn saga(&self) -> Option<Uuid> {
        match self {
            Self::OrderCreated(fact) => Some(fact.order),
            Self::OrderConfirmed(fact) => Some(fact.order),
            Self::OrderCancelled(fact) => Some(fact.order),
            Self::StockReserved(fact) => Some(fact.order),
            Self::StockReservationFailed(fact) => Some(fact.order),
            Self::StockReleased(fact) => Some(fact.order),
            Self::PaymentProcessed(fact) => Some(fact.order),
            Self::PaymentFailed(fact) => Some(fact.order),
            Self::PaymentRefunded(fact) => Some(fact.order),
            Self::PaymentVoided(fact) => Some(fact.order),
            Self::DeadlineExtended(fact) => Some(fact.order),
            Self::DeadlineExtensionRequested(fact) => Some(fact.order),
            Self::ManualResolutionRequested(fact) => Some(fact.order),
            Self::StockReplenished(_) | Self::ProductListed(_) | Self::PriceChanged(_) => None,
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other fact asks for something, or tells of it")]
    fn gives_up(&self) -> bool {
        match self {
            Self::ManualResolutionRequested(request) => request.resolved,
            _ => false,
        }
    }

    fn went_wrong(&self) -> bool {
        match self {
            Self::OrderCancelled(_)
            | Self::StockReservationFailed(_)
            | Self::StockReleased(_)
            | Self::PaymentFailed(_)
            | Self::PaymentRefunded(_)
            | Self::PaymentVoided(_)
            | Self::DeadlineExtended(_)
            | Self::DeadlineExtensionRequested(_)
            | Self::ManualResolutionRequested(_) => true,
            Self::OrderCreated(_)
            | Self::OrderConfirmed(_)
            | Self::StockReserved(_)
            | Self::PaymentProcessed(_)
            | Self::StockReplenished(_)
            | Self::ProductListed(_)
            | Self::PriceChanged(_) => false,
        }
    }

    fn encode(&self) -> serde_json::Result<Box<RawValue>> {
        raw(self)
    }

    fn decode<'de, D: Deserializer<'de>>(message_type: MessageType, data: D) -> Result<Self, D::Error> {
        let fact_type = FactType::named(message_type.name)
            .ok_or_else(|| Error::custom(format!("nobody says {}", message_type.name)))?;
        Ok(match fact_type {
            FactType::OrderCreated => Self::OrderCreated(Deserialize::deserialize(data)?),
            FactType::OrderConfirmed => Self::OrderConfirmed(Deserialize::deserialize(data)?),
            FactType::OrderCancelled => Self::OrderCancelled(Deserialize::deserialize(data)?),
            FactType::StockReserved => Self::StockReserved(Deserialize::deserialize(data)?),
            FactType::StockReservationFailed => Self::StockReservationFailed(Deserialize::deserialize(data)?),
            FactType::StockReleased => Self::StockReleased(Deserialize::deserialize(data)?),
            FactType::StockReplenished => Self::StockReplenished(Deserialize::deserialize(data)?),
            FactType::ProductListed => Self::ProductListed(Deserialize::deserialize(data)?),
            FactType::PriceChanged => Self::PriceChanged(Deserialize::deserialize(data)?),
            FactType::PaymentProcessed => Self::PaymentProcessed(Deserialize::deserialize(data)?),
            FactType::PaymentFailed => Self::PaymentFailed(Deserialize::deserialize(data)?),
            FactType::PaymentRefunded => Self::PaymentRefunded(Deserialize::deserialize(data)?),
            FactType::PaymentVoided => Self::PaymentVoided(Deserialize::deserialize(data)?),
            FactType::DeadlineExtended => Self::DeadlineExtended(Deserialize::deserialize(data)?),
            FactType::DeadlineExtensionRequested => {
                Self::DeadlineExtensionRequested(Deserialize::deserialize(data)?)
            }
            FactType::ManualResolutionRequested => {
                Self::ManualResolutionRequested(Deserialize::deserialize(data)?)
            }
        })
    }
}

macro_rules! from {
    ($($said:ident),*) => {
        $(impl From<$said> for Fact {
            fn from(said: $said) -> Self {
                Self::$said(said)
            }
        })*
    };
}

from!(
    OrderCreated,
    OrderConfirmed,
    OrderCancelled,
    StockReserved,
    StockReservationFailed,
    StockReleased,
    StockReplenished,
    ProductListed,
    PriceChanged,
    PaymentProcessed,
    PaymentFailed,
    PaymentRefunded,
    PaymentVoided,
    DeadlineExtended,
    DeadlineExtensionRequested,
    ManualResolutionRequested
);
