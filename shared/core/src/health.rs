//! Pure: the result of one health check.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Result of one health check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Check {
    /// Severity of what the check found.
    pub state: CheckState,
    /// Problem in one sentence; `ok` if there is none.
    pub text: String,
    /// Time since which the severity is unchanged, as far as this process knows.
    pub since: Timestamp,
}

/// Severity of a health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    /// The check found no problem.
    Ok,
    /// Problem that does not affect the service's clients.
    Degraded,
    /// Problem that keeps the service from its work.
    Failed,
}
