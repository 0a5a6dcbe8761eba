//! Pure: the engine's own messages: what every service says of its dead letters, and what operators say to it.
//!
//! A service that operators speak through hears the first and says the second beside the facts of its own system:
//! [`OperatorMessage`].

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::parked::{DeadLettered, EditedMessage};
use crate::message::{Message, MessageType, raw};

const DEAD_LETTERED: MessageType = MessageType::new("DeadLettered", "dead_lettered");
const DEAD_LETTER_RESOLVED: MessageType = MessageType::new("DeadLetterResolved", "dead_letter_resolved");
const DEAD_LETTER_FORGOTTEN: MessageType = MessageType::new("DeadLetterForgotten", "dead_letter_forgotten");
const REPLAY_REQUESTED: MessageType = MessageType::new("ReplayRequested", "replay_requested").addressed();
const DEAD_LETTER_DISCARDED: MessageType =
    MessageType::new("DeadLetterDiscarded", "dead_letter_discarded").addressed();
const DEAD_LETTER_RESTORED: MessageType =
    MessageType::new("DeadLetterRestored", "dead_letter_restored").addressed();

/// What every service says of its dead letters.
pub const DEAD_LETTER_TYPES: [MessageType; 3] = [DEAD_LETTERED, DEAD_LETTER_RESOLVED, DEAD_LETTER_FORGOTTEN];

/// What operators say to the one service that holds a dead letter; its engine hears it.
pub const OPERATOR_COMMANDS: [MessageType; 3] =
    [REPLAY_REQUESTED, DEAD_LETTER_DISCARDED, DEAD_LETTER_RESTORED];

/// Any service: a dead letter was replayed and is handled now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetterResolved {
    /// The dead letter.
    #[serde(rename = "letter")]
    pub dead_letter: Uuid,
    /// The service that handled it.
    pub service: String,
    /// The step that failed before.
    pub step: String,
    /// The saga it belongs to, when that is known.
    pub saga: Option<Uuid>,
    /// Id of the message or task that was handled.
    pub message_id: Uuid,
    /// Replays it took, this one counted.
    pub replays: u32,
    /// What handling it did. Absent from builds that did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<ReplayEffect>,
}

/// What the handling of a dead letter did in the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ReplayEffect {
    /// Something happened that had not: what was missed is done.
    TookEffect,
    /// Nothing happened. It came too late, or somebody else had done it.
    ChangedNothing,
    /// The service said no.
    Rejected {
        /// Why, in its words.
        reason: String,
    },
}

/// Any service: an operator wants a dead letter back that it does not have. What is resolved or given up leaves after a
/// while, and nothing can be done to it any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetterForgotten {
    /// The dead letter.
    #[serde(rename = "letter")]
    pub dead_letter: Uuid,
    /// The service that has it no more.
    pub service: String,
    /// Of what the operator asked for.
    pub revision: u64,
}

/// An operator: a dead letter goes back to the step that failed, and to nobody else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReplayRequested {
    /// The dead letter.
    #[serde(rename = "letter")]
    pub dead_letter: Uuid,
    /// The service that holds it: the only one that hears this.
    pub service: String,
    /// Grows with each command about this dead letter; an older one has no effect.
    pub revision: u64,
    /// The message to handle in place of the one that was parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<EditedMessage>,
}

/// An operator: a dead letter is given up. It stays known, so that the message is not handled after all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetterDiscarded {
    /// The dead letter.
    #[serde(rename = "letter")]
    pub dead_letter: Uuid,
    /// The service that holds it: the only one that hears this.
    pub service: String,
    /// As in [`ReplayRequested`].
    pub revision: u64,
    /// Replays that had failed when the operator gave it up. When another one has failed since, that is news to
    /// the operator, and it waits on. Absent from builds that gave up whatever they met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replays: Option<u32>,
}

/// An operator: a dead letter that was given up waits for a human again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetterRestored {
    /// The dead letter.
    #[serde(rename = "letter")]
    pub dead_letter: Uuid,
    /// The service that holds it: the only one that hears this.
    pub service: String,
    /// As in [`ReplayRequested`].
    pub revision: u64,
}

/// The engine's own messages.
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

/// What an operator wants of a dead letter.
#[derive(Debug, Clone, Copy)]
pub struct OperatorCommand<'a> {
    /// The dead letter.
    pub dead_letter: Uuid,
    /// The service that holds it.
    pub service: &'a str,
    /// Grows with each command about this dead letter; an older one has no effect.
    pub revision: u64,
    /// What is to become of it.
    pub kind: OperatorCommandKind<'a>,
}

/// What is to become of a dead letter.
#[derive(Debug, Clone, Copy)]
pub enum OperatorCommandKind<'a> {
    /// It is handled again, or this in its place.
    Replay(Option<&'a EditedMessage>),
    /// It is given up, if no more replays than these have failed.
    Discard(Option<u32>),
    /// It waits for a human again.
    Restore,
}

impl DeadLetterMessage {
    /// The operator's command, when it is one.
    #[must_use]
    pub fn command(&self) -> Option<OperatorCommand<'_>> {
        let (dead_letter, service, revision, kind) = match self {
            Self::ReplayRequested(said) => (
                said.dead_letter,
                &said.service,
                said.revision,
                OperatorCommandKind::Replay(said.edited.as_ref()),
            ),
            Self::DeadLetterDiscarded(said) => {
                (said.dead_letter, &said.service, said.revision, OperatorCommandKind::Discard(said.replays))
            }
            Self::DeadLetterRestored(said) => {
                (said.dead_letter, &said.service, said.revision, OperatorCommandKind::Restore)
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
            Self::DeadLettered(said) => said.saga,
            Self::DeadLetterResolved(said) => said.saga,
            Self::DeadLetterForgotten(_)
            | Self::ReplayRequested(_)
            | Self::DeadLetterDiscarded(_)
            | Self::DeadLetterRestored(_) => None,
        }
    }

    // All of them: nobody speaks of dead letters when all is well.
    fn went_wrong(&self) -> bool {
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
            MessageType { name, .. } => return Err(Error::custom(format!("the engine does not say {name}"))),
        })
    }
}

/// What a service hears and says that operators speak through: the facts of its system, and the engine's own
/// messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperatorMessage<F> {
    /// A fact of the system.
    Fact(F),
    /// A message of the engine.
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

    fn went_wrong(&self) -> bool {
        match self {
            Self::Fact(fact) => fact.went_wrong(),
            Self::DeadLetter(message) => message.went_wrong(),
        }
    }

    fn gives_up(&self) -> bool {
        match self {
            Self::Fact(fact) => fact.gives_up(),
            Self::DeadLetter(message) => message.gives_up(),
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
