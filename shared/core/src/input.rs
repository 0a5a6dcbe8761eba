//! Pure: everything that comes in has one form, and ends in one of a few [ways](Outcome).

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use crate::dead_letter::{DEAD_LETTER_TYPES, DeadLetterMessage, Delivery};
use crate::ids;
use crate::message::{Envelope, Message, Received, Undecodable};
pub use crate::outcome::{CommandOutcome, DueOutcome, MessageOutcome, Outcome};
use crate::retry::{FailedTry, FailureKind};
use crate::row::RowKey;
use crate::service::{Service, Step, TaskResult};
use crate::trace::TraceContext;
use crate::unit_of_work::Cause;
use crate::waiting::{Retry, Task};

/// What reacts to commands, by name.
pub const COMMAND: &str = "command";
/// What reacts to due rows, by name.
pub const DUE: &str = "due";

/// Something to react to, with the id that everything it causes is derived from.
#[derive(Debug)]
pub struct Input<S: Service> {
    /// Id of the command, message, task or due time.
    pub id: Uuid,
    /// Id of the saga, handed on to all that it causes; an id of its own when it is part of none.
    pub correlation_id: Uuid,
    /// A random number over the whole range of `u32`, for the jitter of a retry.
    pub jitter: u32,
    /// What caused it in its trace, as it comes in; itself, once it is [taken in](Self::traced).
    pub trace: Option<TraceContext>,
    /// What it is.
    pub kind: InputKind<S>,
}

/// What an input is.
#[derive(Debug)]
pub enum InputKind<S: Service> {
    /// Somebody asks for something, through HTTP.
    Command {
        /// What is asked for.
        command: S::Command,
        /// Makes it answerable more than once with the same answer.
        key: Option<RequestKey>,
    },
    /// A message, for a step.
    Message(Delivered<S::Fact>),
    /// The outcome of one call of a task.
    Called {
        /// The task, under the newest claim of this process.
        task: Task,
        /// What the outside answered, or why there is no answer.
        answer: Result<Value, FailedTry>,
    },
    /// A row's due time has come.
    Due {
        /// The row that asked to be looked at now.
        key: RowKey,
    },
}

/// A message that reached a step.
#[derive(Debug)]
pub struct Delivered<F> {
    /// The step that is to react.
    pub step: &'static Step,
    /// The payload as it came.
    pub payload: Bytes,
    /// What it says.
    pub content: Result<Content<F>, Undecodable>,
    /// Name of its type, when that could be read.
    pub message_type: Option<String>,
    /// What is known of earlier tries; `None` in the first.
    pub earlier: Option<Earlier>,
    /// Where the broker had it.
    pub delivery: Option<Delivery>,
    /// Why this try fails whatever the reaction would be.
    pub failure: Option<FailedTry>,
}

/// What a message says.
#[derive(Debug)]
pub enum Content<F> {
    /// A fact, for the service.
    Fact(Received<F>),
    /// What an operator asks, for the engine itself.
    Operator(DeadLetterMessage),
}

/// An `Idempotency-Key` with its scope, and a digest of the request it came with.
#[derive(Debug, Clone)]
pub struct RequestKey {
    /// Scope and key.
    pub key: String,
    /// Digest of the request.
    pub fingerprint: String,
}

/// What is known of a message's earlier tries.
#[derive(Debug, Clone)]
pub struct Earlier {
    /// The id under which the step knows the message: its own, unless an operator has edited it since.
    pub message_id: Uuid,
    /// Tries that failed.
    pub attempts: u32,
    /// When the first one failed.
    pub first_failed_at: Timestamp,
    /// The dead letter that is being replayed.
    pub dead_letter: Option<Uuid>,
}

impl<S: Service> Input<S> {
    /// A command with an id of its own.
    #[must_use]
    pub fn command(id: Uuid, correlation_id: Uuid, command: S::Command, key: Option<RequestKey>) -> Self {
        let kind = InputKind::Command { command, key };
        Self { id, correlation_id, jitter: 0, trace: None, kind }
    }

    /// A message for a step. One that cannot be read still gets an id, `fallback_id`; so does one that comes from
    /// outside, whatever id and saga it claims: those may be somebody's.
    #[must_use]
    pub fn message(step: &'static Step, payload: Bytes, fallback_id: Uuid, jitter: u32) -> Self {
        Self::heard(step, payload, fallback_id, None, jitter)
    }

