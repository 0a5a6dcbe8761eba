//! Shell: law 3: nobody is charged for an order that has ended, however long the bank was away, and an extension lets
//! the charge be made.

use std::time::Duration;

use bank::domain::{Charge, ChargeEvent};
use jiff::Timestamp;
use order::domain::Order;
use payment::domain::{Payment, PaymentEvent};
use payment::extension::Extension;
use saga_core::decider::Decider;
use saga_core::row::StoredEvent;
use uuid::Uuid;

use crate::coverage::CoveragePoint;
use crate::law::Law;
use crate::world::{World, history, rows};

/// Maximum duration of a call that had begun, with the commit before it.
const MAX_CALL_TIME: Duration = Duration::from_secs(12);

/// Guarantee 3: the bank receives no charge after payment knows of the cancellation, or after the deadline.
/// Processes paused on the way are exempt.
pub fn check_no_late_charge(world: &World) {
    if world.sim.profile().pauses > 0 {
        return;
    }
    for (id, order) in rows::<Order>(world.order.store()) {
        let (Ok(id), Some(placed)) = (id.parse::<Uuid>(), order.placed()) else { continue };
        let payment = history::<Payment>(world.payment.store(), id);
        count(world, &payment);
        check_extension(world, id, &payment);
        let over: Vec<_> = [PaymentEvent::Doomed, PaymentEvent::Voided]
            .iter()
            .filter_map(|event| first(&payment, Payment::event_name(event)))
            .chain([placed.deadline])
            .collect();
        let over = over.into_iter().min().unwrap_or(placed.deadline);
        let Some(charged) = charged_at(world, placed.payment.id) else { continue };
        if charged > tolerated(world, over) {
            let broken = format!("order {id} ended at {over} and was charged at {charged}");
            world.sim.breaks(Law::OrderEnds, broken);
        }
    }
}

/// An extension that payment hears of in time repeats the charge that has expired.
fn check_extension(world: &World, order: Uuid, payment: &[StoredEvent]) {
    let at_last = |name: &str| payment.iter().rposition(|event| event.name == name);
    let Some(expired) = at_last("Expired") else { return };
    if at_last("Requested").is_some_and(|requested| requested > expired) {
        return world.sim.count(CoveragePoint::ChargeRepeated);
    }
    let next = payment.get(expired + 1).map(|event| event.recorded_at);
    let expired = payment[expired].recorded_at;
    for extension in history::<Extension>(world.payment.store(), order) {
        let Ok(until) = serde_json::from_str::<Timestamp>(&extension.data) else { continue };
        let heard = extension.recorded_at.max(expired);
        let is_over = next.is_some_and(|next| next <= tolerated(world, heard));
        if until > tolerated(world, heard) && !is_over {
            let broken = format!("order {order} was extended to {until} at {heard}, and is not charged");
            world.sim.breaks(Law::OrderEnds, broken);
        }
    }
}

/// Time at which the bank first received the charge.
fn charged_at(world: &World, payment: Uuid) -> Option<Timestamp> {
    let charge = history::<Charge>(world.bank.store(), payment);
    let is_asked = |event: &&StoredEvent| {
        !matches!(serde_json::from_str(&event.data), Ok(ChargeEvent::Blocked | ChargeEvent::Refunded))
    };
    charge.iter().find(is_asked).map(|event| event.recorded_at)
}

/// Adds the tolerance for differing clocks and calls in flight.
fn tolerated(world: &World, at: Timestamp) -> Timestamp {
    let profile = world.sim.profile();
    let skew = Duration::from_millis(2 * profile.skew_ms as u64);
    let drift = u32::try_from(2 * profile.drift).unwrap_or(u32::MAX) * world.sim.age() / 1_000_000;
    at.saturating_add(MAX_CALL_TIME + skew + drift).unwrap_or(Timestamp::MAX)
}

fn count(world: &World, payment: &[StoredEvent]) {
    let has = |event: PaymentEvent| first(payment, Payment::event_name(&event)).is_some();
    let was_requested = payment.iter().any(|event| event.name == "Requested");
    let (voided, reversal) = (has(PaymentEvent::Voided), has(PaymentEvent::ReversalRequested));
    world.sim.count_if(CoveragePoint::Withdrawn, was_requested && voided && !reversal);
    world.sim.count_if(CoveragePoint::ReversedUnwanted, reversal);
}

fn first(history: &[StoredEvent], name: &str) -> Option<Timestamp> {
    history.iter().find(|event| event.name == name).map(|event| event.recorded_at)
}
