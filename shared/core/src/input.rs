//! Pure: the one form of everything that the engine processes: commands, messages, task results and due rows.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use crate::dead_letter::{DEAD_LETTER_TYPES, DeadLetterMessage, DeliveryInfo};
use crate::ids;
use crate::message::{Envelope, Message, Received, Undecodable};
pub use crate::outcome::{CommandOutcome, DueOutcome, MessageOutcome, Outcome};
use crate::retry::{FailedAttempt, FailureKind};
use crate::row::RowKey;
use crate::service::{Service, Step, TaskResult};
use crate::trace::TraceContext;
use crate::unit_of_work::Cause;
use crate::waiting::{Retry, Task};

/// Name of the command handler in ids, metrics and logs.
pub const COMMAND: &str = "command";
/// Name of the due row handler in ids, metrics and logs.
pub const DUE: &str = "due";

/// Anything that the engine processes. Ids of all that it causes derive from its id.
#[derive(Debug)]
pub struct Input<S: Service> {
    /// Id of the command, message, task or due time.
    pub id: Uuid,
    /// Id of the saga, passed on to all effects. An id of its own if the input belongs to no saga.
    pub correlation_id: Uuid,
    /// Random number over the whole range of `u32`, for the jitter of a retry.
    pub jitter: u32,
    /// Trace context of the cause; of the input itself once its span is [started](Self::with_trace).
    pub trace: Option<TraceContext>,
    /// Kind, with the data of that kind.
    pub kind: InputKind<S>,
}

/// Kind of an input, with its data.
#[derive(Debug)]
pub enum InputKind<S: Service> {
    /// Command that arrived over HTTP.
    Command {
        /// Parsed command of the service.
        command: S::Command,
        /// Idempotency key. A repeated request with the same key gets the stored answer.
        key: Option<RequestKey>,
    },
    /// Message for a step of the service.
    Message(StepMessage<S::Fact>),
    /// Result of one attempt of a task.
    TaskResult {
        /// Task, under the newest claim of this process.
        task: Task,
        /// Answer of the dependency, or the failure.
        answer: Result<Value, FailedAttempt>,
    },
    /// Row whose due time has come.
    Due {
        /// Key of the due row.
        key: RowKey,
    },
}

/// Message for a step, from the broker or from a retry.
#[derive(Debug)]
pub struct StepMessage<F> {
    /// Step that handles the message.
    pub step: &'static Step,
    /// Payload as received, byte for byte.
    pub payload: Bytes,
    /// Parsed message, or the reason why it is unreadable.
    pub content: Result<Content<F>, Undecodable>,
    /// Name of the message type, if it could be read.
    pub message_type: Option<String>,
    /// Earlier attempts; `None` at the first.
    pub prior: Option<PriorAttempts>,
    /// Broker metadata of the message.
    pub delivery: Option<DeliveryInfo>,
    /// Failure to report in place of handling the message: an injected fault, or an outage.
    pub injected_failure: Option<FailedAttempt>,
    /// True if the broker has delivered the message before.
    pub is_redelivery: bool,
}

/// Content of a message, for the service or for the engine.
#[derive(Debug)]
pub enum Content<F> {
    /// Fact, which the service's handler gets.
    Fact(Received<F>),
    /// Operator command, for the engine.
    Operator(DeadLetterMessage),
}

/// `Idempotency-Key` with its scope, and a digest of the request.
#[derive(Debug, Clone)]
pub struct RequestKey {
    /// Scope of the key, and the key.
    pub key: String,
    /// Digest of the request, which tells a repetition from another request.
    pub fingerprint: String,
}

/// Earlier attempts of a message.
#[derive(Debug, Clone)]
pub struct PriorAttempts {
    /// Id in the inbox. Differs from the message's own id once an operator has edited the message.
    pub message_id: Uuid,
    /// Number of attempts that have failed so far.
    pub attempts: u32,
    /// Time of the first failed attempt.
    pub first_failed_at: Timestamp,
    /// Dead letter that is being replayed.
    pub dead_letter: Option<Uuid>,
}

