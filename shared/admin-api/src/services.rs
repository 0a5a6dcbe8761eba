//! Pure: health and backlog of every service.

use std::collections::BTreeMap;

use saga_core::health::Check;
use saga_core::service_stats::ServiceStats;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of one service.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ServiceState {
    /// Name, such as `order`.
    pub service: String,
    /// Address at which admin calls it.
    pub url: String,
    /// True if no check failed.
    pub ready: bool,
    /// True if a check found a problem that does not end readiness.
    pub degraded: bool,
    /// Results of its checks, by name; empty when it does not answer.
    pub checks: BTreeMap<String, Check>,
    /// Error of a service that does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Outbox, retries, tasks and steps; absent when it does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub service_stats: Option<ServiceStats>,
}
