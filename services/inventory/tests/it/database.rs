//! Shell: the database of an inventory service that does not run yet.

use inventory::service::InventoryService;
use saga_core::decision::{Reads, Writes};
use saga_core::service::Service as _;
use saga_engine::store::roles::Transactions as _;
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::testing::program::Folder;

pub fn write(folder: &Folder, writes: Writes) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let store = SqliteStore::open(&folder.database(), InventoryService::rows()).expect("a database");
        store.transact(Reads::default(), Box::new(move |_| writes.clone())).await.expect("a commit");
    });
}