impl<S: Service> Input<S> {
    /// Creates a command with an id of its own.
    #[must_use]
    pub fn command(id: Uuid, correlation_id: Uuid, command: S::Command, key: Option<RequestKey>) -> Self {
        let kind = InputKind::Command { command, key };
        Self { id, correlation_id, jitter: 0, trace: None, kind }
    }

    /// Creates a message for a step.
    ///
    /// Unreadable and foreign messages get the id `fallback_id`: the ids that they claim may belong to other
    /// messages.
    #[must_use]
    pub fn message(step: &'static Step, payload: Bytes, fallback_id: Uuid, jitter: u32) -> Self {
        Self::parse(step, payload, fallback_id, None, jitter)
    }

    fn parse(
        step: &'static Step,
        payload: Bytes,
        fallback_id: Uuid,
        delivery: Option<DeliveryInfo>,
        jitter: u32,
    ) -> Self {
        let envelope = Envelope::from_bytes(&payload).and_then(|envelope| {
            let subject = delivery.as_ref().map_or("", |delivery| &delivery.subject);
            foreign::<S>(&envelope, step, subject).map_or(Ok(envelope), Err)
        });
        let (id, correlation_id, message_type, content) = match envelope {
            Ok(envelope) => {
                let content = Content::of(&envelope, step);
                // Whatever a stranger writes there is logged and listed.
                let message_type = match S::SECRETS.may_occur_in(&envelope.message_type) {
                    true => S::SECRETS.blank_text(&envelope.message_type).into_owned(),
                    false => envelope.message_type,
                };
                (envelope.id, envelope.correlation_id, Some(message_type), content)
            }
            Err(error) => (fallback_id, fallback_id, None, Err(error)),
        };
        let (prior, injected_failure, is_redelivery) = (None, None, false);
        let trace = delivery.as_ref().and_then(DeliveryInfo::trace);
        let delivered = StepMessage {
            step,
            payload,
            content,
            message_type,
            prior,
            delivery,
            injected_failure,
            is_redelivery,
        };
        Self { id, correlation_id, jitter, trace, kind: InputKind::Message(delivered) }
    }

    /// Creates another attempt of a message that failed before.
    #[must_use]
    pub fn retry(step: &'static Step, retry: Retry, jitter: u32) -> Self {
        let mut input = Self::parse(step, retry.payload, retry.message_id, retry.delivery, jitter);
        if let InputKind::Message(delivered) = &mut input.kind {
            delivered.prior = Some(PriorAttempts {
                message_id: retry.message_id,
                attempts: retry.attempts,
                first_failed_at: retry.first_failed_at,
                dead_letter: retry.dead_letter,
            });
        }
        input
    }

    /// Sets the trace context of the input.
    #[must_use]
    pub const fn with_trace(mut self, trace: Option<TraceContext>) -> Self {
        self.trace = trace;
        self
    }

    /// Repeats the message as an attempt that fails with `failure`.
    #[must_use]
    pub fn with_failure(&self, delivered: &StepMessage<S::Fact>, failure: FailedAttempt) -> Self {
        let (fallback_id, delivery) = (self.id, delivered.delivery.clone());
        let payload = delivered.payload.clone();
        let mut input =
            Self::parse(delivered.step, payload, fallback_id, delivery, self.jitter).with_trace(self.trace);
        if let InputKind::Message(again) = &mut input.kind {
            again.prior.clone_from(&delivered.prior);
        }
        input.with_injected_failure(Some(failure))
    }

    /// Creates a message that the broker delivered. A message without a readable id gets one from its stream
    /// position.
    #[must_use]
    pub fn from_broker(step: &'static Step, payload: Bytes, delivery: DeliveryInfo, jitter: u32) -> Self {
        let fallback_id = delivery.fallback_id();
        Self::parse(step, payload, fallback_id, Some(delivery), jitter)
    }

    /// Makes the attempt fail with `failure`, if there is one.
    #[must_use]
    pub fn with_injected_failure(mut self, failure: Option<FailedAttempt>) -> Self {
        if let InputKind::Message(delivered) = &mut self.kind {
            delivered.injected_failure = failure;
        }
        self
    }

