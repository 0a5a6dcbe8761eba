//! Pure: what services tell each other, and the envelope in which it is stored and sent.

use std::convert::Infallible;
use std::fmt::Debug;

use jiff::Timestamp;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

/// A type of message, as envelopes and subjects name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageType {
    /// The name in the envelope, unique in the whole system.
    pub name: &'static str,
    /// The version that this build writes and reads.
    pub version: u32,
    /// The last part of the subject; the first is the producer.
    pub suffix: &'static str,
    /// Whether it is said to one service alone, whose name its subject then ends with: the others never see it.
    pub is_addressed: bool,
}

impl MessageType {
    /// The first version of a type that is told to whoever wants to hear it.
    #[must_use]
    pub const fn new(name: &'static str, suffix: &'static str) -> Self {
        Self { name, version: 1, suffix, is_addressed: false }
    }

    /// The same, said to one service alone.
    #[must_use]
    pub const fn addressed(self) -> Self {
        Self { is_addressed: true, ..self }
    }

    /// Its subject when `producer` says it to `listener`.
    #[must_use]
    pub fn subject(&self, producer: &str, listener: &str) -> String {
        let suffix = self.suffix;
        if self.is_addressed {
            format!("{producer}.{suffix}.{listener}")
        } else {
            format!("{producer}.{suffix}")
        }
    }
}

/// What the engine knows of a contract: the facts of one system as one type.
///
/// A change that old readers cannot take is a new version of the type; added members are no such change.
pub trait Message: Debug + Clone + PartialEq + Send + Sync + Sized + 'static {
    /// Its type: name, version, and how its subject ends.
    fn message_type(&self) -> MessageType;

    /// The type with this name; `None` when this build does not know it.
    fn named(name: &str) -> Option<MessageType>;

    /// The saga that it belongs to, when it belongs to one.
    fn saga(&self) -> Option<Uuid>;

    /// The one service that it is said to, when its type is addressed.
    fn addressee(&self) -> Option<&str> {
        None
    }

    /// Whether it says that something went wrong or is to be undone: then the trace of its saga may be recorded though it
    /// was not to be.
    fn went_wrong(&self) -> bool {
        false
    }

    /// Whether all it asks is that nothing more is done for its saga: there is nothing to do then for whoever has nothing of
    /// that saga any more.
    fn gives_up(&self) -> bool {
        false
    }

    /// It as JSON, without its envelope.
    ///
    /// # Errors
    /// None in practice: every member of every message has a JSON form.
    fn encode(&self) -> serde_json::Result<Box<RawValue>>;

    /// The message of this type that `data` holds. Members it does not know are passed over.
    ///
    /// # Errors
    /// When `data` is not of that type.
    fn decode<'de, D: Deserializer<'de>>(message_type: MessageType, data: D) -> Result<Self, D::Error>;

    /// Its subject when `producer` says it.
    fn subject(&self, producer: &str) -> String {
        self.message_type().subject(producer, self.addressee().unwrap_or_default())
    }
}

/// For a service that tells nobody anything and hears nobody.
impl Message for Infallible {
    fn message_type(&self) -> MessageType {
        match *self {}
    }

    fn named(_: &str) -> Option<MessageType> {
        None
    }

    fn saga(&self) -> Option<Uuid> {
        match *self {}
    }

    fn encode(&self) -> serde_json::Result<Box<RawValue>> {
        match *self {}
    }

    fn decode<'de, D: Deserializer<'de>>(message_type: MessageType, _: D) -> Result<Self, D::Error> {
        Err(Error::custom(format!("nobody says {} here", message_type.name)))
    }
}

/// A message with its ids, as stored and as sent: the JSON body of a broker message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Envelope {
    /// Derived id ([`crate::ids::message_id`]): repeats when the decision is repeated.
    pub id: Uuid,
    /// Name of the message's type.
    #[serde(rename = "type")]
    pub message_type: String,
    /// Version of the type.
    pub version: u32,
    /// The service that says it.
    pub producer: String,
    /// Id of the saga.
    pub correlation_id: Uuid,
    /// Id of the input that caused it.
    pub causation_id: Uuid,
    /// When it was decided.
    pub occurred_at: Timestamp,
    /// The message, not yet read.
    pub data: Box<RawValue>,
}

/// A message out of its envelope, as the one who hears it gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received<F> {
    /// As in the envelope ([`Envelope::id`]): the same whenever the decision is repeated.
    pub id: Uuid,
    /// The service that says it.
    pub producer: String,
    /// Id of the saga.
    pub correlation_id: Uuid,
    /// Id of the input that caused it.
    pub causation_id: Uuid,
    /// When it was decided.
    pub occurred_at: Timestamp,
    /// What it says.
    pub fact: F,
}

/// Why a message cannot be read. Repeating does not help: such a message is dead at once.
#[derive(Debug, thiserror::Error)]
pub enum Undecodable {
    /// Not JSON, or not an envelope.
    #[error("not an envelope")]
    NotAnEnvelope(#[source] serde_json::Error),
    /// Whoever its envelope names says nothing of the kind in this place: it comes from outside.
    #[error("{message_type} of {producer:?} does not belong on {place}")]
    Misplaced {
        /// Name of the type that the envelope says.
        message_type: String,
        /// Who is said to have said it.
        producer: String,
        /// The subject on which it came; the step that was to have it, when that is not known.
        place: String,
    },
    /// A type that this build does not know.
    #[error("unknown type {0:?}")]
    UnknownType(String),
    /// A version that this build does not know.
    #[error("unknown version {version} of {message_type}, this build reads {known}")]
    UnknownVersion {
        /// Name of the type, which this build does know.
        message_type: String,
        /// The version that the envelope says.
        version: u32,
        /// The version that this build reads.
        known: u32,
    },
    /// The data inside does not have the shape of its type.
    #[error("data is no {message_type}")]
    BadData {
        /// Name of the type that the envelope says.
        message_type: String,
        /// Which member, and what is wrong with it.
        source: serde_json::Error,
    },
}

impl Envelope {
    /// Reads an envelope.
    ///
    /// # Errors
    /// [`Undecodable::NotAnEnvelope`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Undecodable> {
        serde_json::from_slice(bytes).map_err(Undecodable::NotAnEnvelope)
    }

    /// Reads the message inside.
    ///
    /// # Errors
    /// When the type or version is unknown or the data does not fit the type.
    pub fn open<F: Message>(&self) -> Result<Received<F>, Undecodable> {
        let name = || self.message_type.clone();
        let message_type = F::named(&self.message_type).ok_or_else(|| Undecodable::UnknownType(name()))?;
        let (version, known) = (self.version, message_type.version);
        if version != known {
            return Err(Undecodable::UnknownVersion { message_type: name(), version, known });
        }
        let fact = F::decode(message_type, &*self.data)
            .map_err(|source| Undecodable::BadData { message_type: name(), source })?;
        Ok(Received {
            id: self.id,
            producer: self.producer.clone(),
            correlation_id: self.correlation_id,
            causation_id: self.causation_id,
            occurred_at: self.occurred_at,
            fact,
        })
    }
}

/// A value as the raw JSON that an envelope carries: what most [`Message::encode`]s are made of.
///
/// # Errors
/// When a member has no JSON form.
pub fn raw(value: &impl Serialize) -> serde_json::Result<Box<RawValue>> {
    to_raw_value(value)
}
