//! Shell: filters and order of the audit log.

use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{AdminHarness, answered, each};
use crate::routes::{admin_with, numbered};

#[tokio::test]
async fn log_is_filtered_by_time_operator_and_text_and_paged_by_time() {
    let admin = admin_with(1).await;
    for (operator, reason) in
        [("ada", "bank is back"), ("Ada Lovelace", "they said \"no\""), ("eve", "later")]
    {
        discard_and_restore(&admin, operator, reason).await;
    }
    let all = admin.get("/audit").await["entries"].clone();
    let times = each(&all, "at");
    assert_eq!(times.len(), 6);
    let time = |place: usize| times[place].as_str().expect("a time").to_owned();
    assert!(times.is_sorted_by(|a, b| a.as_str() > b.as_str()), "newest first: {times:?}");
    for (query, wanted) in [
        (format!("since={}", time(1)), &[0, 1][..]),
        (format!("until={}", time(4)), &[5]),
        (format!("since={}&until={}", time(4), time(2)), &[3, 4]),
        ("operator=ada".to_owned(), &[2, 3, 4, 5]),
        ("operator=LOVE".to_owned(), &[2, 3]),
        ("operator=a&text=BACK".to_owned(), &[4, 5]),
        ("text=said%20%22no%22".to_owned(), &[2, 3]),
        ("text=nothing%20like%20it".to_owned(), &[]),
        (format!("action=dlq.discard&since={}", time(3)), &[1, 3]),
    ] {
        let found = each(&admin.get(&format!("/audit?{query}")).await["entries"], "at");
        assert_eq!(found, wanted.iter().map(|place| times[*place].clone()).collect::<Vec<_>>(), "{query}");
    }
    assert_eq!(admin.ids("/audit?limit=1", "entries").await, each(&all, "id"));
    answered(admin.request(Method::GET, "/audit?since=yesterday"), 400).await;
}

pub fn process_change(operator: &str, at: Timestamp) -> Value {
    json!({
        "id": Uuid::now_v7(), "at": at, "operator": operator, "change": "stop", "process": "bank",
        "command": "stop", "outcome": "done",
    })
}

/// Regression: whoever may report could write entries at any time.
#[tokio::test]
async fn reported_time_counts_only_within_the_last_hour() {
    let admin = AdminHarness::new().await;
    let began = Timestamp::now();
    let [recent, old, future] = [-30, -61, 1].map(|minutes| began + SignedDuration::from_mins(minutes));
    for at in [recent, old, future] {
        let change = process_change("ada", at);
        for _ in 0..2 {
            answered(admin.request(Method::POST, "/audit/processes").json(&change), 204).await;
        }
    }
    let entries = admin.get("/audit").await["entries"].clone();
    assert_eq!(each(&entries, "operator"), ["ada"; 3]);
    let time = |at: &Value| at.as_str().and_then(|at| at.parse::<Timestamp>().ok()).expect("a time");
    assert_eq!(time(&entries[2]["at"]), recent);
    assert_eq!(entries[2]["detail"], json!({"command": "stop"}));
    for (entry, reported) in [(&entries[1], old), (&entries[0], future)] {
        assert!((began..=Timestamp::now()).contains(&time(&entry["at"])), "{entry}");
        assert_eq!(entry["detail"], json!({"command": "stop", "reported_at": reported}));
    }
}

#[tokio::test]
async fn outcome_of_a_change_is_reported_by_its_operator_only() {
    let admin = AdminHarness::new().await;
    let mut change = process_change("ada", Timestamp::now());
    for (operator, outcome) in [("ada", "asked"), ("eve", "failed: by ada"), ("ada", "done")] {
        (change["operator"], change["outcome"]) = (operator.into(), outcome.into());
        answered(admin.request(Method::POST, "/audit/processes").json(&change), 204).await;
    }
    let entries = admin.get("/audit").await["entries"].clone();
    assert_eq!(
        (each(&entries, "operator"), each(&entries, "outcome")),
        (vec!["ada".into()], vec!["done".into()])
    );
}

/// Writes two entries.
async fn discard_and_restore(admin: &AdminHarness, operator: &str, reason: &str) {
    let path = format!("/dlq/{}", numbered(0).id);
    let reason: Value = json!({ "reason": reason });
    for (method, path) in [(Method::DELETE, path.clone()), (Method::POST, format!("{path}/restore"))] {
        answered(admin.request(method, &path).header("X-Operator", operator).json(&reason), 200).await;
    }
}
