//! What operators wish of dead letters, as admin says it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use shared::contract::{DeadLetterDiscarded, DeadLetterRestored, EditedMessage, Fact, ReplayRequested};
use shared::engine::Input;
use shared::envelope::Envelope;
use shared::ids;
use shared::store::OutboxEntry;
use uuid::Uuid;

use super::shop::{OPERATING, Shop};

/// The service that the shop plays.
const HERE: &str = "order";

/// Hand it back.
pub fn replay(letter: Uuid, revision: u64) -> Fact {
    Fact::ReplayRequested(ReplayRequested { letter, service: HERE.to_owned(), revision, edited: None })
}

/// Hand it back, with these bytes in place of those that were parked.
pub fn edit(letter: Uuid, revision: u64, message_id: Uuid, payload: &[u8]) -> Fact {
    let edited = Some(EditedMessage { message_id, payload_base64: STANDARD.encode(payload) });
    Fact::ReplayRequested(ReplayRequested { letter, service: HERE.to_owned(), revision, edited })
}

/// Give it up.
pub fn discard(letter: Uuid, revision: u64) -> Fact {
    Fact::DeadLetterDiscarded(DeadLetterDiscarded { letter, service: HERE.to_owned(), revision })
}

/// Let it wait again.
pub fn restore(letter: Uuid, revision: u64) -> Fact {
    Fact::DeadLetterRestored(DeadLetterRestored { letter, service: HERE.to_owned(), revision })
}

/// A wish as the shop hears it. The same wish is the same message.
pub fn wished(fact: &Fact) -> Input<Shop> {
    Input::message(OPERATING, payload(fact), Uuid::from_u128(405), 0)
}

/// The envelope of a wish.
pub fn payload(fact: &Fact) -> Bytes {
    let data = fact.to_json().expect("a fact has a JSON form");
    let id = ids::derived(&["wish", fact.fact_type().name(), data.get()]);
    let envelope = Envelope {
        id,
        message_type: fact.fact_type().name().to_owned(),
        version: fact.fact_type().version(),
        producer: "admin".to_owned(),
        correlation_id: id,
        causation_id: id,
        occurred_at: Timestamp::UNIX_EPOCH,
        data,
    };
    Bytes::from(serde_json::to_vec(&envelope).expect("an envelope has a JSON form"))
}

/// What an outbox says about dead letters, in its order, each with the id of its message.
pub fn announcements(entries: &[OutboxEntry]) -> Vec<(Uuid, Fact)> {
    let about = entries.iter().filter(|entry| entry.subject.starts_with("order.dead_letter"));
    let read = |entry: &OutboxEntry| {
        let message = Envelope::from_bytes(&entry.payload).and_then(|envelope| envelope.open());
        let message = message.expect("an announcement can be read");
        assert_eq!(message.id, entry.id);
        (message.id, message.fact)
    };
    about.map(read).collect()
}
