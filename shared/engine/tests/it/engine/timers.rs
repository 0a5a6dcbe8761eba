//! What has a time comes back when it is due, and nobody polls for it.
//!
//! The timers here look once an hour by themselves: whatever happens sooner is their doing.

use jiff::{SignedDuration, Timestamp};
use saga_core::decision::Writes;
use saga_core::input::Input;
use saga_core::waiting::Retry;
use saga_engine::store::StoreFault;
use uuid::Uuid;

use super::done;
use crate::support::{
    Depot, DepotCommand, EngineHarness, FILLING, Pace, ShelfEvent, arrived, at, commit, id, in_memory,
    recorded, retry, shelf, state, wait_until,
};

#[tokio::test]
async fn due_row_fires_at_its_time() -> Result<(), StoreFault> {
    let harness = EngineHarness::new().await;
    let at = soon(80);
    done(harness.execute(DepotCommand::CheckAt("tea", at)).await);
    checked(&harness, "tea").await;
    let events = harness.store.events(shelf("tea"), 0, usize::MAX).await?;
    assert_eq!(events.last().map(|event| &event.name[..]), Some("Checked"));
    assert!(events[1].recorded_at >= at, "not before its time");
    assert!(events[1].recorded_at < at + SignedDuration::from_secs(20), "and not at the next poll");
    let cause = Input::<Depot>::due(shelf("tea"), at).id;
    assert_eq!(events[1].causation_id, cause, "the same however often it is due");
    Ok(())
}

#[tokio::test]
async fn earlier_due_time_wakes_sleeping_timers() -> Result<(), StoreFault> {
    let harness = EngineHarness::new().await;
    done(harness.execute(DepotCommand::CheckAt("tea", soon(3_600_000))).await);
    done(harness.execute(DepotCommand::CheckAt("coffee", soon(30))).await);
    checked(&harness, "coffee").await;
    assert!(state(harness.store.as_ref(), "tea").await?.is_some_and(|shelf| shelf.check_at.is_some()));
    Ok(())
}

/// Guarantee 3.
#[tokio::test]
async fn row_due_during_downtime_fires_at_the_start() -> Result<(), StoreFault> {
    let store = in_memory();
    // More than one look takes up.
    for number in 0..20 {
        let planned = ShelfEvent::CheckPlanned { at: Timestamp::UNIX_EPOCH };
        commit(store.as_ref(), recorded(&format!("label-{number}"), &[], &[planned])).await?;
    }
    let harness = EngineHarness::over(store, Pace { due_limit: 3, ..Pace::default() }).await;
    for number in 0..20 {
        checked(&harness, &format!("label-{number}")).await;
    }
    Ok(())
}

/// Guarantee 3.
#[tokio::test]
async fn due_rows_that_fail_block_no_others() -> Result<(), StoreFault> {
    let store = in_memory();
    for (number, label) in ["cursed-1", "cursed-2", "cursed-3", "cursed-4", "tea"].into_iter().enumerate() {
        let planned = ShelfEvent::CheckPlanned { at: at(i64::try_from(number).expect("a small number")) };
        commit(store.as_ref(), recorded(label, &[], &[planned])).await?;
    }
    let harness = EngineHarness::over(store, Pace { due_limit: 2, ..Pace::default() }).await;
    checked(&harness, "tea").await;
    assert!(state(harness.store.as_ref(), "cursed-1").await?.is_some_and(|shelf| shelf.check_at.is_some()));
    Ok(())
}

/// Guarantee 2.
#[tokio::test]
async fn retries_of_an_unknown_step_block_no_others() -> Result<(), StoreFault> {
    let store = in_memory();
    let ended = (1..=4).map(|number| retry("a-step-of-old", number, at(0)));
    let known = Retry { payload: arrived(id(5), "tea", 3), ..retry(FILLING.name, 5, at(1)) };
    let retries = ended.chain([known]).collect();
    commit(store.as_ref(), Writes { retries, ..recorded("tea", &[], &[ShelfEvent::Listed]) }).await?;
    let harness = EngineHarness::over(store, Pace { due_limit: 2, ..Pace::default() }).await;
    let is_handled = async || {
        let shelf = state(harness.store.as_ref(), "tea").await.expect("the store works");
        shelf.is_some_and(|shelf| shelf.pieces == 3)
    };
    wait_until("the retry of the step that is there", is_handled).await;
    assert_eq!(harness.stats().await.retries, 4);
    Ok(())
}

#[tokio::test]
async fn due_time_removed_meanwhile_changes_nothing() -> Result<(), StoreFault> {
    let harness = EngineHarness::new().await;
    done(harness.execute(DepotCommand::List("tea")).await);
    let late = Input::due(shelf("tea"), Timestamp::UNIX_EPOCH);
    assert_eq!(harness.settle(late).await, "done");
    assert_eq!(harness.store.events(shelf("tea"), 0, usize::MAX).await?.len(), 1);
    Ok(())
}

#[test]
fn due_row_with_a_saga_id_belongs_to_that_saga() {
    let saga = Uuid::from_u128(42);
    let key = saga_core::row::RowKey { kind: "shelf", id: saga.to_string() };
    let due = Input::<Depot>::due(key, Timestamp::UNIX_EPOCH);
    assert_eq!(due.correlation_id, saga);
}

fn soon(milliseconds: i64) -> Timestamp {
    Timestamp::now() + SignedDuration::from_millis(milliseconds)
}

async fn checked(harness: &EngineHarness, label: &str) {
    let is_checked = async || {
        let shelf = state(harness.store.as_ref(), label).await.expect("the store works");
        shelf.is_some_and(|shelf| shelf.check_at.is_none())
    };
    wait_until("the row came back", is_checked).await;
}
