//! Pure: one batch of inputs, decided in memory, in order, each on the rows as the earlier ones left them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use base64::Engine as _;
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::input::{Earlier, Input, Matter, Outcome, RequestKey};
use crate::contract::{DeadLettered, Fact};
use crate::envelope::Envelope;
use crate::ids;
use crate::retry::RetryPolicy;
use crate::service::{Refusal, Service, Step};
use crate::store::{
    EventWrite, KeyedAnswer, Known, Loaded, OutboxWrite, Reads, Retry, RowWrite, Task, TaskRetry, Writes,
};
use crate::unit::{Effects, Rows, Slot, Unit};

/// Payloads over this many bytes are not carried by the announcement of a dead letter: as base64 they might
/// not fit a broker message (1 MiB by default). The service's own table keeps them whole.
const ANNOUNCED_PAYLOAD_BYTES: usize = 256 * 1024;

/// The same for texts that may quote what could not be read.
const ANNOUNCED_TEXT_CHARS: usize = 4 * 1024;

/// What every decision of a service needs to know of its settings.
#[derive(Debug, Clone)]
pub struct Rules {
    /// For messages.
    pub retry: RetryPolicy,
    /// For calls to the outside.
    pub task_retry: RetryPolicy,
    /// Who claims new tasks.
    pub owner: String,
    /// For how long.
    pub task_lease: SignedDuration,
    /// Whether inbox marks are looked at. Off only in tests: the domain is correct without.
    pub use_inbox: bool,
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
                reads.inbox.insert((step.name, input.id));
            }
            Matter::Called { task, .. } => {
                reads.tasks.insert(task.id);
            }
            Matter::Command { key: None, .. } | Matter::Due { .. } => {}
        }
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

