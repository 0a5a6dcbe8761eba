//! Pure: everything that comes in has one form, and one of a few outcomes.

use bytes::Bytes;
use jiff::Timestamp;
use uuid::Uuid;

use crate::contract::Delivery;
use crate::envelope::{Envelope, Message, Undecodable};
use crate::ids;
use crate::resilience::Verdict;
use crate::retry::FailedTry;
use crate::row::RowKey;
use crate::service::{Heard, Service, Step};
use crate::store::{Retry, Task};

/// Something to react to, with the id that everything it causes is derived from.
#[derive(Debug)]
pub struct Input<S: Service> {
    /// Id of the command, message, task or due time.
    pub id: Uuid,
    /// The saga.
    pub correlation_id: Uuid,
    /// A random number for the jitter of a retry.
    pub roll: u32,
    /// What it is.
    pub matter: Matter<S>,
}

/// What an input is.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "most inputs are messages, and a batch holds them in one vector"
)]
pub enum Matter<S: Service> {
    /// A wish through HTTP.
    Command {
        /// The wish.
        command: S::Command,
        /// Makes it answerable more than once with the same answer.
        key: Option<RequestKey>,
    },
    /// A message, for a step.
    Message {
        /// The step.
        step: &'static Step,
        /// The payload as it came.
        payload: Bytes,
        /// The message inside.
        message: Result<Message, Undecodable>,
        /// Type of the message, when it could be read.
        message_type: Option<String>,
        /// Earlier tries.
        earlier: Option<Earlier>,
        /// Where the broker had it.
        delivery: Option<Delivery>,
        /// Why this try fails whatever the reaction would be.
        trouble: Option<FailedTry>,
    },
    /// The outcome of one try of a task.
    Called {
        /// The task.
        task: Task,
        /// What the outside answered, or why there is no answer.
        answer: Result<serde_json::Value, FailedTry>,
    },
    /// A row's due time has come.
    Due {
        /// The row.
        key: RowKey,
    },
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
    pub letter: Option<Uuid>,
}

impl<S: Service> Input<S> {
    /// A wish with an id of its own.
    #[must_use]
    pub fn command(id: Uuid, correlation_id: Uuid, command: S::Command, key: Option<RequestKey>) -> Self {
        Self { id, correlation_id, roll: 0, matter: Matter::Command { command, key } }
    }

    /// A message for a step. One that cannot be read still gets an id, from `fallback_id`.
    #[must_use]
    pub fn message(step: &'static Step, payload: Bytes, fallback_id: Uuid, roll: u32) -> Self {
        let (id, correlation_id, message_type, message) = match Envelope::from_bytes(&payload) {
            Ok(envelope) => {
                let message = envelope.open();
                (envelope.id, envelope.correlation_id, Some(envelope.message_type), message)
            }
            Err(error) => (fallback_id, fallback_id, None, Err(error)),
        };
        let (earlier, delivery, trouble) = (None, None, None);
        let matter = Matter::Message { step, payload, message, message_type, earlier, delivery, trouble };
        Self { id, correlation_id, roll, matter }
    }

    /// A message that failed before, for another try.
    #[must_use]
    pub fn retried(step: &'static Step, retry: Retry, roll: u32) -> Self {
        let mut input = Self::message(step, retry.payload, retry.message_id, roll);
        if let Matter::Message { earlier, delivery, .. } = &mut input.matter {
            *delivery = retry.delivery;
            *earlier = Some(Earlier {
                message_id: retry.message_id,
                attempts: retry.attempts,
                first_failed_at: retry.first_failed_at,
                letter: retry.letter,
            });
        }
        input
    }

    /// The message, with what the broker says of it.
    #[must_use]
    pub fn delivered(mut self, place: Delivery) -> Self {
        if let Matter::Message { delivery, .. } = &mut self.matter {
            *delivery = Some(place);
        }
        self
    }

    /// The message, in a try that fails; `None` leaves it as it is.
    #[must_use]
    pub fn in_trouble(mut self, why: Option<FailedTry>) -> Self {
        if let Matter::Message { trouble, .. } = &mut self.matter {
            *trouble = why;
        }
        self
    }

