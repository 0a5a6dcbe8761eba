//! Pure: the result of one health check.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Check {
    /// How it stands.
    pub state: CheckState,
    /// What is wrong, in a sentence; `ok` when nothing is.
    pub text: String,
    /// Since when it stands so, as far as this process knows.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub since: Timestamp,
}

/// How a check stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    /// Nothing is wrong.
    Ok,
    /// Something is, and no promise is broken.
    Degraded,
    /// The service cannot do what it promises.
    Failed,
}
