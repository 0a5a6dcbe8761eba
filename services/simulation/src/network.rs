//! Shell: how messages and due times reach the services, through their breakers, and how that goes wrong.

use jiff::Timestamp;
use shared::engine::{Input, Outcome};
use shared::envelope::Envelope;
use shared::resilience::{Permit, Verdict};
use shared::retry::{FailedTry, Severity};
use shared::service::{Service, Step};
use shared::store::Retry;
use uuid::Uuid;

use crate::broker::Place;
use crate::endings::Ending;
use crate::node::{Node, clock};
use crate::sabotage::Sabotage;
use crate::tampered::Tampered;
use crate::trouble;
use crate::world::World;

/// Finds a node in the world.
pub(crate) type Pick<S> = fn(&mut World) -> &mut Node<S>;

/// One try of a step that its breakers let through.
struct Attempt {
    step: &'static Step,
    permit: Option<Permit>,
    trouble: Option<FailedTry>,
}

/// Delivers a few messages in any order as one batch; the process may die before, in or after its commit.
pub(crate) fn deliver<S: Service>(world: &mut World, pick: Pick<S>) {
    if world.is_broker_away() {
        return;
    }
    let mut waiting = world.broker.deliverable(&Node::<S>::steps());
    world.rng.shuffle(&mut waiting);
    if world.is_rough {
        waiting.truncate(world.rng.usize(1..5));
    }
    let (mut places, mut attempts, mut inputs) = (Vec::new(), Vec::new(), Vec::new());
    for place in waiting {
        let Some(mut attempt) = attempt(world, pick, place.0) else { continue };
        inputs.push(input_of(world, attempt.step, place).in_trouble(attempt.trouble.take()));
        places.push(place);
        attempts.push(attempt);
    }
    if inputs.is_empty() {
        return;
    }
    if world.chance(world.weather.dies) {
        dies_before_commit(world, pick, &places, inputs);
        return;
    }
    let now = world.now;
    let Ok(committed) = pick(world).commit(inputs, now) else {
        return;
    };
    world.note(|| {
        let outcomes: Vec<_> = committed.outcomes.iter().map(Outcome::name).collect();
        format!("{} handled {places:?}: {outcomes:?}", S::NAME)
    });
    for (attempt, outcome) in attempts.into_iter().zip(&committed.outcomes) {
        ended(world, pick, attempt, outcome);
    }
    if world.chance(world.weather.dies) {
        world.note(|| format!("{} died before it acknowledged", S::NAME));
        pick(world).crash(now);
        return;
    }
    places.into_iter().for_each(|place| world.broker.acknowledge(place));
}

fn dies_before_commit<S: Service>(
    world: &mut World,
    pick: Pick<S>,
    places: &[Place],
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
        places.iter().for_each(|place| world.broker.acknowledge(*place));
    }
    pick(world).crash(now);
}

fn input_of<S: Service>(world: &mut World, step: &'static Step, (_, index): Place) -> Input<Tampered<S>> {
    let payload = world.broker.message(index).payload.clone();
    world.deliveries += 1;
    let payload = world.sabotage.spoil_delivery(payload, world.deliveries);
    let (fallback_id, delivery) = (world.broker.fallback_id(index), world.broker.delivery(index));
    Input::message(step, payload, fallback_id, world.rng.u32(..)).delivered(delivery)
}

/// Leave for one try of a step, as [`shared::gate::Gate`] gives it; faults made on purpose strike here.
fn attempt<S: Service>(world: &mut World, pick: Pick<S>, step: &str) -> Option<Attempt> {
    let step = Node::<S>::step(step)?;
    let at = clock(world.now);
    let node = pick(world);
    let has_room = step.needs.is_empty() || node.room(at) > 0;
    if node.breakers.is_shut(step, at) || !has_room {
        return None;
    }
    let permit = node.breakers.acquire(step.name, at)?;
    if world.chance(world.weather.step_breaks) {
        let trouble = FailedTry::new(Severity::Permanent, trouble::BROKEN);
        return Some(Attempt { step, permit: Some(permit), trouble: Some(trouble) });
    }
    if world.chance(world.weather.step_fails) {
        let severity = failed(world, pick, step.name, permit);
        let trouble = FailedTry::new(severity, trouble::NOT_NOW);
        return Some(Attempt { step, permit: None, trouble: Some(trouble) });
    }
    Some(Attempt { step, permit: Some(permit), trouble: None })
}

/// A fault strikes what this breaker stands before. Answers what follows from it.
pub(crate) fn failed<S: Service>(world: &mut World, pick: Pick<S>, name: &str, permit: Permit) -> Severity {
    let (at, sabotage) = (clock(world.now), world.sabotage);
    let breakers = &mut pick(world).breakers;
    breakers.seen.faults += 1;
    breakers.record(name, permit, Verdict::Failure, at);
    if sabotage == Sabotage::OutageConsumesAttempts {
        return Severity::Transient;
    }
    breakers.severity(name, at)
}