    /// The outcome of one try of a task.
    #[must_use]
    pub const fn called(task: Task, answer: Result<serde_json::Value, FailedTry>, roll: u32) -> Self {
        Self {
            id: task.id,
            correlation_id: task.correlation_id,
            roll,
            matter: Matter::Called { task, answer },
        }
    }

    /// A due row.
    #[must_use]
    pub fn due(key: RowKey, due_at: Timestamp) -> Self {
        let id = ids::derived(&["due", key.kind, &key.id, &due_at.as_microsecond().to_string()]);
        let correlation_id = key.id.parse().unwrap_or(id);
        Self { id, correlation_id, roll: 0, matter: Matter::Due { key } }
    }

    /// The name of what reacts: part of every derived id, of metrics and of logs.
    #[must_use]
    pub fn source(&self) -> &str {
        match &self.matter {
            Matter::Command { .. } => "command",
            Matter::Message { step, .. } => step.name,
            Matter::Called { task, .. } => &task.kind,
            Matter::Due { .. } => "due",
        }
    }

    /// The id under which the inbox knows the message.
    pub(crate) fn known_as(&self) -> Uuid {
        match &self.matter {
            Matter::Message { earlier: Some(earlier), .. } => earlier.message_id,
            Matter::Message { earlier: None, .. }
            | Matter::Command { .. }
            | Matter::Called { .. }
            | Matter::Due { .. } => self.id,
        }
    }

    /// The dead letter that the input replays.
    pub(crate) fn replayed(&self) -> Option<Uuid> {
        match &self.matter {
            Matter::Message { earlier, .. } => earlier.as_ref().and_then(|earlier| earlier.letter),
            Matter::Called { task, .. } => task.letter,
            Matter::Command { .. } | Matter::Due { .. } => None,
        }
    }

    /// The dead letter that an operator's wish is about.
    pub(crate) fn wished(&self) -> Option<Uuid> {
        let Matter::Message { message: Ok(message), .. } = &self.matter else {
            return None;
        };
        message.fact.wish().map(|wish| wish.letter)
    }

    /// What the service gets to see; `None` for a message that cannot be read.
    pub(crate) fn heard(&self) -> Option<Heard<'_, S::Command>> {
        match &self.matter {
            Matter::Command { command, .. } => Some(Heard::Command(command)),
            Matter::Message { step, message, .. } => {
                message.as_ref().ok().map(|message| Heard::Message(step, message))
            }
            Matter::Called { task, answer } => {
                Some(Heard::Called { kind: &task.kind, payload: &task.payload, answer: answer.as_ref() })
            }
            Matter::Due { key } => Some(Heard::Due(key)),
        }
    }
}

/// What became of an input.
#[derive(Debug)]
pub enum Outcome<S: Service> {
    /// It had its effect, or was so already.
    Done(S::Reply),
    /// Its idempotency key was answered before; the same answer again.
    Replayed(S::Reply),
    /// Known, waiting or parked already; nothing happened.
    Duplicate,
    /// The business said no.
    Rejected(S::Rejection),
    /// Its idempotency key belongs to another request.
    KeyReused,
    /// It failed and will be tried again.
    Retried(String),
    /// It is parked for a human.
    Dead(String),
    /// A command broke; nothing is stored, the caller is told.
    Faulted(String),
}

impl<S: Service> Outcome<S> {
    /// What it tells the breaker of its step: what the business says, and what is wrong with one message, says
    /// nothing of the step.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        match self {
            Self::Done(_) | Self::Replayed(_) => Verdict::Success,
            Self::Duplicate
            | Self::Rejected(_)
            | Self::KeyReused
            | Self::Retried(_)
            | Self::Dead(_)
            | Self::Faulted(_) => Verdict::Ignored,
        }
    }

    /// The outcome's name in metrics and logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Done(_) => "done",
            Self::Replayed(_) => "replayed",
            Self::Duplicate => "duplicate",
            Self::Rejected(_) => "rejected",
            Self::KeyReused => "key_reused",
            Self::Retried(_) => "retried",
            Self::Dead(_) => "dead",
            Self::Faulted(_) => "faulted",
        }
    }
}
