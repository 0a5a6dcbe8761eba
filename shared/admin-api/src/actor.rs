//! Pure: who makes a change, and why.

use garde::Validate;
use saga_core::text::trimmed_if_any;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::text::one_line;

/// The author of a change, kept in histories and in the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Actor {
    /// Name of the operator; `anonymous` without one, `system` for changes that admin makes itself.
    pub operator: String,
    /// Reason in the operator's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Actor {
    /// Describes a change that admin makes itself.
    pub fn system(reason: Option<String>) -> Self {
        Self { operator: "system".to_owned(), reason }
    }
}

/// Request body with nothing but a reason.
#[derive(Debug, Clone, Default, Serialize, Deserialize, Validate, ToSchema, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct Reason {
    /// Reason, 1 to 500 characters; kept in the audit log.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(min_length = 1, max_length = 500, format = "trimmed-line")]
    #[param(min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Schema of [`Reason`] where the reason is mandatory. Requests are read as [`Reason`], so that a missing one gets a better
/// error.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RequiredReason {
    /// Reason, 1 to 500 characters; kept in the audit log.
    #[schema(min_length = 1, max_length = 500, format = "trimmed-line")]
    pub reason: String,
}
