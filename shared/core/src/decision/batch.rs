//! Pure: one batch of inputs, decided in memory, in order, each on the rows as the earlier ones left them.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use uuid::Uuid;

use super::data::{
    EventWrite, InboxState, KeyedAnswer, Loaded, OutboxWrite, Reads, RowWrite, TaskRetry, Writes,
};
use super::failure::Failure;
use super::parking;
use super::reads::{on_record, reads};
use crate::dead_letter::{
    DeadLetterMessage, DeadLetterOrigin, DeadLetterResolved, DeadLetterStatus, Delivery, OperatorCommand,
    ReplayEffect,
};
use crate::ids;
use crate::input::{
    CommandOutcome, Content, Delivered, DueOutcome, Input, InputKind, MessageOutcome, Outcome, RequestKey,
};
use crate::message::{Envelope, Message};
use crate::retry::{FailedTry, FailureKind, RetryPolicy, error_links, panic_text};
use crate::service::{Refusal, Service};
use crate::trace::TraceContext;
use crate::unit_of_work::{Effects, Rows, Slot, UnitOfWork};
use crate::waiting::{Retry, Task};

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
    pub keep_gone_wrong: bool,
    /// Whether inbox marks are looked at. Off only in tests: the domain is correct without.
    pub use_inbox: bool,
}

impl Rules {
    fn retry_of(&self, step: &str) -> RetryPolicy {
        self.step_retry.get(step).copied().unwrap_or(self.retry)
    }
}

/// Decides a batch.
///
/// One input's failure, even a panic, touches no other. Calling it again with the same arguments gives the
/// same answer: ids are derived, time and chance are arguments.
pub fn decide<S: Service>(
    service: &S,
    inputs: &[Input<S>],
    loaded: Loaded,
    rules: &Rules,
    now: Timestamp,
) -> (Writes, Vec<Outcome<S>>) {
    let mut batch = Batch::new(service, loaded, rules, now, reads(service, inputs));
    let to_read = on_record(service, inputs, &mut batch.rows, now);
    if !to_read.is_empty() {
        return (Writes { to_read, ..Writes::default() }, vec![]);
    }
    let outcomes = inputs.iter().map(|input| batch.take(input)).collect();
    (batch.finish(), outcomes)
}

/// A batch under way.
struct Batch<'a, S: Service> {
    service: &'a S,
    rules: &'a Rules,
    now: Timestamp,
    rows: Rows,
    loaded: Loaded,
    writes: Writes,
}

type Reacted<T, S> = Result<T, Failure<<S as Service>::Rejection>>;

