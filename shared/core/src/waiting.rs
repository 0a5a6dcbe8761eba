//! Pure: what the store keeps until its time comes: calls to make, and messages to try again.

use bytes::Bytes;
use jiff::Timestamp;
use uuid::Uuid;

use crate::dead_letter::Delivery;

/// A call to make, and who last set about making it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Derived id; the `Idempotency-Key` of the call.
    pub id: Uuid,
    /// What kind of call.
    pub kind: String,
    /// Correlation id of the input that asked for the call: the saga's.
    pub correlation_id: Uuid,
    /// What the call needs, as JSON.
    pub payload: String,
    /// Tries that failed.
    pub attempts: u32,
    /// Grows with each claim, from 0 for a task that nobody ever claimed: a lapsed owner's failure has no effect.
    pub claim: i64,
    /// When it was written.
    pub created_at: Timestamp,
    /// The dead letter that is being replayed.
    pub dead_letter: Option<Uuid>,
}

/// A message that will be tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// Name of the step that failed, and is to try again.
    pub step: String,
    /// The id under which the step knows the message: its own, unless an operator has edited it since.
    pub message_id: Uuid,
    /// The envelope's bytes as they will be tried: as they came, or as an operator edited them.
    pub payload: Bytes,
    /// Tries that failed.
    pub attempts: u32,
    /// When to try again.
    pub next_attempt: Timestamp,
    /// When the first try failed.
    pub first_failed_at: Timestamp,
    /// What went wrong last.
    pub last_error: String,
    /// Where the broker had it.
    pub delivery: Option<Delivery>,
    /// The dead letter that is being replayed.
    pub dead_letter: Option<Uuid>,
}
