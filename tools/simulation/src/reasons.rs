//! Pure: what is wrong with a message, or with what became of it.

use contract::{Fact, FactType};
use saga_core::message::{Envelope, Message as _};
use uuid::Uuid;

/// Why a step fails that may work later.
pub const NOT_NOW: &str = "injected: not now";
/// Why a step fails that can never work.
pub const BROKEN: &str = "injected: this can never work";
/// Why the broker does not deliver a message any more.
pub const GIVEN_UP: &str = "the broker gave it up";
/// Why a confirmed order is not sold: somebody edited it on its way to the stock.
pub const DISAGREES: &str = ", and the order holds ";
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

/// The creation of an order with another product in its first line; any other message as it is.
#[must_use]
pub fn misread(payload: Vec<u8>) -> Vec<u8> {
    let misread = || {
        let mut envelope = Envelope::from_bytes(&payload).ok()?;
        let Fact::OrderCreated(mut created) = envelope.open::<Fact>().ok()?.fact else { return None };
        let sku = &mut created.lines.first_mut()?.sku;
        *sku = if sku == "tea" { "cup" } else { "tea" }.to_owned();
        envelope.data = Fact::from(created).encode().ok()?;
        serde_json::to_vec(&envelope).ok()
    };
    misread().unwrap_or(payload)
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