    /// Marks a message that the broker has delivered before.
    #[must_use]
    pub fn with_redelivery(mut self, is_redelivery: bool) -> Self {
        if let InputKind::Message(delivered) = &mut self.kind {
            delivered.is_redelivery = is_redelivery;
        }
        self
    }

    /// Step of a message that an earlier process may have died of.
    #[must_use]
    pub fn suspect_step(&self) -> Option<&'static str> {
        match &self.kind {
            InputKind::Message(delivered) if delivered.is_redelivery || delivered.prior.is_some() => {
                Some(delivered.step.name)
            }
            InputKind::Message(_)
            | InputKind::Command { .. }
            | InputKind::TaskResult { .. }
            | InputKind::Due { .. } => None,
        }
    }

    /// Creates the result of one attempt of a task.
    #[must_use]
    pub const fn task_result(task: Task, answer: Result<Value, FailedAttempt>, jitter: u32) -> Self {
        let (id, correlation_id, trace) = (task.id, task.correlation_id, task.trace);
        Self { id, correlation_id, jitter, trace, kind: InputKind::TaskResult { task, answer } }
    }

    /// Creates the check before an attempt: [`Service::is_task_needed`] decides whether the call is made.
    #[must_use]
    pub fn task_check(task: Task) -> Self {
        Self::task_result(task, Err(FailedAttempt::new(FailureKind::NeverAttempted, "no longer needed")), 0)
    }

    /// Creates the input of a due row.
    #[must_use]
    pub fn due(key: RowKey, due_at: Timestamp) -> Self {
        let id = ids::derived(&[DUE, key.kind, &key.id, &due_at.as_microsecond().to_string()]);
        let correlation_id = key.id.parse().unwrap_or(id);
        Self { id, correlation_id, jitter: 0, trace: None, kind: InputKind::Due { key } }
    }

    /// Name of the handler: part of derived ids, metrics and logs.
    #[must_use]
    pub fn source(&self) -> &str {
        match &self.kind {
            InputKind::Command { .. } => COMMAND,
            InputKind::Message(delivered) => delivered.step.name,
            InputKind::TaskResult { task, .. } => &task.kind,
            InputKind::Due { .. } => DUE,
        }
    }

    /// Id of the input that caused a fact; `None` for all other inputs.
    #[must_use]
    pub fn causation_id(&self) -> Option<Uuid> {
        self.fact().map(|message| message.causation_id)
    }

    /// Number of this attempt, from 1; `None` for inputs that are tried once.
    #[must_use]
    pub fn attempt(&self) -> Option<u32> {
        match &self.kind {
            InputKind::Message(delivered) => {
                let failed = delivered.prior.as_ref().map_or(0, |prior| prior.attempts);
                Some(failed.saturating_add(1))
            }
            InputKind::TaskResult { task, .. } => Some(task.attempts.saturating_add(1)),
            InputKind::Command { .. } | InputKind::Due { .. } => None,
        }
    }

    /// True if no service of this system sent the message: it has no envelope, or its producer does not publish
    /// such messages there.
    #[must_use]
    pub const fn is_foreign(&self) -> bool {
        match &self.kind {
            InputKind::Message(StepMessage { content: Err(why), .. }) => match why {
                Undecodable::NotAnEnvelope(_) | Undecodable::Misplaced { .. } => true,
                Undecodable::UnknownType(_)
                | Undecodable::UnknownVersion { .. }
                | Undecodable::BadData { .. } => false,
            },
            InputKind::Message(_)
            | InputKind::Command { .. }
            | InputKind::TaskResult { .. }
            | InputKind::Due { .. } => false,
        }
    }

    /// Dead letter that the input replays.
    #[must_use]
    pub fn replayed(&self) -> Option<Uuid> {
        match &self.kind {
            InputKind::Message(delivered) => delivered.prior.as_ref().and_then(|prior| prior.dead_letter),
            InputKind::TaskResult { task, .. } => task.dead_letter,
            InputKind::Command { .. } | InputKind::Due { .. } => None,
        }
    }

    /// Reason of the failure that the message reports, if it reports one.
    #[must_use]
    pub fn failure_reason(&self) -> Option<&'static str> {
        self.fact().and_then(|message| message.fact.failure_reason())
    }

    /// Trace context of the operator's request for this replay, if it is known.
    pub(crate) fn replay_request(&self) -> Option<TraceContext> {
        match &self.kind {
            InputKind::Message(message) => message.delivery.as_ref().and_then(DeliveryInfo::replay_request),
            InputKind::Command { .. } | InputKind::TaskResult { .. } | InputKind::Due { .. } => None,
        }
    }

    /// Service and handler, for derived ids. Two steps of one service may consume the same message and must not
    /// derive the same ids.
    pub(crate) fn producer(&self) -> String {
        format!("{}:{}", S::NAME, self.source())
    }

    /// Identity of the input for its unit of work.
    pub(crate) fn cause(&self, now: Timestamp, lost_before: Option<Timestamp>) -> Cause<'_, S::Fact> {
        let (id, correlation_id) = (self.id, self.correlation_id);
        let message = self.fact().map(|message| &message.fact);
        Cause { producer: self.producer(), id, correlation_id, now, lost_before, message }
    }

    /// Fact for the service; `None` for all other inputs.
    pub(crate) fn fact(&self) -> Option<&Received<S::Fact>> {
        match &self.kind {
            InputKind::Message(StepMessage { content: Ok(Content::Fact(message)), .. }) => Some(message),
            InputKind::Message(_)
            | InputKind::Command { .. }
            | InputKind::TaskResult { .. }
            | InputKind::Due { .. } => None,
        }
    }
}

