//! Shell: laws 1 and 2: no message is lost or processed twice, and no work is left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use saga_core::decision::{InboxState, Loaded, Reads, Writes};
use saga_core::service::{Service, steps_of};
use saga_core::service_stats::{ServiceStats, StepStats};
use saga_engine::store::roles::{Monitoring as _, Transactions as _, Verification as _};
use uuid::Uuid;

use crate::broker::StepDelivery;
use crate::journal::Journal;
use crate::law::Law;
use crate::sim::ready;
use crate::world::{Deployment, World};

/// A step and an inbox id.
type StepMessage = (&'static str, Uuid);

/// Law 2: each consumer of each message has processed or dead-lettered it.
pub fn check_no_message_lost(world: &World) {
    let broker = world.broker.lock();
    let deliveries: Vec<StepDelivery> = (0..broker.messages().len())
        .flat_map(|index| broker.consumers(index).into_iter().map(move |step| (step, index)))
        .collect();
    let wanted: BTreeSet<StepMessage> =
        deliveries.into_iter().map(|(step, index)| (step, broker.id(index))).collect();
    let mut known = states(&world.order, &wanted);
    known.extend(states(&world.inventory, &wanted));
    known.extend(states(&world.payment, &wanted));
    known.extend(states(&world.admin, &wanted));
    // Inbox marks are purged, the journal is not.
    let handled: BTreeSet<StepMessage> = handled(world).into_iter().collect();
    for (step, id) in wanted {
        match known.get(&(step, id)) {
            Some(InboxState::Processed | InboxState::DeadLettered) => {}
            Some(InboxState::Retrying) => {
                world.sim.breaks(Law::NoMessageLost, format!("{step} never processed message {id}"));
            }
            None if handled.contains(&(step, id)) => {}
            None => world.sim.breaks(Law::NoMessageLost, format!("{step} has lost message {id}")),
        }
    }
}

/// Inbox states of one service.
fn states<S: Service>(
    site: &Deployment<S>,
    wanted: &BTreeSet<StepMessage>,
) -> BTreeMap<StepMessage, InboxState> {
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

/// Law 2: with an inbox, each step processes a message once.
pub fn check_handled_once(world: &World) {
    if !world.sim.profile().has_inbox {
        return;
    }
    let mut times: BTreeMap<StepMessage, u32> = BTreeMap::new();
    for known in handled(world) {
        *times.entry(known).or_default() += 1;
    }
    for ((step, id), times) in times {
        if times > 1 {
            world.sim.breaks(Law::NoMessageLost, format!("{step} processed message {id} {times} times"));
        }
    }
}

/// All processed messages, with repetitions.
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

/// Number of services of which more than one instance worked.
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

/// Statistics of each service as the reconciliation sees them. Forged messages count as published.
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

fn service_stats_of<S: Service>(world: &World, site: &Deployment<S>) -> ServiceStats {
    let tallies = ready(site.store().message_counts()).unwrap_or_default();
    let of = |counts: &BTreeMap<String, u64>, step: &str| counts.get(step).copied().unwrap_or(0);
    let steps = steps_of::<S>().into_iter().map(|step| StepStats {
        step: step.name.to_owned(),
        subjects: step.consumes.iter().flat_map(|subscription| subscription.subjects(S::NAME)).collect(),
        handled: of(&tallies.handled, step.name),
        retrying: of(&tallies.retrying, step.name),
        dead: of(&tallies.dead, step.name),
        waiting: Some(0),
        acknowledged: BTreeMap::new(),
    });
    ServiceStats {
        service: S::NAME.to_owned(),
        instance: S::NAME.to_owned(),
        at: world.sim.now(),
        stats: ready(site.store().stats()).unwrap_or_default(),
        calls_open: site.live.calls(),
        newest: None,
        steps: steps.collect(),
        published: tallies.published,
    }
}

/// Checks that each row equals the fold of its events, and that no work is left.
pub fn check_stores(world: &World) {
    for (name, store) in world.stores().into_iter().chain([("bank", world.bank.store())]) {
        match ready(store.verify()) {
            Ok(report) if report.differing.is_empty() => {}
            other => world.sim.violation(format!("rows of {name} differ from their events: {other:?}")),
        }
        match ready(store.stats()) {
            Ok(stats) if stats.outbox_pending + stats.outbox_failed + stats.retries + stats.tasks == 0 => {}
            other => world.sim.breaks(Law::NoMessageLost, format!("{name} has work left: {other:?}")),
        }
    }
}
