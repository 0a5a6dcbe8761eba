//! Pure: what the order service says: orders, from their placing to their end.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::money::Money;

/// Order: an order was accepted and waits for its stock and its payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderCreated {
    /// The order; also the saga.
    pub order: Uuid,
    /// What was ordered, priced; never empty.
    pub lines: Vec<Line>,
    /// What payment will need.
    pub payment: PaymentContext,
    /// When the order gives up.
    pub deadline: Timestamp,
}

/// Order: stock and money are there; the order stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderConfirmed {
    /// The order that stands; also the saga's id.
    pub order: Uuid,
    /// What was ordered, without the prices.
    pub lines: Vec<StockLine>,
}

/// Order: the one compensation fact. Every participant undoes its own part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderCancelled {
    /// The order that is undone; also the saga's id.
    pub order: Uuid,
    /// Its lines: the keys of the rows that inventory needs. The amounts to undo are its own.
    pub lines: Vec<StockLine>,
    /// The reason that came first: a second cancellation changes nothing.
    pub reason: CancelReason,
}

/// Order: an operator gave the order more time, before its old deadline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadlineExtended {
    /// The order that waits longer; also the saga's id.
    pub order: Uuid,
    /// When it gives up now: later than before.
    pub deadline: Timestamp,
}

/// An operator: this order is to wait longer. Once it has ended, or for less than it waits already, it changes
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadlineExtensionRequested {
    /// The order; also the saga's id.
    pub order: Uuid,
    /// When it is to give up.
    pub deadline: Timestamp,
}

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
    /// Pieces of it, 1 or more.
    pub quantity: u32,
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
    /// Id of the order's one payment, and the key of the charge at the bank.
    pub id: Uuid,
}

impl PaymentContext {
    /// Whether `edited` says the same of who pays how much, and as which payment. With which card is no promise.
    pub(crate) fn is_kept_by(&self, edited: &Self) -> bool {
        (&self.customer, self.total, self.id) == (&edited.customer, edited.total, edited.id)
    }
}

/// Members of facts and events that people are never shown: a card's token is the customer's secret.
pub const SECRETS: [&str; 1] = ["token"];

/// Why an order was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
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
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
