//! Pure: what comes with a request beside what it asks for: who asks and why, and which member is at fault.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Who asks for something, and why; kept in histories and in the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct By {
    /// The name that the operator gave, `anonymous`, or `system` for what admin does by itself.
    pub operator: String,
    /// In the operator's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl By {
    /// What admin does by itself.
    #[must_use]
    pub fn system(reason: Option<String>) -> Self {
        Self { operator: "system".to_owned(), reason }
    }
}

/// A member of a request that cannot be what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidField {
    /// Its path, such as `payload.data.lines[0].quantity`.
    pub field: String,
    /// What is wrong with it, or what it must be.
    pub detail: String,
}
