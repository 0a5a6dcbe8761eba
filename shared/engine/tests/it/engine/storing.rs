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
    Depot, DepotCommand, Disk, EngineHarness, LISTENING, Pace, arrived, at, id, in_time, received, shelf,
    state, wait_until,
};

/// Guarantee 1.
#[tokio::test]
async fn failed_commit_is_an_error_and_writes_nothing() -> Result<(), StoreFault> {
    // An error of one statement, and one with which SQLite gives the whole transaction up (a full disk).
    for severity in ["ABORT", "ROLLBACK"] {
        let disk = Disk::new();
        let harness = EngineHarness::over(disk.store(), Pace::default()).await;
        disk.rejects("outbox", severity);
        let executing = (1..=3)
            .map(|pieces| harness.engine.execute(Uuid::now_v7(), DepotCommand::Put("tea", pieces), None));
        let answers = in_time("the answers", futures::future::join_all(executing)).await;
        assert!(answers.iter().all(|answer| matches!(answer, Err(Unavailable))), "{answers:?}");

        let stats = harness.stats().await;
        assert_eq!(
            (stats.outbox_pending, harness.store.events(shelf("tea"), 0, usize::MAX).await?.len()),
            (0, 0)
        );
        assert_eq!(state(harness.store.as_ref(), "tea").await?, None);
        assert!(harness.metrics.text().expect("metrics").contains("store_faults_total 1"));

        disk.works("outbox");
        assert_eq!(done(harness.execute(DepotCommand::Put("tea", 3)).await).pieces, 3);
        assert!(harness.store.verify().await?.differing.is_empty());
    }
    Ok(())
}

#[tokio::test]
async fn queue_length_is_reported_while_the_store_fails() {
    let disk = Disk::new();
    let harness = EngineHarness::over(disk.store(), Pace::default()).await;
    disk.rejects("outbox", "ABORT");
    assert_eq!(harness.engine.queued(), 0);
    let execute = |pieces| harness.engine.execute(Uuid::now_v7(), DepotCommand::Put("tea", pieces), None);
    assert!(in_time("the answer", execute(1)).await.is_err(), "it is not stored");
    // The engine has just begun to pause.
    let executing = futures::future::join_all((1..=3).map(execute));
    let queued = wait_until("three wait", async || harness.engine.queued() == 3);
    let (answers, ()) = tokio::join!(in_time("the answers", executing), queued);
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
    assert_eq!(harness.engine.queued(), 0);
}

/// Engine whose next batch starts within an hour, unless it is full.
async fn in_no_hurry() -> (Disk, EngineHarness) {
    let disk = Disk::new();
    let pace = Pace { max_batch_delay: Duration::from_hours(1), ..Pace::default() };
    let harness = EngineHarness::over(disk.store(), pace).await;
    // What took long to store, if only to fail, makes the next ones begin far apart.
    disk.rejects("outbox", "ABORT");
    let executing = harness.engine.execute(Uuid::now_v7(), DepotCommand::Put("tea", 1), None);
    assert!(in_time("the answer", executing).await.is_err(), "it is not stored");
    disk.works("outbox");
    (disk, harness)
}

fn put(number: u128) -> Input<Depot> {
    Input::command(id(number), id(number), DepotCommand::Put("tea", 1), None)
}

#[tokio::test]
async fn full_batch_starts_without_a_delay() {
    let (_disk, harness) = in_no_hurry().await;
    let full = (1..=u128::try_from(2 * Pace::default().due_limit).expect("a number")).map(put).collect();
    assert!(names(&harness.process_together(full).await).iter().all(|name| *name == "done"));
}

/// Some of the waiting senders give up.
#[tokio::test]
async fn full_queue_starts_a_batch_without_a_delay() {
    let (_disk, harness) = in_no_hurry().await;
    // As many as fill whatever is bounded, several times over, from tasks that come and go.
    for round in 0..3_u128 {
        let mut asking = tokio::task::JoinSet::new();
        for number in 1..=4_096 {
            let (engine, input) = (harness.engine.clone(), put(10_000 * (round + 1) + number));
            asking.spawn(async move { engine.process(input).await });
            if number % 7 == 0 {
                tokio::task::yield_now().await;
            }
        }
        // Some give up: what they handed in, or were about to, is nobody's.
        let mut queued = 0;
        let all = async {
            while queued + 300 < 4_096 {
                let answer = asking.join_next().await.expect("there is more").expect("no panic");
                queued += usize::from(answer.is_ok());
            }
        };
        in_time("the answers", all).await;
        asking.abort_all();
        while asking.join_next().await.is_some() {}
    }
}

#[tokio::test]
async fn inputs_submitted_while_a_batch_is_gathered_join_it() {
    let harness = EngineHarness::new().await;
    let handed_in = (1..=10).map(|number: u128| {
        let (engine, input) = (harness.engine.clone(), put(number));
        async move {
            for _ in 0..number {
                tokio::task::yield_now().await;
            }
            engine.process(input).await
        }
    });
    let settled = in_time("the outcomes", futures::future::join_all(handed_in)).await;
    assert!(settled.iter().all(Result::is_ok));
    let metrics = harness.metrics.text().expect("metrics");
    assert!(metrics.contains("engine_batch_inputs_count 1\n"), "{metrics}");
}

