//! Shell: what a service answers at `/readyz`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::future::BoxFuture;
pub use saga_core::health::{Check, CheckState};
use serde::{Deserialize, Serialize};

/// Whether a service can do what it promises, check by check. As an answer it is 503 unless it is ready.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Readiness {
    /// It takes what it promises to take: no check failed.
    pub ready: bool,
    /// Something is not as it should be, and the service does what it promises all the same: what comes of it is late.
    pub degraded: bool,
    /// What each check found, by its name.
    pub checks: BTreeMap<String, Check>,
    /// Of several replicas, this one publishes, and is given messages first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leads: bool,
    /// What is worth knowing of how it was set up, and nothing to be done about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

impl Readiness {
    /// What these checks come to.
    #[must_use]
    pub fn of(checks: BTreeMap<String, Check>) -> Self {
        let any = |state| checks.values().any(|check| check.state == state);
        Self {
            ready: !any(CheckState::Failed),
            degraded: any(CheckState::Degraded),
            checks,
            leads: false,
            remarks: Vec::new(),
        }
    }

    /// What is wrong, in one line: `broker: not connected; clock: …`; empty when nothing is.
    #[must_use]
    pub fn complaints(&self) -> String {
        let wrong = self.checks.iter().filter(|(_, check)| check.state != CheckState::Ok);
        wrong.map(|(name, check)| format!("{name}: {}", check.text)).collect::<Vec<_>>().join("; ")
    }
}

impl IntoResponse for Readiness {
    fn into_response(self) -> Response {
        let status = if self.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let mut response = (status, Json(self)).into_response();
        // Not a problem document, but not to be rewritten as one either.
        response.headers_mut().insert("x-readiness", HeaderValue::from_static("checks"));
        response
    }
}

/// Asks how the service is.
pub type Health = Arc<dyn Fn() -> BoxFuture<'static, Readiness> + Send + Sync>;
