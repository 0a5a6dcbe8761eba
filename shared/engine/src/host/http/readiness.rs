//! Shell: answer of `/readyz`, with the status that probes go by.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::future::BoxFuture;
pub use saga_core::health::{Check, CheckState};
use serde::{Deserialize, Serialize};

/// Readiness of a service, check by check. As an answer it is 503 unless the service is ready.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Readiness {
    /// True if no check failed: the service accepts requests and processes messages.
    pub ready: bool,
    /// True if a check is degraded: accepted work is stored, but delayed.
    pub degraded: bool,
    /// Results of the checks, by name.
    pub checks: BTreeMap<String, Check>,
    /// True for the leader among replicas, which publishes and consumes first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_leader: bool,
    /// Notes on the configuration that need no action.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

impl Readiness {
    /// Combines the results of checks.
    #[must_use]
    pub fn of(checks: BTreeMap<String, Check>) -> Self {
        let any = |state| checks.values().any(|check| check.state == state);
        Self {
            ready: !any(CheckState::Failed),
            degraded: any(CheckState::Degraded),
            checks,
            is_leader: false,
            remarks: Vec::new(),
        }
    }

    /// Lists the problems in one line, as `broker: not connected; clock: …`. Empty without problems.
    #[must_use]
    pub fn problems(&self) -> String {
        let wrong = self.checks.iter().filter(|(_, check)| check.state != CheckState::Ok);
        wrong.map(|(name, check)| format!("{name}: {}", check.text)).collect::<Vec<_>>().join("; ")
    }
}

impl IntoResponse for Readiness {
    fn into_response(self) -> Response {
        let status = if self.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let mut response = (status, Json(self)).into_response();
        // Keeps `as_problem` from rewriting this answer as a problem document.
        response.headers_mut().insert("x-readiness", HeaderValue::from_static("checks"));
        response
    }
}

/// Callback that runs the health checks.
pub type ReadinessProbe = Arc<dyn Fn() -> BoxFuture<'static, Readiness> + Send + Sync>;
