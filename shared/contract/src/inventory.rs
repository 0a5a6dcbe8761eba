//! Pure: what the inventory service says: stock set aside and freed, products and their prices.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::money::Money;
use crate::order::{PaymentContext, StockLine};

/// Inventory: every line is reserved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockReserved {
    /// The order that it is for; also the saga's id.
    pub order: Uuid,
    /// What was set aside.
    pub lines: Vec<StockLine>,
    /// Passed on from [`OrderCreated`](crate::order::OrderCreated).
    pub payment: PaymentContext,
    /// Deadline of the order, after which nobody is charged. Passed on like the payment context.
    pub deadline: Timestamp,
}

/// Inventory: not every line could be reserved, so none is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockReservationFailed {
    /// The order that gets nothing; also the saga's id.
    pub order: Uuid,
    /// The lines that were short.
    pub shortages: Vec<Shortage>,
}

/// Inventory: what the order held is free again. `lines` is empty when it held nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockReleased {
    /// The order that was cancelled; also the saga's id.
    pub order: Uuid,
    /// What was put back.
    pub lines: Vec<StockLine>,
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
