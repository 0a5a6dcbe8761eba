//! Pure: what each service tells of its ledger to whoever reconciles them. Nobody reads another's tables.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::money::Money;

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

/// What one order holds of the stock, as inventory has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationEntry {
    /// The order that it is for, whether or not it holds anything.
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
    /// Pieces that no order holds.
    pub on_hand: u64,
    /// Pieces set aside.
    pub reserved: u64,
    /// Pieces sold and not taken back.
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

/// The one payment of an order, as the payment service has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentEntry {
    /// The order that it pays.
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
    /// What the merchant said it is for: the order.
    pub reference: String,
    /// How it stands.
    pub state: ChargeState,
    /// What was asked for; absent when nothing was captured or refused yet, or it was reversed first.
    pub amount: Option<Money>,
}
