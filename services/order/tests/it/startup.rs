//! Shell: the running order service before it reached the broker. Only the broker knows whether the database
//! has lost data.

use saga_engine::testing::program::Running;
use serde_json::json;

#[test]
fn order_service_without_broker_is_not_ready_and_rejects_orders() {
    let order = Running::start(env!("CARGO_BIN_EXE_order"), "[bus]\nurl = \"nats://127.0.0.1:1\"\n");
    let why = "waits for the broker, to verify that the database is current";
    let ready = order.get("/readyz");
    assert_eq!((ready.status, &ready.body["checks"]["startup"]["text"]), (503, &json!(why)), "{ready:?}");
    assert_eq!(order.get("/livez").status, 200, "nobody has to restart it");

    let lines = json!([{"sku": "coffee-beans-1kg", "quantity": 1}]);
    let body = json!({"customer": "ada", "lines": lines, "payment": {"token": "tok_ok"}});
    let refused = order.post("/api/orders", &[], &body);
    assert_eq!((refused.status, &refused.body["detail"]), (503, &json!(why)), "{refused:?}");
    let cancel = format!("/api/orders/{}/cancel", uuid::Uuid::nil());
    assert_eq!(order.post(&cancel, &[], &json!({})).status, 503, "nor anything else");
    assert_eq!(order.get("/api/orders").status, 200, "what is there may be read");
}
