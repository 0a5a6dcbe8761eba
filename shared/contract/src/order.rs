//! Pure: facts of the order service, from placing an order to its end.

use jiff::Timestamp;
use saga_core::secrets::Secrets;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::money::Money;

/// Order: an order was accepted and waits for stock and payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderCreated {
    /// Id of the order, which is the saga's.
    pub order: Uuid,
    /// Ordered lines with their prices; never empty.
    pub lines: Vec<Line>,
    /// Data that payment needs, passed on by inventory.
    pub payment: PaymentContext,
    /// Deadline, after which the order is cancelled.
    pub deadline: Timestamp,
}

/// Order: stock is reserved and the money captured; the order is final.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderConfirmed {
    /// Id of the confirmed order, which is the saga's.
    pub order: Uuid,
    /// Lines of the order, without their prices.
    pub lines: Vec<StockLine>,
}

/// Order: the order is cancelled. The only fact that starts compensation: each participant undoes its own part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderCancelled {
    /// Id of the cancelled order, which is the saga's.
    pub order: Uuid,
    /// Lines of the order, which name the rows that inventory needs. Inventory's own records say how much to undo.
    pub lines: Vec<StockLine>,
    /// Reason of the first cancellation. Later ones change nothing.
    pub reason: CancelReason,
}

/// Order: an operator extended the deadline before it passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadlineExtended {
    /// Id of the order, which is the saga's.
    pub order: Uuid,
    /// New deadline, later than the old one.
    pub deadline: Timestamp,
}

/// Operator: extend the deadline of an order. No effect on an order that has ended, or if the deadline is no later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadlineExtensionRequested {
    /// Id of the order, which is the saga's.
    pub order: Uuid,
    /// Deadline that the operator requests.
    pub deadline: Timestamp,
}

/// Line of an order, with the price of the order service's catalogue copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Line {
    /// Stock keeping unit (SKU) of the product.
    #[schema(example = "coffee-beans-1kg")]
    pub sku: String,
    /// Number of units, at least 1.
    #[schema(example = 2)]
    pub quantity: u32,
    /// Price of one unit when the order was placed.
    pub unit_price: Money,
}

/// Quantity of one product, without its price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StockLine {
    /// Stock keeping unit (SKU) of the product.
    pub sku: String,
    /// Number of units, at least 1.
    pub quantity: u32,
}

/// Data that payment needs to charge an order. Inventory copies it unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaymentContext {
    /// Customer who pays the order.
    pub customer: String,
    /// Total price of the order.
    pub total: Money,
    /// Card token, as the bank knows it.
    pub token: String,
    /// Id of the order's only payment, and idempotency key of its charge at the bank.
    pub id: Uuid,
}

impl PaymentContext {
    /// True if `edited` has the same customer, total and payment. The card may differ.
    pub(crate) fn is_kept_by(&self, edited: &Self) -> bool {
        (&self.customer, self.total, self.id) == (&edited.customer, edited.total, edited.id)
    }
}

/// Id of the order that a row belongs to. Rows about one order have its id.
///
/// # Panics
/// If `row` is the id of another row.
#[must_use]
pub fn order_id(row: &str) -> Uuid {
    match row.parse() {
        Ok(order) => order,
        Err(error) => panic!("row id {row:?} is not an order id: {error}"),
    }
}

/// Secrets that are never shown: a card token is the customer's.
pub const SECRETS: Secrets = Secrets { members: &["token"], prefixes: &["tok_"] };

/// Reason why an order was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CancelReason {
    /// Inventory could not reserve every line.
    OutOfStock,
    /// The payment was declined or failed.
    PaymentFailed,
    /// The deadline passed before the order was confirmed.
    TimedOut,
    /// The customer cancelled the order.
    CustomerRequest,
    /// An operator cancelled the order.
    Operator,
}

impl CancelReason {
    /// Name in JSON and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
