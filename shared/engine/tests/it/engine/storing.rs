//! A store that fails: whoever asked is told, nothing is half done, and everything goes on afterwards.
//!
//! The fault is real: a trigger, put into the database from outside, makes SQLite refuse a statement.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use saga_core::input::{CommandOutcome, Input, Outcome};
use saga_engine::runtime::clock::Clock;
use saga_engine::runtime::engine::Unavailable;
use saga_engine::store::StoreFault;
use uuid::Uuid;

use super::{done, names};
use crate::support::{
    Depot, DepotCommand, Disk, EngineHarness, LISTENING, Pace, arrived, at, heard, id, in_time, shelf, state,
    wait_until,
};

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
        assert_eq!(
            (stats.outbox_pending, harness.store.events(shelf("tea"), 0, usize::MAX).await?.len()),
            (0, 0)
        );
        assert_eq!(state(harness.store.as_ref(), "tea").await?, None);
        assert!(harness.metrics.text().expect("metrics").contains("store_faults_total 1"));

        disk.works("outbox");
        assert_eq!(done(harness.ask(DepotCommand::Put("tea", 3)).await).pieces, 3);
        assert!(harness.store.verify().await?.differing.is_empty());
    }
    Ok(())
}

/// How many wait is told while nothing is committed: that is when they gather.
#[tokio::test]
async fn what_waits_for_a_store_that_takes_nothing_is_told() {
    let disk = Disk::new();
    let harness = EngineHarness::over(disk.store(), Pace::default()).await;
    disk.refuses("outbox", "ABORT");
    assert_eq!(harness.engine.waiting(), 0);
    let ask = |pieces| harness.engine.ask(Uuid::now_v7(), DepotCommand::Put("tea", pieces), None);
    assert!(in_time("the answer", ask(1)).await.is_err(), "it is not stored");
    // The engine has just begun to pause.
    let asked = futures::future::join_all((1..=3).map(ask));
    let told = wait_until("three wait", async || harness.engine.waiting() == 3);
    let (answers, ()) = tokio::join!(in_time("the answers", asked), told);
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
    assert_eq!(harness.engine.waiting(), 0);
}

/// An engine whose next batch begins within the hour, unless it is full.
async fn in_no_hurry() -> (Disk, EngineHarness) {
    let disk = Disk::new();
    let pace = Pace { max_batch_delay: Duration::from_hours(1), ..Pace::default() };
    let harness = EngineHarness::over(disk.store(), pace).await;
    // What took long to store, if only to fail, makes the next ones begin far apart.
    disk.refuses("outbox", "ABORT");
    let asked = harness.engine.ask(Uuid::now_v7(), DepotCommand::Put("tea", 1), None);
    assert!(in_time("the answer", asked).await.is_err(), "it is not stored");
    disk.works("outbox");
    (disk, harness)
}

fn put(number: u128) -> Input<Depot> {
    Input::command(id(number), id(number), DepotCommand::Put("tea", 1), None)
}

/// However far apart batches begin: a backlog is not made to wait.
#[tokio::test]
async fn a_batch_that_is_full_waits_for_nothing_more() {
    let (_disk, harness) = in_no_hurry().await;
    let full = (1..=u128::try_from(2 * Pace::default().due_limit).expect("a number")).map(put).collect();
    assert!(names(&harness.settle_together(full).await).iter().all(|name| *name == "done"));
}

/// The same of more than the queue has room for, some of whom give up.
#[tokio::test]
async fn whoever_waits_for_room_in_the_queue_waits_for_nothing_more() {
    let (_disk, harness) = in_no_hurry().await;
    // As many as fill whatever is bounded, several times over, from tasks that come and go.
    for round in 0..3_u128 {
        let mut asking = tokio::task::JoinSet::new();
        for number in 1..=4_096 {
            let (engine, input) = (harness.engine.clone(), put(10_000 * (round + 1) + number));
            asking.spawn(async move { engine.settle(input).await });
            if number % 7 == 0 {
                tokio::task::yield_now().await;
            }
        }
        // Some give up: what they handed in, or were about to, is nobody's.
        let mut told = 0;
        let all = async {
            while told + 300 < 4_096 {
                let answer = asking.join_next().await.expect("there is more").expect("no panic");
                told += usize::from(answer.is_ok());
            }
        };
        in_time("the answers", all).await;
        asking.abort_all();
        while asking.join_next().await.is_some() {}
    }
}

