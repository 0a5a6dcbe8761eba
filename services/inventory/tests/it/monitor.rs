//! The replenishment monitor of the running program.

use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::money::{Currency, Money};
use inventory::domain::{Listing, Product, ProductEvent};
use jiff::Timestamp;
use saga_core::decision::{EventWrite, Reads, RowWrite, Writes};
use saga_core::row::{RowKey, RowKind};
use saga_engine::store::Store as _;
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::testing::program::{Folder, Running};
use serde_json::json;
use uuid::Uuid;

/// More products than the monitor reads in one go.
const POSTERS: usize = 501;

/// A broker that is not there: the monitor needs none.
const CONFIG: &str = "[bus]\nurl = \"nats://127.0.0.1:1\"\n[service.replenish]\ninterval = \"20ms\"\n";

/// All the posters run out for good, and come before the tea.
#[test]
#[expect(clippy::disallowed_methods, reason = "there is no runtime here to hold up")]
fn products_that_shall_run_out_keep_no_other_from_being_replenished() {
    let folder = Arc::new(Folder::new());
    let mut writes = Writes { decided_at: Timestamp::UNIX_EPOCH, ..Writes::default() };
    (0..POSTERS).for_each(|number| is_listed(&mut writes, &format!("poster-{number:03}"), false));
    is_listed(&mut writes, "tea", true);
    is_written(&folder, writes);

    let inventory = Running::start_in(&folder, env!("CARGO_BIN_EXE_inventory"), CONFIG);
    let on_hand = |sku: &str| inventory.get(&format!("/api/products/{sku}")).body["on_hand"].clone();
    let began = Instant::now();
    while on_hand("tea") == 1 {
        assert!(began.elapsed() < Duration::from_secs(20), "tea is never replenished");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((on_hand("tea"), on_hand("poster-000")), (json!(201), json!(1)));
}

/// One piece of it, as whoever lists it would write.
fn is_listed(writes: &mut Writes, sku: &str, replenish: bool) {
    let listing = Listing { name: sku.to_owned(), unit_price: Money::new(300, Currency::EUR), replenish };
    let data = serde_json::to_string(&ProductEvent::Listed(listing, 1)).expect("JSON");
    let key = RowKey::of::<Product>(sku);
    let projected =
        (RowKind::of::<Product>().fold)(&key.id, &mut std::iter::once(data.clone())).expect("a history");
    let (version, causation_id) = (1, Uuid::nil());
    writes.events.push(EventWrite { key: key.clone(), version, name: "Listed", data, causation_id });
    writes.rows.push(RowWrite { key, read_version: 0, version, projected });
}

fn is_written(folder: &Folder, writes: Writes) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let store =
            SqliteStore::open(&folder.database(), vec![RowKind::of::<Product>()]).expect("a database");
        store.transact(Reads::default(), Box::new(move |_| writes.clone())).await.expect("a commit");
    });
}