/// How a reaction failed.
enum Failure<S: Service> {
    Rejected(S::Rejection),
    NotYet(String),
    Broken(String),
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
            Matter::Message { step, payload, message_type, earlier, .. } => {
                self.take_message(input, step, payload, message_type.as_deref(), *earlier)
            }
            Matter::Called { task, answer } => match answer {
                Ok(_) => self.take_answer(input, task),
                Err(reason) => self.take_failed_call(input, task, reason),
            },
            Matter::Due { .. } => match self.react(input) {
                Ok(reply) => Outcome::Done(reply),
                Err(Failure::Rejected(rejection)) => Outcome::Rejected(rejection),
                Err(Failure::NotYet(reason) | Failure::Broken(reason)) => Outcome::Faulted(reason),
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
            Err(Failure::NotYet(reason) | Failure::Broken(reason)) => {
                return Outcome::Faulted(reason);
            }
        };
        if let (Some(key), Ok(json)) = (key, serde_json::to_string(&reply)) {
            let answer = KeyedAnswer { fingerprint: key.fingerprint.clone(), reply: json };
            self.loaded.keys.insert(key.key.clone(), answer.clone());
            self.writes.keys.push((key.key.clone(), answer));
        }
        Outcome::Done(reply)
    }

    fn take_message(
        &mut self,
        input: &Input<S>,
        step: &'static Step,
        payload: &Bytes,
        message_type: Option<&str>,
        earlier: Option<Earlier>,
    ) -> Outcome<S> {
        let place = (step.name, input.id);
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
        let failure = match self.react(input) {
            Ok(reply) => {
                self.mark_handled(place, earlier);
                return Outcome::Done(reply);
            }
            Err(Failure::Rejected(rejection)) => {
                self.mark_handled(place, earlier);
                return Outcome::Rejected(rejection);
            }
            Err(failure) => failure,
        };
        let attempts = earlier.map_or(0, |earlier| earlier.attempts) + 1;
        let first_failed_at = earlier.map_or(self.now, |earlier| earlier.first_failed_at);
        if let Failure::NotYet(reason) = &failure
            && let Some(delay) = self.rules.retry.delay_after(attempts, input.roll)
        {
            self.loaded.inbox.insert(place, Known::Waiting);
            self.writes.retries.push(Retry {
                step: step.name.to_owned(),
                message_id: input.id,
                payload: payload.clone(),
                attempts,
                next_attempt: later(self.now, delay),
                first_failed_at,
                last_error: reason.clone(),
            });
            return Outcome::Retried(reason.clone());
        }
        let reason = failure.reason();
        if earlier.is_some() {
            self.writes.retries_done.push(place);
        }
        self.loaded.inbox.insert(place, Known::Parked);
        let saga = message_type.map(|_| input.correlation_id);
        self.park(input, message_type, saga, payload, &reason, attempts, first_failed_at);
        Outcome::Dead(reason)
    }

    fn mark_handled(&mut self, place: (&'static str, Uuid), earlier: Option<Earlier>) {
        self.loaded.inbox.insert(place, Known::Handled);
        self.writes.inbox.push(place);
        if earlier.is_some() {
            self.writes.retries_done.push(place);
        }
    }

    /// An answer counts whoever's claim it came under: the key of the call makes it the only one there is.
    fn take_answer(&mut self, input: &Input<S>, task: &Task) -> Outcome<S> {
        if self.loaded.tasks.remove(&task.id).is_none() {
            return Outcome::Duplicate;
        }
        self.settle_call(input, task, task.attempts + 1)
    }

    /// A failure counts only under the current claim.
    fn take_failed_call(&mut self, input: &Input<S>, task: &Task, reason: &str) -> Outcome<S> {
        if self.loaded.tasks.get(&task.id) != Some(&task.claim) {
            return Outcome::Duplicate;
        }
        let attempts = task.attempts + 1;
        if let Some(delay) = self.rules.task_retry.delay_after(attempts, input.roll) {
            self.writes.task_retries.push(TaskRetry {
                id: task.id,
                attempts,
                next_attempt: later(self.now, delay),
                last_error: reason.to_owned(),
            });
            return Outcome::Retried(reason.to_owned());
        }
        self.loaded.tasks.remove(&task.id);
        self.settle_call(input, task, attempts)
    }

    /// Hands the final outcome of a task to the service and ends the task.
    fn settle_call(&mut self, input: &Input<S>, task: &Task, attempts: u32) -> Outcome<S> {
        self.writes.tasks_done.push(task.id);
        match self.react(input) {
            Ok(reply) => Outcome::Done(reply),
            Err(Failure::Rejected(rejection)) => Outcome::Rejected(rejection),
            Err(failure) => {
                let reason = failure.reason();
                let payload = Bytes::from(task.payload.clone());
                let saga = Some(task.correlation_id);
                self.park(input, None, saga, &payload, &reason, attempts, task.created_at);
                Outcome::Dead(reason)
            }
        }
    }

    /// Lets the service react. Whatever it panics about becomes a permanent fault of this one input.
    fn react(&mut self, input: &Input<S>) -> Result<S::Reply, Failure<S>> {
        let Some(heard) = input.heard() else {
            return Err(Failure::Broken(undecodable(input)));
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
            Ok(Err(Refusal::NotYet(reason))) => Err(Failure::NotYet(reason)),
            Ok(Err(Refusal::Broken(reason))) => Err(Failure::Broken(reason)),
            Err(panic) => Err(Failure::Broken(format!("panicked: {}", panic_text(panic.as_ref())))),
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
                subject: fact_type.subject(S::NAME),
                payload: Bytes::from(payload),
                event,
            }),
            Err(error) => panic!("a fact without a JSON form: {error}"),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the whole context of a failure, gathered in one place")]
    fn park(
        &mut self,
        input: &Input<S>,
        message_type: Option<&str>,
        saga: Option<Uuid>,
        payload: &Bytes,
        reason: &str,
        attempts: u32,
        first_failed_at: Timestamp,
    ) {
        let step = input.source();
        let dead = DeadLettered {
            id: ids::derived(&["dead-letter", step, &input.id.to_string()]),
            service: S::NAME.to_owned(),
            step: step.to_owned(),
            message_id: input.id,
            message_type: message_type.map(str::to_owned),
            saga,
            reason: reason.to_owned(),
            fingerprint: fingerprint(S::NAME, step, message_type, reason),
            attempts,
            first_failed_at,
            last_failed_at: self.now,
            payload_base64: base64::engine::general_purpose::STANDARD.encode(payload),
        };
        let mut announced = dead.clone();
        if payload.len() > ANNOUNCED_PAYLOAD_BYTES {
            announced.payload_base64.clear();
        }
        shorten(&mut announced.reason);
        announced.message_type.iter_mut().for_each(shorten);
        let id = ids::derived(&["dead-letter-announced", &dead.id.to_string()]);
        self.promise(id, input, &Fact::DeadLettered(announced), None);
        self.writes.dead_letters.push(dead);
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

impl<S: Service> Failure<S> {
    fn reason(self) -> String {
        match self {
            Self::Rejected(rejection) => rejection.to_string(),
            Self::NotYet(reason) | Self::Broken(reason) => reason,
        }
    }
}

/// Two steps of one service that hear the same message must not derive the same ids.
fn speaker<S: Service>(input: &Input<S>) -> String {
    format!("{}:{}", S::NAME, input.source())
}

fn shorten(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(ANNOUNCED_TEXT_CHARS) {
        text.truncate(end);
        text.push('…');
    }
}

fn later(now: Timestamp, delay: std::time::Duration) -> Timestamp {
    now.checked_add(delay).unwrap_or(Timestamp::MAX)
}

fn undecodable<S: Service>(input: &Input<S>) -> String {
    match &input.matter {
        Matter::Message { message: Err(error), .. } => error_chain(error),
        Matter::Message { .. } | Matter::Command { .. } | Matter::Called { .. } | Matter::Due { .. } => {
            "nothing to react to".to_owned()
        }
    }
}

/// An error with its sources, outermost first.
#[must_use]
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

/// Groups failures of one cause: numbers and ids in the reason do not tell causes apart.
fn fingerprint(service: &str, step: &str, message_type: Option<&str>, reason: &str) -> String {
    let mut shape = String::with_capacity(reason.len());
    for word in reason.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '-') {
        let is_variable = word.chars().any(|c| c.is_ascii_digit());
        shape.push_str(if is_variable { "#" } else { word });
    }
    let id = ids::derived(&["fingerprint", service, step, message_type.unwrap_or("-"), &shape]);
    id.simple().to_string()[..12].to_owned()
}