    fn heard(
        step: &'static Step,
        payload: Bytes,
        fallback_id: Uuid,
        delivery: Option<Delivery>,
        jitter: u32,
    ) -> Self {
        let envelope = Envelope::from_bytes(&payload).and_then(|envelope| {
            let subject = delivery.as_ref().map_or("", |delivery| &delivery.subject);
            misplaced::<S>(&envelope, step, subject).map_or(Ok(envelope), Err)
        });
        let (id, correlation_id, message_type, content) = match envelope {
            Ok(envelope) => {
                let content = Content::of(&envelope, step);
                (envelope.id, envelope.correlation_id, Some(envelope.message_type), content)
            }
            Err(error) => (fallback_id, fallback_id, None, Err(error)),
        };
        let (earlier, failure) = (None, None);
        let trace = delivery.as_ref().and_then(Delivery::trace);
        let delivered = Delivered { step, payload, content, message_type, earlier, delivery, failure };
        Self { id, correlation_id, jitter, trace, kind: InputKind::Message(delivered) }
    }

    /// A message that failed before, for another try.
    #[must_use]
    pub fn retried(step: &'static Step, retry: Retry, jitter: u32) -> Self {
        let mut input = Self::heard(step, retry.payload, retry.message_id, retry.delivery, jitter);
        if let InputKind::Message(delivered) = &mut input.kind {
            delivered.earlier = Some(Earlier {
                message_id: retry.message_id,
                attempts: retry.attempts,
                first_failed_at: retry.first_failed_at,
                dead_letter: retry.dead_letter,
            });
        }
        input
    }

    /// The same, which stands there in its trace.
    #[must_use]
    pub const fn traced(mut self, trace: Option<TraceContext>) -> Self {
        self.trace = trace;
        self
    }

    /// The same message once more, in a try that fails.
    #[must_use]
    pub fn again(&self, delivered: &Delivered<S::Fact>, failure: FailedTry) -> Self {
        let (fallback_id, delivery) = (self.id, delivered.delivery.clone());
        let payload = delivered.payload.clone();
        let mut input =
            Self::heard(delivered.step, payload, fallback_id, delivery, self.jitter).traced(self.trace);
        if let InputKind::Message(again) = &mut input.kind {
            again.earlier.clone_from(&delivered.earlier);
        }
        input.failing(Some(failure))
    }

    /// A message that the broker delivers to a step, known by its place there when it has no id of its own.
    #[must_use]
    pub fn delivered(step: &'static Step, payload: Bytes, delivery: Delivery, jitter: u32) -> Self {
        let fallback_id = delivery.place_id();
        Self::heard(step, payload, fallback_id, Some(delivery), jitter)
    }

    /// The message, in a try that fails; `None` leaves it as it is.
    #[must_use]
    pub fn failing(mut self, failure: Option<FailedTry>) -> Self {
        if let InputKind::Message(delivered) = &mut self.kind {
            delivered.failure = failure;
        }
        self
    }

    /// The outcome of one call of a task.
    #[must_use]
    pub const fn called(task: Task, answer: Result<Value, FailedTry>, jitter: u32) -> Self {
        let (id, correlation_id, trace) = (task.id, task.correlation_id, task.trace);
        Self { id, correlation_id, jitter, trace, kind: InputKind::Called { task, answer } }
    }

    /// A task whose call is about to be made, if it is still wanted.
    #[must_use]
    pub fn about_to_call(task: Task) -> Self {
        Self::called(task, Err(FailedTry::new(FailureKind::Untried, "nobody wants it any more")), 0)
    }

    /// A due row.
    #[must_use]
    pub fn due(key: RowKey, due_at: Timestamp) -> Self {
        let id = ids::derived(&[DUE, key.kind, &key.id, &due_at.as_microsecond().to_string()]);
        let correlation_id = key.id.parse().unwrap_or(id);
        Self { id, correlation_id, jitter: 0, trace: None, kind: InputKind::Due { key } }
    }

    /// The name of what reacts: part of every derived id, of metrics and of logs.
    #[must_use]
    pub fn source(&self) -> &str {
        match &self.kind {
            InputKind::Command { .. } => COMMAND,
            InputKind::Message(delivered) => delivered.step.name,
            InputKind::Called { task, .. } => &task.kind,
            InputKind::Due { .. } => DUE,
        }
    }

    /// Id of the input that caused it, as its message says; `None` of everything but facts.
    #[must_use]
    pub fn causation_id(&self) -> Option<Uuid> {
        self.fact().map(|message| message.causation_id)
    }

    /// Which try it is, from 1 on; `None` of what is tried once.
    #[must_use]
    pub fn attempt(&self) -> Option<u32> {
        match &self.kind {
            InputKind::Message(delivered) => {
                let failed = delivered.earlier.as_ref().map_or(0, |earlier| earlier.attempts);
                Some(failed.saturating_add(1))
            }
            InputKind::Called { task, .. } => Some(task.attempts.saturating_add(1)),
            InputKind::Command { .. } | InputKind::Due { .. } => None,
        }
    }

