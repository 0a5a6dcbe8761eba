//! Pure: the facts that services tell each other. All they share is in this file.
//!
//! A new fact is a new variant of [`Fact`] and a new line in [`FactType::ALL`]; the compiler
//! names every place that has to decide about it. A change that old readers cannot
//! take is a new version. `shared/tests/it/wire.rs` holds the JSON of each against a golden file.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::money::Money;

/// One line of an order, priced by the order service's catalogue copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Line {
    /// Stock keeping unit.
    #[schema(example = "coffee-beans-1kg")]
    pub sku: String,
    /// Pieces, 1 or more.
    #[schema(example = 2)]
    pub quantity: u32,
    /// Price of one piece when the order was placed.
    pub unit_price: Money,
}

/// A quantity of one sku.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StockLine {
    /// Stock keeping unit.
    pub sku: String,
    /// Pieces.
    pub quantity: u32,
}

/// What a line asked for and what was there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shortage {
    /// Stock keeping unit.
    pub sku: String,
    /// Pieces asked for.
    pub requested: u32,
    /// Pieces that were free.
    pub available: u32,
}

/// What payment needs to charge an order; inventory passes it on unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaymentContext {
    /// The customer who pays.
    pub customer: String,
    /// The whole order's total.
    pub total: Money,
    /// The card token that the bank understands.
    pub token: String,
}

/// Why an order was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    /// Inventory could not reserve every line.
    OutOfStock,
    /// The payment was declined or could not be made.
    PaymentFailed,
    /// The deadline passed before the order was confirmed.
    TimedOut,
    /// The customer asked for it.
    CustomerRequest,
    /// An operator asked for it.
    Operator,
}

impl CancelReason {
    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OutOfStock => "out_of_stock",
            Self::PaymentFailed => "payment_failed",
            Self::TimedOut => "timed_out",
            Self::CustomerRequest => "customer_request",
            Self::Operator => "operator",
        }
    }
}

/// Why a payment failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PaymentFailure {
    /// The bank refused the card.
    Declined,
    /// The account does not hold the amount.
    InsufficientFunds,
    /// The amount is over the bank's limit.
    LimitExceeded,
    /// The bank gave no clear answer in all attempts; the charge is being reversed.
    Exhausted,
}

impl PaymentFailure {
    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Declined => "declined",
            Self::InsufficientFunds => "insufficient_funds",
            Self::LimitExceeded => "limit_exceeded",
            Self::Exhausted => "exhausted",
        }
    }
}

/// Order: an order was accepted and waits for its stock and its payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderCreated {
    /// The order; also the saga.
    pub order: Uuid,
    /// Its lines.
    pub lines: Vec<Line>,
    /// What payment will need.
    pub payment: PaymentContext,
    /// When the order gives up.
    pub deadline: Timestamp,
}

/// Inventory: every line is reserved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockReserved {
    /// The order.
    pub order: Uuid,
    /// What was set aside.
    pub lines: Vec<StockLine>,
    /// Passed on from [`OrderCreated`].
    pub payment: PaymentContext,
}

/// Inventory: not every line could be reserved, so none is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockReservationFailed {
    /// The order.
    pub order: Uuid,
    /// The lines that were short.
    pub shortages: Vec<Shortage>,
}

/// Payment: the money was captured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentProcessed {
    /// The order.
    pub order: Uuid,
    /// The payment.
    pub payment: Uuid,
    /// What was captured.
    pub amount: Money,
    /// The bank's id of the charge.
    pub bank_reference: String,
}

/// Payment: no money will come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentFailed {
    /// The order.
    pub order: Uuid,
    /// The payment.
    pub payment: Uuid,
    /// Why.
    pub reason: PaymentFailure,
}

/// Order: stock and money are there; the order stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderConfirmed {
    /// The order.
    pub order: Uuid,
    /// Its lines.
    pub lines: Vec<StockLine>,
}

/// Order: the one compensation fact. Every participant undoes its own part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderCancelled {
    /// The order.
    pub order: Uuid,
    /// Its lines: the keys of the rows that inventory needs. The amounts to undo are its own.
    pub lines: Vec<StockLine>,
    /// Why.
    pub reason: CancelReason,
}

/// Inventory: what the order held is free again. `lines` is empty when it held nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockReleased {
    /// The order.
    pub order: Uuid,
    /// What was put back.
    pub lines: Vec<StockLine>,
}

