//! Shell: laws 1 and 2: no message is lost or processed twice, and no work is left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use saga_core::decision::{InboxState, Loaded, Reads, Writes};
use saga_core::service::Step;
use saga_core::service_stats::{ServiceStats, StepStats};
use saga_engine::store::roles::{Monitoring as _, Transactions as _, Verification as _};
use uuid::Uuid;

use crate::broker::StepDelivery;
use crate::deployment::AnyDeployment;
use crate::law::Law;
use crate::sim::ready;
use crate::world::World;

/// A step and an inbox id.
type StepMessage = (&'static str, Uuid);

/// Guarantee 2: each consumer of each message has processed or dead-lettered it.
pub fn check_no_message_lost(world: &World) {
    let broker = world.broker.lock();
    let deliveries: Vec<StepDelivery> = (0..broker.messages().len())
        .flat_map(|index| broker.consumers(index).into_iter().map(move |step| (step, index)))
        .collect();
    let expected: BTreeSet<StepMessage> = deliveries
        .into_iter()
        .flat_map(|(step, index)| broker.ids(index).into_iter().map(move |id| (step, id)))
        .collect();
    let states: BTreeMap<_, _> =
        world.services().into_iter().flat_map(|service| inbox_states(service, &expected)).collect();
    // Inbox marks are purged, the journal is not.
    let handled: BTreeSet<StepMessage> = handled(world).into_iter().collect();
    for (step, id) in expected {
        match states.get(&(step, id)) {
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
fn inbox_states(
    service: &dyn AnyDeployment,
    messages: &BTreeSet<StepMessage>,
) -> BTreeMap<StepMessage, InboxState> {
    let steps = service.steps();
    let is_own = |(step, _): &&StepMessage| steps.iter().any(|own| own.name == *step);
    let reads = Reads { inbox: messages.iter().filter(is_own).copied().collect(), ..Reads::default() };
    let slot = Arc::new(Mutex::new(BTreeMap::new()));
    let filled = slot.clone();
    let read = Box::new(move |loaded: Loaded| {
        *filled.lock() = loaded.inbox;
        Writes::default()
    });
    if let Err(fault) = ready(service.shared().store.transact(reads, read)) {
        panic!("the inbox cannot be read: {fault}");
    }
    std::mem::take(&mut *slot.lock())
}

/// Guarantee 2: with an inbox, each step processes a message once.
pub fn check_handled_once(world: &World) {
    if !world.sim.profile().has_inbox {
        return;
    }
    let mut times: BTreeMap<StepMessage, u32> = BTreeMap::new();
    for message in handled(world) {
        *times.entry(message).or_default() += 1;
    }
    for ((step, id), times) in times {
        if times > 1 {
            world.sim.breaks(Law::NoMessageLost, format!("{step} processed message {id} {times} times"));
        }
    }
}

/// All processed messages, with repetitions.
pub fn handled(world: &World) -> Vec<StepMessage> {
    let services = world.services().into_iter();
    services.flat_map(|service| service.shared().journal.lock().handled.clone()).collect()
}

/// Number of services of which more than one instance worked.
pub fn services_shared(world: &World) -> usize {
    let is_shared = |service: &&dyn AnyDeployment| {
        service.shared().journal.lock().inputs.values().filter(|inputs| **inputs > 0).count() > 1
    };
    world.services().iter().filter(|service| is_shared(service)).count()
}

/// Statistics of each service as the reconciliation sees them. Forged messages count as published.
pub fn service_stats(world: &World) -> Vec<ServiceStats> {
    let mut all = world.services().map(|service| service_stats_of(world, service));
    for (subject, count) in &world.forged {
        let producer = subject.split('.').next().unwrap_or_default();
        for service_stats in all.iter_mut().filter(|service_stats| service_stats.service == producer) {
            *service_stats.published.entry(subject.clone()).or_default() += count;
        }
    }
    all.into()
}

fn service_stats_of(world: &World, service: &dyn AnyDeployment) -> ServiceStats {
    let store = &service.shared().store;
    let counts = ready(store.message_counts()).unwrap_or_default();
    let of = |counts: &BTreeMap<String, u64>, step: &str| counts.get(step).copied().unwrap_or(0);
    let subjects =
        |step: &Step| step.consumes.iter().flat_map(|it| it.subjects(service.name())).collect::<Vec<_>>();
    let steps = service.steps().into_iter().map(|step| StepStats {
        step: step.name.to_owned(),
        subjects: subjects(step),
        handled: of(&counts.handled, step.name),
        retrying: of(&counts.retrying, step.name),
        dead: of(&counts.dead, step.name),
        waiting: Some(0),
        acknowledged: BTreeMap::new(),
    });
    ServiceStats {
        service: service.name().to_owned(),
        instance: service.name().to_owned(),
        at: world.sim.now(),
        stats: ready(store.stats()).unwrap_or_default(),
        calls_open: service.open_calls(),
        newest: None,
        lost_before: None,
        steps: steps.collect(),
        published: counts.published,
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
