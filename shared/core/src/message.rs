//! Pure: facts that services exchange, and the envelope in which they are stored and sent.

use std::convert::Infallible;
use std::fmt::Debug;

use jiff::Timestamp;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

/// Type of a message, as envelopes and subjects name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageType {
    /// Name in the envelope, unique in the whole system.
    pub name: &'static str,
    /// Version that this build writes and reads.
    pub version: u32,
    /// Last part of the subject. The producer is the first.
    pub suffix: &'static str,
    /// True if each message goes to one service, whose name ends the subject.
    pub is_addressed: bool,
}

impl MessageType {
    /// Creates version 1 of a type that any service may consume.
    #[must_use]
    pub const fn new(name: &'static str, suffix: &'static str) -> Self {
        Self { name, version: 1, suffix, is_addressed: false }
    }

    /// Restricts each message to one service.
    #[must_use]
    pub const fn addressed(self) -> Self {
        Self { is_addressed: true, ..self }
    }

    /// Subject of a message of `producer` to `listener`.
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

/// Facts of one system as one type: the contract, as the engine knows it.
///
/// A change that older readers cannot take is a new version of the type. Added optional members need no new
/// version.
pub trait Message: Debug + Clone + PartialEq + Send + Sync + Sized + 'static {
    /// Name, version and subject suffix.
    fn message_type(&self) -> MessageType;

    /// Finds the type with this name; `None` if this build does not know it.
    fn named(name: &str) -> Option<MessageType>;

    /// Id of the saga, if the message belongs to one.
    fn saga(&self) -> Option<Uuid>;

    /// Receiving service, if the type is addressed.
    fn addressee(&self) -> Option<&str> {
        None
    }

    /// True if the message reports a failure or causes a compensation. The trace of its saga may then be recorded
    /// although it was not sampled.
    fn is_failure(&self) -> bool {
        false
    }

    /// Reason of the reported failure, by which traces are searched: a name of a fixed set, without data.
    fn failure_reason(&self) -> Option<&'static str> {
        None
    }

    /// True if the message only asks to stop work on its saga. A service that has purged the saga then has nothing
    /// to do.
    fn asks_to_stop(&self) -> bool {
        false
    }

    /// Serializes the message without its envelope.
    ///
    /// # Errors
    /// If a member has no JSON form.
    fn encode(&self) -> serde_json::Result<Box<RawValue>>;

    /// Deserializes a message of this type. Ignores unknown members.
    ///
    /// # Errors
    /// If `data` is not of that type.
    fn decode<'de, D: Deserializer<'de>>(message_type: MessageType, data: D) -> Result<Self, D::Error>;

    /// Subject of the message when `producer` publishes it.
    fn subject(&self, producer: &str) -> String {
        self.message_type().subject(producer, self.addressee().unwrap_or_default())
    }
}

/// For services that exchange no messages.
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
        Err(Error::custom(format!("unknown message type {}", message_type.name)))
    }
}

/// Message with its ids, as stored and as sent: the JSON body of a broker message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Envelope {
    /// Derived id ([`crate::ids::message_id`]), the same whenever the decision is repeated.
    pub id: Uuid,
    /// Name of the message type.
    #[serde(rename = "type")]
    pub message_type: String,
    /// Version of the message type.
    pub version: u32,
    /// Name of the service that published it.
    pub producer: String,
    /// Id of the saga that it belongs to.
    pub correlation_id: Uuid,
    /// Id of the input that caused the message.
    pub causation_id: Uuid,
    /// Time at which the input was decided.
    pub occurred_at: Timestamp,
    /// Message as JSON that is not parsed yet.
    pub data: Box<RawValue>,
}

/// Parsed message, as its consumer gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received<F> {
    /// Id from the envelope ([`Envelope::id`]).
    pub id: Uuid,
    /// Name of the service that published it.
    pub producer: String,
    /// Id of the saga that it belongs to.
    pub correlation_id: Uuid,
    /// Id of the input that caused the message.
    pub causation_id: Uuid,
    /// Time at which the input was decided.
    pub occurred_at: Timestamp,
    /// Content of the message, as its contract types it.
    pub fact: F,
}

/// Error of a message that cannot be read. Retries do not help, so the engine dead-letters it at once.
#[derive(Debug, thiserror::Error)]
pub enum Undecodable {
    /// Payload that is not JSON, or no envelope.
    #[error("not an envelope")]
    NotAnEnvelope(#[source] serde_json::Error),
    /// Producer that does not publish this type on this subject. The message is foreign: no service of the system
    /// sent it.
    #[error("{message_type} of {producer:?} does not belong on {subject}")]
    Misplaced {
        /// Name of the message type in the envelope.
        message_type: String,
        /// Producer named in the envelope.
        producer: String,
        /// Subject of the message; the name of the step if the subject is unknown.
        subject: String,
    },
    /// Message type that this build does not know.
    #[error("unknown type {0:?}")]
    UnknownType(String),
    /// Message version that this build does not know.
    #[error("unknown version {version} of {message_type}, this build reads {known}")]
    UnknownVersion {
        /// Name of the message type, which this build knows.
        message_type: String,
        /// Version named in the envelope.
        version: u32,
        /// Version that this build reads.
        known: u32,
    },
    /// Data that does not fit its type.
    #[error("data is no {message_type}")]
    BadData {
        /// Name of the message type in the envelope.
        message_type: String,
        /// Error of the member that does not fit.
        source: serde_json::Error,
    },
}

impl Envelope {
    /// Parses an envelope.
    ///
    /// # Errors
    /// [`Undecodable::NotAnEnvelope`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Undecodable> {
        serde_json::from_slice(bytes).map_err(Undecodable::NotAnEnvelope)
    }

    /// Parses the message inside.
    ///
    /// # Errors
    /// If the type or version is unknown, or the data does not fit the type.
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

/// Serializes a value as the raw JSON of an envelope: the body of most [`Message::encode`] functions.
///
/// # Errors
/// If a member has no JSON form.
pub fn raw(value: &impl Serialize) -> serde_json::Result<Box<RawValue>> {
    to_raw_value(value)
}
