//! Pure: what is wrong with a message, or with what became of it.

use contract::FactType;
use saga_core::message::Envelope;
use uuid::Uuid;

/// Why a step fails that may work later.
pub const NOT_NOW: &str = "injected: not now";
/// Why a step fails that can never work.
pub const BROKEN: &str = "injected: this can never work";
/// Why the broker does not deliver a message any more.
pub const GIVEN_UP: &str = "the broker gave it up";
/// Why a call to the bank fails.
pub const NO_ANSWER: &str = "the bank: ";
/// Why a call to the bank has no end.
pub const TOO_LATE: &str = "no answer within";

/// The versions of a build that nobody has yet.
const VERSIONS_AHEAD: u32 = 98;

/// The same message as a newer build would say it.
#[must_use]
pub fn in_newer_version(payload: &[u8]) -> Option<Vec<u8>> {
    let mut envelope = Envelope::from_bytes(payload).ok()?;
    envelope.version += VERSIONS_AHEAD;
    serde_json::to_vec(&envelope).ok()
}

/// A message like this one, under another id and with something inside that nobody can read.
#[must_use]
pub fn forged(payload: &[u8], id: Uuid, kind: usize) -> Option<Vec<u8>> {
    let mut envelope = Envelope::from_bytes(payload).ok()?;
    envelope.id = id;
    match kind {
        0 => envelope.version += VERSIONS_AHEAD,
        1 => envelope.message_type = "OrderTeleported".to_owned(),
        _ => envelope.data = serde_json::value::to_raw_value(FactType::ALL).ok()?,
    }
    serde_json::to_vec(&envelope).ok()
}