/// Messages that arrive together are handed in one after the other, and the first wakes the engine.
#[tokio::test]
async fn what_is_handed_in_while_a_batch_is_gathered_is_part_of_it() {
    let harness = EngineHarness::new().await;
    let handed_in = (1..=10).map(|number: u128| {
        let (engine, input) = (harness.engine.clone(), put(number));
        async move {
            for _ in 0..number {
                tokio::task::yield_now().await;
            }
            engine.settle(input).await
        }
    });
    let settled = in_time("the outcomes", futures::future::join_all(handed_in)).await;
    assert!(settled.iter().all(Result::is_ok));
    let metrics = harness.metrics.text().expect("metrics");
    assert!(metrics.contains("engine_batch_inputs_count 1\n"), "{metrics}");
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
    assert!(harness.store.message_counts().await?.handled.is_empty());
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

/// One input that the store does not take: the others of its batch are stored, in their order, and it fails as an
/// input fails that breaks.
#[tokio::test]
async fn one_input_that_cannot_be_stored_fails_no_other_of_its_batch() -> Result<(), StoreFault> {
    let disk = Disk::new();
    let pace = Pace { attempts: 2, ..Pace::default() };
    let harness = EngineHarness::over(disk.store(), pace).await;
    disk.takes_the_place_of("cursed", 1);
    let put = |label, number| Input::command(id(number), id(number), DepotCommand::Put(label, 1), None);
    let listed = |number| Input::message(LISTENING, arrived(id(number), "tea", 1), id(404), 0);
    let batch =
        vec![put("tea", 1), put("cursed", 2), put("tea", 3), listed(4), put("coffee", 5), put("tea", 6)];
    let settled = harness.settle_together(batch).await;
    assert_eq!(names(&settled), ["done", "faulted", "done", "done", "done", "done"]);
    let Outcome::Command(CommandOutcome::Faulted(why)) = &settled[1] else { panic!("{settled:?}") };
    assert!(why.contains("cannot be stored") && why.contains("UNIQUE"), "{why}");
    let Outcome::Command(CommandOutcome::Done(last)) = &settled[5] else { panic!("{settled:?}") };
    assert_eq!(last.pieces, 3, "each on what the ones before have left");
    assert_eq!(state(harness.store.as_ref(), "coffee").await?.map(|shelf| shelf.pieces), Some(1));
    Ok(())
}

/// A message that the store does not take is tried again, and parked in the end: nothing loops, and nothing is lost.
#[tokio::test]
async fn a_message_that_cannot_be_stored_is_tried_again_and_parked_in_the_end() -> Result<(), StoreFault> {
    let disk = Disk::new();
    let harness = EngineHarness::over(disk.store(), Pace { attempts: 2, ..Pace::default() }).await;
    done(harness.ask(DepotCommand::List("tea")).await);
    disk.takes_the_place_of("tea", 2);
    let (bad, good) =
        (heard(arrived(id(1), "tea", 3)), Input::message(LISTENING, arrived(id(1), "tea", 3), id(9), 0));
    assert_eq!(names(&harness.settle_together(vec![bad, good]).await), ["retried", "done"]);
    let dead_letter = harness.the_dead_letter().await;
    assert_eq!((dead_letter.attempts, dead_letter.message_id), (2, id(1)));
    assert!(dead_letter.reason.contains("cannot be stored"), "{}", dead_letter.reason);
    Ok(())
}

/// Somebody else was quicker: the batch is run again from its reads, and nobody notices.
#[tokio::test]
async fn a_batch_whose_rows_changed_meanwhile_is_run_again() -> Result<(), StoreFault> {
    let disk = Disk::new();
    let clock = Arc::new(RunClock::default());
    let harness = EngineHarness::on_clock(disk.store(), Pace::default(), clock.clone()).await;
    disk.conflicts_before(at(2));
    assert_eq!(done(harness.ask(DepotCommand::Put("tea", 3)).await).pieces, 3);
    assert_eq!(clock.0.load(Ordering::SeqCst), 2, "the first run was in vain");
    assert!(harness.metrics.text().expect("metrics").contains("store_faults_total 0"));
    Ok(())
}

/// Counts the runs of batches: a second for each.
#[derive(Default)]
struct RunClock(AtomicI64);

impl Clock for RunClock {
    fn now(&self) -> Timestamp {
        let is_a_run = std::thread::current().name() == Some("sqlite-writer");
        at(self.0.fetch_add(i64::from(is_a_run), Ordering::SeqCst) + i64::from(is_a_run))
    }
}
