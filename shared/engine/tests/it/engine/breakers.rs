//! Breakers inside a service: calls, retries and steps during an outage of a dependency, and after it.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use saga_core::breaker::{BreakerPolicy, State};
use saga_core::decision::{Reads, Writes};
use saga_core::input::Input;
use saga_core::waiting::Retry;
use saga_engine::runtime::admission::BreakerAction;
use saga_engine::store::StoreFault;

use super::done;
use crate::support::{
    Deed, DepotCommand, EngineHarness, FILLING, LISTENING, Pace, SUPPLIER, Setup, Shelf, ShelfEvent,
    Supplier, arrived, at, commit, due_query, id, in_memory, load, recorded, retry, state, wait_until,
};

/// Guarantee 7: over a hundred attempts, without a dead letter.
#[tokio::test]
async fn outage_of_a_dependency_consumes_no_attempts_and_all_calls_succeed_afterwards()
-> Result<(), StoreFault> {
    const CALLS: i64 = 30;
    let harness = EngineHarness::guarded(in_memory(), quick(), Supplier::closed(), flapping()).await;
    for _ in 0..CALLS {
        done(harness.execute(DepotCommand::Supply("tea")).await);
        done(harness.execute(DepotCommand::Insist("tea")).await);
    }
    wait_until("a hundred tries have failed", async || harness.supplier.called().len() > 100).await;
    let stats = harness.stats().await;
    assert_eq!((stats.tasks, stats.dead_letters), (2 * CALLS.unsigned_abs(), 0));
    assert_eq!(state(harness.store.as_ref(), "tea").await?, None, "nothing was given up");
    assert!(harness.breaker(SUPPLIER).transitions.len() > 5, "it opened again and again");

    harness.supplier.opens();
    wait_until("every call is answered", async || harness.stats().await.tasks == 0).await;
    assert_eq!(state(harness.store.as_ref(), "tea").await?, Some(shelf_of(2 * CALLS)));
    assert_eq!((harness.stats().await.dead_letters, harness.supplier.overlaps()), (0, 0));
    wait_until("it is closed again", async || harness.breaker(SUPPLIER).state == State::Closed).await;
    Ok(())
}

/// Guarantee 6.
#[tokio::test]
async fn final_rejection_ends_the_task_and_does_not_count_against_the_breaker() -> Result<(), StoreFault> {
    let refusals = (0..20).map(|_| Deed::Refuse);
    let harness = EngineHarness::with_supplier(in_memory(), Pace::default(), Supplier::will(refusals)).await;
    for _ in 0..19 {
        done(harness.execute(DepotCommand::Supply("tea")).await);
    }
    done(harness.execute(DepotCommand::Insist("milk")).await);
    harness.no_task_is_open().await;
    assert_eq!(harness.supplier.called().len(), 20, "nobody was asked twice");
    assert_eq!(state(harness.store.as_ref(), "tea").await?.map(|shelf| shelf.failed_supplies), Some(19));
    let seen = harness.breaker(SUPPLIER);
    assert_eq!((seen.state, seen.calls, seen.failures), (State::Closed, 0, 0));
    let dead_letters = harness.store.dead_letters(9).await?.readable;
    let [stored] = &dead_letters[..] else { panic!("one dead letter: {dead_letters:?}") };
    assert_eq!(
        (stored.dead_letter.attempts, stored.dead_letter.reason.as_str()),
        (1, "no supply: the supplier says no")
    );
    Ok(())
}

#[tokio::test]
async fn final_rejection_of_a_probe_frees_its_permit() -> Result<(), StoreFault> {
    let refusals = (0..10).map(|_| Deed::Refuse);
    let harness = EngineHarness::guarded(in_memory(), quick(), Supplier::will(refusals), flapping()).await;
    harness.fail_until_open(SUPPLIER);
    for _ in 0..20 {
        done(harness.execute(DepotCommand::Supply("tea")).await);
    }
    harness.no_task_is_open().await;
    assert_eq!(
        state(harness.store.as_ref(), "tea").await?,
        Some(Shelf { failed_supplies: 10, ..shelf_of(10) })
    );
    assert_eq!(harness.breaker(SUPPLIER).state, State::Closed);
    Ok(())
}

#[tokio::test]
async fn open_breaker_blocks_calls_until_it_closes() -> Result<(), StoreFault> {
    for closing in [BreakerAction::Reset, BreakerAction::Closed] {
        let harness =
            EngineHarness::guarded(in_memory(), quick(), Arc::default(), BreakerPolicy::default()).await;
        harness.change_breaker(SUPPLIER, BreakerAction::Open);
        for _ in 0..5 {
            done(harness.execute(DepotCommand::Supply("tea")).await);
        }
        timers_have_scanned(&harness).await;
        assert!(harness.supplier.called().is_empty(), "{:?}", harness.supplier.called());
        harness.change_breaker(SUPPLIER, closing);
        harness.no_task_is_open().await;
        assert_eq!(harness.supplier.called().len(), 5);
        assert_eq!(state(harness.store.as_ref(), "tea").await?, Some(shelf_of(5)));
    }
    Ok(())
}

/// More with each success.
#[tokio::test]
async fn recovered_dependency_gets_few_calls_first() -> Result<(), StoreFault> {
    let hanging = (0..20).map(|_| Deed::Hang);
    let pace = Pace { concurrency: 20, ..quick() };
    let harness = EngineHarness::guarded(in_memory(), pace, Supplier::will(hanging), flapping()).await;
    harness.fail_until_open(SUPPLIER);
    for _ in 0..20 {
        done(harness.execute(DepotCommand::Supply("tea")).await);
    }
    wait_until("the probes are under way", async || harness.supplier.called().len() == 3).await;
    timers_have_scanned(&harness).await;
    assert_eq!(harness.supplier.called().len(), 3, "as many as there are probes");
    assert_eq!(harness.breaker(SUPPLIER).state, State::HalfOpen);
    Ok(())
}

