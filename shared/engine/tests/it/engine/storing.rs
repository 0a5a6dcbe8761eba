//! A store that fails: whoever asked is told, nothing is half done, and everything goes on afterwards.
//!
//! The fault is real: a trigger, put into the database from outside, makes SQLite refuse a statement.

use saga_engine::runtime::engine::Unavailable;
use saga_engine::store::StoreFault;
use uuid::Uuid;

use super::done;
use crate::support::{DepotCommand, Disk, EngineHarness, Pace, arrived, heard, id, in_time, shelf, state};

/// Law 1: a batch whose last statement fails tells nobody and does nothing.
#[tokio::test]
async fn callers_are_told_that_nothing_happened_and_nothing_did() -> Result<(), StoreFault> {
    // An error of one statement, and one with which SQLite gives the whole transaction up (a full disk).
    for severity in ["ABORT", "ROLLBACK"] {
        let disk = Disk::new();
        let harness = EngineHarness::over(disk.store(), Pace::default()).await;
        disk.refuses("outbox", severity);
        let asked =
            (1..=3).map(|pieces| harness.engine.ask(Uuid::now_v7(), DepotCommand::Put("tea", pieces), None));
        let answers = in_time("the answers", futures::future::join_all(asked)).await;
        assert!(answers.iter().all(|answer| matches!(answer, Err(Unavailable))), "{answers:?}");

        let stats = harness.stats().await;
        assert_eq!((stats.outbox_pending, harness.store.events(shelf("tea")).await?.len()), (0, 0));
        assert_eq!(state(harness.store.as_ref(), "tea").await?, None);
        assert!(harness.metrics.text().expect("metrics").contains("store_faults_total 1"));

        disk.works("outbox");
        assert_eq!(done(harness.ask(DepotCommand::Put("tea", 3)).await).pieces, 3);
        assert!(harness.store.verify().await?.differing.is_empty());
    }
    Ok(())
}

/// Law 1: no mark of a message without its effect, so that it can come again.
#[tokio::test]
async fn a_message_that_could_not_be_stored_is_new_when_it_comes_again() -> Result<(), StoreFault> {
    let disk = Disk::new();
    let harness = EngineHarness::over(disk.store(), Pace::default()).await;
    done(harness.ask(DepotCommand::List("tea")).await);
    disk.refuses("outbox", "ABORT");
    let tea = || heard(arrived(id(1), "tea", 3));
    let answer = in_time("the answer", harness.engine.settle(tea())).await;
    assert!(matches!(answer, Err(Unavailable)), "{answer:?}");
    assert!(harness.store.tallies().await?.handled.is_empty());
    disk.works("outbox");
    assert_eq!(harness.settle(tea()).await, "done");
    assert_eq!(state(harness.store.as_ref(), "tea").await?.map(|shelf| shelf.pieces), Some(3));
    Ok(())
}

/// A caller that asks a service which is going away is told so instead of waiting for ever.
#[tokio::test]
async fn callers_of_a_stopped_engine_are_told() {
    let harness = EngineHarness::new().await;
    let engine = harness.engine.clone();
    drop(harness);
    let answer = in_time("the answer", engine.ask(Uuid::now_v7(), DepotCommand::List("tea"), None)).await;
    assert!(matches!(answer, Err(Unavailable)), "{answer:?}");
}
