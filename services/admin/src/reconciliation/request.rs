//! Shell: a reconciliation with its time limit.

use std::time::Duration;

use saga_engine::host::http::Problem;
use saga_engine::host::queries::Page;
use tokio::time::{Instant, timeout_at};

use crate::app::AdminApp;
use crate::service_client::ServiceClient;
use admin_api::reconciliation::Unanswered;

/// Time limit of a reconciliation without a wait.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// A page of a ledger, or the service that did not answer.
pub(super) type Answered<T> = Result<Page<T>, Unanswered>;

#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub app: &'a AdminApp,
    pub services: &'a ServiceClient,
    pub until: Instant,
    /// Time to wait for work in flight.
    pub patience: Duration,
}

impl<'a> Request<'a> {
    /// Starts a request without a wait.
    pub fn without_wait(app: &'a AdminApp, services: &'a ServiceClient) -> Self {
        Self { app, services, until: Instant::now() + DEFAULT_TIMEOUT, patience: DEFAULT_TIMEOUT }
    }

    /// Awaits a response within the time limit; `what` names the question.
    pub async fn in_time<T>(
        &self,
        service: &str,
        what: &str,
        asked: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Unanswered> {
        let why = match timeout_at(self.until, asked).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(problem)) => problem.detail,
            Err(_) => format!("{what}: no answer in time"),
        };
        Err(Unanswered { service: service.to_owned(), why })
    }
}
