//! Shell: whoever asks, and an answer within its time, or who did not give it.

use std::time::Duration;

use saga_engine::host::http::Problem;
use saga_engine::host::queries::Page;
use tokio::time::{Instant, timeout_at};

use super::under_way::Unanswered;
use crate::AdminApp;
use crate::other_services::OtherServices;

/// The whole time of an answer for which nobody wants to wait: reading the ledgers takes some.
pub(super) const AT_ONCE: Duration = Duration::from_secs(10);

/// A page of a ledger, or who did not answer.
pub(super) type Answered<T> = Result<Page<T>, Unanswered>;

/// Whoever asks, until when.
#[derive(Clone, Copy)]
pub(super) struct Asking<'a> {
    pub app: &'a AdminApp,
    pub services: &'a OtherServices,
    pub until: Instant,
    /// How long is waited for what is under way.
    pub patience: Duration,
}

impl<'a> Asking<'a> {
    /// Whoever wants an answer at once.
    pub fn at_once(app: &'a AdminApp, services: &'a OtherServices) -> Self {
        Self { app, services, until: Instant::now() + AT_ONCE, patience: AT_ONCE }
    }

    /// What a service answers in time to the question of `what`.
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
