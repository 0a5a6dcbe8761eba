//! Shell: laws 1 and 2: no message is dropped, none is handled twice, and nobody owes anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use saga_core::decision::{InboxState, Loaded, Reads, Writes};
use saga_core::service::{Service, steps_of};
use saga_core::service_stats::{ServiceStats, StepStats};
use saga_engine::store::Store;
use uuid::Uuid;

use crate::broker::Place;
use crate::journal::Journal;
use crate::sim::ready;
use crate::world::{Site, World};

/// A step, and the id under which it knows a message.
type StepMessage = (&'static str, Uuid);

/// Law 2: every message of the streams is, for every step that hears it, handled or parked.
pub fn no_message_is_dropped(world: &World) {
    let broker = world.broker.lock();
    let places: Vec<Place> = (0..broker.messages().len())
        .flat_map(|index| broker.hearers(index).into_iter().map(move |step| (step, index)))
        .collect();
    let wanted: BTreeSet<StepMessage> =
        places.into_iter().map(|(step, index)| (step, broker.id(index))).collect();
    let mut known = states(&world.order, &wanted);
    known.extend(states(&world.inventory, &wanted));
    known.extend(states(&world.payment, &wanted));
    known.extend(states(&world.admin, &wanted));
    // Marks are trimmed, the journal is not.
    let handled: BTreeSet<StepMessage> = handled(world).into_iter().collect();
    for (step, id) in wanted {
        match known.get(&(step, id)) {
            Some(InboxState::Handled | InboxState::Parked) => {}
            Some(InboxState::Waiting) => {
                world.sim.object(format!("law 2: {step} never comes to message {id}"));
            }
            None if handled.contains(&(step, id)) => {}
            None => world.sim.object(format!("law 2: {step} knows nothing of message {id}")),
        }
    }
}

/// What the steps of one service know of these.
fn states<S: Service>(site: &Site<S>, wanted: &BTreeSet<StepMessage>) -> BTreeMap<StepMessage, InboxState> {
    let steps = steps_of::<S>();
    let is_here = |(step, _): &&StepMessage| steps.iter().any(|here| here.name == *step);
    let reads = Reads { inbox: wanted.iter().filter(is_here).copied().collect(), ..Reads::default() };
    let slot = Arc::new(Mutex::new(BTreeMap::new()));
    let filled = slot.clone();
    let look = Box::new(move |loaded: Loaded| {
        *filled.lock() = loaded.inbox;
        Writes::default()
    });
    if let Err(fault) = ready(site.store().transact(reads, look)) {
        panic!("the store cannot say what it knows: {fault}");
    }
    std::mem::take(&mut *slot.lock())
}

/// Law 2: whoever has an inbox is done with a message once.
pub fn no_message_is_handled_twice(world: &World) {
    if !world.sim.weather().has_inbox {
        return;
    }
    let mut times: BTreeMap<StepMessage, u32> = BTreeMap::new();
    for known in handled(world) {
        *times.entry(known).or_default() += 1;
    }
    for ((step, id), times) in times {
        if times > 1 {
            world.sim.object(format!("law 2: {step} handled message {id} {times} times"));
        }
    }
}

/// What every step was done with, each time.
#[must_use]
pub fn handled(world: &World) -> Vec<StepMessage> {
    let journals = [
        &world.order.shared.journal,
        &world.inventory.shared.journal,
        &world.payment.shared.journal,
        &world.admin.shared.journal,
    ];
    journals.into_iter().flat_map(|journal| journal.lock().handled.clone()).collect()
}

/// How many services had both of their instances at work.
#[must_use]
pub fn services_shared(world: &World) -> usize {
    let journals = [
        &world.order.shared.journal,
        &world.inventory.shared.journal,
        &world.payment.shared.journal,
        &world.admin.shared.journal,
    ];
    let is_shared = |journal: &&&Arc<Mutex<Journal>>| {
        journal.lock().inputs.values().filter(|inputs| **inputs > 0).count() > 1
    };
    journals.iter().filter(is_shared).count()
}

/// What the reconciliation gets to see of every service's machinery; what was forged counts as said.
#[must_use]
pub fn service_stats(world: &World) -> Vec<ServiceStats> {
    let mut all = vec![
        service_stats_of(world, &world.order),
        service_stats_of(world, &world.inventory),
        service_stats_of(world, &world.payment),
        service_stats_of(world, &world.admin),
    ];
    for (subject, count) in &world.forged {
        let producer = subject.split('.').next().unwrap_or_default();
        for service_stats in all.iter_mut().filter(|service_stats| service_stats.service == producer) {
            *service_stats.published.entry(subject.clone()).or_default() += count;
        }
    }
    all
}

fn service_stats_of<S: Service>(world: &World, site: &Site<S>) -> ServiceStats {
    let tallies = ready(site.store().tallies()).unwrap_or_default();
    let of = |counts: &BTreeMap<String, u64>, step: &str| counts.get(step).copied().unwrap_or(0);
    let steps = steps_of::<S>().into_iter().map(|step| StepStats {
        step: step.name.to_owned(),
        subjects: step.consumes.iter().flat_map(|subscription| subscription.subjects(S::NAME)).collect(),
        handled: of(&tallies.handled, step.name),
        retrying: of(&tallies.retrying, step.name),
        dead: of(&tallies.dead, step.name),
        waiting: Some(0),
        come_to: BTreeMap::new(),
    });
    ServiceStats {
        service: S::NAME.to_owned(),
        instance: S::NAME.to_owned(),
        at: world.sim.now(),
        stats: ready(site.store().stats()).unwrap_or_default(),
        calls_open: site.doors.calls(),
        newest: None,
        steps: steps.collect(),
        published: tallies.published,
    }
}

/// Every row is the fold of its events, and nobody owes anything.
pub fn the_stores_are_in_order(world: &World) {
    for (name, store) in world.stores().into_iter().chain([("bank", world.bank.store())]) {
        match ready(store.verify()) {
            Ok(report) if report.differing.is_empty() => {}
            other => world.sim.object(format!("rows of {name} are not the fold of their events: {other:?}")),
        }
        match ready(store.stats()) {
            Ok(stats) if stats.outbox_pending + stats.outbox_failed + stats.retries + stats.tasks == 0 => {}
            other => world.sim.object(format!("law 2: {name} still owes something: {other:?}")),
        }
    }
}
