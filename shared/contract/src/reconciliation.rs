//! Pure: what each service tells of its ledger to whoever reconciles them, and how long that may take. Nobody reads
//! another's tables.

use std::time::Duration;

use jiff::Timestamp;
use saga_core::row::PastEvent;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::fact::FactType;
use crate::money::Money;
use crate::order::{CancelReason, Line, StockLine};

/// How long admin may read everything for somebody who asks for that by `whole`, beyond the wait that was asked for;
/// whoever asks waits a little longer.
pub const WHOLE_WITHIN: Duration = Duration::from_mins(10);

/// A fact that a row's history says was told to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedFact {
    /// What was told.
    pub fact: FactType,
    /// When it was decided; the fact carries the same time.
    #[serde(with = "time")]
    pub at: Timestamp,
}

impl PublishedFact {
    /// What a history told, where `told` says which fact follows from an event.
    pub fn of<E>(history: &[PastEvent<E>], told: impl Fn(&E) -> Option<FactType>) -> Vec<Self> {
        let said = |PastEvent { event, at, .. }: &PastEvent<E>| Some(Self { fact: told(event)?, at: *at });
        history.iter().filter_map(said).collect()
    }
}

/// How an order stands in its service's ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OrderState {
    /// Waits for stock or payment.
    Pending,
    /// Is paid, and stands.
    Confirmed,
    /// Was undone, or is being undone.
    Cancelled,
}

/// One order, as the order service has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderEntry {
    /// Id of the order; the other ledgers have it too.
    pub order: Uuid,
    /// How it stands.
    pub state: OrderState,
    /// Why it was cancelled.
    pub cancelled_because: Option<CancelReason>,
    /// Who ordered, and pays.
    pub customer: String,
    /// What was ordered, at the prices of that time.
    pub lines: Vec<Line>,
    /// What it costs.
    pub total: Money,
    /// Id of the order's one payment.
    pub payment: Uuid,
    /// When it gives up unless confirmed.
    #[serde(with = "time")]
    pub deadline: Timestamp,
    /// What its history told, oldest first.
    pub published: Vec<PublishedFact>,
}

/// How a reservation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ReservationState {
    /// Stock is reserved for the order.
    Reserved,
    /// Stock is sold.
    Sold,
    /// Nothing is held: refused, released, put back, or cancelled first.
    Free,
}

/// What one order holds of the stock, as inventory has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationEntry {
    /// The order that it is for, whether or not it holds anything.
    pub order: Uuid,
    /// How it stands.
    pub state: ReservationState,
    /// What is held or sold; of a free one what it held once, as its history has it.
    pub lines: Vec<StockLine>,
    /// What its history told, oldest first.
    pub published: Vec<PublishedFact>,
}

/// A product's stock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockEntry {
    /// Stock keeping unit.
    pub sku: String,
    /// Pieces that no order holds.
    pub on_hand: u64,
    /// Pieces set aside.
    pub reserved: u64,
    /// Pieces sold and not taken back.
    pub sold: u64,
    /// All pieces that ever came in.
    pub supplied: u64,
    /// Price of one piece; `None` for a product that nobody listed.
    pub unit_price: Option<Money>,
    /// Grows with every change of the price.
    pub revision: u64,
    /// Grows with every change of any kind: two answers with the same one tell of the same moment.
    #[serde(default)]
    pub version: i64,
    /// Pieces of those sold whose reservations have left with their age.
    #[serde(default)]
    pub left: u64,
}

/// A product in the order service's copy of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyEntry {
    /// Stock keeping unit.
    pub sku: String,
    /// Its price, which orders placed now pay.
    pub unit_price: Option<Money>,
    /// The newest revision heard.
    pub revision: u64,
    /// Every price that it ever had here, once each.
    pub prices: Vec<Money>,
}

/// How a payment stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PaymentState {
    /// A call to the bank is under way: charge, refund or reversal.
    Open,
    /// The money is here.
    Captured,
    /// The money went back.
    Refunded,
    /// No money ever came, or what came unseen was reversed.
    None,
}

/// The one payment of an order, as the payment service has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentEntry {
    /// The order that it pays.
    pub order: Uuid,
    /// How it stands.
    pub state: PaymentState,
    /// Who pays.
    pub customer: Option<String>,
    /// The amount in question.
    pub amount: Option<Money>,
    /// The bank's id of the charge; empty when nothing was captured.
    pub reference: String,
    /// Each amount that came, as its history has it.
    pub captured: Vec<Money>,
    /// Each amount that went back, as its history has it.
    pub refunded: Vec<Money>,
    /// Whether an operator, not a cancellation, asked for the refund.
    pub refunded_by_operator: bool,
    /// True if an operator resolved it manually: the bank is not called any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resolved_manually: bool,
    /// What its history told, oldest first.
    pub published: Vec<PublishedFact>,
}

/// How a charge stands in the bank's ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ChargeState {
    /// The bank took the money, and has it.
    Captured,
    /// Captured and given back.
    Refunded,
    /// Nothing was captured.
    None,
}

/// A charge in the bank's ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChargeEntry {
    /// The key it came under.
    pub charge: Uuid,
    /// The bank's id of it.
    pub id: String,
    /// What the merchant said it is for: the order.
    pub reference: String,
    /// How it stands.
    pub state: ChargeState,
    /// What was asked for; absent when nothing was captured or refused yet, or it was reversed first.
    pub amount: Option<Money>,
    /// Each amount that the bank took, as its history has it.
    pub captured: Vec<Money>,
    /// Each amount that the bank gave back, as its history has it.
    pub refunded: Vec<Money>,
}

/// A time is text where people may read it, and its seconds and nanoseconds where only programs do.
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