/// Guarantee 4.
#[tokio::test]
async fn queued_task_with_expired_lease_is_called_once() -> Result<(), StoreFault> {
    let pace = Pace { concurrency: 1, task_lease: SignedDuration::from_millis(30), ..quick() };
    let harness = EngineHarness::guarded(in_memory(), pace, Supplier::will([Deed::Hang]), flapping()).await;
    done(harness.execute(DepotCommand::Supply("tea")).await);
    wait_until("the first call is under way", async || harness.supplier.called().len() == 1).await;
    let second = Input::command(id(8), id(8), DepotCommand::Supply("tea"), None);
    assert_eq!(harness.settle(second).await, "done");
    let waiting = saga_core::ids::task_id(id(8), "depot:command", id(8), 0);
    let is_claimed_again = async || {
        let reads = Reads { tasks: [waiting].into(), ..Reads::default() };
        load(harness.store.as_ref(), reads).await.is_ok_and(|loaded| loaded.tasks[&waiting] >= 4)
    };
    wait_until("its lease has lapsed again and again", is_claimed_again).await;
    assert_eq!(harness.supplier.called().len(), 1, "it still waits");
    harness.supplier.release();
    harness.no_task_is_open().await;
    assert_eq!(harness.supplier.called().iter().filter(|id| **id == waiting).count(), 1);
    assert_eq!(harness.supplier.overlaps(), 0);
    assert_eq!(state(harness.store.as_ref(), "tea").await?, Some(shelf_of(2)));
    Ok(())
}

/// A defect: the retry was due before the failed call was released, and was never made.
#[tokio::test]
async fn failed_call_that_is_due_at_once_is_repeated() -> Result<(), StoreFault> {
    let pace = Pace { first_delay: Duration::ZERO, ..Pace::default() };
    let supplier = Supplier::will([Deed::Fail, Deed::Fail, Deed::Answer(5)]);
    let harness = EngineHarness::with_supplier(in_memory(), pace, supplier).await;
    done(harness.execute(DepotCommand::Supply("tea")).await);
    harness.no_task_is_open().await;
    assert_eq!(state(harness.store.as_ref(), "tea").await?, Some(shelf_of(5)));
    Ok(())
}

/// Laws 2 and 7: no attempt is consumed meanwhile.
#[tokio::test]
async fn retries_of_a_blocked_step_wait_and_block_no_other_step() -> Result<(), StoreFault> {
    for shut in [FILLING.name, SUPPLIER] {
        let store = in_memory();
        // More of them than one look takes up, and all due before the other.
        let shut_out = (1..=5).map(|number| Retry {
            payload: arrived(id(number), "tea", 1),
            ..retry(FILLING.name, number, at(0))
        });
        let other = Retry { payload: arrived(id(9), "tea", 1), ..retry(LISTENING.name, 9, at(1)) };
        let retries = shut_out.chain([other]).collect();
        commit(store.as_ref(), Writes { retries, ..recorded("tea", &[], &[ShelfEvent::Listed]) }).await?;
        let pace = Pace { due_limit: 2, ..quick() };
        let harness = EngineHarness::just_started(Setup { store, pace, ..Setup::default() });
        harness.change_breaker(shut, BreakerAction::Open);
        let handled = async |step: &str, count: u64| {
            let counts = harness.store.message_counts().await.expect("the store works");
            counts.handled.get(step).copied().unwrap_or(0) == count
        };
        wait_until("the other step's retry", async || handled(LISTENING.name, 1).await).await;
        timers_have_scanned(&harness).await;
        assert!(handled(FILLING.name, 0).await);
        let due = harness.store.claim_due(due_query(at(9), 9, "nobody", at(9))).await?;
        assert_eq!(due.retries.iter().map(|retry| retry.attempts).collect::<Vec<_>>(), [1; 5]);
        harness.change_breaker(shut, BreakerAction::Reset);
        wait_until("the retries of the step", async || handled(FILLING.name, 5).await).await;
        assert_eq!(harness.stats().await.dead_letters, 0);
    }
    Ok(())
}

/// Opens after five failures, for a moment; three probes.
fn flapping() -> BreakerPolicy {
    BreakerPolicy { open_for: Duration::from_millis(20), ..BreakerPolicy::default() }
}

/// Timers that scan all the time, and enough attempts to notice an outage.
fn quick() -> Pace {
    Pace {
        attempts: 6,
        poll: Duration::from_millis(5),
        first_delay: Duration::from_millis(2),
        ..Pace::default()
    }
}

fn shelf_of(pieces: i64) -> Shelf {
    Shelf { pieces, ..Shelf::default() }
}

/// Waits until something due is processed: other due items had their chance too.
async fn timers_have_scanned(harness: &EngineHarness) {
    for _ in 0..3 {
        done(harness.execute(DepotCommand::CheckAt("clock", jiff::Timestamp::UNIX_EPOCH)).await);
        let is_checked = async || {
            let clock = state(harness.store.as_ref(), "clock").await.expect("the store works");
            clock.is_some_and(|clock| clock.check_at.is_none())
        };
        wait_until("the timers have looked", is_checked).await;
    }
}
