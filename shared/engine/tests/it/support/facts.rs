//! Facts of the test services: a courier brings parcels, and the depot puts them on shelves.

use bytes::Bytes;
use jiff::Timestamp;
use saga_core::message::{Envelope, Message, MessageType, raw};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

/// All producers with a stream.
pub const PRODUCERS: [&str; 4] = ["depot", "courier", "ferry", "admin"];

pub const PARCELS_ARRIVED: MessageType = MessageType::new("ParcelsArrived", "parcels_arrived");
const PARCELS_STORED: MessageType = MessageType::new("ParcelsStored", "stored");

/// All facts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Fact {
    ParcelsArrived(ParcelsArrived),
    ParcelsStored(ParcelsStored),
}

/// Published by the courier: parcels for a shelf have arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParcelsArrived {
    pub label: String,
    pub quantity: u32,
}

/// Published by the depot: all parcels of a saga are on their shelves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParcelsStored {
    pub saga: Uuid,
    /// Shelves with the pieces put there.
    pub stored: Vec<(String, u32)>,
}

impl From<ParcelsStored> for Fact {
    fn from(fact: ParcelsStored) -> Self {
        Self::ParcelsStored(fact)
    }
}

impl Message for Fact {
    fn message_type(&self) -> MessageType {
        match self {
            Self::ParcelsArrived(_) => PARCELS_ARRIVED,
            Self::ParcelsStored(_) => PARCELS_STORED,
        }
    }

    fn named(name: &str) -> Option<MessageType> {
        [PARCELS_ARRIVED, PARCELS_STORED].into_iter().find(|known| known.name == name)
    }

    fn saga(&self) -> Option<Uuid> {
        match self {
            Self::ParcelsArrived(_) => None,
            Self::ParcelsStored(fact) => Some(fact.saga),
        }
    }

    fn encode(&self) -> serde_json::Result<Box<RawValue>> {
        raw(self)
    }

    fn decode<'de, D: Deserializer<'de>>(message_type: MessageType, data: D) -> Result<Self, D::Error> {
        match message_type {
            PARCELS_ARRIVED => Deserialize::deserialize(data).map(Self::ParcelsArrived),
            _ => Deserialize::deserialize(data).map(Self::ParcelsStored),
        }
    }
}

/// Envelope of the courier's fact that `pieces` have arrived for a shelf.
pub fn arrived(id: Uuid, label: &str, pieces: u32) -> Bytes {
    let fact = ParcelsArrived { label: label.to_owned(), quantity: pieces };
    envelope(id, "courier", &Fact::ParcelsArrived(fact))
}

/// Envelope of a message without a cause.
pub fn envelope(id: Uuid, producer: &str, message: &impl Message) -> Bytes {
    let message_type = message.message_type();
    let envelope = Envelope {
        id,
        message_type: message_type.name.to_owned(),
        version: message_type.version,
        producer: producer.to_owned(),
        correlation_id: id,
        causation_id: id,
        occurred_at: Timestamp::UNIX_EPOCH,
        data: message.encode().expect("a message has a JSON form"),
    };
    Bytes::from(serde_json::to_vec(&envelope).expect("an envelope has a JSON form"))
}
