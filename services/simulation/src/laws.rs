//! Shell: what must hold when the world has come to rest: by the numbers of the laws.

pub mod letters;
pub mod messages;

use std::collections::BTreeSet;

use admin::books::Books;
use bank::domain::Charge;
use inventory::domain::{Product, Reservation};
use order::domain::Order;
use payment::domain::{Payment, PaymentEvent};
use shared::contract::{CancelReason, PaymentFailure};
use shared::decider::Decider;
use shared::row::RowKey;
use shared::saga::{SagaStatus, SagaView};
use shared::store::sqlite::SqliteStore;
use shared::store::{Query, Store};
use uuid::Uuid;

use crate::endings::{Ending, Endings};
use crate::node::ready;
use crate::trouble;
use crate::weather::Outage;
use crate::world::World;

/// Where a letter was delivered, to be delivered there again.
pub use self::letters::places as places_of_letters;

/// How a message is found to be unreadable.
const UNREADABLE: [&str; 4] = ["not an envelope", "unknown type", "unknown version", "data is no"];

/// Whether this is a fault, and not something that the business says.
#[must_use]
pub fn is_fault(reason: &str) -> bool {
    let struck = [trouble::NOT_NOW, trouble::BROKEN, trouble::GIVEN_UP, trouble::NO_ANSWER];
    struck.iter().any(|why| reason.contains(why)) || is_poison(reason)
}

/// Whether it could not be read.
#[must_use]
pub fn is_poison(reason: &str) -> bool {
    UNREADABLE.iter().any(|why| reason.starts_with(why))
}

/// Law 7, when everything is there again and nobody has mended anything: what was away did no harm.
pub fn an_outage_does_no_harm(world: &mut World) {
    if !world.weather.is_outage_alone() {
        return;
    }
    let parked = world.seen.of(Ending::Parked);
    if parked > 0 || !world.letters().is_empty() {
        world.object(format!("law 7: an outage made {parked} dead letters"));
    }
    let gave_up = |payment: &Payment| {
        matches!(payment, Payment::Reversing(_) | Payment::Failed(_, PaymentFailure::Exhausted))
    };
    let exhausted = rows::<Payment>(&world.payment.store).into_iter().find(|(_, payment)| gave_up(payment));
    if let Some((order, _)) = exhausted {
        world.object(format!("law 7: an outage exhausted the payment of order {order}"));
    }
    let survived = match world.weather.bank_away {
        Outage::Whole => Ending::BankOutageSurvived,
        Outage::Never | Outage::Long => Ending::BrokerOutageSurvived,
    };
    world.seen.count_many(survived, u64::from(!world.orders.is_empty()));
}

/// Laws 1 to 5, and what the ends of all orders are.
pub fn the_books_balance(world: &mut World) {
    // What an operator gave up is not done: its orders are his concern.
    let given_up = letters::sagas_given_up(world);
    let mut books = Books::default();
    for (id, order) in rows::<Order>(&world.order.store) {
        let Ok(id) = id.parse() else { continue };
        count_order(&order, &mut world.seen);
        if let Some(entry) = order::policy::book_entry(id, &order) {
            books.order(entry);
        }
        check_view(world, id, &order, given_up.contains(&id));
    }
    for (sku, product) in rows::<Product>(&world.inventory.store) {
        books.stock(&inventory::policy::stock_entry(&sku, &product));
    }
    for (id, reservation) in rows::<Reservation>(&world.inventory.store) {
        world.seen.count_many(Ending::StockVoid, u64::from(reservation == Reservation::Void));
        if let Ok(id) = id.parse() {
            books.reservation(inventory::policy::reservation_entry(id, &reservation));
        }
    }
    for (id, payment) in rows::<Payment>(&world.payment.store) {
        if let Ok(id) = id.parse() {
            count_payment(world, id, &payment);
            books.payment(payment::policy::book_entry(id, &payment));
        }
    }
    for (id, charge) in rows::<Charge>(&world.bank.store) {
        if let Ok(id) = id.parse() {
            books.charge(bank::policy::book_entry(id, &charge));
        }
    }
    books.messages(&messages::machinery(world));
    let (_, discrepancies, _) = books.close();
    for found in discrepancies {
        let is_given_up = found.subject.parse().is_ok_and(|order: Uuid| given_up.contains(&order));
        // Stock of an order that was given up may be held for ever.
        let is_its_stock = !given_up.is_empty() && found.rule == "stock = reservations";
        if !is_given_up && !is_its_stock {
            world.object(format!("the books: {}: {}: {}", found.rule, found.subject, found.detail));
        }
    }
}

