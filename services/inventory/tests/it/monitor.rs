//! The replenishment monitor of the running program.

use std::time::{Duration, Instant};

use serde_json::json;

use saga_engine::testing::program::Running;

/// More products than the monitor reads in one go.
const POSTERS: usize = 501;

/// A broker that is not there: the monitor needs none.
const CONFIG: &str = "[bus]\nurl = \"nats://127.0.0.1:1\"\n[service.replenish]\ninterval = \"20ms\"\n";

/// All the posters run out for good, and come before the tea.
#[test]
#[expect(clippy::disallowed_methods, reason = "there is no runtime here to hold up")]
fn products_that_shall_run_out_keep_no_other_from_being_replenished() {
    let inventory = Running::start(env!("CARGO_BIN_EXE_inventory"), CONFIG);
    let list = |sku: &str, replenish: bool| {
        let price = json!({ "amount_minor": 300, "currency": "EUR" });
        let product =
            json!({ "sku": sku, "name": sku, "unit_price": price, "quantity": 1, "replenish": replenish });
        assert_eq!(inventory.post("/api/products", &[], &product).status, 201, "{sku}");
    };
    (0..POSTERS).for_each(|number| list(&format!("poster-{number:03}"), false));
    list("tea", true);
    let on_hand = |sku: &str| inventory.get(&format!("/api/products/{sku}")).body["on_hand"].clone();
    let began = Instant::now();
    while on_hand("tea") == 1 {
        assert!(began.elapsed() < Duration::from_secs(20), "tea is never replenished");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((on_hand("tea"), on_hand("poster-000")), (json!(201), json!(1)));
}
