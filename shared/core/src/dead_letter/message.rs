//! Pure: the engine's own messages: announcements of dead letters, and operator commands about them.
//!
//! The service of the operators consumes the former and publishes the latter, beside the facts of its system:
//! [`OperatorMessage`].

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::record::{DeadLettered, EditedMessage};
use crate::message::{Message, MessageType, raw};

const DEAD_LETTERED: MessageType = MessageType::new("DeadLettered", "dead_lettered");
const DEAD_LETTER_RESOLVED: MessageType = MessageType::new("DeadLetterResolved", "dead_letter_resolved");
const DEAD_LETTER_FORGOTTEN: MessageType = MessageType::new("DeadLetterForgotten", "dead_letter_forgotten");
const REPLAY_REQUESTED: MessageType = MessageType::new("ReplayRequested", "replay_requested").addressed();
const DEAD_LETTER_DISCARDED: MessageType =
    MessageType::new("DeadLetterDiscarded", "dead_letter_discarded").addressed();
const DEAD_LETTER_RESTORED: MessageType =
    MessageType::new("DeadLetterRestored", "dead_letter_restored").addressed();

/// Types that every service publishes about its dead letters.
pub const DEAD_LETTER_TYPES: [MessageType; 3] = [DEAD_LETTERED, DEAD_LETTER_RESOLVED, DEAD_LETTER_FORGOTTEN];

/// Commands of operators, addressed to the service that owns the dead letter. Its engine handles them.
pub const OPERATOR_COMMANDS: [MessageType; 3] =
    [REPLAY_REQUESTED, DEAD_LETTER_DISCARDED, DEAD_LETTER_RESTORED];

/// Any service: a dead letter was replayed and is resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetterResolved {
    /// Id of the dead letter.
    pub dead_letter: Uuid,
    /// Service that owns the dead letter.
    pub service: String,
    /// Step, or kind of task, that failed before.
    pub step: String,
    /// Saga of the message, if known.
    pub saga: Option<Uuid>,
    /// Id of the processed message or task.
    pub message_id: Uuid,
    /// Number of replays, including this one.
    pub replays: u32,
    /// Effect that the replay had in the end.
    pub effect: ReplayEffect,
}

/// Effect of a replay of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ReplayEffect {
    /// Changes: what was missing is done.
    TookEffect,
    /// No changes: it came too late, or was done by other means.
    ChangedNothing,
    /// Business rejection: an answer, and no fault.
    Rejected {
        /// Reason of the rejection, for people.
        reason: String,
    },
}

/// Any service: an operator replayed or restored a dead letter that was purged. No command can reach it any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetterForgotten {
    /// Id of the dead letter.
    pub dead_letter: Uuid,
    /// Service that owned the dead letter.
    pub service: String,
    /// Revision of the command that had no effect.
    pub revision: u64,
}

/// Operator: replay a dead letter at the step that failed, and nowhere else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReplayRequested {
    /// Id of the dead letter.
    pub dead_letter: Uuid,
    /// Service that owns the dead letter and receives the command.
    pub service: String,
    /// Number of the command. Commands with a lower number than an earlier one have no effect.
    pub revision: u64,
    /// Message to process in place of the original.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<EditedMessage>,
}

/// Operator: discard a dead letter. Its message stays known to the inbox and is not processed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetterDiscarded {
    /// Id of the dead letter.
    pub dead_letter: Uuid,
    /// Service that owns the dead letter and receives the command.
    pub service: String,
    /// Number of the command, as in [`ReplayRequested`].
    pub revision: u64,
    /// Failed replays that the operator knew of. If another has failed since, the
    /// dead letter stays pending. Without it, the dead letter is discarded in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replays: Option<u32>,
}

/// Operator: return a discarded dead letter to pending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetterRestored {
    /// Id of the dead letter.
    pub dead_letter: Uuid,
    /// Service that owns the dead letter and receives the command.
    pub service: String,
    /// Number of the command, as in [`ReplayRequested`].
    pub revision: u64,
}

/// Messages of the engine: announcements and operator commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[expect(missing_docs, reason = "each variant is documented at its struct")]
pub enum DeadLetterMessage {
    DeadLettered(Box<DeadLettered>),
    DeadLetterResolved(DeadLetterResolved),
    DeadLetterForgotten(DeadLetterForgotten),
    ReplayRequested(ReplayRequested),
    DeadLetterDiscarded(DeadLetterDiscarded),
    DeadLetterRestored(DeadLetterRestored),
}

/// Operator command about a dead letter.
#[derive(Debug, Clone, Copy)]
pub struct OperatorCommand<'a> {
    /// Id of the dead letter.
    pub dead_letter: Uuid,
    /// Service that owns the dead letter.
    pub service: &'a str,
    /// Number of the command. Commands with a lower number than an earlier one have no effect.
    pub revision: u64,
    /// Kind of command, with its parameters.
    pub kind: OperatorCommandKind<'a>,
}

/// Kind of operator command about a dead letter.
#[derive(Debug, Clone, Copy)]
pub enum OperatorCommandKind<'a> {
    /// Process the message, or an edited one, again.
    Replay(Option<&'a EditedMessage>),
    /// Discard, unless more than this number of replays have failed.
    Discard(Option<u32>),
    /// Return the dead letter to pending.
    Restore,
}

