//! Pure: facts of the inventory service: reservations, products and prices.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::money::Money;
use crate::order::{PaymentContext, StockLine};

/// Inventory: every line of the order is reserved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockReserved {
    /// Order of the reservation, and saga.
    pub order: Uuid,
    /// Lines that are reserved for the order.
    pub lines: Vec<StockLine>,
    /// Payment context, copied from [`OrderCreated`](crate::order::OrderCreated).
    pub payment: PaymentContext,
    /// Deadline of the order, copied likewise. Nobody is charged after it.
    pub deadline: Timestamp,
}

/// Inventory: some lines could not be reserved, so none is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockReservationFailed {
    /// Order without a reservation, and saga.
    pub order: Uuid,
    /// Lines of which too little stock was available.
    pub shortages: Vec<Shortage>,
}

/// Inventory: the reservation of a cancelled order is released. `lines` is empty if there was none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockReleased {
    /// Id of the cancelled order, which is the saga's.
    pub order: Uuid,
    /// Lines that were returned to stock.
    pub lines: Vec<StockLine>,
}

/// Line of which too little stock was available.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shortage {
    /// Stock keeping unit (SKU) of the product.
    pub sku: String,
    /// Units that the order asked for.
    pub requested: u32,
    /// Units that were available.
    pub available: u32,
}

/// Inventory: a product can be ordered at this price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProductListed {
    /// Stock keeping unit (SKU) of the product.
    pub sku: String,
    /// Product name, as people read it.
    pub name: String,
    /// Price of one unit of the product.
    pub unit_price: Money,
    /// Revision of the product. Consumers ignore the lower one of two facts.
    pub revision: u64,
}

/// Inventory: the price of a product changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceChanged {
    /// Stock keeping unit (SKU) of the product.
    pub sku: String,
    /// Product name, as people read it.
    pub name: String,
    /// New price of one unit.
    pub unit_price: Money,
    /// Revision of the product. Consumers ignore the lower one of two facts.
    pub revision: u64,
}

/// Inventory: stock of a product was replenished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockReplenished {
    /// Stock keeping unit (SKU) of the product.
    pub sku: String,
    /// Units added to the stock.
    pub quantity: u32,
    /// Units on hand now, without reserved ones.
    pub on_hand: u32,
}

/// Inventory: an operator changed a product. Other services act on the facts of the change itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProductChangeAudited {
    /// Stock keeping unit (SKU) of the product.
    pub sku: String,
    /// Change that the operator made.
    pub change: ProductChange,
    /// Price of one unit after the change.
    pub unit_price: Money,
    /// Units that the change added to the stock; 0 for a new price.
    pub quantity: u32,
    /// Name of the operator, as the audit log shows it.
    pub operator: String,
}

/// Kind of change that an operator made to a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProductChange {
    /// The product was listed, and can be ordered.
    Listed,
    /// The price of the product was changed.
    PriceChanged,
    /// Units were added to the stock of the product.
    Restocked,
}
