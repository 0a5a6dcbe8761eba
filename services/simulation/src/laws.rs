//! Shell: what must hold when the world has come to rest.

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

use crate::node::ready;
use crate::world::World;
use crate::{Endings, RunResult};

/// Checks everything.
#[must_use]
pub fn check(world: &World) -> RunResult {
    let mut broken: Vec<String> = world.stuck.clone().into_iter().collect();
    let parked = parked_orders(world);
    let mut books = Books::default();
    let mut endings =
        Endings { retried: world.seen.retried, parked: world.seen.parked, ..Endings::default() };

    for (id, order) in rows::<Order>(&world.order.store) {
        let Ok(id) = id.parse() else { continue };
        count_order(&order, &mut endings);
        books_of_order(&mut books, id, &order);
        check_view(world, id, &order, parked.contains(&id), &mut broken);
    }
    for (sku, product) in rows::<Product>(&world.inventory.store) {
        books.stock(&inventory::policy::stock_entry(&sku, &product));
    }
    for (id, reservation) in rows::<Reservation>(&world.inventory.store) {
        endings.stock_void += u64::from(reservation == Reservation::Void);
        if let Ok(id) = id.parse() {
            books.reservation(inventory::policy::reservation_entry(id, &reservation));
        }
    }
    for (id, payment) in rows::<Payment>(&world.payment.store) {
        if let Ok(id) = id.parse() {
            count_payment(world, id, &payment, &mut endings);
            books.payment(payment::policy::book_entry(id, &payment));
        }
    }
    for (id, charge) in rows::<Charge>(&world.bank.store) {
        if let Ok(id) = id.parse() {
            books.charge(bank::policy::book_entry(id, &charge));
        }
    }
    check_stores(world, &mut broken);
    let (_, discrepancies, _) = books.close();
    for discrepancy in discrepancies {
        // Money that is known to be owed, and parked for a human, is not lost.
        let is_parked = discrepancy.subject.parse().is_ok_and(|order: Uuid| parked.contains(&order));
        if !is_parked {
            broken.push(format!("{}: {}: {}", discrepancy.rule, discrepancy.subject, discrepancy.detail));
        }
    }
    RunResult { broken, endings }
}

fn rows<D: Decider>(store: &SqliteStore) -> Vec<(String, D)> {
    let found = ready(store.find(D::KIND, Query { limit: 10_000, ..Query::default() })).unwrap_or_default();
    found.into_iter().filter_map(|row| Some((row.id, serde_json::from_str(&row.state).ok()?))).collect()
}

fn books_of_order(books: &mut Books, id: Uuid, order: &Order) {
    if let Some(entry) = order::policy::book_entry(id, order) {
        books.order(entry);
    }
}

fn count_order(order: &Order, endings: &mut Endings) {
    match order {
        Order::Confirmed(_) => endings.confirmed += 1,
        Order::Cancelled(_, CancelReason::OutOfStock) => endings.out_of_stock += 1,
        Order::Cancelled(_, CancelReason::PaymentFailed) => endings.payment_failed += 1,
        Order::Cancelled(_, CancelReason::TimedOut) => endings.timed_out += 1,
        Order::Cancelled(_, CancelReason::CustomerRequest) => endings.customer_request += 1,
        Order::Cancelled(_, CancelReason::Operator) | Order::New | Order::Pending(_) => {}
    }
}

fn count_payment(world: &World, order: Uuid, payment: &Payment, endings: &mut Endings) {
    match payment {
        Payment::Void => endings.payment_void += 1,
        Payment::Refunded(..) => {
            endings.refunded += 1;
            let history = ready(world.payment.store.events(RowKey::of::<Payment>(order))).unwrap_or_default();
            let was_doomed =
                history.iter().any(|event| event.name == Payment::event_name(&PaymentEvent::Doomed));
            endings.doomed_and_refunded += u64::from(was_doomed);
        }
        Payment::Failed(_, PaymentFailure::Exhausted) => endings.reversed += 1,
        Payment::New
        | Payment::Charging(_)
        | Payment::Doomed(_)
        | Payment::Captured(..)
        | Payment::Failed(..)
        | Payment::Reversing(_)
        | Payment::Refunding(..) => {}
    }
}

/// The view must agree with the order's own books: completed or compensated, or failed when a human is needed.
fn check_view(world: &World, id: Uuid, order: &Order, is_parked: bool, broken: &mut Vec<String>) {
    let row = ready(world.admin.store.row(RowKey::of::<SagaView>(id)));
    let view: SagaView = match row {
        Ok(Some(row)) => serde_json::from_str(&row.state).unwrap_or_default(),
        Ok(None) | Err(_) => SagaView::default(),
    };
    let wanted = match order {
        _ if is_parked => SagaStatus::Failed,
        Order::Confirmed(_) => SagaStatus::Completed,
        Order::Cancelled(..) => SagaStatus::Compensated,
        Order::New | Order::Pending(_) => return,
    };
    if view.status() != wanted {
        broken.push(format!(
            "admin sees saga {id} {:?}, it is {wanted:?}: {:?}",
            view.status(),
            view.heard.keys()
        ));
    }
}

fn check_stores(world: &World, broken: &mut Vec<String>) {
    let stores = [
        ("order", &world.order.store),
        ("inventory", &world.inventory.store),
        ("payment", &world.payment.store),
        ("admin", &world.admin.store),
        ("bank", &world.bank.store),
    ];
    for (name, store) in stores {
        match ready(store.verify()) {
            Ok(report) if report.differing.is_empty() => {}
            other => broken.push(format!("rows of {name} are not the fold of their events: {other:?}")),
        }
        match ready(store.stats()) {
            Ok(stats) if stats.outbox_pending + stats.outbox_failed + stats.retries + stats.tasks == 0 => {}
            other => broken.push(format!("{name} still owes something: {other:?}")),
        }
    }
}

/// Orders whose money is parked for a human.
fn parked_orders(world: &World) -> BTreeSet<Uuid> {
    let letters = ready(world.payment.store.dead_letters(10_000)).unwrap_or_default();
    letters.into_iter().filter_map(|letter| letter.saga).collect()
}