    /// Whether it is a message that nobody of this system sent: no envelope, or none that its producer says there.
    #[must_use]
    pub const fn is_foreign(&self) -> bool {
        match &self.kind {
            InputKind::Message(Delivered { content: Err(why), .. }) => match why {
                Undecodable::NotAnEnvelope(_) | Undecodable::Misplaced { .. } => true,
                Undecodable::UnknownType(_)
                | Undecodable::UnknownVersion { .. }
                | Undecodable::BadData { .. } => false,
            },
            InputKind::Message(_)
            | InputKind::Command { .. }
            | InputKind::Called { .. }
            | InputKind::Due { .. } => false,
        }
    }

    /// The dead letter that the input replays.
    #[must_use]
    pub fn replayed(&self) -> Option<Uuid> {
        match &self.kind {
            InputKind::Message(delivered) => {
                delivered.earlier.as_ref().and_then(|earlier| earlier.dead_letter)
            }
            InputKind::Called { task, .. } => task.dead_letter,
            InputKind::Command { .. } | InputKind::Due { .. } => None,
        }
    }

    /// Who says what the input causes. Two steps of one service that hear the same message must not derive the same
    /// ids.
    pub(crate) fn producer(&self) -> String {
        format!("{}:{}", S::NAME, self.source())
    }

    /// Whose unit of work it is.
    pub(crate) fn cause(&self, now: Timestamp) -> Cause<'_, S::Fact> {
        let (id, correlation_id) = (self.id, self.correlation_id);
        let heard = self.fact().map(|message| &message.fact);
        Cause { producer: self.producer(), id, correlation_id, now, heard }
    }

    /// The message to the service; `None` for everything else.
    pub(crate) fn fact(&self) -> Option<&Received<S::Fact>> {
        match &self.kind {
            InputKind::Message(Delivered { content: Ok(Content::Fact(message)), .. }) => Some(message),
            InputKind::Message(_)
            | InputKind::Command { .. }
            | InputKind::Called { .. }
            | InputKind::Due { .. } => None,
        }
    }
}

/// Why a message cannot be its producer's: that one says no such thing to this step, or says it on another subject.
/// What the broker lets anyone say is still not everybody's to say. A type that this build does not know may be news.
fn misplaced<S: Service>(envelope: &Envelope, step: &Step, subject: &str) -> Option<Undecodable> {
    let Envelope { producer, message_type, .. } = envelope;
    let is_known = S::Fact::named(message_type).or_else(|| DeadLetterMessage::named(message_type)).is_some();
    let belongs = match step.subject_of(producer, message_type, S::NAME) {
        Some(place) => subject.is_empty() || subject == place,
        None => !is_known && step.consumes.iter().any(|subscription| subscription.producer == producer),
    };
    (!belongs).then(|| Undecodable::Misplaced {
        message_type: message_type.clone(),
        producer: producer.clone(),
        place: if subject.is_empty() { step.name } else { subject }.to_owned(),
    })
}

impl<F: Message> Content<F> {
    /// What `step` hears comes first; the rest is read all the same, so that its dead letter can say what it is.
    fn of(envelope: &Envelope, step: &Step) -> Result<Self, Undecodable> {
        let name = &envelope.message_type;
        let is_engines = DeadLetterMessage::named(name).is_some();
        if is_engines && (step.is_for_operators() || F::named(name).is_none()) {
            envelope.open().map(|message| Self::Operator(message.fact))
        } else {
            envelope.open().map(Self::Fact)
        }
    }
}

impl<F> Delivered<F> {
    /// The id under which the inbox knows the message, whose own id is `id`.
    pub(crate) fn known_as(&self, id: Uuid) -> Uuid {
        self.earlier.as_ref().map_or(id, |earlier| earlier.message_id)
    }

    /// Whether the step is told of a dead letter, and can read it. What fails then is tried again for ever: as a dead
    /// letter of its own it would be announced to the very step that fails, which would fail at that too, and so on
    /// without an end. A dead letter that an earlier build made of it stays one.
    pub(crate) fn tells_of_a_dead_letter(&self) -> bool {
        let is_parked = self.earlier.as_ref().is_some_and(|earlier| earlier.dead_letter.is_some());
        let is_told = |name: &&String| {
            DEAD_LETTER_TYPES.iter().any(|told| told.name == *name) && self.step.consumes_type(name)
        };
        !is_parked && self.content.is_ok() && self.message_type.as_ref().filter(is_told).is_some()
    }

    /// The dead letter that an operator's command is about.
    pub(crate) fn commanded(&self) -> Option<Uuid> {
        match &self.content {
            Ok(Content::Operator(message)) => message.command().map(|command| command.dead_letter),
            Ok(Content::Fact(_)) | Err(_) => None,
        }
    }
}

impl Task {
    /// What the service gets to see of a task that ended with this answer.
    pub(crate) fn result<'a>(&'a self, answer: &'a Result<Value, FailedTry>) -> TaskResult<'a> {
        let (kind, payload, answer) = (self.kind.as_str(), self.payload.as_str(), answer.as_ref());
        TaskResult { kind, payload, correlation_id: self.correlation_id, answer }
    }
}