/// Tells the step's breaker how a try ended, as [`shared::gate::Leave::ended`] does.
fn ended<S: Service>(world: &mut World, pick: Pick<S>, attempt: Attempt, outcome: &Outcome<Tampered<S>>) {
    world.see(outcome);
    let Some(permit) = attempt.permit else { return };
    let counts_refusals = world.sabotage == Sabotage::BreakerCountsRefusals;
    let is_counted = counts_refusals && matches!(outcome, Outcome::Rejected(_));
    let verdict = if is_counted { Verdict::Failure } else { outcome.verdict() };
    let at = clock(world.now);
    pick(world).breakers.record(attempt.step.name, permit, verdict, at);
}

/// How often what the broker gave up on had been left alone by an open breaker, in percent.
const INTERRUPTED: u8 = 30;

/// Hands in what the broker gave up on: a human has to see it, unless the service itself had left it alone.
pub(crate) fn hand_in_given_up<S: Service>(world: &mut World, pick: Pick<S>) {
    if world.is_broker_away() {
        return;
    }
    for place in world.broker.advisories(&Node::<S>::steps()) {
        let Some(step) = Node::<S>::step(place.0) else { continue };
        let is_its_fault = !world.chance(INTERRUPTED);
        let why = is_its_fault.then(|| FailedTry::new(Severity::Permanent, trouble::GIVEN_UP));
        let input = input_of(world, step, place).in_trouble(why);
        let now = world.now;
        if world.chance(world.weather.dies) {
            pick(world).crash(now);
            return;
        }
        let Ok(committed) = pick(world).commit(vec![input], now) else {
            return;
        };
        for outcome in &committed.outcomes {
            world.see(outcome);
            let is_parked = is_its_fault && matches!(outcome, Outcome::Dead(_));
            world.seen.count_many(Ending::GivenUpByBroker, u64::from(is_parked));
        }
        if world.chance(world.weather.dies) {
            pick(world).crash(now);
            return;
        }
        world.broker.advised(place);
    }
}

/// What a look of the timers came to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Fired {
    /// Whether anything was handed in.
    pub(crate) any: bool,
    /// When the next thing will come due.
    pub(crate) next: Option<Timestamp>,
}

/// Hands in what is due.
pub(crate) fn fire<S: Service>(world: &mut World, pick: Pick<S>) -> Fired {
    let now = world.now;
    let due = pick(world).due(now);
    let (next, are_rows_due) = (due.next, !due.rows.is_empty());
    let mut inputs = Vec::new();
    if world.sabotage != Sabotage::NoDeadline {
        inputs.extend(due.rows.iter().map(|(key, due_at)| Input::due(key.clone(), *due_at)));
    }
    let mut attempts: Vec<Option<Attempt>> = inputs.iter().map(|_| None).collect();
    for retry in due.retries {
        let Some(mut attempt) = attempt(world, pick, &retry.step) else { continue };
        if world.sabotage == Sabotage::ReplayToEverybody {
            publish_again(world, &retry);
        }
        let roll = world.rng.u32(..);
        inputs.push(Input::retried(attempt.step, retry, roll).in_trouble(attempt.trouble.take()));
        attempts.push(Some(attempt));
    }
    let any = !inputs.is_empty();
    if any {
        commit_due(world, pick, inputs, attempts);
    }
    if are_rows_due && let Some(row) = pick(world).overdue(now) {
        world.object(format!("law 3: {row} outlived its deadline although the timers fired"));
    }
    Fired { any, next }
}

fn commit_due<S: Service>(
    world: &mut World,
    pick: Pick<S>,
    inputs: Vec<Input<Tampered<S>>>,
    attempts: Vec<Option<Attempt>>,
) {
    world.note(|| format!("{}: {} rows and retries are due", S::NAME, inputs.len()));
    let now = world.now;
    if let Ok(committed) = pick(world).commit(inputs, now) {
        for (attempt, outcome) in attempts.into_iter().zip(&committed.outcomes) {
            match attempt {
                Some(attempt) => ended(world, pick, attempt, outcome),
                None => world.see(outcome),
            }
        }
    }
}

/// What a replay must not do: tell everybody who hears the subject.
fn publish_again(world: &mut World, retry: &Retry) {
    let subject = match &retry.delivery {
        Some(delivery) if retry.letter.is_some() => {
            let index = usize::try_from(delivery.sequence).unwrap_or(usize::MAX);
            world.broker.messages().get(index).map(|stored| stored.subject.clone())
        }
        Some(_) | None => None,
    };
    if let Some(subject) = subject {
        let id = Envelope::from_bytes(&retry.payload).map_or(Uuid::nil(), |envelope| envelope.id);
        world.broker.store(id, &subject, retry.payload.clone(), true);
    }
}
