//! Pure: whenever this happens to a product or a reservation, publish that.

use contract::Fact;
use contract::inventory::{
    PriceChanged, ProductListed, StockReleased, StockReplenished, StockReservationFailed, StockReserved,
};
use contract::metrics::UNITS;
use contract::order::order_id;
use saga_core::metric::Measurement;
use saga_core::{Policy, UnitOfWork};

use crate::domain::{Product, ProductEvent, Reservation, ReservationEvent};
use crate::service::{requested_lines, shortages};

type Work<'a> = UnitOfWork<'a, Fact>;

/// Changes of the stock by orders are published by their reservations.
impl Policy<Fact> for Product {
    fn whenever(event: &ProductEvent, sku: &str, _: &Self, work: &mut Work<'_>) {
        let sku = sku.to_owned();
        let Self { listing, on_hand, revision, .. } = work.row::<Self>(&sku).clone();
        count_units(event, work);
        match event {
            ProductEvent::Listed(listing, _) => work.publish(ProductListed {
                sku,
                name: listing.name.clone(),
                unit_price: listing.unit_price,
                revision,
            }),
            ProductEvent::PriceChanged(unit_price) => work.publish(PriceChanged {
                sku,
                name: listing.map(|listing| listing.name).unwrap_or_default(),
                unit_price: *unit_price,
                revision,
            }),
            ProductEvent::Restocked(quantity) => {
                work.publish(StockReplenished { sku, quantity: *quantity, on_hand });
            }
            ProductEvent::Reserved(_)
            | ProductEvent::Released(_)
            | ProductEvent::Sold(_)
            | ProductEvent::PutBack(_) => {}
        }
    }
}

fn count_units(event: &ProductEvent, work: &mut Work<'_>) {
    let (change, pieces) = match event {
        ProductEvent::Listed(_, pieces) | ProductEvent::Restocked(pieces) => ("restocked", *pieces),
        ProductEvent::Reserved(pieces) => ("reserved", *pieces),
        ProductEvent::Released(pieces) => ("released", *pieces),
        ProductEvent::Sold(pieces) => ("sold", *pieces),
        ProductEvent::PutBack(pieces) => ("put_back", *pieces),
        ProductEvent::PriceChanged(_) => return,
    };
    work.measure(Measurement::more(&UNITS, &[change], pieces.into()));
}

/// Each order gets one answer, and each cancellation one, also if nothing was reserved: the saga waits for it.
impl Policy<Fact> for Reservation {
    fn whenever(event: &ReservationEvent, id: &str, before: &Self, work: &mut Work<'_>) {
        let order = order_id(id);
        match (event, work.message()) {
            // Payment needs the context and the deadline; inventory passes them on and stores neither.
            (ReservationEvent::Reserved(lines), Some(Fact::OrderCreated(created))) => {
                let (lines, payment) = (lines.clone(), created.payment.clone());
                work.publish(StockReserved { order, lines, payment, deadline: created.deadline });
            }
            (ReservationEvent::Refused, Some(Fact::OrderCreated(created))) => {
                let shortages = shortages(&requested_lines(created), work);
                work.publish(StockReservationFailed { order, shortages });
            }
            (ReservationEvent::Reserved(_) | ReservationEvent::Refused, other) => {
                panic!("stock is reserved for OrderCreated only, not for {other:?}")
            }
            (ReservationEvent::Released | ReservationEvent::Voided, _) => {
                work.publish(StockReleased { order, lines: before.lines().to_vec() });
            }
            (ReservationEvent::Sold, _) => {}
        }
    }
}