/// Payment: the captured money went back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentRefunded {
    /// The order.
    pub order: Uuid,
    /// The payment.
    pub payment: Uuid,
    /// What went back.
    pub amount: Money,
}

/// Inventory: a product can be ordered, at this price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProductListed {
    /// Stock keeping unit.
    pub sku: String,
    /// What people call it.
    pub name: String,
    /// Price of one piece.
    pub unit_price: Money,
    /// Grows with every change of the product: the older of two facts is ignored.
    pub revision: u64,
}

/// Inventory: a product's price changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceChanged {
    /// Stock keeping unit.
    pub sku: String,
    /// What people call it.
    pub name: String,
    /// The new price of one piece.
    pub unit_price: Money,
    /// Grows with every change of the product: the older of two facts is ignored.
    pub revision: u64,
}

/// Inventory: new stock came in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockReplenished {
    /// Stock keeping unit.
    pub sku: String,
    /// Pieces that came in.
    pub quantity: u32,
    /// Pieces on hand now, reserved ones not counted.
    pub on_hand: u32,
}

/// Any service: an input is parked for a human.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLettered {
    /// Id of the dead letter.
    pub id: Uuid,
    /// The service that could not handle it.
    pub service: String,
    /// The step that failed.
    pub step: String,
    /// Id of the message or task.
    pub message_id: Uuid,
    /// Type of the message, when it could be read.
    pub message_type: Option<String>,
    /// The saga it belongs to, when it could be read.
    pub saga: Option<Uuid>,
    /// The error chain, outermost first.
    pub reason: String,
    /// Groups dead letters of one cause.
    pub fingerprint: String,
    /// Attempts made.
    pub attempts: u32,
    /// When the first attempt failed.
    #[schema(value_type = String, format = DateTime)]
    pub first_failed_at: Timestamp,
    /// When the last attempt failed.
    #[schema(value_type = String, format = DateTime)]
    pub last_failed_at: Timestamp,
    /// The payload byte for byte, base64 (RFC 4648 §4).
    pub payload_base64: String,
}

/// Everything that services tell each other.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    DeadLettered(DeadLettered),
}

/// The type of a fact, as the envelope names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is documented at its struct")]
pub enum FactType {
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
    DeadLettered,
}

impl FactType {
    /// Every type there is.
    pub const ALL: [Self; 13] = [
        Self::OrderCreated,
        Self::OrderConfirmed,
        Self::OrderCancelled,
        Self::StockReserved,
        Self::StockReservationFailed,
        Self::StockReleased,
        Self::StockReplenished,
        Self::ProductListed,
        Self::PriceChanged,
        Self::PaymentProcessed,
        Self::PaymentFailed,
        Self::PaymentRefunded,
        Self::DeadLettered,
    ];

    /// The name in the envelope.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OrderCreated => "OrderCreated",
            Self::OrderConfirmed => "OrderConfirmed",
            Self::OrderCancelled => "OrderCancelled",
            Self::StockReserved => "StockReserved",
            Self::StockReservationFailed => "StockReservationFailed",
            Self::StockReleased => "StockReleased",
            Self::StockReplenished => "StockReplenished",
            Self::ProductListed => "ProductListed",
            Self::PriceChanged => "PriceChanged",
            Self::PaymentProcessed => "PaymentProcessed",
            Self::PaymentFailed => "PaymentFailed",
            Self::PaymentRefunded => "PaymentRefunded",
            Self::DeadLettered => "DeadLettered",
        }
    }

    /// The last part of the subject; the first is the service that speaks.
    #[must_use]
    pub const fn subject_suffix(self) -> &'static str {
        match self {
            Self::OrderCreated => "created",
            Self::OrderConfirmed => "confirmed",
            Self::OrderCancelled => "cancelled",
            Self::StockReserved => "stock_reserved",
            Self::StockReservationFailed => "stock_reservation_failed",
            Self::StockReleased => "stock_released",
            Self::StockReplenished => "stock_replenished",
            Self::ProductListed => "product_listed",
            Self::PriceChanged => "price_changed",
            Self::PaymentProcessed => "processed",
            Self::PaymentFailed => "failed",
            Self::PaymentRefunded => "refunded",
            Self::DeadLettered => "dead_lettered",
        }
    }

    /// The version that this build writes and reads.
    #[must_use]
    pub const fn version(self) -> u32 {
        1
    }

    /// The subject of this fact when `producer` says it.
    #[must_use]
    pub fn subject(self, producer: &str) -> String {
        format!("{producer}.{}", self.subject_suffix())
    }

    /// The type with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fact_type| fact_type.name() == name)
    }
}

