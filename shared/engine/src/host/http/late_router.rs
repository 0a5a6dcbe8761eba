//! Shell: answers while a service opens its database: it lives, and is not ready.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use saga_core::health::{Check, CheckState};
use tower::ServiceExt as _;

use super::problem::Problem;
use super::readiness::Readiness;

/// Reason for which a starting service is not ready.
const OPENING: &str = "opening the database";

/// Routes of a service, which are set once its database is open. Clones share them.
#[derive(Clone)]
pub struct LateRouter {
    routes: Arc<OnceLock<Router>>,
    since: Timestamp,
}

impl LateRouter {
    /// Creates a router without routes: only probes are answered.
    #[must_use]
    pub fn new() -> Self {
        Self { routes: Arc::default(), since: Timestamp::now() }
    }

    /// Sets the routes, once.
    pub fn open(&self, routes: Router) {
        let _ = self.routes.set(routes);
    }

    /// Makes the router that a server serves from the start on.
    pub fn router(&self) -> Router {
        let late = self.clone();
        Router::new().fallback(move |request: Request| {
            let late = late.clone();
            async move { late.answer(request).await }
        })
    }

    async fn answer(&self, request: Request) -> Response {
        match self.routes.get() {
            Some(routes) => routes.clone().oneshot(request).await.into_response(),
            None => match request.uri().path() {
                "/livez" => "alive\n".into_response(),
                "/readyz" => self.readiness().into_response(),
                _ => Problem::unavailable(OPENING, 1).into_response(),
            },
        }
    }

    fn readiness(&self) -> Readiness {
        let check = Check { state: CheckState::Failed, text: OPENING.to_owned(), since: self.since };
        Readiness::of(BTreeMap::from([("startup".to_owned(), check)]))
    }
}

impl Default for LateRouter {
    fn default() -> Self {
        Self::new()
    }
}
