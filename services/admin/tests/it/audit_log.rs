//! Shell: filters and order of the audit log.

use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{AdminHarness, answered, each};
use crate::replay_values::{CHARGE, dead_lettered, four_parked, order};
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
async fn id_of_a_report_is_a_uuidv7_of_about_its_time() {
    let admin = AdminHarness::new().await;
    let now = Timestamp::now();
    let at = |hours: i64| {
        let time = now + SignedDuration::from_hours(hours);
        Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, time.as_second().unsigned_abs(), 0))
    };
    let other_version = uuid::Builder::from_random_bytes(at(0).into_bytes()).into_uuid();
    for (id, status) in [
        (at(-24 * 30), 204),
        (at(-24 * 400), 400),
        (at(2), 400),
        (Uuid::max(), 400),
        (Uuid::nil(), 400),
        (other_version, 400),
    ] {
        let mut change = process_change("ada", now);
        change["id"] = json!(id);
        answered(admin.request(Method::POST, "/audit/processes").json(&change), status).await;
    }
    assert_eq!(admin.get("/audit").await["entries"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn log_is_filtered_by_the_order_that_a_change_touched() {
    let (admin, _) = four_parked().await;
    let filter = json!({"step": CHARGE});
    let resolve = json!({"ids": [dead_lettered(1).id], "reason": order(2)});
    admin.post("/dlq/discard", &resolve, 200).await;
    admin.post("/dlq/restore", &json!({"filter": filter, "reason": "a test"}), 200).await;
    admin.post("/sagas/extend", &json!({"filter": filter, "seconds": 3_600, "reason": "a test"}), 200).await;
    let by_step = json!({"stuck_at": "inventory-stock-reservation", "seconds": 7_200, "reason": "a test"});
    admin.post("/sagas/extend", &by_step, 200).await;
    let note = format!("/dlq/{}/notes", dead_lettered(1).id);
    admin.post(&note, &json!({"text": "seen"}), 201).await;
    for (number, wanted) in [
        (1, &["dlq.note", "saga.extend", "saga.extend", "dlq.restore_many", "dlq.discard_many"][..]),
        (2, &["saga.extend", "saga.extend"]),
        (5, &[]),
    ] {
        let of = format!("/audit?target={}", order(number));
        let found = admin.get(&of).await["entries"].clone();
        assert_eq!(each(&found, "action"), wanted, "{number}: {found}");
        assert_eq!(admin.ids(&format!("{of}&limit=1"), "entries").await, each(&found, "id"));
    }
    let both = format!("/audit?target={}&text=stuck_at&operator=ad", order(1));
    assert_eq!(admin.get(&both).await["entries"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn blank_reason_is_rejected() {
    let admin = admin_with(1).await;
    let path = format!("/dlq/{}", numbered(0).id);
    for blank in ["", "%20%20"] {
        let query = format!("{path}?reason={blank}");
        let rejected = answered(admin.request(Method::DELETE, &query), 422).await;
        assert_eq!(rejected["errors"][0]["field"], "reason", "{rejected}");
        answered(admin.request(Method::DELETE, &path).json(&json!({"reason": "  "})), 422).await;
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
