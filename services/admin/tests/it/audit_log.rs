//! Shell: filters and order of the audit log.

use reqwest::Method;
use serde_json::{Value, json};

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

/// Writes two entries.
async fn discard_and_restore(admin: &AdminHarness, operator: &str, reason: &str) {
    let path = format!("/dlq/{}", numbered(0).id);
    let reason: Value = json!({ "reason": reason });
    for (method, path) in [(Method::DELETE, path.clone()), (Method::POST, format!("{path}/restore"))] {
        answered(admin.request(method, &path).header("X-Operator", operator).json(&reason), 200).await;
    }
}
