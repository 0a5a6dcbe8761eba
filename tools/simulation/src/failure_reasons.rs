//! Pure: reasons of failures, and messages that are broken on purpose.

use contract::{Fact, FactType};
use saga_core::message::{Envelope, Message as _};
use uuid::Uuid;

/// A step that may work later.
pub const TRANSIENT: &str = "injected: not now";
/// A step that can never work.
pub const PERMANENT: &str = "injected: this can never work";
/// A message that the broker does not deliver any more.
pub const MAX_DELIVERIES: &str = "the broker reached its delivery limit";
/// A confirmed order whose lines were edited before they were reserved.
pub const LINES_DIFFER: &str = ", but reserved: ";
/// A failed call to the bank.
pub const BANK_FAILED: &str = "the bank: ";
pub const CALL_TIMED_OUT: &str = "no answer within";

/// Added to a version, to get one that nobody reads.
const VERSIONS_AHEAD: u32 = 98;

/// Copies a message in a newer version.
pub fn in_newer_version(payload: &[u8]) -> Option<Vec<u8>> {
    let mut envelope = Envelope::from_bytes(payload).ok()?;
    envelope.version += VERSIONS_AHEAD;
    serde_json::to_vec(&envelope).ok()
}

/// Replaces the product in the first line of an `OrderCreated`; leaves other messages as they are.
pub fn edited_line(payload: Vec<u8>) -> Vec<u8> {
    let edited_line = || {
        let mut envelope = Envelope::from_bytes(&payload).ok()?;
        let Fact::OrderCreated(mut created) = envelope.open::<Fact>().ok()?.fact else { return None };
        let sku = &mut created.lines.first_mut()?.sku;
        *sku = if sku == "tea" { "cup" } else { "tea" }.to_owned();
        envelope.data = Fact::from(created).encode().ok()?;
        serde_json::to_vec(&envelope).ok()
    };
    edited_line().unwrap_or(payload)
}

/// Copies a message with another id and unreadable content.
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
