//! Pure: one batch of inputs, decided in memory, in order, each on the rows as the earlier ones left them.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::input::{Input, Matter, Outcome, RequestKey};
use super::letters;
use crate::contract::{DeadLetterResolved, Fact, LetterOrigin};
use crate::envelope::Envelope;
use crate::ids;
use crate::retry::{FailedTry, RetryPolicy, Severity};
use crate::service::{Refusal, Service, Step};
use crate::store::{
    EventWrite, KeyedAnswer, Known, LetterStatus, Loaded, OutboxWrite, Reads, Retry, RowWrite, Task,
    TaskRetry, Writes,
};
use crate::unit::{Effects, Rows, Slot, Unit};

/// What every decision of a service needs to know of its settings.
#[derive(Debug, Clone)]
pub struct Rules {
    /// For messages.
    pub retry: RetryPolicy,
    /// For messages of steps that have a policy of their own.
    pub step_retry: BTreeMap<String, RetryPolicy>,
    /// For calls to the outside.
    pub task_retry: RetryPolicy,
    /// Who claims new tasks.
    pub owner: String,
    /// For how long.
    pub task_lease: SignedDuration,
    /// Whether inbox marks are looked at. Off only in tests: the domain is correct without.
    pub use_inbox: bool,
}

impl Rules {
    fn retry_of(&self, step: &str) -> RetryPolicy {
        self.step_retry.get(step).copied().unwrap_or(self.retry)
    }
}

