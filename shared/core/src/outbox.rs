//! Pure: outbox entries, as operators see them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Outbox entry, as operators see it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutboxItem {
    /// Position in the outbox. Entries are published in this order. Identifies the entry in retry commands.
    pub seq: i64,
    /// Message id, as in the envelope.
    pub id: Uuid,
    /// Subject to publish to, e.g. `order.created`.
    pub subject: String,
    /// `PENDING`: to publish. `FAILED`: rejected by the broker. `BLOCKED`: behind a failed entry of its saga.
    /// `RETRY`: a failed entry to publish again. `REPUBLISH`: a published entry to publish again.
    pub status: String,
    /// Number of failed attempts to publish it.
    pub attempts: u32,
    /// Error of the last attempt.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub last_error: Option<String>,
    /// Time at which it was created.
    pub created_at: Timestamp,
}

/// Result of a request to publish messages again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Republished {
    /// Messages that the relay publishes again. Consumers that have processed them ignore the duplicates.
    pub republished: u64,
    /// Time before which published messages are no longer kept (`retention.published`).
    pub kept_since: Timestamp,
}
