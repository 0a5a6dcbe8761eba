//! Shell: what lies between the services: deliveries, publishes and timers, and how they go wrong.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use futures::future::BoxFuture;
use shared::bus::Publish;
use shared::engine::Input;
use shared::engine::input::Earlier;
use shared::service::Service;
use shared::store::{OutboxEntry, Published};
use uuid::Uuid;

use crate::broker::Broker;
use crate::node::{Node, Tampered};
use crate::sabotage::Sabotage;
use crate::world::World;

/// Finds a node in the world.
pub(crate) type Pick<S> = fn(&mut World) -> &mut Node<S>;

/// Delivers a few messages in any order as one batch; the process may die before, in or after its commit.
pub(crate) fn deliver<S: Service>(world: &mut World, pick: Pick<S>) {
    let mut waiting = world.broker.deliverable(&Node::<S>::steps());
    if waiting.is_empty() {
        return;
    }
    world.rng.shuffle(&mut waiting);
    if world.is_rough {
        waiting.truncate(world.rng.usize(1..5));
    }
    let mut inputs = Vec::new();
    for (step, index) in &waiting {
        let payload = world.broker.message(*index).payload.clone();
        inputs.push(message::<S>(step, payload, world.rng.u32(..)));
    }
    let dies_before = world.chance(10);
    if dies_before {
        dies_before_commit(world, pick, &waiting, inputs);
        return;
    }
    let now = world.now;
    let Ok(committed) = pick(world).commit(inputs, now) else {
        return;
    };
    world.note(|| format!("{} handled {waiting:?}", S::NAME));
    for outcome in &committed.outcomes {
        world.see(outcome);
    }
    if world.chance(10) {
        world.note(|| format!("{} died before it acknowledged", S::NAME));
        pick(world).crash();
        return;
    }
    for (step, index) in waiting {
        world.broker.acknowledge(step, index);
    }
}

fn dies_before_commit<S: Service>(
    world: &mut World,
    pick: Pick<S>,
    waiting: &[(&'static str, usize)],
    inputs: Vec<Input<Tampered<S>>>,
) {
    world.note(|| format!("{} died before it committed", S::NAME));
    let now = world.now;
    if world.sabotage == Sabotage::PublishBeforeCommit {
        for entry in pick(world).decide_only(inputs, now).outbox {
            world.broker.store(entry.id, &entry.subject, entry.payload, false);
        }
    }
    let early = [Sabotage::AcknowledgeBeforeCommit, Sabotage::InboxBeforeWork, Sabotage::PublishBeforeCommit];
    if early.contains(&world.sabotage) {
        // The message counts as handled, and its effect is lost.
        waiting.iter().for_each(|(step, index)| world.broker.acknowledge(step, *index));
    }
    pick(world).crash();
}

fn message<S: Service>(step: &str, payload: Bytes, roll: u32) -> Input<Tampered<S>> {
    let Some(step) = S::steps().iter().find(|known| known.name == step) else { panic!("no step {step}") };
    Input::message(step, payload, Uuid::nil(), None, roll)
}

/// A broker that may take only the first few, or take them and lose the acknowledgement.
struct RoughBroker<'a> {
    broker: Mutex<&'a mut Broker>,
    /// Entries it takes at most.
    takes: usize,
    /// Whether the acknowledgements get back.
    answers: bool,
    /// Whether it forgot the ids it knew.
    window_forgot: bool,
    /// Whether it pretends to have taken what it did not.
    lies: bool,
}

impl Publish for RoughBroker<'_> {
    fn publish<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, Published> {
        let mut published = Published::default();
        let mut broker = self.broker.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, entry) in entries.iter().enumerate() {
            if index >= self.takes && !self.lies {
                published.delayed = Some((entry.seq, "the broker does not answer".to_owned()));
                break;
            }
            if index < self.takes {
                broker.store(entry.id, &entry.subject, entry.payload.clone(), self.window_forgot);
            }
            published.done.push(entry.seq);
        }
        if !self.answers {
            published = Published::default();
        }
        Box::pin(std::future::ready(published))
    }
}

/// One round of a node's relay; the broker or the node may fail in it.
pub(crate) fn relay<S: Service>(world: &mut World, pick: Pick<S>) {
    let takes = if world.chance(15) { world.rng.usize(0..2) } else { usize::MAX };
    let lies = world.sabotage == Sabotage::SettleWithoutPublish;
    let (answers, window_forgot) = (!world.chance(15), world.chance(20));
    let (now, mut broker) = (world.now, std::mem::take(&mut world.broker));
    let rough = RoughBroker { broker: Mutex::new(&mut broker), takes, answers, window_forgot, lies };
    pick(world).relay_round(&rough, now);
    world.broker = broker;
    if !answers {
        // It died between the publish and the settlement.
        pick(world).crash();
    }
}

/// Hands in what is due; answers whether there was anything.
pub(crate) fn fire<S: Service>(world: &mut World, pick: Pick<S>) -> bool {
    let now = world.now;
    let due = pick(world).due(now);
    let mut inputs = Vec::new();
    if world.sabotage != Sabotage::NoDeadline {
        inputs.extend(due.rows.iter().map(|(key, due_at)| Input::due(key.clone(), *due_at)));
    }
    for retry in &due.retries {
        let Some(step) = S::steps().iter().find(|step| step.name == retry.step) else {
            continue;
        };
        let earlier = Earlier { attempts: retry.attempts, first_failed_at: retry.first_failed_at };
        let roll = world.rng.u32(..);
        inputs.push(Input::message(step, retry.payload.clone(), retry.message_id, Some(earlier), roll));
    }
    if inputs.is_empty() {
        return false;
    }
    world.note(|| format!("{}: {} rows and {} retries are due", S::NAME, due.rows.len(), due.retries.len()));
    if let Ok(committed) = pick(world).commit(inputs, now) {
        for outcome in &committed.outcomes {
            world.see(outcome);
        }
    }
    true
}
