//! Pure: outbox entries as operators see them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// An outbox entry as the operator sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutboxItem {
    /// Position in the outbox: lower ones are published first. Names the entry when it is to be tried again.
    pub seq: i64,
    /// Id of the message, as in its envelope.
    pub id: Uuid,
    /// Subject it is published to, e.g. `order.created`.
    pub subject: String,
    /// `PENDING`; `FAILED`, when the broker refused it; `BLOCKED`, behind a failed one of its saga; `RETRY`, when it is
    /// tried again; `REPUBLISH`, when it was published and is to be published once more.
    pub status: String,
    /// Tries that failed.
    pub attempts: u32,
    /// What the last try said.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub last_error: Option<String>,
    /// When it was written.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created_at: Timestamp,
}

/// What is published once more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Republished {
    /// Messages that the relay publishes again. Whoever has handled them before knows them, and does nothing.
    pub republished: u64,
    /// What was published before that is not kept for it (`retention.published`).
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub kept_since: Timestamp,
}
