//! Pure: injected faults of all services and the bank.

use std::collections::BTreeMap;

use garde::Validate;
use saga_core::fault::ActiveFault;
use saga_core::text::trimmed_if_any;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text::one_line;

/// An active fault with its service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceFault {
    /// Service that the fault strikes.
    pub service: String,
    /// Kind, limits and hits.
    #[serde(flatten)]
    pub fault: ActiveFault,
}

/// Active faults of all services.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct AllFaults {
    /// Active faults, service by service.
    pub faults: Vec<ServiceFault>,
    /// Services that do not answer.
    pub unreachable: Vec<String>,
    /// Services that allow no faults (`faults.enabled = false`).
    pub disabled: Vec<String>,
    /// Seed of the random numbers, by service.
    pub seeds: BTreeMap<String, u64>,
}

/// Request to inject a fault.
#[derive(Debug, Clone, Serialize, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct InjectFault {
    /// Service that the fault strikes: admin, another service, or the bank.
    pub service: String,
    /// Kind, as `sagactl faults kinds` lists them.
    #[schema(example = "fail_transiently")]
    pub kind: String,
    /// Step that the fault strikes; every step of the service without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Percentage of occasions, 1 to 100; default 100.
    #[garde(inner(range(min = 1, max = 100)))]
    #[schema(minimum = 1, maximum = 100)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<u8>,
    /// Number of occasions until the fault ends, 1 to 1000000; unlimited by default.
    #[garde(inner(range(min = 1, max = 1_000_000)))]
    #[schema(minimum = 1, maximum = 1_000_000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
    /// Time after which the fault ends, in seconds, 1 to 86400, a day; unlimited by default.
    #[garde(inner(range(min = 1, max = 86_400)))]
    #[schema(minimum = 1, maximum = 86_400)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_seconds: Option<u32>,
    /// Delay in milliseconds: 1 to 600000.
    #[garde(inner(range(min = 1, max = 600_000)))]
    #[schema(minimum = 1, maximum = 600_000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// New seed of the random numbers of all faults of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Reason, 1 to 500 characters; kept in the audit log.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Result of clearing faults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClearedFaults {
    /// Number of cleared faults.
    pub cleared: u64,
    /// Services that do not answer. Their faults stay active.
    pub unreachable: Vec<String>,
}
