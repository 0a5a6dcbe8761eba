//! Operator commands about dead letters, as admin publishes them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use saga_core::dead_letter::{
    DeadLetterDiscarded, DeadLetterMessage, DeadLetterRestored, EditedMessage, ReplayRequested,
};
use saga_core::ids;
use saga_core::input::Input;
use saga_core::message::{Envelope, Message as _};
use saga_engine::store::OutboxEntry;
use uuid::Uuid;

use super::depot::{Depot, operating};
use super::facts::envelope;

/// Service that has the dead letters.
const HERE: &str = "depot";

/// Replays a dead letter.
pub fn replay(dead_letter: Uuid, revision: u64) -> DeadLetterMessage {
    let service = HERE.to_owned();
    DeadLetterMessage::ReplayRequested(ReplayRequested { dead_letter, service, revision, edited: None })
}

/// Replays a dead letter with this payload.
pub fn edit(dead_letter: Uuid, revision: u64, message_id: Uuid, payload: &[u8]) -> DeadLetterMessage {
    let edited = Some(EditedMessage { message_id, payload_base64: STANDARD.encode(payload) });
    let service = HERE.to_owned();
    DeadLetterMessage::ReplayRequested(ReplayRequested { dead_letter, service, revision, edited })
}

/// Discards a dead letter, without a number of replays.
pub fn discard(dead_letter: Uuid, revision: u64) -> DeadLetterMessage {
    let service = HERE.to_owned();
    DeadLetterMessage::DeadLetterDiscarded(DeadLetterDiscarded {
        dead_letter,
        service,
        revision,
        replays: None,
    })
}

/// Discards a dead letter after so many failed replays.
pub fn discard_after(replays: u32, dead_letter: Uuid, revision: u64) -> DeadLetterMessage {
    let mut command = discard(dead_letter, revision);
    if let DeadLetterMessage::DeadLetterDiscarded(discarded) = &mut command {
        discarded.replays = Some(replays);
    }
    command
}

/// Restores a discarded dead letter.
pub fn restore(dead_letter: Uuid, revision: u64) -> DeadLetterMessage {
    let service = HERE.to_owned();
    DeadLetterMessage::DeadLetterRestored(DeadLetterRestored { dead_letter, service, revision })
}

/// Changes the service of a replay.
pub fn for_another(mut command: DeadLetterMessage) -> DeadLetterMessage {
    if let DeadLetterMessage::ReplayRequested(replay) = &mut command {
        replay.service = "ferry".to_owned();
    }
    command
}

/// Message with a command. The same command is the same message.
pub fn commanded(command: &DeadLetterMessage) -> Input<Depot> {
    Input::message(operating(), payload(command), Uuid::from_u128(405), 0)
}

/// Envelope of a command.
pub fn payload(command: &DeadLetterMessage) -> Bytes {
    let data = command.encode().expect("a command has a JSON form");
    let id = ids::derived(&["command", command.message_type().name, data.get()]);
    envelope(id, "admin", command)
}

/// Announcements of dead letters in an outbox, with their message ids.
pub fn announcements(entries: &[OutboxEntry]) -> Vec<(Uuid, DeadLetterMessage)> {
    let about = entries.iter().filter(|entry| entry.subject.starts_with("depot.dead_letter"));
    let read = |entry: &OutboxEntry| {
        let message = Envelope::from_bytes(&entry.payload).and_then(|envelope| envelope.open());
        let message = message.expect("an announcement can be read");
        assert_eq!(message.id, entry.id);
        (message.id, message.fact)
    };
    about.map(read).collect()
}
