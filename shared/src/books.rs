//! Pure: what each service tells the audit. The audit compares; nobody reads another's tables.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::money::Money;

/// A page of entries, sorted by key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Page<T> {
    /// The entries.
    pub entries: Vec<T>,
    /// Where the next page starts; `None` on the last.
    pub next: Option<String>,
}

/// How an order stands in its service's books.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OrderState {
    /// Waits for stock or payment.
    Pending,
    /// Stands.
    Confirmed,
    /// Was undone, or is being undone.
    Cancelled,
}

/// An order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderEntry {
    /// Order.
    pub order: Uuid,
    /// How it stands.
    pub state: OrderState,
    /// What it costs.
    pub total: Money,
    /// Pieces in all lines.
    pub pieces: u64,
}

/// How a reservation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ReservationState {
    /// Stock is set aside.
    Held,
    /// Stock is sold.
    Sold,
    /// Nothing is held: refused, released, put back, or cancelled first.
    Free,
}

/// A reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationEntry {
    /// Order.
    pub order: Uuid,
    /// How it stands.
    pub state: ReservationState,
    /// Pieces held or sold.
    pub pieces: u64,
}

/// A product's stock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockEntry {
    /// Stock keeping unit.
    pub sku: String,
    /// Free pieces.
    pub on_hand: u64,
    /// Pieces set aside.
    pub reserved: u64,
    /// Pieces sold.
    pub sold: u64,
    /// All pieces that ever came in.
    pub supplied: u64,
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

/// A payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentEntry {
    /// Order.
    pub order: Uuid,
    /// How it stands.
    pub state: PaymentState,
    /// The amount in question.
    pub amount: Option<Money>,
    /// Whether an operator, not a cancellation, asked for the refund.
    pub refunded_by_operator: bool,
}

/// How a charge stands in the bank's ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ChargeState {
    /// Captured.
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
    /// What the merchant said it is for: the order.
    pub reference: String,
    /// How it stands.
    pub state: ChargeState,
    /// The amount.
    pub amount: Option<Money>,
}
