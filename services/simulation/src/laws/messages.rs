//! Shell: laws 1, 2 and 6: no message is dropped, none is handled twice, and no business "no" counts as a fault.

use std::collections::BTreeMap;

use jiff::Timestamp;
use shared::operator::{Machinery, StepState};
use shared::service::Service;
use shared::store::{Known, Store};
use uuid::Uuid;

use crate::endings::Ending;
use crate::journal::Note;
use crate::node::{Node, ready};
use crate::world::World;

/// Law 2: every message of the streams is, for every step that hears it, handled or parked; nobody owes anything.
pub fn no_message_is_dropped(world: &mut World) {
    let mut places: BTreeMap<&'static str, Vec<Uuid>> = BTreeMap::new();
    for index in 0..world.broker.len() {
        for step in world.broker.hearers(index) {
            places.entry(step).or_default().push(world.broker.id(index));
        }
    }
    let mut known = known_of(&world.order, &places);
    known.extend(known_of(&world.inventory, &places));
    known.extend(known_of(&world.payment, &places));
    known.extend(known_of(&world.admin, &places));
    for (step, ids) in places {
        for id in ids {
            match known.get(&(step, id)) {
                Some(Known::Handled | Known::Parked) => {}
                Some(Known::Waiting) => world.object(format!("law 2: {step} never comes to message {id}")),
                None => world.object(format!("law 2: {step} knows nothing of message {id}")),
            }
        }
    }
}

fn known_of<S: Service>(
    node: &Node<S>,
    places: &BTreeMap<&'static str, Vec<Uuid>>,
) -> BTreeMap<(&'static str, Uuid), Known> {
    let here = Node::<S>::steps();
    let of_step = |step: &&'static str| {
        let step = *step;
        places.get(step).into_iter().flatten().map(move |id| (step, *id))
    };
    let asked: Vec<_> = here.iter().flat_map(of_step).collect();
    node.known(&asked)
}

/// Law 2: whoever has an inbox is done with a message once.
pub fn no_message_is_handled_twice(world: &mut World) {
    if !world.weather.has_inbox {
        return;
    }
    let mut handled: BTreeMap<(&str, Uuid), u32> = BTreeMap::new();
    for note in journal(world).filter(|note| note.is_handled()) {
        *handled.entry((note.step, note.known_as)).or_default() += 1;
    }
    for ((step, id), times) in handled {
        if times > 1 {
            world.object(format!("law 2: {step} handled message {id} {times} times"));
        }
    }
}

/// What became of every message, at every step.
pub fn journal(world: &World) -> impl Iterator<Item = Note> + use<> {
    let all = [&world.order.journal, &world.inventory.journal, &world.payment.journal, &world.admin.journal];
    all.map(Clone::clone).into_iter().flatten()
}

/// What the audit gets to see of every service's machinery; what was forged counts as said.
#[must_use]
pub fn machinery(world: &World) -> Vec<Machinery> {
    let mut all = vec![
        machinery_of(&world.order, world.now),
        machinery_of(&world.inventory, world.now),
        machinery_of(&world.payment, world.now),
        machinery_of(&world.admin, world.now),
    ];
    for (subject, count) in &world.forged {
        let producer = subject.split('.').next().unwrap_or_default();
        for machinery in all.iter_mut().filter(|machinery| machinery.service == producer) {
            *machinery.published.entry(subject.clone()).or_default() += count;
        }
    }
    all
}

fn machinery_of<S: Service>(node: &Node<S>, at: Timestamp) -> Machinery {
    let tallies = ready(node.store.tallies()).unwrap_or_default();
    let of = |counts: &BTreeMap<String, u64>, step: &str| counts.get(step).copied().unwrap_or(0);
    let steps = S::steps().iter().map(|step| StepState {
        step: step.name.to_owned(),
        subjects: step.hears.iter().flat_map(|subscription| subscription.subjects(S::NAME)).collect(),
        handled: of(&tallies.handled, step.name),
        retrying: of(&tallies.retrying, step.name),
        dead: of(&tallies.dead, step.name),
        waiting: Some(0),
    });
    Machinery {
        service: S::NAME.to_owned(),
        instance: S::NAME.to_owned(),
        at,
        stats: ready(node.store.stats()).unwrap_or_default(),
        calls_open: node.tasks.len(),
        steps: steps.collect(),
        published: tallies.published.clone(),
    }
}

/// Every row is the fold of its events, and nobody owes anything.
pub fn the_stores_are_in_order(world: &mut World) {
    let mut found = Vec::new();
    for (name, store) in world.stores().into_iter().chain([("bank", &*world.bank.store)]) {
        match ready(store.verify()) {
            Ok(report) if report.differing.is_empty() => {}
            other => found.push(format!("rows of {name} are not the fold of their events: {other:?}")),
        }
        match ready(store.stats()) {
            Ok(stats) if stats.outbox_pending + stats.outbox_failed + stats.retries + stats.tasks == 0 => {}
            other => found.push(format!("law 2: {name} still owes something: {other:?}")),
        }
    }
    found.into_iter().for_each(|what| world.object(what));
}

/// Law 6: a breaker counts faults, and nothing else.
pub fn breakers_count_faults_alone(world: &mut World) {
    let all = [
        world.order.breakers.seen,
        world.inventory.breakers.seen,
        world.payment.breakers.seen,
        world.admin.breakers.seen,
    ];
    for seen in all {
        if seen.failures != seen.faults {
            world.object(format!("law 6: breakers counted {} failures of {}", seen.failures, seen.faults));
        }
        world.seen.count_many(Ending::BreakerOpened, seen.opened);
        world.seen.count_many(Ending::BreakerClosed, seen.closed);
        world.seen.count_many(Ending::HalfOpenProbe, seen.probes);
    }
}