/// Guarantee 1: no inbox mark without its effect.
#[tokio::test]
async fn unstored_message_is_new_when_it_is_redelivered() -> Result<(), StoreFault> {
    let disk = Disk::new();
    let harness = EngineHarness::over(disk.store(), Pace::default()).await;
    done(harness.execute(DepotCommand::List("tea")).await);
    disk.rejects("outbox", "ABORT");
    let tea = || received(arrived(id(1), "tea", 3));
    let answer = in_time("the answer", harness.engine.process(tea())).await;
    assert!(matches!(answer, Err(Unavailable)), "{answer:?}");
    assert!(harness.store.message_counts().await?.handled.is_empty());
    disk.works("outbox");
    assert_eq!(harness.settle(tea()).await, "done");
    assert_eq!(state(harness.store.as_ref(), "tea").await?.map(|shelf| shelf.pieces), Some(3));
    Ok(())
}

#[tokio::test]
async fn call_to_a_stopped_engine_is_an_error() {
    let harness = EngineHarness::new().await;
    let engine = harness.engine.clone();
    drop(harness);
    let answer = in_time("the answer", engine.execute(Uuid::now_v7(), DepotCommand::List("tea"), None)).await;
    assert!(matches!(answer, Err(Unavailable)), "{answer:?}");
}

/// The others are stored in their order.
#[tokio::test]
async fn unstorable_input_fails_alone_in_its_batch() -> Result<(), StoreFault> {
    let disk = Disk::new();
    let pace = Pace { attempts: 2, ..Pace::default() };
    let harness = EngineHarness::over(disk.store(), pace).await;
    disk.conflicts_at("cursed", 1);
    let put = |label, number| Input::command(id(number), id(number), DepotCommand::Put(label, 1), None);
    let listed = |number| Input::message(LISTENING, arrived(id(number), "tea", 1), id(404), 0);
    let batch =
        vec![put("tea", 1), put("cursed", 2), put("tea", 3), listed(4), put("coffee", 5), put("tea", 6)];
    let settled = harness.process_together(batch).await;
    assert_eq!(names(&settled), ["done", "faulted", "done", "done", "done", "done"]);
    let Outcome::Command(CommandOutcome::Faulted(why)) = &settled[1] else { panic!("{settled:?}") };
    assert!(why.contains("cannot be stored") && why.contains("UNIQUE"), "{why}");
    let Outcome::Command(CommandOutcome::Done(last)) = &settled[5] else { panic!("{settled:?}") };
    assert_eq!(last.pieces, 3, "each on what the ones before have left");
    assert_eq!(state(harness.store.as_ref(), "coffee").await?.map(|shelf| shelf.pieces), Some(1));
    Ok(())
}

#[tokio::test]
async fn unstorable_message_is_retried_and_finally_dead_lettered() -> Result<(), StoreFault> {
    let disk = Disk::new();
    let harness = EngineHarness::over(disk.store(), Pace { attempts: 2, ..Pace::default() }).await;
    done(harness.execute(DepotCommand::List("tea")).await);
    disk.conflicts_at("tea", 2);
    let (bad, good) =
        (received(arrived(id(1), "tea", 3)), Input::message(LISTENING, arrived(id(1), "tea", 3), id(9), 0));
    assert_eq!(names(&harness.process_together(vec![bad, good]).await), ["retried", "done"]);
    let dead_letter = harness.the_dead_letter().await;
    assert_eq!((dead_letter.attempts, dead_letter.message_id), (2, id(1)));
    assert!(dead_letter.reason.contains("cannot be stored"), "{}", dead_letter.reason);
    Ok(())
}

#[tokio::test]
async fn batch_with_a_conflict_is_run_again() -> Result<(), StoreFault> {
    let disk = Disk::new();
    let clock = Arc::new(RunClock::default());
    let harness = EngineHarness::on_clock(disk.store(), Pace::default(), clock.clone()).await;
    disk.conflicts_before(at(2));
    assert_eq!(done(harness.execute(DepotCommand::Put("tea", 3)).await).pieces, 3);
    assert_eq!(clock.0.load(Ordering::SeqCst), 2, "the first run was in vain");
    assert!(harness.metrics.text().expect("metrics").contains("store_faults_total 0"));
    Ok(())
}

/// Counts the attempts at batches: a second for each.
#[derive(Default)]
struct RunClock(AtomicI64);

impl Clock for RunClock {
    fn now(&self) -> Timestamp {
        let is_a_run = std::thread::current().name() == Some("sqlite-writer");
        at(self.0.fetch_add(i64::from(is_a_run), Ordering::SeqCst) + i64::from(is_a_run))
    }
}
