//! Pure: a batch under way: the rows as its inputs so far have left them, and what they have told, called and parked.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::data::{EventWrite, Loaded, OutboxWrite, Reads, RowWrite, Writes};
use super::failure::Failure;
use super::parking;
use crate::dead_letter::{DeadLetterMessage, DeadLetterResolved, DeadLetterStatus, Delivery, ReplayEffect};
use crate::ids;
use crate::input::{Input, MessageOutcome};
use crate::message::{Envelope, Message};
use crate::retry::{FailedTry, RetryPolicy, panic_text};
use crate::service::{HandlerError, Service};
use crate::trace::TraceContext;
use crate::unit_of_work::{Effects, Rows, Slot, UnitOfWork};
use crate::waiting::Task;

/// What every decision of a service needs to know of its settings.
#[derive(Debug, Clone)]
pub struct Rules {
    /// For messages of steps that have no policy of their own.
    pub retry: RetryPolicy,
    /// For messages of steps that have a policy of their own.
    pub step_retry: BTreeMap<String, RetryPolicy>,
    /// For calls to the outside.
    pub task_retry: RetryPolicy,
    /// Who claims new tasks.
    pub owner: String,
    /// For how long.
    pub task_lease: SignedDuration,
    /// Whether traces in which something goes wrong are recorded though they were not to be: then whatever is stored of
    /// it says so, for those who go on with it, after a restart too.
    pub keep_failed: bool,
    /// Whether inbox marks are looked at. Off only in tests: the domain is correct without.
    pub use_inbox: bool,
}

impl Rules {
    pub(super) fn retry_of(&self, step: &str) -> RetryPolicy {
        self.step_retry.get(step).copied().unwrap_or(self.retry)
    }
}

/// A batch under way.
pub(super) struct Batch<'a, S: Service> {
    pub(super) service: &'a S,
    pub(super) rules: &'a Rules,
    pub(super) now: Timestamp,
    pub(super) rows: Rows,
    pub(super) loaded: Loaded,
    pub(super) writes: Writes,
}

pub(super) type Reacted<T, S> = Result<T, Failure<<S as Service>::Rejection>>;

impl<'a, S: Service> Batch<'a, S> {
    pub(super) fn new(
        service: &'a S,
        mut loaded: Loaded,
        rules: &'a Rules,
        now: Timestamp,
        reads: Reads,
    ) -> Self {
        let also_read = std::mem::take(&mut loaded.also_read);
        let rows = reads
            .rows
            .into_iter()
            .chain(also_read)
            .map(|key| {
                let stored = loaded.rows.remove(&key);
                (key, Slot::of(stored))
            })
            .collect();
        let claim_until = now.checked_add(rules.task_lease).unwrap_or(Timestamp::MAX);
        let claim = Some((rules.owner.clone(), claim_until));
        let writes = Writes { decided_at: now, claim, ..Writes::default() };
        Self { service, rules, now, rows, loaded, writes }
    }

