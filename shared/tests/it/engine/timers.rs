//! What has a time comes back when it is due, and nobody polls for it.
//!
//! The timers here look once an hour by themselves: whatever happens sooner is their doing.

use jiff::{SignedDuration, Timestamp};
use shared::engine::Input;
use shared::store::StoreFault;
use uuid::Uuid;

use super::done;
use crate::support::rig::{Pace, Rig, in_memory};
use crate::support::shelf::ShelfEvent;
use crate::support::shop::ShopCommand;
use crate::support::wait_until;
use crate::support::writes::{commit, recorded, shelf, state};

#[tokio::test]
async fn a_due_row_comes_back_at_its_time() -> Result<(), StoreFault> {
    let rig = Rig::new().await;
    let at = soon(80);
    done(rig.ask(ShopCommand::CheckAt("tea", at)).await);
    checked(&rig, "tea").await;
    let events = rig.store.events(shelf("tea")).await?;
    assert_eq!(events.last().map(|event| &event.name[..]), Some("Checked"));
    assert!(events[1].recorded_at >= at, "not before its time");
    assert!(events[1].recorded_at < at + SignedDuration::from_secs(20), "and not at the next poll");
    let cause = Input::<crate::support::shop::Shop>::due(shelf("tea"), at).id;
    assert_eq!(events[1].causation_id, cause, "the same however often it is due");
    Ok(())
}

/// An earlier time wakes timers that already sleep towards a later one.
#[tokio::test]
async fn an_earlier_time_overtakes_a_later_one() -> Result<(), StoreFault> {
    let rig = Rig::new().await;
    done(rig.ask(ShopCommand::CheckAt("tea", soon(3_600_000))).await);
    done(rig.ask(ShopCommand::CheckAt("coffee", soon(30))).await);
    checked(&rig, "coffee").await;
    assert!(state(rig.store.as_ref(), "tea").await?.is_some_and(|shelf| shelf.check_at.is_some()));
    Ok(())
}

/// Law 3: a deadline that passed while the service was down is kept when it comes up.
#[tokio::test]
async fn what_came_due_while_nobody_ran_comes_back_at_the_start() -> Result<(), StoreFault> {
    let store = in_memory();
    // More than one look takes up.
    for number in 0..20 {
        let planned = ShelfEvent::CheckPlanned { at: Timestamp::UNIX_EPOCH };
        commit(store.as_ref(), recorded(&format!("sku-{number}"), &[], &[planned])).await?;
    }
    let rig = Rig::over(store, Pace { due_limit: 3, ..Pace::default() }).await;
    for number in 0..20 {
        checked(&rig, &format!("sku-{number}")).await;
    }
    Ok(())
}

/// A time that another input took away meanwhile: the row itself knows, and nothing happens.
#[tokio::test]
async fn a_due_time_that_is_over_changes_nothing() -> Result<(), StoreFault> {
    let rig = Rig::new().await;
    done(rig.ask(ShopCommand::List("tea")).await);
    let late = Input::due(shelf("tea"), Timestamp::UNIX_EPOCH);
    done(rig.settle_together(vec![late]).await.remove(0));
    assert_eq!(rig.store.events(shelf("tea")).await?.len(), 1);
    Ok(())
}

#[test]
fn a_due_order_belongs_to_its_saga() {
    let order = Uuid::from_u128(42);
    let key = shared::row::RowKey { kind: "order", id: order.to_string() };
    let due = Input::<crate::support::shop::Shop>::due(key, Timestamp::UNIX_EPOCH);
    assert_eq!(due.correlation_id, order);
}

fn soon(milliseconds: i64) -> Timestamp {
    Timestamp::now() + SignedDuration::from_millis(milliseconds)
}

async fn checked(rig: &Rig, sku: &str) {
    let is_checked = async || {
        let shelf = state(rig.store.as_ref(), sku).await.expect("the store works");
        shelf.is_some_and(|shelf| shelf.check_at.is_none())
    };
    wait_until("the row came back", is_checked).await;
}
