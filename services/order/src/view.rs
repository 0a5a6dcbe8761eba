//! Pure: an order as the API shows it.

use contract::money::Money;
use contract::order::{CancelReason, Line};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::domain::Order;

/// An order as its customer sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrderView {
    /// Id of the order and of its saga.
    pub id: Uuid,
    /// `PENDING`, `CONFIRMED` or `CANCELLED`, as the order stands now.
    pub status: String,
    /// Reason of the cancellation; absent unless cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_because: Option<CancelReason>,
    /// Customer who ordered and pays.
    pub customer: String,
    /// Ordered products, at the prices of that time.
    pub lines: Vec<Line>,
    /// Sum of all lines, which is charged.
    pub total: Money,
    /// Time at which the order was placed.
    pub placed_at: Timestamp,
    /// Time at which the order is cancelled unless confirmed before.
    pub deadline: Timestamp,
}

impl OrderView {
    /// Builds the view; `None` if the order was never placed.
    #[must_use]
    pub fn of(id: Uuid, order: &Order) -> Option<Self> {
        let placed = order.placed()?;
        Some(Self {
            id,
            status: order.status().to_owned(),
            cancelled_because: order.cancelled_because(),
            customer: placed.payment.customer.clone(),
            lines: placed.lines.clone(),
            total: placed.payment.total,
            placed_at: placed.placed_at,
            deadline: placed.deadline,
        })
    }
}