impl Fact {
    /// The type of this fact.
    #[must_use]
    pub const fn fact_type(&self) -> FactType {
        match self {
            Self::OrderCreated(_) => FactType::OrderCreated,
            Self::OrderConfirmed(_) => FactType::OrderConfirmed,
            Self::OrderCancelled(_) => FactType::OrderCancelled,
            Self::StockReserved(_) => FactType::StockReserved,
            Self::StockReservationFailed(_) => FactType::StockReservationFailed,
            Self::StockReleased(_) => FactType::StockReleased,
            Self::StockReplenished(_) => FactType::StockReplenished,
            Self::ProductListed(_) => FactType::ProductListed,
            Self::PriceChanged(_) => FactType::PriceChanged,
            Self::PaymentProcessed(_) => FactType::PaymentProcessed,
            Self::PaymentFailed(_) => FactType::PaymentFailed,
            Self::PaymentRefunded(_) => FactType::PaymentRefunded,
            Self::DeadLettered(_) => FactType::DeadLettered,
        }
    }

    /// The saga that this fact belongs to, when it belongs to one.
    #[must_use]
    pub const fn saga(&self) -> Option<Uuid> {
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
            Self::DeadLettered(fact) => fact.saga,
            Self::StockReplenished(_) | Self::ProductListed(_) | Self::PriceChanged(_) => None,
        }
    }

    /// The fact as JSON, without its envelope.
    ///
    /// # Errors
    /// None in practice: every field of every fact has a JSON form.
    pub fn to_json(&self) -> serde_json::Result<Box<serde_json::value::RawValue>> {
        use serde_json::value::to_raw_value;
        match self {
            Self::OrderCreated(fact) => to_raw_value(fact),
            Self::OrderConfirmed(fact) => to_raw_value(fact),
            Self::OrderCancelled(fact) => to_raw_value(fact),
            Self::StockReserved(fact) => to_raw_value(fact),
            Self::StockReservationFailed(fact) => to_raw_value(fact),
            Self::StockReleased(fact) => to_raw_value(fact),
            Self::StockReplenished(fact) => to_raw_value(fact),
            Self::ProductListed(fact) => to_raw_value(fact),
            Self::PriceChanged(fact) => to_raw_value(fact),
            Self::PaymentProcessed(fact) => to_raw_value(fact),
            Self::PaymentFailed(fact) => to_raw_value(fact),
            Self::PaymentRefunded(fact) => to_raw_value(fact),
            Self::DeadLettered(fact) => to_raw_value(fact),
        }
    }

    /// The fact of type `fact_type` that `json` holds. Fields it does not know are passed over,
    /// so that a producer may add some.
    ///
    /// # Errors
    /// When `json` is not of that type; the message names the field.
    pub fn from_json(fact_type: FactType, json: &str) -> serde_json::Result<Self> {
        use serde_json::from_str;
        Ok(match fact_type {
            FactType::OrderCreated => Self::OrderCreated(from_str(json)?),
            FactType::OrderConfirmed => Self::OrderConfirmed(from_str(json)?),
            FactType::OrderCancelled => Self::OrderCancelled(from_str(json)?),
            FactType::StockReserved => Self::StockReserved(from_str(json)?),
            FactType::StockReservationFailed => Self::StockReservationFailed(from_str(json)?),
            FactType::StockReleased => Self::StockReleased(from_str(json)?),
            FactType::StockReplenished => Self::StockReplenished(from_str(json)?),
            FactType::ProductListed => Self::ProductListed(from_str(json)?),
            FactType::PriceChanged => Self::PriceChanged(from_str(json)?),
            FactType::PaymentProcessed => Self::PaymentProcessed(from_str(json)?),
            FactType::PaymentFailed => Self::PaymentFailed(from_str(json)?),
            FactType::PaymentRefunded => Self::PaymentRefunded(from_str(json)?),
            FactType::DeadLettered => Self::DeadLettered(from_str(json)?),
        })
    }
}
