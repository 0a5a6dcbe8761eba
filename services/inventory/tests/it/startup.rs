//! The running inventory service, before it has met the broker: only the broker knows whether its database has lost
//! something, and one that has would count stock as if nothing had ever been sold.

use saga_engine::testing::program::Running;
use serde_json::json;

#[test]
fn without_the_broker_it_takes_no_commands() {
    let config = "[bus]\nurl = \"nats://127.0.0.1:1\"\n";
    let inventory = Running::start(env!("CARGO_BIN_EXE_inventory"), config);
    let refused = inventory.post("/api/products/coffee-beans-1kg/restock", &[], &json!({"quantity": 1}));
    let why = "waits for the broker, which knows how far the database had come";
    assert_eq!((refused.status, &refused.body["detail"]), (503, &json!(why)), "{refused:?}");
    assert_eq!(inventory.get("/api/products").status, 200, "what is there may be read");
}
