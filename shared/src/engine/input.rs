//! Pure: everything that comes in has one form, and one of a few outcomes.

use bytes::Bytes;
use jiff::Timestamp;
use uuid::Uuid;

use crate::envelope::{Envelope, Message, Undecodable};
use crate::ids;
use crate::row::RowKey;
use crate::service::{Heard, Service, Step};
use crate::store::Task;

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
    },
    /// The outcome of one try of a task.
    Called {
        /// The task.
        task: Task,
        /// What the outside answered, or why there is no answer.
        answer: Result<serde_json::Value, String>,
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
#[derive(Debug, Clone, Copy)]
pub struct Earlier {
    /// Tries that failed.
    pub attempts: u32,
    /// When the first one failed.
    pub first_failed_at: Timestamp,
}

impl<S: Service> Input<S> {
    /// A wish with an id of its own.
    #[must_use]
    pub fn command(id: Uuid, correlation_id: Uuid, command: S::Command, key: Option<RequestKey>) -> Self {
        Self { id, correlation_id, roll: 0, matter: Matter::Command { command, key } }
    }

    /// A message for a step. One that cannot be read still gets an id, from `fallback_id`.
    #[must_use]
    pub fn message(
        step: &'static Step,
        payload: Bytes,
        fallback_id: Uuid,
        earlier: Option<Earlier>,
        roll: u32,
    ) -> Self {
        let (id, correlation_id, message_type, message) = match Envelope::from_bytes(&payload) {
            Ok(envelope) => {
                let message = envelope.open();
                (envelope.id, envelope.correlation_id, Some(envelope.message_type), message)
            }
            Err(error) => (fallback_id, fallback_id, None, Err(error)),
        };
        Self {
            id,
            correlation_id,
            roll,
            matter: Matter::Message { step, payload, message, message_type, earlier },
        }
    }

    /// The outcome of one try of a task.
    #[must_use]
    pub const fn called(task: Task, answer: Result<serde_json::Value, String>, roll: u32) -> Self {
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

    /// What the service gets to see; `None` for a message that cannot be read.
    pub(crate) fn heard(&self) -> Option<Heard<'_, S::Command>> {
        match &self.matter {
            Matter::Command { command, .. } => Some(Heard::Command(command)),
            Matter::Message { step, message, .. } => {
                message.as_ref().ok().map(|message| Heard::Message(step, message))
            }
            Matter::Called { task, answer } => {
                let answer = answer.as_ref().map_err(String::as_str);
                Some(Heard::Called { kind: &task.kind, payload: &task.payload, answer })
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
