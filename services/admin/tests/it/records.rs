//! What each service has stored of an order.

use crate::harness::AdminHarness;

#[tokio::test]
async fn service_that_does_not_answer_is_named_and_the_others_are_shown() {
    let admin = AdminHarness::new().await;
    let answer = admin.get(&format!("/sagas/{}/records", uuid::Uuid::now_v7())).await;
    let records = answer["records"].as_array().expect("records");
    let services: Vec<_> = records.iter().map(|record| record["service"].as_str().expect("a name")).collect();
    assert_eq!(services, ["order", "inventory", "payment"]);
    for record in records {
        assert!(record["problem"].as_str().is_some_and(|problem| !problem.is_empty()), "{record}");
        assert_eq!(record["events"], serde_json::json!([]));
    }
}
