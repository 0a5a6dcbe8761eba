//! Pure: all facts of this shop as one type.
//!
//! A new fact is a struct in its producer's file and a variant here. The compiler then names every place that must
//! handle it. `shared/contract/tests/it/wire.rs` compares the JSON of each with a golden file.

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

/// Fact that one service publishes to others.
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
    /// Every type of fact, in the order of declaration.
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    /// Name, version and subject suffix.
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

    /// Service that publishes the fact.
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

    /// Types of facts that this service publishes.
    pub fn published_by(service: &str) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |fact| fact.producer() == service)
    }

    /// Name of the type in the envelope.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.message_type().name
    }

    /// Finds the type with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

impl Fact {
    /// Type of the fact, without its content.
    #[must_use]
    pub fn fact_type(&self) -> FactType {
        self.into()
    }

    /// First member that an edit may not change, and `edited` does; `None` if there is none.
    ///
    /// Other services have acted on these members: order id, lines, payment.
    #[must_use]
    pub fn immutable_change(&self, edited: &Self) -> Option<ImmutableMember> {
        let is_kept = match (self, edited) {
            (Self::OrderCreated(was), Self::OrderCreated(is)) => vec![
                (ImmutableMember::LINES, was.lines == is.lines),
                (ImmutableMember::PAYMENT, was.payment.is_kept_by(&is.payment)),
            ],
            (Self::StockReserved(was), Self::StockReserved(is)) => vec![
                (ImmutableMember::LINES, was.lines == is.lines),
                (ImmutableMember::PAYMENT, was.payment.is_kept_by(&is.payment)),
            ],
            (Self::PaymentProcessed(was), Self::PaymentProcessed(is)) => vec![
                (ImmutableMember::PAYMENT_ID, was.payment == is.payment),
                (ImmutableMember::AMOUNT, was.amount == is.amount),
            ],
            (Self::PaymentRefunded(was), Self::PaymentRefunded(is)) => vec![
                (ImmutableMember::PAYMENT_ID, was.payment == is.payment),
                (ImmutableMember::AMOUNT, was.amount == is.amount),
            ],
            (_, _) => vec![],
        };
        let is_of_the_same = [(ImmutableMember::ORDER, self.saga() == edited.saga())];
        let changed = is_of_the_same.into_iter().chain(is_kept).find(|(_, is_kept)| !is_kept);
        changed.map(|(member, _)| member)
    }
}

/// Member of a fact that an edit may not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImmutableMember {
    /// Name of the member in the fact's JSON.
    pub member: &'static str,
    /// Consequence of another value, for people.
    pub consequence: &'static str,
}

impl ImmutableMember {
    /// Order that the fact belongs to.
    pub const ORDER: Self = Self {
        member: "order",
        consequence: "another order would go on, and the one that waits for this would wait in vain",
    };
    const LINES: Self = Self {
        member: "lines",
        consequence: "other goods would be reserved and sold than were ordered, at other prices",
    };
    const PAYMENT: Self = Self {
        member: "payment",
        consequence: "another customer would be charged, or another amount than the total",
    };
    const PAYMENT_ID: Self = Self {
        member: "payment",
        consequence: "a refund would look for a charge that the bank does not know",
    };
    const AMOUNT: Self =
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
    fn asks_to_stop(&self) -> bool {
        match self {
            Self::ManualResolutionRequested(request) => request.resolved,
            _ => false,
        }
    }

    fn is_failure(&self) -> bool {
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
            .ok_or_else(|| Error::custom(format!("unknown fact {}", message_type.name)))?;
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
    ($($fact:ident),*) => {
        $(impl From<$fact> for Fact {
            fn from(fact: $fact) -> Self {
                Self::$fact(fact)
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
