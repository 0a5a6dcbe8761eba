//! Pure: circuit breakers of all services.

use garde::Validate;
use saga_core::breaker::{BreakerAction, BreakerView};
use saga_core::text::trimmed_if_any;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text::one_line;

/// Breakers of one service, as the replica that answered has them.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ServiceBreakers {
    /// Name of the service.
    pub service: String,
    /// Error of a service that does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Breakers; empty when the service does not answer.
    pub breakers: Vec<BreakerView>,
}

/// Request to change a breaker in every replica.
#[derive(Debug, Clone, Serialize, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct ChangeBreaker {
    /// `open` and `closed` hold until another action; `reset` ends that.
    pub action: BreakerAction,
    /// Reason, 1 to 500 characters; optional for `reset`.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