impl DeadLetterMessage {
    /// Parses an operator command; `None` if the message is none.
    #[must_use]
    pub fn command(&self) -> Option<OperatorCommand<'_>> {
        let (dead_letter, service, revision, kind) = match self {
            Self::ReplayRequested(message) => (
                message.dead_letter,
                &message.service,
                message.revision,
                OperatorCommandKind::Replay(message.edited.as_ref()),
            ),
            Self::DeadLetterDiscarded(message) => (
                message.dead_letter,
                &message.service,
                message.revision,
                OperatorCommandKind::Discard(message.replays),
            ),
            Self::DeadLetterRestored(message) => {
                (message.dead_letter, &message.service, message.revision, OperatorCommandKind::Restore)
            }
            Self::DeadLettered(_) | Self::DeadLetterResolved(_) | Self::DeadLetterForgotten(_) => {
                return None;
            }
        };
        Some(OperatorCommand { dead_letter, service, revision, kind })
    }
}

impl Message for DeadLetterMessage {
    fn message_type(&self) -> MessageType {
        match self {
            Self::DeadLettered(_) => DEAD_LETTERED,
            Self::DeadLetterResolved(_) => DEAD_LETTER_RESOLVED,
            Self::DeadLetterForgotten(_) => DEAD_LETTER_FORGOTTEN,
            Self::ReplayRequested(_) => REPLAY_REQUESTED,
            Self::DeadLetterDiscarded(_) => DEAD_LETTER_DISCARDED,
            Self::DeadLetterRestored(_) => DEAD_LETTER_RESTORED,
        }
    }

    fn named(name: &str) -> Option<MessageType> {
        DEAD_LETTER_TYPES.into_iter().chain(OPERATOR_COMMANDS).find(|known| known.name == name)
    }

    fn saga(&self) -> Option<Uuid> {
        match self {
            Self::DeadLettered(message) => message.saga,
            Self::DeadLetterResolved(message) => message.saga,
            Self::DeadLetterForgotten(_)
            | Self::ReplayRequested(_)
            | Self::DeadLetterDiscarded(_)
            | Self::DeadLetterRestored(_) => None,
        }
    }

    // Every message about dead letters concerns a failure.
    fn is_failure(&self) -> bool {
        true
    }

    fn addressee(&self) -> Option<&str> {
        self.command().map(|command| command.service)
    }

    fn encode(&self) -> serde_json::Result<Box<RawValue>> {
        raw(self)
    }

    fn decode<'de, D: Deserializer<'de>>(message_type: MessageType, data: D) -> Result<Self, D::Error> {
        Ok(match message_type {
            DEAD_LETTERED => Self::DeadLettered(Deserialize::deserialize(data)?),
            DEAD_LETTER_RESOLVED => Self::DeadLetterResolved(Deserialize::deserialize(data)?),
            DEAD_LETTER_FORGOTTEN => Self::DeadLetterForgotten(Deserialize::deserialize(data)?),
            REPLAY_REQUESTED => Self::ReplayRequested(Deserialize::deserialize(data)?),
            DEAD_LETTER_DISCARDED => Self::DeadLetterDiscarded(Deserialize::deserialize(data)?),
            DEAD_LETTER_RESTORED => Self::DeadLetterRestored(Deserialize::deserialize(data)?),
            MessageType { name, .. } => return Err(Error::custom(format!("unknown engine message {name}"))),
        })
    }
}

/// Messages of the service of the operators: the facts of its system and the messages of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperatorMessage<F> {
    /// Fact of the system, published by a service.
    Fact(F),
    /// Message of the engine about a dead letter.
    DeadLetter(DeadLetterMessage),
}

impl<F> From<DeadLetterMessage> for OperatorMessage<F> {
    fn from(message: DeadLetterMessage) -> Self {
        Self::DeadLetter(message)
    }
}

impl<F: Message> Message for OperatorMessage<F> {
    fn message_type(&self) -> MessageType {
        match self {
            Self::Fact(fact) => fact.message_type(),
            Self::DeadLetter(message) => message.message_type(),
        }
    }

    fn named(name: &str) -> Option<MessageType> {
        F::named(name).or_else(|| DeadLetterMessage::named(name))
    }

    fn saga(&self) -> Option<Uuid> {
        match self {
            Self::Fact(fact) => fact.saga(),
            Self::DeadLetter(message) => message.saga(),
        }
    }

    fn is_failure(&self) -> bool {
        match self {
            Self::Fact(fact) => fact.is_failure(),
            Self::DeadLetter(message) => message.is_failure(),
        }
    }

    fn failure_reason(&self) -> Option<&'static str> {
        match self {
            Self::Fact(fact) => fact.failure_reason(),
            Self::DeadLetter(message) => message.failure_reason(),
        }
    }

    fn asks_to_stop(&self) -> bool {
        match self {
            Self::Fact(fact) => fact.asks_to_stop(),
            Self::DeadLetter(message) => message.asks_to_stop(),
        }
    }

    fn addressee(&self) -> Option<&str> {
        match self {
            Self::Fact(fact) => fact.addressee(),
            Self::DeadLetter(message) => message.addressee(),
        }
    }

    fn encode(&self) -> serde_json::Result<Box<RawValue>> {
        match self {
            Self::Fact(fact) => fact.encode(),
            Self::DeadLetter(message) => message.encode(),
        }
    }

    fn decode<'de, D: Deserializer<'de>>(message_type: MessageType, data: D) -> Result<Self, D::Error> {
        match F::named(message_type.name) {
            Some(_) => F::decode(message_type, data).map(Self::Fact),
            None => DeadLetterMessage::decode(message_type, data).map(Self::DeadLetter),
        }
    }
}
