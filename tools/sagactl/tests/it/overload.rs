//! Shell: protection against overload, and replenishment of stock.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::system::{System, order_for, text, wait_until};

#[tokio::test]
async fn orders_are_rejected_while_outbox_is_over_its_limit() {
    let system = System::start(&["order.service.max_outbox_entries=3"]);
    system.list("pen", 100).await;
    system.sagactl(&["kill", "nats"]);
    let place = async || {
        let request = system.post("order", "/api/orders").json(&order_for(&[("pen", 1)], "tok_ok"));
        request.send().await.expect("an answer")
    };
    wait_until("orders are rejected", async || place().await.status() == StatusCode::SERVICE_UNAVAILABLE)
        .await;
    let rejected = place().await;
    assert_eq!(rejected.status(), StatusCode::SERVICE_UNAVAILABLE);
    let retry_after =
        rejected.headers().get("Retry-After").and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
    assert!(retry_after.is_some_and(|seconds| seconds > 0), "{:?}", rejected.headers());
    // Not ready, its replicas would leave every load balancer at once: no read and no cancellation would be left.
    let readiness = system.http.get(system.url("order", "/readyz")).send().await.expect("an answer");
    assert_eq!(readiness.status(), StatusCode::OK);
    let readiness: Value = readiness.json().await.expect("JSON");
    assert_eq!(readiness["checks"]["overload"]["state"], "degraded", "{readiness}");
    let status = system.try_sagactl(&["status"]);
    assert_eq!(status.status.code(), Some(5), "{}", text(&status.stdout));
    assert!(
        text(&status.stdout).contains("order rejects new requests (overload)"),
        "{}",
        text(&status.stdout)
    );
    system.sagactl(&["start", "nats"]);
    wait_until("orders are taken again", async || place().await.status() == StatusCode::ACCEPTED).await;
    system.assert_reconciled().await;
}

/// The limit of in-flight orders survives a restart.
#[tokio::test]
async fn in_flight_orders_stay_within_their_limit() {
    let system = System::start(&["order.service.max_in_flight=5", "order.service.deadline=10m"]);
    system.list("pen", 100).await;
    system.sagactl(&["faults", "inject", "payment", "pause", "--step", "payment-processing"]);
    let place = async || {
        let request = system.post("order", "/api/orders").json(&order_for(&[("pen", 1)], "tok_ok"));
        request.send().await.expect("an answer")
    };
    for _ in 0..5 {
        assert_eq!(place().await.status(), StatusCode::ACCEPTED);
    }
    for is_restarted in [false, true] {
        if is_restarted {
            system.sagactl(&["kill", "order"]);
            system.sagactl(&["start", "order"]);
        }
        let rejected = place().await;
        assert_eq!(rejected.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(rejected.headers().get("Retry-After").and_then(|value| value.to_str().ok()), Some("1"));
        let detail = rejected.text().await.expect("a body");
        assert!(detail.contains("5 are in flight"), "{detail}");
    }
    system.sagactl(&["faults", "clear", "payment"]);
    wait_until("orders are taken again", async || place().await.status() == StatusCode::ACCEPTED).await;
    system.assert_reconciled().await;
}

/// A client that lost the answer asks again, above all under overload. Its order is accepted, and it must hear so.
#[tokio::test]
async fn repeated_key_gets_its_stored_answer_while_new_orders_are_rejected() {
    let system = System::start(&["order.service.max_in_flight=1", "order.service.deadline=10m"]);
    system.list("pen", 100).await;
    system.sagactl(&["faults", "inject", "payment", "pause", "--step", "payment-processing"]);
    let place = async |key: &str, pens: u32| {
        let request = system.post("order", "/api/orders").header("Idempotency-Key", key);
        let answer = request.json(&order_for(&[("pen", pens)], "tok_ok")).send().await.expect("an answer");
        let header = |name: &str| {
            answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let (replayed, location) = (header("Idempotency-Replayed"), header("Location"));
        (answer.status().as_u16(), replayed, location, answer.json::<Value>().await.expect("JSON"))
    };
    let (status, replayed, location, first) = place("one", 1).await;
    assert_eq!((status, replayed.as_str()), (202, ""), "{first}");
    assert_eq!(location, format!("/api/orders/{}", first["id"].as_str().expect("an id")));
    assert_eq!(place("two", 1).await.0, 503, "one is in flight");
    // The draft of the header has the key in quotes.
    for key in ["one", "\"one\"", "  one "] {
        let repeated = place(key, 1).await;
        assert_eq!(repeated, (202, "true".to_owned(), location.clone(), first.clone()), "{key:?}");
    }
    assert_eq!(place("one", 2).await.0, 422, "another request under the key");
    let cancel = system.post("order", &format!("{location}/cancel")).send().await.expect("an answer");
    assert_eq!(cancel.status(), StatusCode::OK);
    // The stored answer stays as it was. What it names has the current state.
    assert_eq!(place("one", 1).await, (202, "true".to_owned(), location.clone(), first));
    assert_eq!(system.get("order", &location).await["status"], "CANCELLED");
    system.sagactl(&["faults", "clear", "payment"]);
    system.assert_reconciled().await;
}

/// The broker is away, and the outbox is over its limit.
#[tokio::test]
async fn repeated_key_gets_its_stored_answer_while_outbox_is_over_its_limit() {
    let system = System::start(&["order.service.max_outbox_entries=1"]);
    system.list("pen", 100).await;
    system.sagactl(&["kill", "nats"]);
    let place = async |key: &str| {
        let request = system.post("order", "/api/orders").header("Idempotency-Key", key);
        request.json(&order_for(&[("pen", 1)], "tok_ok")).send().await.expect("an answer")
    };
    let first = place("first").await;
    assert_eq!(first.status(), StatusCode::ACCEPTED);
    let first: Value = first.json().await.expect("JSON");
    let mut number = 0;
    wait_until("orders are rejected", async || {
        number += 1;
        place(&number.to_string()).await.status() == StatusCode::SERVICE_UNAVAILABLE
    })
    .await;
    let repeated = place("first").await;
    assert_eq!(repeated.status(), StatusCode::ACCEPTED);
    assert_eq!(repeated.json::<Value>().await.expect("JSON"), first);
    system.sagactl(&["start", "nats"]);
    system.assert_reconciled().await;
}

#[tokio::test]
async fn low_stock_is_replenished_unless_disabled() {
    let system = System::start(&[
        "inventory.service.replenish.enabled=true",
        "inventory.service.replenish.interval=100ms",
        "inventory.service.replenish.threshold=5",
        "inventory.service.replenish.amount=7",
    ]);
    system.list("pen", 6).await;
    let body = json!({
        "sku": "ink", "name": "ink", "quantity": 6, "replenish": true,
        "unit_price": {"amount_minor": 1_000, "currency": "EUR"},
    });
    let listed = system.post("inventory", "/api/products").json(&body).send().await.expect("an answer");
    assert_eq!(listed.status(), StatusCode::CREATED);
    let order = order_for(&[("pen", 2), ("ink", 2)], "tok_ok");
    wait_until("the order is placed", async || {
        let placed = system.post("order", "/api/orders").json(&order).send().await;
        placed.is_ok_and(|answer| answer.status() == StatusCode::ACCEPTED)
    })
    .await;
    wait_until("the ink has come in", async || system.stock("ink").await == (11, 0, 2)).await;
    assert_eq!(system.stock("pen").await, (4, 0, 2), "pens were not replenished");
    system.assert_reconciled().await;
}
