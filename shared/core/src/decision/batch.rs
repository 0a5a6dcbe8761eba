//! Pure: a batch while it is being decided: rows and writes after the inputs decided so far.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::data::{EventWrite, Loaded, OutboxWrite, Reads, ReplayTrace, RowWrite, Writes};
use super::dead_letters;
use super::input_error::InputError;
use crate::dead_letter::{
    DeadLetterMessage, DeadLetterResolved, DeadLetterStatus, DeliveryInfo, ReplayEffect,
};
use crate::ids;
use crate::input::{Input, MessageOutcome};
use crate::message::{Envelope, Message};
use crate::retry::{FailedAttempt, RetryPolicy, panic_text};
use crate::service::{HandlerError, Service};
use crate::trace::TraceContext;
use crate::unit_of_work::{Effects, Rows, Slot, UnitOfWork};
use crate::waiting::Task;

/// Settings of all decisions of a service.
#[derive(Debug, Clone)]
pub struct DecisionConfig {
    /// Retry policy of steps without a policy of their own.
    pub retry: RetryPolicy,
    /// Retry policies of single steps.
    pub step_retry: BTreeMap<String, RetryPolicy>,
    /// Retry policy of all tasks.
    pub task_retry: RetryPolicy,
    /// Owner of the claims of new tasks.
    pub owner: String,
    /// Lease after which another replica may claim the task.
    pub task_lease: SignedDuration,
    /// Records traces with failures even if they were not sampled. The stored trace contexts are marked as
    /// recorded, so that the trace continues after a restart.
    pub keep_failed: bool,
    /// Time of the last loss of data that an operator accepted; `None` if there was none.
    pub lost_before: Option<Timestamp>,
    /// Inbox check. Off only in tests, which show that the domain is idempotent without it.
    pub use_inbox: bool,
}

impl DecisionConfig {
    pub(super) fn retry_of(&self, step: &str) -> RetryPolicy {
        self.step_retry.get(step).copied().unwrap_or(self.retry)
    }
}

/// Batch while it is being decided.
pub(super) struct Batch<'a, S: Service> {
    pub(super) service: &'a S,
    pub(super) config: &'a DecisionConfig,
    pub(super) now: Timestamp,
    pub(super) rows: Rows,
    pub(super) loaded: Loaded,
    pub(super) writes: Writes,
}

pub(super) type Decided<T, S> = Result<T, InputError<<S as Service>::Rejection>>;

impl<'a, S: Service> Batch<'a, S> {
    pub(super) fn new(
        service: &'a S,
        mut loaded: Loaded,
        config: &'a DecisionConfig,
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
        let claim_until = now.checked_add(config.task_lease).unwrap_or(Timestamp::MAX);
        let claim = Some((config.owner.clone(), claim_until));
        let writes = Writes { decided_at: now, claim, ..Writes::default() };
        Self { service, config, now, rows, loaded, writes }
    }