/// Rejects a message that its producer cannot have sent: a type that it does not publish to this step, or another
/// subject. Broker permissions alone do not prevent that. A type unknown to this build may come from a newer build
/// and is not foreign.
fn foreign<S: Service>(envelope: &Envelope, step: &Step, subject: &str) -> Option<Undecodable> {
    let Envelope { producer, message_type, .. } = envelope;
    let is_known = S::Fact::named(message_type).or_else(|| DeadLetterMessage::named(message_type)).is_some();
    let belongs = match step.subject_of(producer, message_type, S::NAME) {
        Some(expected) => subject.is_empty() || subject == expected,
        None => !is_known && step.consumes.iter().any(|subscription| subscription.producer == producer),
    };
    (!belongs).then(|| Undecodable::Misplaced {
        message_type: message_type.clone(),
        producer: producer.clone(),
        subject: if subject.is_empty() { step.name } else { subject }.to_owned(),
    })
}

impl<F: Message> Content<F> {
    /// Messages that `step` consumes come first. Others are parsed too, so that their dead letters can name them.
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

impl<F> StepMessage<F> {
    /// Id in the inbox of a message with the id `id`.
    pub(crate) fn inbox_id(&self, id: Uuid) -> Uuid {
        self.prior.as_ref().map_or(id, |prior| prior.message_id)
    }

    /// True if the message reports a dead letter that the step can read. Such a message is retried for ever.
    ///
    /// A dead letter of it would be announced to the same failing step, which would fail again, and so on without
    /// end.
    pub(crate) fn reports_dead_letter(&self) -> bool {
        let is_replay = self.prior.as_ref().is_some_and(|prior| prior.dead_letter.is_some());
        let is_report = |name: &&String| {
            DEAD_LETTER_TYPES.iter().any(|reported| reported.name == *name) && self.step.consumes_type(name)
        };
        !is_replay && self.content.is_ok() && self.message_type.as_ref().filter(is_report).is_some()
    }

    /// Dead letter that an operator command is about.
    pub(crate) fn commanded(&self) -> Option<Uuid> {
        match &self.content {
            Ok(Content::Operator(message)) => message.command().map(|command| command.dead_letter),
            Ok(Content::Fact(_)) | Err(_) => None,
        }
    }
}

impl Task {
    /// Result to pass to the service.
    pub(crate) fn result<'a>(&'a self, answer: &'a Result<Value, FailedAttempt>) -> TaskResult<'a> {
        let (kind, payload, answer) = (self.kind.as_str(), self.payload.as_str(), answer.as_ref());
        TaskResult { kind, payload, correlation_id: self.correlation_id, answer }
    }
}
