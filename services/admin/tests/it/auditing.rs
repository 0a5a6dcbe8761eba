//! Shell: the audit that admin does by itself, with several instances of it on one database: one of them does it.

use std::sync::Arc;
use std::time::Duration;

use admin::books::{Books, BooksEvent, THE_BOOKS};
use admin::policy::AdminService;
use jiff::{SignedDuration, Timestamp};
use saga_core::row::RowKey;
use saga_core::service::Service as _;
use saga_engine::store::Store;
use saga_engine::store::sqlite::SqliteStore;
use tokio::time::{Instant, sleep};

use crate::harness::{AdminHarness, PATIENCE};

fn database() -> Arc<dyn Store> {
    Arc::new(SqliteStore::in_memory(AdminService::rows()).expect("a database in memory"))
}

/// When the books were looked at, once they were so often.
async fn looks(store: &dyn Store, count: usize) -> Vec<Timestamp> {
    let until = Instant::now() + PATIENCE;
    loop {
        let history = store.events(RowKey::of::<Books>(THE_BOOKS), 0, 1_000).await.expect("the store works");
        let looked = history.iter().map(|event| serde_json::from_str(&event.data).expect("an event"));
        let looked = looked.filter_map(|event| match event {
            BooksEvent::Looked(look) => Some(look?.at),
            BooksEvent::Forgotten { .. } => None,
        });
        let looked: Vec<_> = looked.collect();
        if looked.len() >= count {
            return looked;
        }
        assert!(Instant::now() < until, "the books were not looked at {count} times: {looked:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn of_two_instances_one_audits_whenever_an_audit_is_due() {
    let store = database();
    let every = "service.audit_every=500ms";
    let _one = AdminHarness::over(store.clone(), &[every, "instance=admin-1"]).await;
    let _other = AdminHarness::over(store.clone(), &[every, "instance=admin-2"]).await;
    let looks = looks(store.as_ref(), 4).await;
    // What one says of a look counts for both: nobody looks before the next is due.
    let least = SignedDuration::from_millis(400);
    let apart: Vec<_> = looks.windows(2).map(|two| two[1].duration_since(two[0])).collect();
    assert!(apart.iter().all(|apart| *apart >= least), "{apart:?}");
}

/// Whoever has died while it audited holds up the others until its lease lapses, and no longer.
#[tokio::test]
async fn an_instance_that_has_died_during_an_audit_is_waited_for_until_its_lease_lapses() {
    let store = database();
    let now = Timestamp::now();
    let until = now + SignedDuration::from_secs(2);
    let held = store.acquire_lease("audit", None, "admin-1", now, until).await.expect("the store works");
    assert!(held.is_some(), "nobody else has it");
    let flags = ["service.audit_every=100ms", "instance=admin-2"];
    let _admin = AdminHarness::over(store.clone(), &flags).await;
    let looks = looks(store.as_ref(), 1).await;
    assert!(looks[0] >= until, "{} is before {until}", looks[0]);
}
