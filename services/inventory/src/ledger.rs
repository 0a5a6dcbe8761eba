//! Pure: stock and reservations as the reconciliation sees them.

use contract::FactType;
use contract::order::StockLine;
use contract::reconciliation::{PublishedFact, ReservationEntry, ReservationState, StockEntry};
use saga_core::row::PastEvent;
use uuid::Uuid;

use crate::domain::{Product, Reservation, ReservationEvent};

/// Builds the ledger entry of a product.
#[must_use]
pub fn stock_entry(sku: &str, version: i64, product: &Product) -> StockEntry {
    StockEntry {
        version,
        sku: sku.to_owned(),
        on_hand: product.on_hand.into(),
        reserved: product.reserved.into(),
        sold: product.sold.into(),
        supplied: product.supplied.into(),
        unit_price: product.listing.as_ref().map(|listing| listing.unit_price),
        revision: product.revision,
        purged: 0,
    }
}

/// Builds the ledger entry of a reservation. A released one shows the lines that it had.
#[must_use]
pub fn reservation_entry(
    order: Uuid,
    reservation: &Reservation,
    history: &[PastEvent<ReservationEvent>],
) -> ReservationEntry {
    let past_lines = || history.iter().find_map(|past| reserved_lines(&past.event)).unwrap_or_default();
    let (state, lines) = match reservation {
        Reservation::Reserved(lines) => (ReservationState::Reserved, lines.clone()),
        Reservation::Sold(lines) => (ReservationState::Sold, lines.clone()),
        Reservation::New | Reservation::Refused | Reservation::Released | Reservation::Void => {
            (ReservationState::Free, past_lines())
        }
    };
    ReservationEntry { order, state, lines, published: PublishedFact::of(history, fact_of) }
}

fn reserved_lines(event: &ReservationEvent) -> Option<Vec<StockLine>> {
    match event {
        ReservationEvent::Reserved(lines) => Some(lines.clone()),
        ReservationEvent::Refused
        | ReservationEvent::Sold
        | ReservationEvent::Released
        | ReservationEvent::Voided => None,
    }
}

/// Type of the fact that an event is published as.
#[must_use]
pub const fn fact_of(event: &ReservationEvent) -> Option<FactType> {
    match event {
        ReservationEvent::Reserved(_) => Some(FactType::StockReserved),
        ReservationEvent::Refused => Some(FactType::StockReservationFailed),
        ReservationEvent::Released | ReservationEvent::Voided => Some(FactType::StockReleased),
        ReservationEvent::Sold => None,
    }
}
