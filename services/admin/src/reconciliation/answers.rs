//! Shell: an answer within its time, or who did not give it.

use saga_engine::host::http::Problem;
use saga_engine::host::reading::Page;
use tokio::time::{Instant, timeout_at};

use super::under_way::Unanswered;

/// A page of a ledger, or who did not answer.
pub(super) type Answered<T> = Result<Page<T>, Unanswered>;

/// What a service answers until then to the question of `what`.
pub(super) async fn in_time<T>(
    until: Instant,
    service: &str,
    what: &str,
    asked: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Unanswered> {
    let why = match timeout_at(until, asked).await {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(problem)) => problem.detail,
        Err(_) => format!("{what}: no answer in time"),
    };
    Err(Unanswered { service: service.to_owned(), why })
}