    /// Calls a handler. A panic becomes a permanent failure of this one input.
    pub(super) fn react<T>(
        &mut self,
        input: &Input<S>,
        reaction: impl FnOnce(&S, &mut UnitOfWork<'_, S::Fact>) -> Result<T, HandlerError<S::Rejection>>,
    ) -> Decided<T, S> {
        let mut work = UnitOfWork::new(&mut self.rows, input.cause(self.now, self.config.lost_before));
        match catch_unwind(AssertUnwindSafe(|| reaction(self.service, &mut work))) {
            Ok(Ok(answer)) => {
                let effects = work.apply();
                self.write(input, effects);
                Ok(answer)
            }
            Ok(Err(error)) => Err(error.into()),
            Err(panic) => Err(InputError::permanent(format!("panicked: {}", panic_text(panic.as_ref())))),
        }
    }

    /// Trace context of an input with a failure.
    pub(super) fn failed_trace(&self, input: &Input<S>) -> Option<TraceContext> {
        match self.config.keep_failed {
            true => input.trace.map(TraceContext::recorded),
            false => input.trace,
        }
    }

    /// Broker metadata of a message with a failure.
    pub(super) fn failed_delivery(&self, delivery: Option<DeliveryInfo>) -> Option<DeliveryInfo> {
        match self.config.keep_failed {
            true => delivery.map(DeliveryInfo::recorded),
            false => delivery,
        }
    }

    fn write(&mut self, input: &Input<S>, effects: Effects<S::Fact>) {
        // All effects belong to the failed part of the trace, not only the message that reports it.
        let failure = effects.published.iter().find(|publication| publication.fact.is_failure());
        let trace = match failure {
            Some(_) => self.failed_trace(input),
            None => input.trace,
        };
        let reason = failure.and_then(|publication| publication.fact.failure_reason());
        self.writes.failure_reasons.extend(reason.map(|reason| (input.id, reason)));
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
        for (ordinal, publication) in effects.published.into_iter().enumerate() {
            let id = ids::message_id(input.correlation_id, &producer, input.id, ordinal);
            self.add_outbox_entry(
                id,
                input,
                trace,
                &publication.fact,
                publication.event.map(|index| first_event + index),
            );
        }
        for task in effects.tasks {
            self.loaded.tasks.insert(task.id, 1);
            self.writes.tasks.push(Task {
                id: task.id,
                kind: task.kind.to_owned(),
                correlation_id: input.correlation_id,
                payload: task.payload,
                attempts: 0,
                claim: 1,
                created_at: self.now,
                dead_letter: None,
                trace,
            });
        }
    }

    pub(super) fn add_outbox_entry(
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

    /// Dead-letters an input: creates a dead letter, or reopens the one whose replay failed.
    pub(super) fn dead_letter(
        &mut self,
        input: &Input<S>,
        failed: &FailedAttempt,
        attempts: u32,
        first_failed_at: Timestamp,
    ) -> MessageOutcome<S::Rejection> {
        let before = input.replayed().and_then(|replayed| self.loaded.dead_letters.get_mut(&replayed));
        let failure = dead_letters::LastFailure { failed, attempts, first_failed_at, now: self.now };
        let dead_before = before.as_ref().map(|stored| &stored.dead_letter);
        let mut dead = dead_letters::dead_letter_of::<S>(input, &failure, dead_before);
        if self.config.keep_failed {
            // A replay continues this trace.
            dead.trace = input.trace.map(|trace| trace.recorded().to_string());
            dead.delivery = dead.delivery.map(DeliveryInfo::recorded);
        }
        match before {
            None => self.writes.new_dead_letters.push(dead.clone()),
            Some(stored) => {
                (stored.dead_letter, stored.status) = (dead.clone(), DeadLetterStatus::Pending);
                self.writes.changed_dead_letters.push(stored.clone());
            }
        }
        let id = ids::derived(&["dead-letter-announced", &dead.id.to_string(), &dead.replays.to_string()]);
        let announced = DeadLetterMessage::DeadLettered(Box::new(dead_letters::announced(&dead)));
        let trace = self.failed_trace(input);
        self.add_outbox_entry(id, input, trace, &announced, None);
        MessageOutcome::Dead(failed.reason())
    }

    /// Records the earlier attempts of a replayed input, and the request for the replay, for its span.
    pub(super) fn record_replay(&mut self, input: &Input<S>) {
        let replayed = input.replayed().and_then(|replayed| self.loaded.dead_letters.get(&replayed));
        let Some(dead) = replayed.map(|stored| &stored.dead_letter) else { return };
        let failed = dead.trace.as_deref().and_then(TraceContext::parse);
        let links = failed.into_iter().chain(input.replay_request()).collect();
        self.writes.replays.push((input.id, ReplayTrace { attempts: dead.attempts, links }));
    }

    /// Number of effects so far. Grows with each effect of an input.
    pub(super) fn changes(&self) -> usize {
        let Writes { events, outbox, tasks, changed_dead_letters, .. } = &self.writes;
        events.len() + outbox.len() + tasks.len() + changed_dead_letters.len()
    }

    pub(super) fn effect_since(&self, before: usize) -> ReplayEffect {
        if self.changes() > before { ReplayEffect::TookEffect } else { ReplayEffect::ChangedNothing }
    }

    /// Resolves the dead letter that the input replayed, if any.
    pub(super) fn resolve(&mut self, input: &Input<S>, effect: ReplayEffect) {
        let Some(stored) = input.replayed().and_then(|replayed| self.loaded.dead_letters.get_mut(&replayed))
        else {
            return;
        };
        stored.status = DeadLetterStatus::Resolved;
        self.writes.changed_dead_letters.push(stored.clone());
        let (dead_letter, saga) = (stored.dead_letter.id, stored.dead_letter.saga);
        let replays = stored.dead_letter.replays + 1;
        let id = ids::derived(&["dead-letter-resolved", &dead_letter.to_string(), &replays.to_string()]);
        let (service, step) = (S::NAME.to_owned(), input.source().to_owned());
        let (message_id, effect) = (input.id, effect);
        let resolved = DeadLetterResolved { dead_letter, service, step, saga, message_id, replays, effect };
        let trace = self.failed_trace(input);
        self.add_outbox_entry(id, input, trace, &DeadLetterMessage::DeadLetterResolved(resolved), None);
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
    let mut reason = rejection.to_string();
    dead_letters::shorten(&mut reason);
    ReplayEffect::Rejected { reason }
}

pub(super) fn later(now: Timestamp, delay: std::time::Duration) -> Timestamp {
    now.checked_add(delay).unwrap_or(Timestamp::MAX)
}
