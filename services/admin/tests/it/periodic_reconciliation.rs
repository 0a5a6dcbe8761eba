//! Shell: periodic reconciliation by several instances of admin on one database.

use std::sync::Arc;
use std::time::Duration;

use admin::ledgers::state::{RECONCILIATION_STATE, ReconciliationEvent, ReconciliationState};
use admin::service::AdminService;
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

/// Waits for so many reconciliations, and returns their times.
async fn results(store: &dyn Store, count: usize) -> Vec<Timestamp> {
    let until = Instant::now() + PATIENCE;
    loop {
        let history = store
            .events(RowKey::of::<ReconciliationState>(RECONCILIATION_STATE), 0, 1_000)
            .await
            .expect("the store works");
        let looked = history.iter().map(|event| serde_json::from_str(&event.data).expect("an event"));
        let looked = looked.filter_map(|event| match event {
            ReconciliationEvent::Recorded(result) => Some(result.at),
            ReconciliationEvent::Invalidated { .. } | ReconciliationEvent::RoundCounted { .. } => None,
        });
        let looked: Vec<_> = looked.collect();
        if looked.len() >= count {
            return looked;
        }
        assert!(Instant::now() < until, "there were not {count} reconciliations: {looked:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn one_of_two_instances_reconciles_when_due() {
    let store = database();
    let every = "service.reconcile_every=500ms";
    let _one = AdminHarness::over(store.clone(), &[every, "instance=admin-1"]).await;
    let _other = AdminHarness::over(store.clone(), &[every, "instance=admin-2"]).await;
    let results = results(store.as_ref(), 4).await;
    // A result of one instance counts for both.
    let least = SignedDuration::from_millis(400);
    let apart: Vec<_> = results.windows(2).map(|two| two[1].duration_since(two[0])).collect();
    assert!(apart.iter().all(|apart| *apart >= least), "{apart:?}");
}

#[tokio::test]
async fn instance_reconciles_after_lease_of_dead_instance_has_expired() {
    let store = database();
    let now = Timestamp::now();
    let until = now + SignedDuration::from_secs(2);
    let held =
        store.acquire_lease("reconciliation", None, "admin-1", now, until).await.expect("the store works");
    assert!(held.is_some(), "nobody else has it");
    let flags = ["service.reconcile_every=100ms", "instance=admin-2"];
    let _admin = AdminHarness::over(store.clone(), &flags).await;
    let results = results(store.as_ref(), 1).await;
    assert!(results[0] >= until, "{} is before {until}", results[0]);
}
