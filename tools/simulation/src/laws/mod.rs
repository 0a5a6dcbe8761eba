//! Shell: what must hold when the world has come to rest: by the numbers of the laws.

pub mod audit;
pub mod charges;
pub mod dead_letters;
pub mod ledgers;
pub mod messages;
pub mod redrives;

use std::collections::BTreeSet;

use contract::order::CancelReason;
use contract::payment::PaymentFailure;
use contract::saga::SagaStatus;
use contract::saga_view::SagaView;
use inventory::domain::Reservation;
use order::domain::Order;
use payment::domain::{Payment, PaymentEvent};
use payment::extension::Extension;
use saga_core::decider::Decider;
use saga_core::row::RowKey;
use saga_engine::store::Store as _;
use uuid::Uuid;

use crate::endings::Ending;
use crate::sim::{Sim, ready};
use crate::weather::Outage;
use crate::world::{World, history, rows};

/// Law 7, when everything is there again and nobody has mended anything: what was away did no harm.
pub fn an_outage_does_no_harm(world: &World) {
    if !world.sim.weather().is_outage_alone() {
        return;
    }
    let parked = world.sim.seen(Ending::Parked);
    if parked > 0 || !world.dead_letters().is_empty() {
        world.sim.object(format!("law 7: an outage made {parked} dead letters"));
    }
    let gave_up = |payment: &Payment| {
        matches!(payment, Payment::Reversing(_) | Payment::Failed(_, PaymentFailure::Exhausted))
    };
    let exhausted = rows::<Payment>(world.payment.store()).into_iter().find(|(_, payment)| gave_up(payment));
    if let Some((order, _)) = exhausted {
        world.sim.object(format!("law 7: an outage exhausted the payment of order {order}"));
    }
    let survived = match world.sim.weather().bank_away {
        Outage::Whole => Ending::BankOutageSurvived,
        Outage::Never | Outage::Long => Ending::BrokerOutageSurvived,
    };
    world.sim.count_many(survived, u64::from(!world.customers.lock().orders.is_empty()));
}

/// Law 6, where nothing but the broker was ever away, and no card made the bank stumble: nothing failed.
pub fn a_business_no_opens_no_breaker(world: &World) {
    let (weather, opened) = (world.sim.weather(), world.sim.seen(Ending::BreakerOpened));
    let is_bank_fine = weather.bank_away == Outage::Never && world.sim.seen(Ending::CallFailed) == 0;
    if weather.is_outage_alone() && is_bank_fine && opened > 0 {
        world.sim.object(format!("law 6: breakers opened {opened} times, and nothing had failed"));
    }
}

/// What the ends of all orders are, and whether admin sees each as it is.
pub fn every_order_is_seen(world: &World) {
    let given_up = dead_letters::sagas_given_up(world);
    let (orders, keys) = (rows::<Order>(world.order.store()), world.customers.lock().keys());
    if orders.len() > keys {
        world.sim.object(format!("{} orders were placed with {keys} keys", orders.len()));
    }
    for (id, order) in orders {
        let Ok(id) = id.parse() else { continue };
        count_order(&world.sim, &order);
        check_view(world, id, &order, given_up.contains(&id));
    }
    for (_, reservation) in rows::<Reservation>(world.inventory.store()) {
        world.sim.count_many(Ending::StockVoid, u64::from(reservation == Reservation::Void));
    }
    for (id, payment) in rows::<Payment>(world.payment.store()) {
        if let Ok(id) = id.parse() {
            count_payment(world, id, &payment);
        }
    }
    let extended = rows::<Extension>(world.payment.store()).len();
    world.sim.count_many(Ending::Extended, extended as u64);
}

/// Sagas that wait for a human now.
#[must_use]
pub fn failed_sagas(world: &World) -> BTreeSet<String> {
    let views = rows::<SagaView>(world.admin.store()).into_iter();
    views.filter(|(_, view)| view.status() == SagaStatus::Failed).map(|(id, _)| id).collect()
}

fn count_order(sim: &Sim, order: &Order) {
    match order {
        Order::Confirmed(_) => sim.count(Ending::Confirmed),
        Order::Cancelled(_, CancelReason::OutOfStock) => sim.count(Ending::OutOfStock),
        Order::Cancelled(_, CancelReason::PaymentFailed) => sim.count(Ending::PaymentFailed),
        Order::Cancelled(_, CancelReason::TimedOut) => sim.count(Ending::TimedOut),
        Order::Cancelled(_, CancelReason::CustomerRequest) => sim.count(Ending::CustomerRequest),
        Order::Cancelled(_, CancelReason::Operator) | Order::New | Order::Pending(_) => {}
    }
}

fn count_payment(world: &World, order: Uuid, payment: &Payment) {
    match payment {
        Payment::Void | Payment::Voided(_) => world.sim.count(Ending::PaymentVoid),
        Payment::Refunded(..) => {
            world.sim.count(Ending::Refunded);
            let history = history::<Payment>(world.payment.store(), order);
            let was_doomed =
                history.iter().any(|event| event.name == Payment::event_name(&PaymentEvent::Doomed));
            world.sim.count_many(Ending::DoomedAndRefunded, u64::from(was_doomed));
        }
        Payment::Failed(_, PaymentFailure::Exhausted) => world.sim.count(Ending::Reversed),
        Payment::New
        | Payment::Charging(_)
        | Payment::Doomed(_)
        | Payment::Captured(..)
        | Payment::Failed(..)
        | Payment::Reversing(_)
        | Payment::Voiding(_)
        | Payment::Refunding(..)
        | Payment::Settled(_) => {}
    }
}

/// The view agrees with the order's own ledger; a saga is failed only while a compensation is parked.
fn check_view(world: &World, id: Uuid, order: &Order, is_given_up: bool) {
    let row = ready(world.admin.store().row(RowKey::of::<SagaView>(id)));
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
        world.sim.object(format!("admin sees saga {id} {:?}, it is {wanted:?}: {heard:?}", view.status()));
    }
    if view.status() == SagaStatus::Failed && !dead_letters::is_compensation_parked(world, id) {
        world.sim.object(format!("admin sees saga {id} failed, and no compensation is parked"));
    }
}
