//! Shell: orders from the customer's point of view.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::Value;

use crate::system::{System, order_for, wait_until};

#[tokio::test]
async fn orders_end_in_every_way_and_ledgers_balance() {
    let system = System::start(&[]);
    system.list("pen", 10).await;
    system.list("ink", 5).await;

    let confirmed = system.order(&[("pen", 2), ("ink", 1)], "tok_ok").await;
    assert_eq!(confirmed["status"], "CONFIRMED");
    assert_eq!(confirmed["total"]["amount_minor"], 3_000);

    let short = system.order(&[("pen", 1), ("ink", 5)], "tok_ok").await;
    assert_eq!(short["cancelled_because"], "out_of_stock");
    let declined = system.order(&[("pen", 1)], "tok_insufficient_funds").await;
    assert_eq!(declined["cancelled_because"], "payment_failed");
    for token in ["tok_error_once", "tok_lost_answer"] {
        assert_eq!(system.order(&[("pen", 1)], token).await["status"], "CONFIRMED", "{token}");
    }

    let cancel = format!("/api/orders/{}/cancel", confirmed["id"].as_str().expect("an id"));
    let answer = system.post("order", &cancel).send().await.expect("an answer");
    assert_eq!(answer.json::<Value>().await.expect("JSON")["status"], "CANCELLED");
    wait_until("the money is back", async || system.payment_status(&confirmed).await == "REFUNDED").await;
    wait_until("the stock is back", async || system.stock("ink").await == (5, 0, 0)).await;
    assert_eq!(system.stock("pen").await, (8, 0, 2));

    let report = system.assert_reconciled().await;
    assert_eq!(report["summary"]["captured"], 2);
    assert_eq!(report["summary"]["refunded"], 1);
    let saga =
        system.get("admin", &format!("/api/admin/sagas/{}", confirmed["id"].as_str().expect("an id"))).await;
    assert_eq!(saga["status"], "COMPENSATED");
}

/// Guarantee 4.
#[tokio::test]
async fn concurrent_requests_with_one_key_are_one_order_and_one_charge() {
    let system = System::start(&[]);
    system.list("pen", 100).await;
    let request = || {
        let request = system.post("order", "/api/orders").header("Idempotency-Key", "one");
        let request = request.json(&order_for(&[("pen", 1)], "tok_ok"));
        async {
            request.send().await.expect("an answer").json::<Value>().await.expect("JSON")["id"].to_string()
        }
    };
    let ids: BTreeSet<String> = join_all((0..50).map(|_| request())).await.into_iter().collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    wait_until("it is sold", async || system.stock("pen").await == (99, 0, 1)).await;
    assert_eq!(system.assert_reconciled().await["summary"]["captured"], 1);
}

/// Guarantee 5.
#[tokio::test]
async fn concurrent_orders_for_scarce_stock_do_not_oversell() {
    let system = System::start(&[]);
    system.list("rare", 20).await;
    let lines = [("rare", 1)];
    let orders = join_all((0..100).map(|_| system.order(&lines, "tok_ok"))).await;
    let confirmed = orders.iter().filter(|order| order["status"] == "CONFIRMED").count();
    assert_eq!(confirmed, 20);
    wait_until("all is sold", async || system.stock("rare").await == (0, 0, 20)).await;
    system.assert_reconciled().await;
}

/// Guarantee 2.
#[tokio::test]
async fn unreadable_message_is_dead_lettered_and_others_are_processed() {
    let system = System::start(&[]);
    system.list("pen", 10).await;
    let (broker, _) = system.broker_as("order").await;
    let jetstream = async_nats::jetstream::new(broker);
    let alien = r#"{"id":"01890000-0000-7000-8000-000000000001","type":"OrderCreated","version":99,"producer":"order",
        "correlation_id":"01890000-0000-7000-8000-000000000002","causation_id":"01890000-0000-7000-8000-000000000003",
        "occurred_at":"2026-01-01T00:00:00Z","data":{}}"#;
    for payload in ["no envelope at all", alien] {
        let ack = jetstream.publish("order.created", payload.into()).await.expect("published");
        ack.await.expect("stored");
    }
    assert_eq!(system.order(&[("pen", 1)], "tok_ok").await["status"], "CONFIRMED");
    // Two for inventory, two for admin's own view.
    wait_until("all four are listed", async || {
        let listed = system.get("admin", "/api/admin/dlq").await;
        listed["dead_letters"].as_array().is_some_and(|dead_letters| dead_letters.len() == 4)
    })
    .await;
    let count = system.get("admin", "/api/admin/dlq/count").await;
    assert_eq!(count["total"], 4);
    let listed = system.get("admin", "/api/admin/dlq?service=inventory").await;
    for dead_letter in listed["dead_letters"].as_array().expect("a list") {
        let id = dead_letter["id"].as_str().expect("an id");
        let shown = system.get("admin", &format!("/api/admin/dlq/{id}")).await;
        assert_eq!(shown["step"], "inventory-stock-reservation");
        assert!(!shown["payload_base64"].as_str().expect("a payload").is_empty());
    }
}

#[tokio::test]
async fn rebuilt_view_equals_original() {
    let system = System::start(&[]);
    system.list("pen", 10).await;
    let order = system.order(&[("pen", 1)], "tok_ok").await;
    system.assert_reconciled().await;
    let path = format!("/api/admin/sagas/{}", order["id"].as_str().expect("an id"));
    let before = system.get("admin", &path).await;
    system.sagactl(&["stop", "admin"]);
    let report: Value = serde_json::from_str(&system.sagactl(&["rebuild", "admin", "saga"])).expect("JSON");
    assert_eq!(report["identical"], true, "{report}");
    assert_eq!(report["rows"], 2, "the order and the probe of its listing");
    system.sagactl(&["start", "admin"]);
    assert_eq!(system.get("admin", &path).await, before);
}
