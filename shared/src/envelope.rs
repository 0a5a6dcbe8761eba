//! Pure: a message with its ids and trace, as stored and as sent.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::contract::{Fact, FactType};

/// A fact on the wire: the JSON body of a broker message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Envelope {
    /// Derived id ([`crate::ids::message_id`]): repeats when the decision is repeated.
    pub id: Uuid,
    /// Name of the fact's type.
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
    /// The fact, not yet read.
    pub data: Box<RawValue>,
}

/// An envelope that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Derived id.
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
    pub fact: Fact,
}

/// Why a message cannot be read. Repeating does not help: such a message is dead at once.
#[derive(Debug, thiserror::Error)]
pub enum Undecodable {
    /// Not JSON, or not an envelope.
    #[error("not an envelope")]
    NotAnEnvelope(#[source] serde_json::Error),
    /// A type that this build does not know.
    #[error("unknown type {0:?}")]
    UnknownType(String),
    /// A version that this build does not know.
    #[error("unknown version {version} of {message_type}, this build reads {known}")]
    UnknownVersion {
        /// The type.
        message_type: String,
        /// Its version.
        version: u32,
        /// The version that this build reads.
        known: u32,
    },
    /// The fact inside does not have the shape of its type.
    #[error("data is no {message_type}")]
    BadData {
        /// The type.
        message_type: String,
        /// What is wrong.
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

    /// Reads the fact inside.
    ///
    /// # Errors
    /// When the type or version is unknown or the data does not fit the type.
    pub fn open(&self) -> Result<Message, Undecodable> {
        let message_type = || self.message_type.clone();
        let fact_type =
            FactType::named(&self.message_type).ok_or_else(|| Undecodable::UnknownType(message_type()))?;
        let (version, known) = (self.version, fact_type.version());
        if version != known {
            return Err(Undecodable::UnknownVersion { message_type: message_type(), version, known });
        }
        let fact = Fact::from_json(fact_type, self.data.get())
            .map_err(|source| Undecodable::BadData { message_type: message_type(), source })?;
        Ok(Message {
            id: self.id,
            producer: self.producer.clone(),
            correlation_id: self.correlation_id,
            causation_id: self.causation_id,
            occurred_at: self.occurred_at,
            fact,
        })
    }
}
