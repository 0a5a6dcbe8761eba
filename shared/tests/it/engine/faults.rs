//! A store that fails: whoever asked is told, nothing is half done, and everything goes on afterwards.
//!
//! The fault is real: a trigger, put into the database from outside, makes SQLite refuse a statement.

use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::Connection;
use shared::engine::Unavailable;
use shared::service::Service as _;
use shared::store::StoreFault;
use shared::store::sqlite::SqliteStore;
use tempfile::TempDir;
use uuid::Uuid;

use super::done;
use crate::support::in_time;
use crate::support::rig::{Pace, Rig};
use crate::support::shop::{Shop, ShopCommand, heard, replenished};
use crate::support::writes::{id, shelf, state};

/// Law 1: a batch whose last statement fails tells nobody and does nothing.
#[tokio::test]
async fn callers_are_told_that_nothing_happened_and_nothing_did() -> Result<(), StoreFault> {
    // An error of one statement, and one with which SQLite gives the whole transaction up (a full disk).
    for severity in ["ABORT", "ROLLBACK"] {
        let (rig, disk) = breakable().await;
        disk.breaks(severity);
        let asked =
            (1..=3).map(|pieces| rig.engine.ask(Uuid::now_v7(), ShopCommand::Put("tea", pieces), None));
        let answers = in_time("the answers", futures::future::join_all(asked)).await;
        assert!(answers.iter().all(|answer| matches!(answer, Err(Unavailable))), "{answers:?}");

        let stats = rig.store.stats().await?;
        assert_eq!((stats.outbox_pending, rig.store.events(shelf("tea")).await?.len()), (0, 0));
        assert_eq!(state(rig.store.as_ref(), "tea").await?, None);
        assert!(rig.metrics.text().expect("metrics").contains("store_faults_total 1"));

        disk.works();
        assert_eq!(done(rig.ask(ShopCommand::Put("tea", 3)).await).pieces, 3);
        assert!(rig.store.verify().await?.differing.is_empty());
    }
    Ok(())
}

/// Law 1: no mark of a message without its effect, so that it can come again.
#[tokio::test]
async fn a_message_that_could_not_be_stored_is_new_when_it_comes_again() -> Result<(), StoreFault> {
    let (rig, disk) = breakable().await;
    done(rig.ask(ShopCommand::List("tea")).await);
    disk.breaks("ABORT");
    let tea = || heard(replenished(id(1), "tea", 3));
    let answer = in_time("the answer", rig.engine.settle(tea())).await;
    assert!(matches!(answer, Err(Unavailable)), "{answer:?}");
    assert!(rig.store.tallies().await?.handled.is_empty());
    disk.works();
    done(in_time("the answer", rig.engine.settle(tea())).await.expect("the store works"));
    assert_eq!(state(rig.store.as_ref(), "tea").await?.map(|shelf| shelf.pieces), Some(3));
    Ok(())
}

/// A caller that asks a service which is going away is told so instead of waiting for ever.
#[tokio::test]
async fn callers_of_a_stopped_engine_are_told() {
    let rig = Rig::new().await;
    let engine = rig.engine.clone();
    drop(rig);
    let answer = in_time("the answer", engine.ask(Uuid::now_v7(), ShopCommand::List("tea"), None)).await;
    assert!(matches!(answer, Err(Unavailable)), "{answer:?}");
}

async fn breakable() -> (Rig, Disk) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("shop.db");
    let store = SqliteStore::open(&path, Shop::rows()).expect("a new database");
    (Rig::over(Arc::new(store), Pace::default()).await, Disk { path, _folder: folder })
}

/// The disk under a store.
struct Disk {
    path: PathBuf,
    _folder: TempDir,
}

impl Disk {
    /// From now on no outbox entry can be written: late in a batch, when rows and events are.
    fn breaks(&self, severity: &str) {
        self.change(&format!(
            "CREATE TRIGGER broken BEFORE INSERT ON outbox BEGIN SELECT RAISE({severity}, 'disk full'); END"
        ));
    }

    fn works(&self) {
        self.change("DROP TRIGGER broken");
    }

    fn change(&self, sql: &str) {
        let conn = Connection::open(&self.path).expect("the file");
        conn.busy_timeout(std::time::Duration::from_secs(5)).expect("a pragma");
        conn.execute_batch(sql).expect("the change");
    }
}