/// Sagas that wait for a human now.
#[must_use]
pub fn failed_sagas(world: &World) -> BTreeSet<String> {
    let views = rows::<SagaView>(&world.admin.store).into_iter();
    views.filter(|(_, view)| view.status() == SagaStatus::Failed).map(|(id, _)| id).collect()
}

/// All rows of a kind.
pub(crate) fn rows<D: Decider>(store: &SqliteStore) -> Vec<(String, D)> {
    let found = ready(store.find(D::KIND, Query { limit: 10_000, ..Query::default() })).unwrap_or_default();
    found.into_iter().filter_map(|row| Some((row.id, serde_json::from_str(&row.state).ok()?))).collect()
}

fn count_order(order: &Order, seen: &mut Endings) {
    match order {
        Order::Confirmed(_) => seen.count(Ending::Confirmed),
        Order::Cancelled(_, CancelReason::OutOfStock) => seen.count(Ending::OutOfStock),
        Order::Cancelled(_, CancelReason::PaymentFailed) => seen.count(Ending::PaymentFailed),
        Order::Cancelled(_, CancelReason::TimedOut) => seen.count(Ending::TimedOut),
        Order::Cancelled(_, CancelReason::CustomerRequest) => seen.count(Ending::CustomerRequest),
        Order::Cancelled(_, CancelReason::Operator) | Order::New | Order::Pending(_) => {}
    }
}

fn count_payment(world: &mut World, order: Uuid, payment: &Payment) {
    match payment {
        Payment::Void => world.seen.count(Ending::PaymentVoid),
        Payment::Refunded(..) => {
            world.seen.count(Ending::Refunded);
            let history = ready(world.payment.store.events(RowKey::of::<Payment>(order))).unwrap_or_default();
            let was_doomed =
                history.iter().any(|event| event.name == Payment::event_name(&PaymentEvent::Doomed));
            world.seen.count_many(Ending::DoomedAndRefunded, u64::from(was_doomed));
        }
        Payment::Failed(_, PaymentFailure::Exhausted) => world.seen.count(Ending::Reversed),
        Payment::New
        | Payment::Charging(_)
        | Payment::Doomed(_)
        | Payment::Captured(..)
        | Payment::Failed(..)
        | Payment::Reversing(_)
        | Payment::Refunding(..) => {}
    }
}

/// The view agrees with the order's own books; a saga is failed only while a compensation is parked.
fn check_view(world: &mut World, id: Uuid, order: &Order, is_given_up: bool) {
    let row = ready(world.admin.store.row(RowKey::of::<SagaView>(id)));
    let view: SagaView = match row {
        Ok(Some(row)) => serde_json::from_str(&row.state).unwrap_or_default(),
        Ok(None) | Err(_) => SagaView::default(),
    };
    let wanted = match order {
        Order::Confirmed(_) => SagaStatus::Completed,
        Order::Cancelled(..) => SagaStatus::Compensated,
        Order::New | Order::Pending(_) => return,
    };
    if view.status() != wanted && !is_given_up {
        let heard: Vec<_> = view.heard.keys().collect();
        world.object(format!("admin sees saga {id} {:?}, it is {wanted:?}: {heard:?}", view.status()));
    }
    if view.status() == SagaStatus::Failed && !letters::is_compensation_parked(world, id) {
        world.object(format!("admin sees saga {id} failed, and no compensation is parked"));
    }
}
