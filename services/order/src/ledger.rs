//! Pure: orders and the catalogue copy as the reconciliation sees them.

use contract::FactType;
use contract::reconciliation::{CopyEntry, OrderEntry, OrderState, PublishedFact};
use saga_core::row::PastEvent;
use uuid::Uuid;

use crate::catalogue::{CatalogueItem, PriceUpdate};
use crate::domain::{Order, OrderEvent, Placed};

/// Builds the ledger entry of an order; `None` if it was never placed.
#[must_use]
pub fn ledger_entry(id: Uuid, order: &Order, history: &[PastEvent<OrderEvent>]) -> Option<OrderEntry> {
    let state = match order {
        Order::New => return None,
        Order::Pending(_) => OrderState::Pending,
        Order::Confirmed(_) => OrderState::Confirmed,
        Order::Cancelled(..) => OrderState::Cancelled,
    };
    let Placed { lines, payment, deadline, .. } = order.placed()?.clone();
    Some(OrderEntry {
        payment: payment.id,
        order: id,
        state,
        cancelled_because: order.cancelled_because(),
        customer: payment.customer,
        lines,
        total: payment.total,
        deadline,
        published: PublishedFact::of(history, fact_of),
    })
}

/// Type of the fact that an event is published as.
#[must_use]
pub const fn fact_of(event: &OrderEvent) -> Option<FactType> {
    Some(match event {
        OrderEvent::Placed(_) => FactType::OrderCreated,
        OrderEvent::Confirmed => FactType::OrderConfirmed,
        OrderEvent::Cancelled(_) => FactType::OrderCancelled,
        OrderEvent::DeadlineExtended(_) => FactType::DeadlineExtended,
    })
}

/// Builds the ledger entry of a catalogue item, with each price it ever had.
#[must_use]
pub fn copy_entry(sku: &str, item: &CatalogueItem, history: &[PastEvent<PriceUpdate>]) -> CopyEntry {
    let mut prices = Vec::new();
    for PriceUpdate { unit_price, .. } in history.iter().map(|update| &update.event) {
        if !prices.contains(unit_price) {
            prices.push(*unit_price);
        }
    }
    CopyEntry { sku: sku.to_owned(), unit_price: item.unit_price, revision: item.revision, prices }
}
