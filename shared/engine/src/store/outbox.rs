//! Shell: outbox entries on their way to the broker.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use saga_core::trace::TraceContext;
use uuid::Uuid;

/// Outbox entry to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxEntry {
    /// Position: entries are published in this order.
    pub seq: i64,
    /// Message id, by which the broker and every inbox recognise duplicates.
    pub id: Uuid,
    /// Saga of the message. Entries of one saga never overtake each other.
    pub saga: Uuid,
    /// Subject to publish to, e.g. `order.created`.
    pub subject: String,
    /// Bytes of the envelope to publish.
    pub payload: Bytes,
    /// Trace context of the input that caused the message.
    pub trace: Option<TraceContext>,
}

/// Outcome of publishing a batch, to be settled.
#[derive(Debug, Clone, Default)]
pub struct PublishOutcome {
    /// Positions of the entries that the broker stored.
    pub done: Vec<i64>,
    /// Entries that the broker rejects for good, with the reason. They become `FAILED` and block later entries of their
    /// sagas.
    pub refused: Vec<(i64, String)>,
    /// First of the remaining entries, with the reason why it was not published.
    pub delayed: Option<(i64, String)>,
}

/// Consecutive entries that the broker stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedRun {
    /// Position of the first entry.
    pub first: i64,
    /// Position of the last entry.
    pub last: i64,
    /// Number of entries by subject.
    pub subjects: BTreeMap<String, i64>,
    /// Time at which the broker stored them.
    pub at: Timestamp,
}

/// Page of entries that were marked to be published again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepublishPage {
    /// Number of entries that were marked.
    pub count: usize,
    /// Position of the last marked entry.
    pub last: Option<i64>,
}
