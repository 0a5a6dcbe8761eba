//! Pure: outboxes of all services.

use garde::Validate;
use jiff::Timestamp;
use saga_core::outbox::OutboxItem;
use saga_core::text::trimmed_if_any;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text::one_line;

/// Unpublished entries of one service.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ServiceOutbox {
    /// Service whose outbox it is.
    pub service: String,
    /// Entries, oldest first; absent when the service does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<Vec<OutboxItem>>,
    /// Error of a service that does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// True if the list was cut.
    pub more: bool,
}

/// Request to publish entries that the broker rejected.
#[derive(Debug, Clone, Default, Serialize, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryEntries {
    /// Position of one entry. Without it all rejected entries are retried, which needs a reason.
    #[garde(inner(range(min = 0)))]
    #[schema(minimum = 0)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    /// Reason, 1 to 500 characters; kept in the audit log.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Result of a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RetriedEntries {
    /// Number of entries that the relay takes up again.
    pub retried: u64,
}

/// Request to publish again what the broker has lost.
#[derive(Debug, Clone, Serialize, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RepublishEntries {
    /// Start of the period whose messages are published again, as far as they are kept.
    #[garde(skip)]
    pub since: Timestamp,
    /// Reason, 1 to 500 characters; kept in the audit log. Required.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(required = true, nullable = false, min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