/// What the inputs of a batch need to have read.
pub fn reads<S: Service>(service: &S, inputs: &[Input<S>]) -> Reads {
    let mut reads = Reads::default();
    for input in inputs {
        if let Some(heard) = input.heard() {
            // A panic here shows again in the reaction, which misses its rows, and parks this one input.
            let rows = catch_unwind(AssertUnwindSafe(|| service.reads(&heard)));
            reads.rows.extend(rows.unwrap_or_default());
        }
        match &input.matter {
            Matter::Command { key: Some(key), .. } => {
                reads.keys.insert(key.key.clone());
            }
            Matter::Message { step, .. } => {
                reads.inbox.insert((step.name, input.known_as()));
            }
            Matter::Called { task, .. } => {
                reads.tasks.insert(task.id);
            }
            Matter::Command { key: None, .. } | Matter::Due { .. } => {}
        }
        reads.letters.extend(input.replayed());
        reads.letters.extend(input.wished());
    }
    reads
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

/// Why there is no reply.
enum Failure<S: Service> {
    /// The business says no.
    Rejected(S::Rejection),
    /// Something is wrong.
    Failed(FailedTry),
}

impl<'a, S: Service> Batch<'a, S> {
    fn new(service: &'a S, mut loaded: Loaded, rules: &'a Rules, now: Timestamp, reads: Reads) -> Self {
        let rows = reads
            .rows
            .into_iter()
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
        match &input.matter {
            Matter::Command { key, .. } => self.take_command(input, key.as_ref()),
            Matter::Message { .. } => self.take_message(input),
            Matter::Called { task, answer } => match answer {
                Ok(_) => self.take_answer(input, task),
                Err(failed) => self.take_failed_call(input, task, failed),
            },
            Matter::Due { .. } => match self.react(input) {
                Ok(reply) => Outcome::Done(reply),
                Err(Failure::Rejected(rejection)) => Outcome::Rejected(rejection),
                Err(Failure::Failed(failed)) => Outcome::Faulted(failed.reason()),
            },
        }
    }

    fn take_command(&mut self, input: &Input<S>, key: Option<&RequestKey>) -> Outcome<S> {
        if let Some(answered) = key.and_then(|key| self.loaded.keys.get(&key.key).map(|answer| (key, answer)))
        {
            let (key, answer) = answered;
            if answer.fingerprint != key.fingerprint {
                return Outcome::KeyReused;
            }
            return match serde_json::from_str(&answer.reply) {
                Ok(reply) => Outcome::Replayed(reply),
                Err(error) => Outcome::Faulted(format!("the stored answer cannot be read: {error}")),
            };
        }
        let reply = match self.react(input) {
            Ok(reply) => reply,
            Err(Failure::Rejected(rejection)) => return Outcome::Rejected(rejection),
            Err(Failure::Failed(failed)) => return Outcome::Faulted(failed.reason()),
        };
        if let (Some(key), Ok(json)) = (key, serde_json::to_string(&reply)) {
            let answer = KeyedAnswer { fingerprint: key.fingerprint.clone(), reply: json };
            self.loaded.keys.insert(key.key.clone(), answer.clone());
            self.writes.keys.push((key.key.clone(), answer));
        }
        Outcome::Done(reply)
    }

    fn take_message(&mut self, input: &Input<S>) -> Outcome<S> {
        let Matter::Message { step, payload, earlier, delivery, trouble, .. } = &input.matter else {
            return Outcome::Faulted("not a message".to_owned());
        };
        let place = (step.name, input.known_as());
        let known = self.loaded.inbox.get(&place).copied();
        // A retry goes on only while its entry still waits; a delivery only while nothing is known of it.
        let is_new = match (known, earlier) {
            (Some(Known::Waiting), Some(_)) | (None, None) => true,
            (Some(Known::Handled), _) => !self.rules.use_inbox && earlier.is_none(),
            (Some(Known::Waiting), None) | (Some(Known::Parked), _) | (None, Some(_)) => false,
        };
        if !is_new {
            return Outcome::Duplicate;
        }
        let reaction = match trouble {
            Some(trouble) => Err(Failure::Failed(trouble.clone())),
            None => self.handle(input, step),
        };
        let failed = match reaction {
            Ok(reply) => {
                self.mark_handled(input, place);
                return Outcome::Done(reply);
            }
            Err(Failure::Rejected(rejection)) => {
                self.mark_handled(input, place);
                return Outcome::Rejected(rejection);
            }
            Err(Failure::Failed(failed)) => failed,
        };
        let before = earlier.as_ref().map_or(0, |earlier| earlier.attempts);
        let first_failed_at = earlier.as_ref().map_or(self.now, |earlier| earlier.first_failed_at);
        let policy = self.rules.retry_of(step.name);
        let (attempts, delay) = policy.after(failed.severity, before, input.roll);
        if let Some(delay) = delay {
            self.loaded.inbox.insert(place, Known::Waiting);
            self.writes.retries.push(Retry {
                step: step.name.to_owned(),
                message_id: place.1,
                payload: payload.clone(),
                attempts,
                next_attempt: later(self.now, delay),
                first_failed_at,
                last_error: failed.reason(),
                delivery: delivery.clone(),
                letter: earlier.as_ref().and_then(|earlier| earlier.letter),
            });
            return Outcome::Retried(failed.reason());
        }
        if earlier.is_some() {
            self.writes.retries_done.push(place);
        }
        self.loaded.inbox.insert(place, Known::Parked);
        self.park(input, &failed, attempts, first_failed_at)
    }

    /// Lets whoever a message is for react: the engine itself, when it is an operator's wish.
    fn handle(&mut self, input: &Input<S>, step: &Step) -> Result<S::Reply, Failure<S>> {
        let permanent = |reason: String| Failure::Failed(FailedTry::new(Severity::Permanent, reason));
        let message = match &input.matter {
            Matter::Message { message: Ok(message), .. } => message,
            Matter::Message { message: Err(error), .. } => {
                let failed = FailedTry { chain: error_links(error), severity: Severity::Permanent };
                return Err(Failure::Failed(failed));
            }
            Matter::Command { .. } | Matter::Called { .. } | Matter::Due { .. } => {
                return Err(permanent("not a message".to_owned()));
            }
        };
        let fact_type = message.fact.fact_type();
        if !step.is_told(fact_type) {
            return Err(permanent(format!("{} does not hear {}", step.name, fact_type.name())));
        }
        match letters::operate::<S>(&message.fact, &mut self.loaded, &mut self.writes) {
            Some(operated) => operated.map(|()| S::Reply::default()).map_err(permanent),
            None => self.react(input),
        }
    }

    fn mark_handled(&mut self, input: &Input<S>, place: (&'static str, Uuid)) {
        self.loaded.inbox.insert(place, Known::Handled);
        // What nobody of this system sent is not in the books: its dead letter is what remembers it.
        let is_foreign = input
            .replayed()
            .and_then(|letter| self.loaded.letters.get(&letter))
            .is_some_and(|stored| stored.letter.origin == LetterOrigin::Foreign);
        if !is_foreign {
            self.writes.inbox.push(place);
        }
        if matches!(&input.matter, Matter::Message { earlier: Some(_), .. }) {
            self.writes.retries_done.push(place);
        }
        self.resolve(input);
    }

    /// An answer counts whoever's claim it came under: the key of the call makes it the only one there is.
    fn take_answer(&mut self, input: &Input<S>, task: &Task) -> Outcome<S> {
        if self.loaded.tasks.remove(&task.id).is_none() {
            return Outcome::Duplicate;
        }
        self.settle_call(input, task, task.attempts + 1)
    }

    /// A failure counts only under the current claim.
    fn take_failed_call(&mut self, input: &Input<S>, task: &Task, failed: &FailedTry) -> Outcome<S> {
        if self.loaded.tasks.get(&task.id) != Some(&task.claim) {
            return Outcome::Duplicate;
        }
        let (attempts, delay) = self.rules.task_retry.after(failed.severity, task.attempts, input.roll);
        if let Some(delay) = delay {
            self.writes.task_retries.push(TaskRetry {
                id: task.id,
                attempts,
                next_attempt: later(self.now, delay),
                last_error: failed.reason(),
            });
            return Outcome::Retried(failed.reason());
        }
        self.loaded.tasks.remove(&task.id);
        self.settle_call(input, task, attempts)
    }

    /// Hands the final outcome of a task to the service and ends the task.
    fn settle_call(&mut self, input: &Input<S>, task: &Task, attempts: u32) -> Outcome<S> {
        self.writes.tasks_done.push(task.id);
        match self.react(input) {
            Ok(reply) => {
                self.resolve(input);
                Outcome::Done(reply)
            }
            Err(Failure::Rejected(rejection)) => {
                self.resolve(input);
                Outcome::Rejected(rejection)
            }
            Err(Failure::Failed(failed)) => self.park(input, &failed, attempts, task.created_at),
        }
    }

    /// Lets the service react. Whatever it panics about becomes a permanent fault of this one input.
    fn react(&mut self, input: &Input<S>) -> Result<S::Reply, Failure<S>> {
        let failed = |severity, reason| Failure::Failed(FailedTry::new(severity, reason));
        let Some(heard) = input.heard() else {
            return Err(failed(Severity::Permanent, "nothing to react to".to_owned()));
        };
        let mut unit = Unit::new(&mut self.rows, speaker(input), input.id, input.correlation_id, self.now);
        let reaction = catch_unwind(AssertUnwindSafe(|| self.service.react(&heard, &mut unit)));
        match reaction {
            Ok(Ok(reply)) => {
                let effects = unit.keep();
                self.write(input, effects);
                Ok(reply)
            }
            Ok(Err(Refusal::Rejected(rejection))) => Err(Failure::Rejected(rejection)),
            Ok(Err(Refusal::NotYet(reason))) => Err(failed(Severity::Transient, reason)),
            Ok(Err(Refusal::Broken(reason))) => Err(failed(Severity::Permanent, reason)),
            Err(panic) => {
                Err(failed(Severity::Permanent, format!("panicked: {}", panic_text(panic.as_ref()))))
            }
        }
    }

    fn write(&mut self, input: &Input<S>, effects: Effects) {
        let first_event = self.writes.events.len();
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
            let id = ids::message_id(&speaker(input), input.id, ordinal);
            self.promise(id, input, &told.fact, told.event.map(|index| first_event + index));
        }
        for noted in effects.noted {
            self.loaded.tasks.insert(noted.id, 1);
            self.writes.tasks.push(Task {
                id: noted.id,
                kind: noted.kind.to_owned(),
                correlation_id: input.correlation_id,
                payload: noted.payload,
                attempts: 0,
                claim: 1,
                created_at: self.now,
                letter: None,
            });
        }
    }

    fn promise(&mut self, id: Uuid, input: &Input<S>, fact: &Fact, event: Option<usize>) {
        let fact_type = fact.fact_type();
        let payload = fact.to_json().and_then(|data| {
            serde_json::to_vec(&Envelope {
                id,
                message_type: fact_type.name().to_owned(),
                version: fact_type.version(),
                producer: S::NAME.to_owned(),
                correlation_id: fact.saga().unwrap_or(input.correlation_id),
                causation_id: input.id,
                occurred_at: self.now,
                data,
            })
        });
        match payload {
            Ok(payload) => self.writes.outbox.push(OutboxWrite {
                id,
                subject: fact.subject(S::NAME),
                payload: Bytes::from(payload),
                event,
            }),
            Err(error) => panic!("a fact without a JSON form: {error}"),
        }
    }

    /// Parks an input for a human: a new dead letter, or the one whose replay failed.
    fn park(
        &mut self,
        input: &Input<S>,
        failed: &FailedTry,
        attempts: u32,
        first_failed_at: Timestamp,
    ) -> Outcome<S> {
        let before = input.replayed().and_then(|letter| self.loaded.letters.get_mut(&letter));
        let failure = letters::Parking { failed, attempts, first_failed_at, now: self.now };
        let dead = letters::parked::<S>(input, &failure, before.as_ref().map(|stored| &stored.letter));
        match before {
            None => self.writes.dead_letters.push(dead.clone()),
            Some(stored) => {
                (stored.letter, stored.status) = (dead.clone(), LetterStatus::Pending);
                self.writes.letters.push(stored.clone());
            }
        }
        let id = ids::derived(&["dead-letter-announced", &dead.id.to_string(), &dead.replays.to_string()]);
        self.promise(id, input, &Fact::DeadLettered(Box::new(letters::announced(&dead))), None);
        Outcome::Dead(failed.reason())
    }

    /// Ends the dead letter that an input replayed, if it replayed one.
    fn resolve(&mut self, input: &Input<S>) {
        let Some(stored) = input.replayed().and_then(|id| self.loaded.letters.get_mut(&id)) else {
            return;
        };
        stored.status = LetterStatus::Resolved;
        self.writes.letters.push(stored.clone());
        let letter = &stored.letter;
        let replays = letter.replays + 1;
        let id = ids::derived(&["dead-letter-resolved", &letter.id.to_string(), &replays.to_string()]);
        let (letter, saga) = (letter.id, letter.saga);
        let (service, step) = (S::NAME.to_owned(), input.source().to_owned());
        let resolved = DeadLetterResolved { letter, service, step, saga, message_id: input.id, replays };
        self.promise(id, input, &Fact::DeadLetterResolved(resolved), None);
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

/// Two steps of one service that hear the same message must not derive the same ids.
fn speaker<S: Service>(input: &Input<S>) -> String {
    format!("{}:{}", S::NAME, input.source())
}

fn later(now: Timestamp, delay: std::time::Duration) -> Timestamp {
    now.checked_add(delay).unwrap_or(Timestamp::MAX)
}

/// An error with its sources, outermost first, in one line.
#[must_use]
pub fn error_chain(error: &dyn std::error::Error) -> String {
    error_links(error).join(": ")
}

/// An error with its sources, outermost first.
#[must_use]
pub fn error_links(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect()
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}
