//! Records of an order at each service.

use serde_json::{Value, json};

use crate::harness::AdminHarness;

/// Names of the services in an answer, each with whether it did not answer.
fn problems(answer: &Value) -> Vec<(&str, bool)> {
    let records = answer["records"].as_array().expect("records").iter();
    records
        .map(|record| (record["service"].as_str().expect("a name"), record["problem"].is_string()))
        .collect()
}

#[tokio::test]
async fn service_that_does_not_answer_is_told_from_one_without_a_record() {
    let admin = AdminHarness::with(&["service.inventory=http://127.0.0.1:9"]).await;
    let answer = admin.get(&format!("/sagas/{}/records", uuid::Uuid::now_v7())).await;
    assert_eq!(problems(&answer), [("order", false), ("inventory", true), ("payment", false)]);
    assert_eq!(answer["records"][1]["events"], json!([]));
}
