//! What the services of these tests tell each other: parcels come by courier, and the depot puts them on shelves.

use bytes::Bytes;
use jiff::Timestamp;
use saga_core::message::{Envelope, Message, MessageType, raw};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

/// Everyone who has a stream.
pub const PRODUCERS: [&str; 4] = ["depot", "courier", "ferry", "admin"];

pub const PARCELS_ARRIVED: MessageType = MessageType::new("ParcelsArrived", "parcels_arrived");
const PARCELS_STORED: MessageType = MessageType::new("ParcelsStored", "stored");

/// Everything that is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Fact {
    ParcelsArrived(ParcelsArrived),
    ParcelsStored(ParcelsStored),
}

/// Courier: parcels for a shelf came in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParcelsArrived {
    pub label: String,
    pub quantity: u32,
}

/// Depot: what belongs to a saga is where it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParcelsStored {
    pub saga: Uuid,
    /// Shelves and pieces put there.
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

/// The envelope in which the courier says that `pieces` came in for a shelf.
pub fn arrived(id: Uuid, label: &str, pieces: u32) -> Bytes {
    let fact = ParcelsArrived { label: label.to_owned(), quantity: pieces };
    envelope(id, "courier", &Fact::ParcelsArrived(fact))
}

/// The envelope of a message that nothing caused.
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
