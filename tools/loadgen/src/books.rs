//! Shell: whether the books balance, asked when a run is over.

use contract::reconciliation::WHOLE_WITHIN;

use cli::note;
use client::http::Http;
use client::reconciliation::{self, LONGEST_WAIT, Reconciliation};
use devstack::{Member, Reach};

/// Asks; whoever reads along is told for how long.
pub async fn ask(reach: &Reach, json: bool) -> anyhow::Result<Reconciliation> {
    let tell = |text: &str| {
        if !json {
            note(text);
        }
    };
    told_by(&Http::by(&reach.entry)?, &reach.url_of(Member::ADMIN), tell).await
}

/// Of so many orders that they cannot be read in the time of one answer, as after a long run without a rest, in which no
/// books are closed, everything is read.
async fn told_by(http: &Http, admin: &str, tell: impl Fn(&str)) -> anyhow::Result<Reconciliation> {
    tell(&format!("asking whether the books balance, for {}s at most", LONGEST_WAIT.as_secs()));
    let at_first = reconciliation::ask(http, admin, LONGEST_WAIT).await?;
    if !at_first.lacks_answers() {
        return Ok(at_first);
    }
    let minutes = (LONGEST_WAIT + WHOLE_WITHIN).as_secs() / 60;
    tell(&format!("not everything was read by then: asking for all of it, for {minutes} minutes at most"));
    reconciliation::ask_for_all(http, admin, LONGEST_WAIT).await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::extract::RawQuery;
    use axum::routing::get;
    use axum::{Json, Router};
    use contract::overview::Verdict;
    use serde_json::{Value, json};

    use super::*;

    /// What is told by an admin that answers this, and balances once it reads everything; and how often it was asked.
    async fn told_at_first(answer: Value) -> (Verdict, usize) {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        ASKED.store(0, Ordering::Relaxed);
        let audit = async move |RawQuery(query): RawQuery| {
            ASKED.fetch_add(1, Ordering::Relaxed);
            let is_whole = query.is_some_and(|query| query.contains("whole=true"));
            Json(if is_whole { json!({"verdict": "BALANCED", "unanswered": []}) } else { answer })
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let admin = format!("http://{}", listener.local_addr().expect("an address"));
        let serving = axum::serve(listener, Router::new().route("/api/admin/audit", get(audit)));
        let serving = tokio::spawn(async { serving.await });
        let told = told_by(&Http::new().expect("a client"), &admin, |_| ()).await.expect("an answer");
        serving.abort();
        (told.verdict, ASKED.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn what_cannot_be_read_in_one_answer_is_read_to_its_end_and_nothing_else() {
        let late = json!([{"service": "order", "why": "no answer in time"}]);
        for (verdict, unanswered, told, asked) in [
            ("IN_FLIGHT", late.clone(), Verdict::Balanced, 2),
            ("IN_FLIGHT", json!([]), Verdict::InFlight, 1),
            ("BALANCED", json!([]), Verdict::Balanced, 1),
            ("UNBALANCED", late, Verdict::Unbalanced, 1),
        ] {
            let answer = json!({"verdict": verdict, "unanswered": unanswered});
            assert_eq!(told_at_first(answer.clone()).await, (told, asked), "{answer}");
        }
    }
}
