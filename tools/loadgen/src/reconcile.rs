//! Shell: reconciliation at the end of a run.

use admin_api::reconciliation::FULL_VERIFICATION_TIMEOUT;

use cli::note;
use client::http::Http;
use client::reconciliation::{Extent, MAX_WAIT, Reconciliation};
use devstack::{Component, Endpoints};

/// Reconciles; without `json` it prints how long that may take.
pub async fn run(endpoints: &Endpoints, json: bool) -> anyhow::Result<Reconciliation> {
    let report_progress = |text: &str| {
        if !json {
            note(text);
        }
    };
    reconcile(&Http::with_access(&endpoints.access)?, &endpoints.url_of(Component::ADMIN), report_progress)
        .await
}

/// Reconciles everything if the orders since the last checkpoint cannot be read in the time of one answer, as after a long
/// run.
async fn reconcile(
    http: &Http,
    admin: &str,
    report_progress: impl Fn(&str),
) -> anyhow::Result<Reconciliation> {
    report_progress(&format!("reconciling, for {}s at most", MAX_WAIT.as_secs()));
    let first = client::reconciliation::reconcile(http, admin, MAX_WAIT, Extent::Incremental).await?;
    if !first.lacks_answers() {
        return Ok(first);
    }
    let minutes = (MAX_WAIT + FULL_VERIFICATION_TIMEOUT).as_secs() / 60;
    report_progress(&format!(
        "not everything was read by then: reconciling everything, for {minutes} minutes at most"
    ));
    client::reconciliation::reconcile(http, admin, MAX_WAIT, Extent::Full).await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use admin_api::reconciliation::{Report, Unanswered, Verdict};
    use axum::extract::RawQuery;
    use axum::routing::get;
    use axum::{Json, Router};

    /// Verdict, and number of requests, with an admin that answers this first and is balanced after reading everything.
    async fn verdict_after(answer: Report) -> (Verdict, usize) {
        static REQUESTS: AtomicUsize = AtomicUsize::new(0);
        REQUESTS.store(0, Ordering::Relaxed);
        let answer_once = async move |RawQuery(query): RawQuery| {
            REQUESTS.fetch_add(1, Ordering::Relaxed);
            let is_full = query.is_some_and(|query| query.contains("full=true"));
            Json(if is_full {
                Report { verdict: Verdict::Balanced, ..Report::default() }
            } else {
                answer.clone()
            })
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let admin = format!("http://{}", listener.local_addr().expect("an address"));
        let serving =
            axum::serve(listener, Router::new().route("/api/admin/reconciliation", get(answer_once)));
        let serving = tokio::spawn(async { serving.await });
        let reconciled = reconcile(&Http::new().expect("a client"), &admin, |_| ()).await.expect("an answer");
        serving.abort();
        (reconciled.report.verdict, REQUESTS.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn everything_is_reconciled_only_if_services_did_not_answer_completely() {
        let late = vec![Unanswered { service: "order".to_owned(), why: "no answer in time".to_owned() }];
        for (verdict, unanswered, expected, requests) in [
            (Verdict::InFlight, late.clone(), Verdict::Balanced, 2),
            (Verdict::InFlight, vec![], Verdict::InFlight, 1),
            (Verdict::Balanced, vec![], Verdict::Balanced, 1),
            (Verdict::Unbalanced, late, Verdict::Unbalanced, 1),
        ] {
            let answer = Report { verdict, unanswered, ..Report::default() };
            assert_eq!(verdict_after(answer).await, (expected, requests), "{verdict}");
        }
    }
}