impl<'a, S: Service> Batch<'a, S> {
    fn new(service: &'a S, mut loaded: Loaded, rules: &'a Rules, now: Timestamp, reads: Reads) -> Self {
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

    fn take(&mut self, input: &Input<S>) -> Outcome<S> {
        match &input.kind {
            InputKind::Command { command, key } => {
                Outcome::Command(self.take_command(input, command, key.as_ref()))
            }
            InputKind::Message(delivered) => Outcome::Message(self.take_message(input, delivered)),
            InputKind::Called { task, answer } => Outcome::Message(self.take_result(input, task, answer)),
            InputKind::Due { key } => {
                Outcome::Due(match self.react(input, |service, work| service.fall_due(key, work)) {
                    Ok(()) => DueOutcome::Done,
                    Err(Failure::Rejected(rejection)) => DueOutcome::Rejected(rejection),
                    Err(Failure::Failed(failed)) => DueOutcome::Faulted(failed.reason()),
                })
            }
        }
    }

    fn take_command(
        &mut self,
        input: &Input<S>,
        command: &S::Command,
        key: Option<&RequestKey>,
    ) -> CommandOutcome<S> {
        if let Some((key, answer)) = key.and_then(|key| Some((key, self.loaded.keys.get(&key.key)?))) {
            if answer.fingerprint != key.fingerprint {
                return CommandOutcome::KeyReused;
            }
            return match serde_json::from_str(&answer.reply) {
                Ok(reply) => CommandOutcome::Replayed(reply),
                Err(error) => CommandOutcome::Faulted(format!("the stored answer cannot be read: {error}")),
            };
        }
        let reply = match self.react(input, |service, work| service.execute(command, work)) {
            Ok(reply) => reply,
            Err(Failure::Rejected(rejection)) => return CommandOutcome::Rejected(rejection),
            Err(Failure::Failed(failed)) => return CommandOutcome::Faulted(failed.reason()),
        };
        if let (Some(key), Ok(json)) = (key, serde_json::to_string(&reply)) {
            let answer = KeyedAnswer { fingerprint: key.fingerprint.clone(), reply: json };
            self.loaded.keys.insert(key.key.clone(), answer.clone());
            self.writes.keys.push((key.key.clone(), answer));
        }
        CommandOutcome::Done(reply)
    }

    fn take_message(
        &mut self,
        input: &Input<S>,
        delivered: &Delivered<S::Fact>,
    ) -> MessageOutcome<S::Rejection> {
        let Delivered { step, earlier, .. } = delivered;
        let place = (step.name, delivered.known_as(input.id));
        // A retry goes on only while its entry still waits; a delivery only while nothing is known of it.
        let is_new = match (self.loaded.inbox.get(&place), earlier) {
            (Some(InboxState::Waiting), Some(_)) | (None, None) => true,
            (Some(InboxState::Handled), _) => !self.rules.use_inbox && earlier.is_none(),
            (Some(InboxState::Waiting), None) | (Some(InboxState::Parked), _) | (None, Some(_)) => false,
        };
        if !is_new || self.is_edited_since(input, delivered) {
            return MessageOutcome::Duplicate;
        }
        let before = self.changes();
        let reaction = match &delivered.failure {
            Some(failure) => Err(Failure::Failed(failure.clone())),
            None => self.handle(input, delivered),
        };
        match reaction {
            Ok(()) => {
                self.mark_handled(input, delivered, place, self.effect_since(before));
                MessageOutcome::Done
            }
            Err(Failure::Rejected(rejection)) => {
                self.mark_handled(input, delivered, place, rejected(&rejection));
                MessageOutcome::Rejected(rejection)
            }
            Err(Failure::Failed(failed)) => self.try_again_or_park(input, delivered, place, &failed),
        }
    }

    /// Whether an operator has put another message in its place while this try was on its way.
    fn is_edited_since(&self, input: &Input<S>, delivered: &Delivered<S::Fact>) -> bool {
        let stored = input.replayed().and_then(|replayed| self.loaded.dead_letters.get(&replayed));
        stored.is_some_and(|stored| stored.dead_letter.payload_base64 != BASE64.encode(&delivered.payload))
    }

    /// Lets whoever a message is for react: the engine itself, when an operator says it.
    fn handle(&mut self, input: &Input<S>, delivered: &Delivered<S::Fact>) -> Reacted<(), S> {
        let Delivered { step, content, .. } = delivered;
        let content = content.as_ref().map_err(|error| {
            Failure::Failed(FailedTry { chain: error_links(error), kind: FailureKind::Permanent })
        })?;
        match content {
            Content::Fact(message) => self.react(input, |service, work| service.hear(step, message, work)),
            Content::Operator(message) => match message.command() {
                Some(command) => self.operate(&command).map_err(Failure::permanent),
                None => {
                    let name = message.message_type().name;
                    Err(Failure::permanent(format!("{name} is no command")))
                }
            },
        }
    }

    fn operate(&mut self, command: &OperatorCommand<'_>) -> Result<(), String> {
        parking::operate::<S>(command, &mut self.loaded, &mut self.writes)
    }

    fn try_again_or_park(
        &mut self,
        input: &Input<S>,
        delivered: &Delivered<S::Fact>,
        place: (&'static str, Uuid),
        failed: &FailedTry,
    ) -> MessageOutcome<S::Rejection> {
        let failed = &failed.discreet(&delivered.payload, S::SECRETS);
        let earlier = delivered.earlier.as_ref();
        let before = earlier.map_or(0, |earlier| earlier.attempts);
        let first_failed_at = earlier.map_or(self.now, |earlier| earlier.first_failed_at);
        let policy = self.rules.retry_of(delivered.step.name);
        let (attempts, delay) = match delivered.tells_of_a_dead_letter() {
            // As after an outage, but for the attempts, which the delay grows with.
            true => (before.saturating_add(1), policy.after(FailureKind::Outage, before, input.jitter).1),
            false => policy.after(failed.kind, before, input.jitter),
        };
        if let Some(delay) = delay {
            self.loaded.inbox.insert(place, InboxState::Waiting);
            self.writes.retries.push(Retry {
                step: delivered.step.name.to_owned(),
                message_id: place.1,
                payload: delivered.payload.clone(),
                attempts,
                next_attempt: later(self.now, delay),
                first_failed_at,
                last_error: failed.reason(),
                delivery: self.gone_wrong_at(delivered.delivery.clone()),
                dead_letter: input.replayed(),
            });
            return MessageOutcome::Retried(failed.reason());
        }
        if earlier.is_some() {
            self.writes.end_retry(place);
        }
        self.loaded.inbox.insert(place, InboxState::Parked);
        self.park(input, failed, attempts, first_failed_at)
    }

    fn mark_handled(
        &mut self,
        input: &Input<S>,
        delivered: &Delivered<S::Fact>,
        place: (&'static str, Uuid),
        effect: ReplayEffect,
    ) {
        self.loaded.inbox.insert(place, InboxState::Handled);
        // What nobody of this system sent is in no reconciliation: its dead letter is what remembers it.
        let is_foreign = input
            .replayed()
            .and_then(|replayed| self.loaded.dead_letters.get(&replayed))
            .is_some_and(|stored| stored.dead_letter.origin == DeadLetterOrigin::Foreign);
        if !is_foreign {
            self.writes.inbox.push(place);
        }
        if delivered.earlier.is_some() {
            self.writes.end_retry(place);
        }
        self.resolve(input, effect);
    }

    /// Hands the final result of a call to the service and ends the task.
    fn take_result(
        &mut self,
        input: &Input<S>,
        task: &Task,
        answer: &Result<Value, FailedTry>,
    ) -> MessageOutcome<S::Rejection> {
        let claim = self.loaded.tasks.get(&task.id).copied();
        let mut answer =
            answer.clone().map_err(|failed| failed.discreet(task.payload.as_bytes(), S::SECRETS));
        let attempts = match &mut answer {
            // An answer counts whoever's claim it came under: the key of the call makes it the only one there is.
            Ok(_) if claim.is_some() => task.attempts + 1,
            // Nobody has tried it when its first claim is that of the one who has not yet. A dead letter's task
            // is claimed from the beginning, and may have been tried before.
            Err(FailedTry { kind: kind @ FailureKind::Untried, .. }) if let Some(claim) = claim => {
                if is_wanted(self.service, input, task, &mut self.rows, self.now) {
                    return MessageOutcome::Wanted;
                }
                if claim > 1 || task.dead_letter.is_some() {
                    *kind = FailureKind::Unwanted;
                }
                task.attempts
            }
            // A failure counts only under the current claim.
            Err(failed) if claim == Some(task.claim) => {
                let (attempts, delay) = self.rules.task_retry.after(failed.kind, task.attempts, input.jitter);
                if let Some(delay) = delay {
                    self.writes.task_retries.push(TaskRetry {
                        id: task.id,
                        attempts,
                        next_attempt: later(self.now, delay),
                        last_error: failed.reason(),
                        trace: task.trace.filter(|_| self.rules.keep_gone_wrong).map(TraceContext::recorded),
                    });
                    return MessageOutcome::Retried(failed.reason());
                }
                attempts
            }
            Ok(_) | Err(_) => return MessageOutcome::Duplicate,
        };
        self.loaded.tasks.remove(&task.id);
        self.writes.end_task(task.id);
        let (result, before) = (task.result(&answer), self.changes());
        match self.react(input, |service, work| service.take_result(&result, work)) {
            Ok(()) => {
                self.resolve(input, self.effect_since(before));
                MessageOutcome::Done
            }
            Err(Failure::Rejected(rejection)) => {
                self.resolve(input, rejected(&rejection));
                MessageOutcome::Rejected(rejection)
            }
            Err(Failure::Failed(failed)) => self.park(input, &failed, attempts, task.created_at),
        }
    }

    /// Lets the service react. Whatever it panics about becomes a permanent fault of this one input.
    fn react<T>(
        &mut self,
        input: &Input<S>,
        reaction: impl FnOnce(&S, &mut UnitOfWork<'_, S::Fact>) -> Result<T, Refusal<S::Rejection>>,
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
    fn gone_wrong(&self, input: &Input<S>) -> Option<TraceContext> {
        match self.rules.keep_gone_wrong {
            true => input.trace.map(TraceContext::recorded),
            false => input.trace,
        }
    }

    /// The same of a message that could not be handled.
    fn gone_wrong_at(&self, delivery: Option<Delivery>) -> Option<Delivery> {
        match self.rules.keep_gone_wrong {
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
        for (ordinal, told) in effects.told.into_iter().enumerate() {
            let id = ids::message_id(&input.producer(), input.id, ordinal);
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

    fn promise(
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
    fn park(
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
        if self.rules.keep_gone_wrong {
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
    fn changes(&self) -> usize {
        let Writes { events, outbox, tasks, dead_letters, .. } = &self.writes;
        events.len() + outbox.len() + tasks.len() + dead_letters.len()
    }

    fn effect_since(&self, before: usize) -> ReplayEffect {
        if self.changes() > before { ReplayEffect::TookEffect } else { ReplayEffect::ChangedNothing }
    }

    /// Ends the dead letter that an input replayed, if it replayed one.
    fn resolve(&mut self, input: &Input<S>, effect: ReplayEffect) {
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

    fn finish(mut self) -> Writes {
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
            self.writes.rows.push(RowWrite { key, read_version, version, projected });
        }
        self.writes
    }
}

/// Whether the service still wants the call of a task, on the rows as they are.
fn is_wanted<S: Service>(
    service: &S,
    input: &Input<S>,
    task: &Task,
    rows: &mut Rows,
    now: Timestamp,
) -> bool {
    let unknown = Err(FailedTry::new(FailureKind::Untried, ""));
    let mut work = UnitOfWork::new(rows, input.cause(now));
    let wants = AssertUnwindSafe(|| service.wants(&task.result(&unknown), &mut work));
    // Who panics here gets the result of the call, and the panic then parks it.
    catch_unwind(wants).unwrap_or(true)
}

fn rejected(rejection: &impl ToString) -> ReplayEffect {
    ReplayEffect::Rejected { reason: rejection.to_string() }
}

fn later(now: Timestamp, delay: std::time::Duration) -> Timestamp {
    now.checked_add(delay).unwrap_or(Timestamp::MAX)
}
