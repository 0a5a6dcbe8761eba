//! Shell: the running inventory service before it reached the broker. Only the broker knows whether the
//! database has lost data.

use saga_engine::testing::program::Running;
use serde_json::json;

#[test]
fn inventory_service_without_broker_rejects_commands() {
    let config = "[bus]\nurl = \"nats://127.0.0.1:1\"\n";
    let inventory = Running::start(env!("CARGO_BIN_EXE_inventory"), config);
    let refused = inventory.post("/api/products/coffee-beans-1kg/restock", &[], &json!({"quantity": 1}));
    let why = "waits for the broker, to verify that the database is current";
    assert_eq!((refused.status, &refused.body["detail"]), (503, &json!(why)), "{refused:?}");
    assert_eq!(inventory.get("/api/products").status, 200, "what is there may be read");
}
