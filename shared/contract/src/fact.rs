//! Pure: all facts of this shop as one type.
//!
//! A new fact is a struct in its producer's file and a line here. The compiler then names every place that must
//! handle it. `shared/contract/tests/it/wire.rs` compares the JSON of each with a golden file.

use saga_core::message::{Message, MessageType, raw};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use strum::{EnumDiscriminants, EnumString, IntoStaticStr, VariantArray};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::inventory::{
    PriceChanged, ProductChangeAudited, ProductListed, StockReleased, StockReplenished,
    StockReservationFailed, StockReserved,
};
use crate::order::{
    CancelReason, DeadlineExtended, DeadlineExtensionRequested, OrderCancelled, OrderConfirmed, OrderCreated,
};
use crate::payment::{
    ManualResolutionRequested, PaymentFailed, PaymentProcessed, PaymentRefunded, PaymentVoided, RefundAudited,
};
use crate::topology::OPERATOR;

/// Declares the facts: type, producer, last part of the subject, role in the saga.
macro_rules! facts {
    ($($fact:ident: $producer:expr, $subject:literal, $role:ident;)*) => {
        /// Fact that one service publishes to others.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, EnumDiscriminants)]
        #[serde(untagged)]
        #[strum_discriminants(name(FactType), doc = "The type of a fact, as the envelope names it.")]
        #[strum_discriminants(derive(PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema))]
        #[strum_discriminants(expect(missing_docs, reason = "each variant is documented at its struct"))]
        #[strum_discriminants(derive(EnumString, IntoStaticStr, VariantArray))]
        #[expect(missing_docs, reason = "each variant is documented at its struct")]
        pub enum Fact {
            $($fact($fact)),*
        }

        $(impl From<$fact> for Fact {
            fn from(fact: $fact) -> Self {
                Self::$fact(fact)
            }
        })*

        impl FactType {
            /// Name, version and subject suffix.
            #[must_use]
            pub const fn message_type(self) -> MessageType {
                match self {
                    $(Self::$fact => MessageType::new(stringify!($fact), $subject)),*
                }
            }

            /// Service that publishes the fact.
            #[must_use]
            pub const fn producer(self) -> &'static str {
                match self {
                    $(Self::$fact => $producer),*
                }
            }

            /// Role of the fact in the saga of an order.
            #[must_use]
            pub const fn role(self) -> FactRole {
                match self {
                    $(Self::$fact => FactRole::$role),*
                }
            }

            fn deserialize<'de, D: Deserializer<'de>>(self, data: D) -> Result<Fact, D::Error> {
                match self {
                    $(Self::$fact => Deserialize::deserialize(data).map(Fact::$fact)),*
                }
            }
        }

        impl Fact {
            fn order(&self) -> Option<Uuid> {
                match self {
                    $(Self::$fact(fact) => order_of!($role fact)),*
                }
            }
        }
    };
}

macro_rules! order_of {
    (Catalogue $fact:ident) => {{
        let _ = $fact;
        None
    }};
    (Audit $fact:ident) => {{
        let _ = $fact;
        None
    }};
    ($role:ident $fact:ident) => {
        Some($fact.order)
    };
}

/// Role of a fact in the saga of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactRole {
    /// Moves the order towards its confirmation.
    Progress,
    /// Reports a failure, a compensation or an intervention. Its trace is always recorded.
    Setback,
    /// Belongs to the catalogue, and to no order.
    Catalogue,
    /// Tells the audit log of a change by an operator, and belongs to no saga.
    Audit,
}

facts! {
    OrderCreated: "order", "created", Progress;
    OrderConfirmed: "order", "confirmed", Progress;
    OrderCancelled: "order", "cancelled", Setback;
    StockReserved: "inventory", "stock_reserved", Progress;
    StockReservationFailed: "inventory", "stock_reservation_failed", Setback;
    StockReleased: "inventory", "stock_released", Setback;
    StockReplenished: "inventory", "stock_replenished", Catalogue;
    ProductListed: "inventory", "product_listed", Catalogue;
    PriceChanged: "inventory", "price_changed", Catalogue;
    PaymentProcessed: "payment", "processed", Progress;
    PaymentFailed: "payment", "failed", Setback;
    PaymentRefunded: "payment", "refunded", Setback;
    PaymentVoided: "payment", "voided", Setback;
    DeadlineExtended: "order", "deadline_extended", Setback;
    DeadlineExtensionRequested: OPERATOR, "deadline_extension_requested", Setback;
    ManualResolutionRequested: OPERATOR, "manual_resolution_requested", Setback;
    ProductChangeAudited: "inventory", "product_change_audited", Audit;
    RefundAudited: "payment", "refund_audited", Audit;
}

impl FactType {
    /// Every type of fact, in the order of declaration.
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

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
            (Self::RefundAudited(was), Self::RefundAudited(is)) => {
                vec![(ImmutableMember::ORDER, was.order == is.order)]
            }
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
        self.order()
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other fact asks for something, or tells of it")]
    fn asks_to_stop(&self) -> bool {
        match self {
            Self::ManualResolutionRequested(request) => request.resolved,
            _ => false,
        }
    }

    fn is_failure(&self) -> bool {
        self.fact_type().role() == FactRole::Setback
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other fact has no reason")]
    fn failure_reason(&self) -> Option<&'static str> {
        match self {
            Self::StockReservationFailed(_) => Some(CancelReason::OutOfStock.as_str()),
            Self::PaymentFailed(failed) => Some(failed.reason.as_str()),
            Self::OrderCancelled(cancelled) => Some(cancelled.reason.as_str()),
            _ => None,
        }
    }

    fn encode(&self) -> serde_json::Result<Box<RawValue>> {
        raw(self)
    }

    fn decode<'de, D: Deserializer<'de>>(message_type: MessageType, data: D) -> Result<Self, D::Error> {
        let fact_type = FactType::named(message_type.name)
            .ok_or_else(|| Error::custom(format!("unknown fact {}", message_type.name)))?;
        fact_type.deserialize(data)
    }
}