    /// Lets the service react. Whatever it panics about becomes a permanent fault of this one input.
    pub(super) fn react<T>(
        &mut self,
        input: &Input<S>,
        reaction: impl FnOnce(&S, &mut UnitOfWork<'_, S::Fact>) -> Result<T, HandlerError<S::Rejection>>,
    ) -> Reacted<T, S> {
        let mut work = UnitOfWork::new(&mut self.rows, input.cause(self.now));
        match catch_unwind(AssertUnwindSafe(|| reaction(self.service, &mut work))) {
            Ok(Ok(answer)) => {
                let effects = work.keep();
                self.write(input, effects);
                Ok(answer)
            }
            Ok(Err(refusal)) => Err(refusal.into()),
            Err(panic) => Err(Failure::permanent(format!("panicked: {}", panic_text(panic.as_ref())))),
        }
    }

    /// Where an input stands in its trace in which something went wrong.
    pub(super) fn gone_wrong(&self, input: &Input<S>) -> Option<TraceContext> {
        match self.rules.keep_failed {
            true => input.trace.map(TraceContext::recorded),
            false => input.trace,
        }
    }

    /// The same of a message that could not be handled.
    pub(super) fn gone_wrong_at(&self, delivery: Option<Delivery>) -> Option<Delivery> {
        match self.rules.keep_failed {
            true => delivery.map(Delivery::recorded),
            false => delivery,
        }
    }

    fn write(&mut self, input: &Input<S>, effects: Effects<S::Fact>) {
        // All that this input asks for belongs to what went wrong, not only who tells of it.
        let trace = match effects.told.iter().any(|told| told.fact.went_wrong()) {
            true => self.gone_wrong(input),
            false => input.trace,
        };
        let first_event = self.writes.events.len();
        let measured = effects.measured.into_iter().map(|measurement| (input.id, measurement));
        self.writes.measured.extend(measured);
        for event in effects.events {
            self.writes.events.push(EventWrite {
                key: event.key,
                version: event.version,
                name: event.name,
                data: event.data,
                causation_id: input.id,
            });
        }
        let producer = input.producer();
        for (ordinal, told) in effects.told.into_iter().enumerate() {
            let id = ids::message_id(input.correlation_id, &producer, input.id, ordinal);
            self.promise(id, input, trace, &told.fact, told.event.map(|index| first_event + index));
        }
        for called in effects.called {
            self.loaded.tasks.insert(called.id, 1);
            self.writes.tasks.push(Task {
                id: called.id,
                kind: called.kind.to_owned(),
                correlation_id: input.correlation_id,
                payload: called.payload,
                attempts: 0,
                claim: 1,
                created_at: self.now,
                dead_letter: None,
                trace,
            });
        }
    }

    pub(super) fn promise(
        &mut self,
        id: Uuid,
        input: &Input<S>,
        trace: Option<TraceContext>,
        message: &impl Message,
        event: Option<usize>,
    ) {
        let message_type = message.message_type();
        let saga = message.saga().unwrap_or(input.correlation_id);
        let payload = message.encode().and_then(|data| {
            serde_json::to_vec(&Envelope {
                id,
                message_type: message_type.name.to_owned(),
                version: message_type.version,
                producer: S::NAME.to_owned(),
                correlation_id: saga,
                causation_id: input.id,
                occurred_at: self.now,
                data,
            })
        });
        match payload {
            Ok(payload) => self.writes.outbox.push(OutboxWrite {
                id,
                saga,
                subject: message.subject(S::NAME),
                payload: Bytes::from(payload),
                event,
                trace,
            }),
            Err(error) => panic!("a message without a JSON form: {error}"),
        }
    }

    /// Parks an input for a human: a new dead letter, or the one whose replay failed.
    pub(super) fn park(
        &mut self,
        input: &Input<S>,
        failed: &FailedTry,
        attempts: u32,
        first_failed_at: Timestamp,
    ) -> MessageOutcome<S::Rejection> {
        let before = input.replayed().and_then(|replayed| self.loaded.dead_letters.get_mut(&replayed));
        let failure = parking::Parking { failed, attempts, first_failed_at, now: self.now };
        let before_it = before.as_ref().map(|stored| &stored.dead_letter);
        let mut dead = parking::parked::<S>(input, &failure, before_it);
        if self.rules.keep_failed {
            // Whoever hands it back goes on in its trace.
            dead.trace = input.trace.map(|trace| trace.recorded().to_string());
            dead.delivery = dead.delivery.map(Delivery::recorded);
        }
        match before {
            None => self.writes.parked.push(dead.clone()),
            Some(stored) => {
                (stored.dead_letter, stored.status) = (dead.clone(), DeadLetterStatus::Pending);
                self.writes.dead_letters.push(stored.clone());
            }
        }
        let id = ids::derived(&["dead-letter-announced", &dead.id.to_string(), &dead.replays.to_string()]);
        let announced = DeadLetterMessage::DeadLettered(Box::new(parking::announced(&dead)));
        let trace = self.gone_wrong(input);
        self.promise(id, input, trace, &announced, None);
        MessageOutcome::Dead(failed.reason())
    }

    /// Grows with everything that the inputs so far have changed, told or asked for.
    pub(super) fn changes(&self) -> usize {
        let Writes { events, outbox, tasks, dead_letters, .. } = &self.writes;
        events.len() + outbox.len() + tasks.len() + dead_letters.len()
    }

    pub(super) fn effect_since(&self, before: usize) -> ReplayEffect {
        if self.changes() > before { ReplayEffect::TookEffect } else { ReplayEffect::ChangedNothing }
    }

    /// Ends the dead letter that an input replayed, if it replayed one.
    pub(super) fn resolve(&mut self, input: &Input<S>, effect: ReplayEffect) {
        let Some(stored) = input.replayed().and_then(|replayed| self.loaded.dead_letters.get_mut(&replayed))
        else {
            return;
        };
        stored.status = DeadLetterStatus::Resolved;
        self.writes.dead_letters.push(stored.clone());
        let (dead_letter, saga) = (stored.dead_letter.id, stored.dead_letter.saga);
        let replays = stored.dead_letter.replays + 1;
        let id = ids::derived(&["dead-letter-resolved", &dead_letter.to_string(), &replays.to_string()]);
        let (service, step) = (S::NAME.to_owned(), input.source().to_owned());
        let (message_id, effect) = (input.id, Some(effect));
        let resolved = DeadLetterResolved { dead_letter, service, step, saga, message_id, replays, effect };
        let trace = self.gone_wrong(input);
        self.promise(id, input, trace, &DeadLetterMessage::DeadLetterResolved(resolved), None);
    }

    pub(super) fn finish(mut self) -> Writes {
        for (key, slot) in self.rows {
            if !slot.is_changed() {
                continue;
            }
            let projected = match slot.state().map(|state| state.projected(&key.id)) {
                Some(Ok(projected)) => projected,
                Some(Err(error)) => panic!("row {key:?} has no JSON form: {error}"),
                None => continue,
            };
            let (read_version, version) = (slot.read_version, slot.version);
            let searched_by = slot.read().map(|read| read.searched_by(&key.id));
            self.writes.rows.push(RowWrite { key, read_version, version, projected, searched_by });
        }
        self.writes
    }
}

pub(super) fn rejected(rejection: &impl ToString) -> ReplayEffect {
    ReplayEffect::Rejected { reason: rejection.to_string() }
}

pub(super) fn later(now: Timestamp, delay: std::time::Duration) -> Timestamp {
    now.checked_add(delay).unwrap_or(Timestamp::MAX)
}
