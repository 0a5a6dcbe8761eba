//! Pure: ledger entries that each service reports for reconciliation, since no service reads another's tables.

use jiff::Timestamp;
use saga_core::row::PastEvent;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::fact::FactType;
use crate::money::Money;
use crate::order::{CancelReason, Line, StockLine};

/// Fact that a row's history has published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedFact {
    /// Type of the fact, without its content.
    pub fact: FactType,
    /// Time of the decision, as in the fact's envelope.
    #[serde(with = "time")]
    pub at: Timestamp,
}

impl PublishedFact {
    /// Lists the facts that a history has published. `fact_of` names the fact of an event.
    pub fn of<E>(history: &[PastEvent<E>], fact_of: impl Fn(&E) -> Option<FactType>) -> Vec<Self> {
        let published =
            |PastEvent { event, at, .. }: &PastEvent<E>| Some(Self { fact: fact_of(event)?, at: *at });
        history.iter().filter_map(published).collect()
    }
}

/// State of an order in the ledger of the order service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OrderState {
    /// Waits for stock or payment.
    Pending,
    /// The order is paid and final.
    Confirmed,
    /// Cancelled; compensation may be in progress.
    Cancelled,
}

/// Order, as the order service has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderEntry {
    /// Id of the order, in all ledgers.
    pub order: Uuid,
    /// State of the order in this ledger.
    pub state: OrderState,
    /// Reason why the order was cancelled, if it was.
    pub cancelled_because: Option<CancelReason>,
    /// Customer who pays the order.
    pub customer: String,
    /// Ordered lines, with the prices of that time.
    pub lines: Vec<Line>,
    /// Total price of the order.
    pub total: Money,
    /// Id of the order's only payment.
    pub payment: Uuid,
    /// Deadline, after which the order is cancelled.
    #[serde(with = "time")]
    pub deadline: Timestamp,
    /// Facts that its history has published, oldest first.
    pub published: Vec<PublishedFact>,
}

/// State of a reservation in inventory's ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ReservationState {
    /// Stock is reserved for the order.
    Reserved,
    /// The reserved stock is sold.
    Sold,
    /// Nothing is reserved: rejected, released, returned, or cancelled first.
    Free,
}

/// Reservation of an order, as inventory has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationEntry {
    /// Order of the reservation, even if nothing is reserved.
    pub order: Uuid,
    /// State of the reservation in this ledger.
    pub state: ReservationState,
    /// Reserved or sold lines; for a free reservation the lines it once had, from its history.
    pub lines: Vec<StockLine>,
    /// Facts that its history has published, oldest first.
    pub published: Vec<PublishedFact>,
}

/// Stock of a product, as inventory has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockEntry {
    /// Stock keeping unit (SKU) of the product.
    pub sku: String,
    /// Units that no order has reserved.
    pub on_hand: u64,
    /// Units that are reserved for orders.
    pub reserved: u64,
    /// Units sold and not returned.
    pub sold: u64,
    /// Units supplied since the product was listed.
    pub supplied: u64,
    /// Price of one unit; `None` for a product that was never listed.
    pub unit_price: Option<Money>,
    /// Revision of the price, which grows with each change.
    pub revision: u64,
    /// Version of the row. Two answers with the same version describe the same state.
    pub version: i64,
    /// Sold units whose reservations are purged.
    pub purged: u64,
}

/// Product in the order service's copy of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyEntry {
    /// Stock keeping unit (SKU) of the product.
    pub sku: String,
    /// Price that orders placed now pay.
    pub unit_price: Option<Money>,
    /// Newest revision that the copy has received.
    pub revision: u64,
    /// Every price that the copy ever had, once each.
    pub prices: Vec<Money>,
}

/// State of a payment in the payment service's ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PaymentState {
    /// A call to the bank is open: charge, refund or reversal.
    Open,
    /// The money of the payment is captured.
    Captured,
    /// The money of the payment is refunded.
    Refunded,
    /// No money was captured, or a possible capture was reversed.
    None,
}

/// Payment of an order, as the payment service has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentEntry {
    /// Id of the order that it pays.
    pub order: Uuid,
    /// State of the payment in this ledger.
    pub state: PaymentState,
    /// Customer who pays the order.
    pub customer: Option<String>,
    /// Amount to capture, or captured.
    pub amount: Option<Money>,
    /// Id of the charge at the bank; empty if nothing was captured.
    pub reference: String,
    /// Captured amounts, from the history.
    pub captured: Vec<Money>,
    /// Refunded amounts, from the history.
    pub refunded: Vec<Money>,
    /// True if an operator, rather than a cancellation, requested the refund.
    pub refunded_by_operator: bool,
    /// True if an operator resolved the payment manually: no more calls to the bank, whatever its state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resolved_manually: bool,
    /// Facts that its history has published, oldest first.
    pub published: Vec<PublishedFact>,
}

/// State of a charge in the bank's ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ChargeState {
    /// The money of the payment is captured.
    Captured,
    /// The money was captured and refunded.
    Refunded,
    /// No money was captured for the charge.
    None,
}

/// Charge in the bank's ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChargeEntry {
    /// Idempotency key of the charge: the payment id.
    pub charge: Uuid,
    /// Id of the charge at the bank.
    pub id: String,
    /// Reference given by the merchant: the order.
    pub reference: String,
    /// State of the charge at the bank.
    pub state: ChargeState,
    /// Requested amount; absent before any request, or if it was reversed first.
    pub amount: Option<Money>,
    /// Captured amounts, from the history.
    pub captured: Vec<Money>,
    /// Refunded amounts, from the history.
    pub refunded: Vec<Money>,
}

/// Serializes a time as text in readable formats, and as seconds and nanoseconds in binary ones.
mod time {
    use jiff::Timestamp;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        match serializer.is_human_readable() {
            true => at.serialize(serializer),
            false => (at.as_second(), at.subsec_nanosecond()).serialize(serializer),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        if deserializer.is_human_readable() {
            return Timestamp::deserialize(deserializer);
        }
        let (second, nanosecond) = Deserialize::deserialize(deserializer)?;
        Timestamp::new(second, nanosecond).map_err(D::Error::custom)
    }
}
