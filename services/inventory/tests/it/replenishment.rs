//! Shell: the replenishment monitor of the running program.

use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::money::{Currency, Money};
use inventory::domain::{Listing, Product, ProductEvent};
use jiff::Timestamp;
use saga_core::decision::Writes;
use saga_engine::testing::histories::has_history;
use saga_engine::testing::program::{Folder, Running};
use serde_json::json;

use crate::database::write;

/// Number of products that the monitor reads per page.
const POSTERS: usize = 500;

/// Configuration without a reachable broker. The amount fits an empty shelf only.
const CONFIG: &str = "[bus]\nurl = \"nats://127.0.0.1:1\"\n\
                      [service.replenish]\ninterval = \"20ms\"\namount = 4294967295\n";

/// All posters sort before the tea and stay low: half are not replenished, the other half would overflow.
#[test]
#[expect(clippy::disallowed_methods, reason = "there is no runtime here to hold up")]
fn products_that_stay_low_do_not_hide_others_from_replenishment() {
    let folder = Arc::new(Folder::new());
    let mut writes = Writes { decided_at: Timestamp::UNIX_EPOCH, ..Writes::default() };
    for number in 0..2 * POSTERS {
        list(&mut writes, &format!("poster-{number:03}"), 1, number.is_multiple_of(2));
    }
    list(&mut writes, "tea", 0, true);
    write(&folder, writes);

    let inventory = Running::start_in(&folder, env!("CARGO_BIN_EXE_inventory"), CONFIG);
    let on_hand = |sku: &str| inventory.get(&format!("/api/products/{sku}")).body["on_hand"].clone();
    let began = Instant::now();
    while on_hand("tea") == 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "tea is never replenished");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(on_hand("tea"), json!(u32::MAX));
    assert_eq!((on_hand("poster-000"), on_hand("poster-001")), (json!(1), json!(1)));
}

/// Writes the row and event of a listed product.
fn list(writes: &mut Writes, sku: &str, pieces: u32, replenish: bool) {
    let listing = Listing { name: sku.to_owned(), unit_price: Money::new(300, Currency::EUR), replenish };
    let listed = serde_json::to_string(&ProductEvent::Listed(listing, pieces)).expect("JSON");
    has_history::<Product>(writes, sku, &[listed]);
}
