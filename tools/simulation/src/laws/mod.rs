//! Shell: the laws checked when the world is idle. [`crate::law::Law`] lists their numbers and names.

pub mod dead_letters;
pub mod late_charges;
pub mod ledgers;
pub mod messages;
pub mod reconciliation;
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
use saga_engine::store::roles::Queries as _;
use uuid::Uuid;

use crate::coverage::CoveragePoint;
use crate::fault_profile::Outage;
use crate::law::Law;
use crate::sim::{Sim, ready};
use crate::world::{World, history, rows};

/// Guarantee 7, checked before operators act: an outage did no harm.
pub fn check_outage_costs_nothing(world: &World) {
    if !world.sim.profile().is_outage_only() {
        return;
    }
    let broken = |what| world.sim.breaks(Law::OutageCostsNothing, format!("an outage {what}"));
    let dead_lettered = world.sim.count_of(CoveragePoint::DeadLettered);
    if dead_lettered > 0 || !world.dead_letters().is_empty() {
        broken(format!("made {dead_lettered} dead letters"));
    }
    let is_exhausted = |payment: &Payment| {
        matches!(payment, Payment::Reversing(_) | Payment::Failed(_, PaymentFailure::Exhausted))
    };
    let mut payments = rows::<Payment>(world.payment.store()).into_iter();
    if let Some((order, _)) = payments.find(|(_, payment)| is_exhausted(payment)) {
        broken(format!("exhausted the payment of order {order}"));
    }
    let survived = match world.sim.profile().bank_away {
        Outage::Whole => CoveragePoint::BankOutageSurvived,
        Outage::Never | Outage::Long => CoveragePoint::BrokerOutageSurvived,
    };
    world.sim.count_if(survived, !world.customers.lock().orders.is_empty());
}

/// Guarantee 6: breakers stay closed where only the broker was away and no call failed.
pub fn check_rejections_open_no_breaker(world: &World) {
    let (profile, opened) = (world.sim.profile(), world.sim.count_of(CoveragePoint::BreakerOpened));
    let is_bank_fine =
        profile.bank_away == Outage::Never && world.sim.count_of(CoveragePoint::CallFailed) == 0;
    if profile.is_outage_only() && is_bank_fine && opened > 0 {
        let broken = format!("breakers opened {opened} times without a failure");
        world.sim.breaks(Law::RejectionIsNoFault, broken);
    }
}

/// Counts the ends of all orders, and checks admin's view of each.
pub fn check_saga_views(world: &World) {
    let discarded = dead_letters::sagas_discarded(world);
    let (orders, keys) = (rows::<Order>(world.order.store()), world.customers.lock().keys());
    if orders.len() > keys {
        world.sim.violation(format!("{} orders were placed with {keys} keys", orders.len()));
    }
    for (id, order) in orders {
        let Ok(id) = id.parse() else { continue };
        count_order(&world.sim, &order);
        check_view(world, id, &order, discarded.contains(&id));
    }
    for (_, reservation) in rows::<Reservation>(world.inventory.store()) {
        world.sim.count_if(CoveragePoint::StockVoid, reservation == Reservation::Void);
    }
    for (id, payment) in rows::<Payment>(world.payment.store()) {
        if let Ok(id) = id.parse() {
            count_payment(world, id, &payment);
        }
    }
    let extended = rows::<Extension>(world.payment.store()).len();
    world.sim.count_many(CoveragePoint::Extended, extended as u64);
}

/// Sagas that need an operator now.
pub fn failed_sagas(world: &World) -> BTreeSet<String> {
    let views = rows::<SagaView>(world.admin.store()).into_iter();
    views.filter(|(_, view)| view.status() == SagaStatus::CompensationStuck).map(|(id, _)| id).collect()
}

fn count_order(sim: &Sim, order: &Order) {
    match order {
        Order::Confirmed(_) => sim.count(CoveragePoint::Confirmed),
        Order::Cancelled(_, CancelReason::OutOfStock) => sim.count(CoveragePoint::OutOfStock),
        Order::Cancelled(_, CancelReason::PaymentFailed) => sim.count(CoveragePoint::PaymentFailed),
        Order::Cancelled(_, CancelReason::TimedOut) => sim.count(CoveragePoint::TimedOut),
        Order::Cancelled(_, CancelReason::CustomerRequest) => sim.count(CoveragePoint::CustomerRequest),
        Order::Cancelled(_, CancelReason::Operator) | Order::New | Order::Pending(_) => {}
    }
}

fn count_payment(world: &World, order: Uuid, payment: &Payment) {
    if matches!(payment, Payment::Void | Payment::Voided(_)) {
        world.sim.count(CoveragePoint::PaymentVoid);
    } else if matches!(payment, Payment::Refunded(..)) {
        world.sim.count(CoveragePoint::Refunded);
        let history = history::<Payment>(world.payment.store(), order);
        let doomed = Payment::event_name(&PaymentEvent::Doomed);
        let was_doomed = history.iter().any(|event| event.name == doomed);
        world.sim.count_if(CoveragePoint::DoomedAndRefunded, was_doomed);
    } else if matches!(payment, Payment::Failed(_, PaymentFailure::Exhausted)) {
        world.sim.count(CoveragePoint::Reversed);
    }
}

/// Checks that the view agrees with the order, and is failed only while a compensation is dead-lettered.
fn check_view(world: &World, id: Uuid, order: &Order, is_discarded: bool) {
    let row = ready(world.admin.store().row(RowKey::of::<SagaView>(id)));
    let view: SagaView = match row {
        Ok(Some(row)) => serde_json::from_str(&row.state).unwrap_or_default(),
        Ok(None) | Err(_) => SagaView::default(),
    };
    let expected = match order {
        Order::Confirmed(_) => SagaStatus::Completed,
        Order::Cancelled(..) => SagaStatus::Compensated,
        Order::New | Order::Pending(_) => return,
    };
    if view.status() != expected && !is_discarded {
        let facts: Vec<_> = view.facts.keys().collect();
        world.sim.violation(format!(
            "admin shows saga {id} as {:?} in place of {expected:?}: {facts:?}",
            view.status()
        ));
    }
    if view.status() == SagaStatus::CompensationStuck
        && !dead_letters::is_compensation_dead_lettered(world, id)
    {
        world.sim.violation(format!("admin shows saga {id} as failed without a dead-lettered compensation"));
    }
}
