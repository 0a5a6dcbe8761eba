//! Tasks: each has one outcome, whatever happens to its calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use saga_core::breaker::{BreakerPolicy, Window};
use saga_core::input::Input;
use saga_core::retry::{FailedAttempt, FailureKind};
use saga_core::waiting::Task;
use saga_engine::runtime::admission::BreakerAction;
use saga_engine::store::StoreFault;
use serde_json::Value;
use uuid::Uuid;

use super::{done, names};
use crate::support::{
    Deed, DepotCommand, EngineHarness, FILLING, OWNER, Pace, SUPPLIER, Setup, Shelf, Supplier, commit,
    due_query, id, in_memory, in_time, newest_dead_letters, state, task, tasks, wait_until,
};

#[tokio::test]
async fn result_of_a_call_is_an_input_and_completes_its_task() -> Result<(), StoreFault> {
    let supplier = Supplier::will([Deed::Answer(5)]);
    let harness = EngineHarness::with_supplier(in_memory(), Pace::default(), supplier).await;
    done(harness.execute(DepotCommand::Supply("tea")).await);
    harness.no_task_is_open().await;
    assert_eq!(harness.tea().await.pieces, 5);
    assert_eq!(harness.supplier.called().len(), 1);
    assert_eq!(harness.stats().await.outbox_pending, 1, "its fact");
    wait_until("no call is counted as open", async || harness.admission.open_tasks() == 0).await;
    Ok(())
}

/// Guarantee 4.
#[tokio::test]
async fn failed_call_is_repeated_under_the_same_key() -> Result<(), StoreFault> {
    let supplier = Supplier::will([Deed::Fail, Deed::Fail, Deed::Answer(5)]);
    let harness = EngineHarness::with_supplier(in_memory(), Pace::default(), supplier).await;
    done(harness.execute(DepotCommand::Supply("tea")).await);
    harness.no_task_is_open().await;
    let called = harness.supplier.called();
    assert_eq!(called, [called[0]; 3]);
    assert_eq!(harness.tea().await, Shelf { pieces: 5, ..Shelf::default() });
    Ok(())
}

/// Other calls succeed meanwhile, so the failures count.
#[tokio::test]
async fn service_receives_the_failure_of_a_task_out_of_attempts() -> Result<(), StoreFault> {
    let harness = EngineHarness::with_supplier(in_memory(), Pace::default(), Supplier::without("tea")).await;
    done(harness.execute(DepotCommand::Supply("tea")).await);
    settled_while_others_are_answered(&harness).await;
    assert_eq!(harness.tea().await, Shelf { failed_supplies: 1, ..Shelf::default() });
    assert_eq!(harness.stats().await.dead_letters, 0);
    Ok(())
}

/// Guarantee 7: before the breaker has seen enough calls to open.
#[tokio::test]
async fn failed_call_consumes_no_attempt_while_all_calls_fail() -> Result<(), StoreFault> {
    let policy =
        BreakerPolicy { minimum_calls: 10_000, window: Window::Calls(10_000), ..BreakerPolicy::default() };
    let harness = EngineHarness::guarded(in_memory(), Pace::default(), Supplier::closed(), policy).await;
    done(harness.execute(DepotCommand::Supply("tea")).await);
    done(harness.execute(DepotCommand::Insist("tea")).await);
    wait_until("both have failed again and again", async || harness.supplier.called().len() > 60).await;
    let stats = harness.stats().await;
    assert_eq!((stats.tasks, stats.dead_letters, state(harness.store.as_ref(), "tea").await?), (2, 0, None));
    harness.supplier.opens();
    harness.no_task_is_open().await;
    assert_eq!(harness.tea().await, Shelf { pieces: 2, ..Shelf::default() });
    Ok(())
}

/// A second task would get the same answer.
#[tokio::test]
async fn dependency_that_asks_for_a_pause_gets_no_call_meanwhile() -> Result<(), StoreFault> {
    let pause = Duration::from_secs(1);
    let supplier = Supplier::will([Deed::AskForPause(pause), Deed::Answer(5)]);
    let harness = EngineHarness::with_supplier(in_memory(), Pace::default(), supplier).await;
    let began = Instant::now();
    done(harness.execute(DepotCommand::Supply("tea")).await);
    wait_until("it has asked", async || harness.supplier.called().len() == 1).await;
    done(harness.execute(DepotCommand::Supply("milk")).await);
    harness.no_task_is_open().await;
    let called = harness.supplier.called();
    assert_eq!(called.len(), 3, "each is called once more: {called:?}");
    assert!(began.elapsed() >= pause, "{:?}", began.elapsed());
    Ok(())
}

/// Guarantee 6.
#[tokio::test]
async fn rejected_result_completes_its_task() -> Result<(), StoreFault> {
    let harness =
        EngineHarness::with_supplier(in_memory(), Pace::default(), Supplier::will([Deed::Answer(0)])).await;
    done(harness.execute(DepotCommand::Supply("tea")).await);
    harness.no_task_is_open().await;
    assert_eq!(harness.supplier.called().len(), 1);
    assert_eq!(harness.stats().await.dead_letters, 0);
    assert_eq!(state(harness.store.as_ref(), "tea").await?, None);
    Ok(())
}

/// Guarantee 2.
#[tokio::test]
async fn required_task_out_of_attempts_is_dead_lettered() -> Result<(), StoreFault> {
    let harness = EngineHarness::with_supplier(in_memory(), Pace::default(), Supplier::without("tea")).await;
    done(harness.execute(DepotCommand::Insist("tea")).await);
    settled_while_others_are_answered(&harness).await;
    let [dead_letter] = &newest_dead_letters(harness.store.as_ref(), 9).await?[..] else {
        panic!("one dead letter")
    };
    let called = harness.supplier.called();
    assert_eq!(
        (dead_letter.step.as_str(), dead_letter.message_id, dead_letter.attempts),
        ("insist", called[0], 3)
    );
    assert_eq!(dead_letter.reason, "no supply: the supplier is closed");
    assert_eq!(dead_letter.payload_base64, "eyJsYWJlbCI6InRlYSJ9", "{{\"label\":\"tea\"}}");
    Ok(())
}

#[tokio::test]
async fn hanging_call_fails_after_its_timeout() -> Result<(), StoreFault> {
    let pace = Pace { call_timeout: Duration::from_millis(20), ..Pace::default() };
    let supplier = Supplier::will([Deed::Hang, Deed::Answer(5)]);
    let harness = EngineHarness::with_supplier(in_memory(), pace, supplier).await;
    done(harness.execute(DepotCommand::Supply("tea")).await);
    harness.no_task_is_open().await;
    assert_eq!(harness.supplier.called().len(), 2);
    assert_eq!(harness.tea().await.pieces, 5);
    Ok(())
}

/// Recovery is for the claims of the process before.
#[tokio::test]
async fn task_written_before_the_first_scan_is_called_once() -> Result<(), StoreFault> {
    let supplier = Supplier::will([Deed::Hang]);
    let harness = EngineHarness::just_started(Setup { supplier, ..Setup::default() });
    done(harness.execute(DepotCommand::Supply("tea")).await);
    wait_until("the call is under way", async || !harness.supplier.called().is_empty()).await;
    // Timers that looked only now have nothing to recover.
    done(harness.execute(DepotCommand::CheckAt("tea", Timestamp::UNIX_EPOCH)).await);
    let checked = async || harness.tea().await.check_at.is_none();
    wait_until("the timers have looked", checked).await;
    tokio::task::yield_now().await;
    assert_eq!(harness.supplier.called().len(), 1);
    Ok(())
}

#[tokio::test]
async fn panicking_call_is_a_failed_call() -> Result<(), StoreFault> {
    let supplier = Supplier::will([Deed::Panic, Deed::Answer(5)]);
    let harness = EngineHarness::with_supplier(in_memory(), Pace::default(), supplier).await;
    done(harness.execute(DepotCommand::Supply("tea")).await);
    wait_until("the call was made", async || !harness.supplier.called().is_empty()).await;
    harness.no_task_is_open().await;
    assert_eq!(harness.tea().await.pieces, 5);
    wait_until("no call is counted as open", async || harness.admission.open_tasks() == 0).await;
    Ok(())
}

#[tokio::test]
async fn step_gets_no_permit_while_the_task_backlog_is_full() -> Result<(), StoreFault> {
    let pace = Pace { backlog: 2, ..Pace::default() };
    let harness =
        EngineHarness::with_supplier(in_memory(), pace, Supplier::will([Deed::Hang, Deed::Hang])).await;
    let step = harness.step(FILLING);
    drop(in_time("room", step.acquire()).await.expect("room"));
    done(harness.execute(DepotCommand::Supply("tea")).await);
    done(harness.execute(DepotCommand::Supply("tea")).await);
    let mut room = std::pin::pin!(step.acquire());
    assert!(futures::poll!(&mut room).is_pending());
    wait_until("both calls are made", async || harness.supplier.called().len() == 2).await;
    harness.supplier.release();
    assert!(in_time("room", room).await.is_some());
    Ok(())
}

/// Guarantee 4.
#[tokio::test]
async fn failure_under_an_expired_claim_is_ignored() -> Result<(), StoreFault> {
    let harness = stuck_call().await;
    let first = only_task(&harness).await?;
    let second = taken_over(&harness).await?;
    assert_eq!((first.id, second.claim), (second.id, first.claim + 1));

    let failed = |task: &Task| {
        Input::task_result(task.clone(), Err(FailedAttempt::new(FailureKind::Transient, "closed")), 0)
    };
    assert_eq!(names(&harness.process_together(vec![failed(&first)]).await), ["duplicate"]);
    assert_eq!(names(&harness.process_together(vec![failed(&second)]).await), ["retried"]);
    Ok(())
}

/// Guarantee 4: the idempotency key makes all results equal.
#[tokio::test]
async fn result_counts_once_and_under_any_claim() -> Result<(), StoreFault> {
    let harness = stuck_call().await;
    let first = only_task(&harness).await?;
    let second = taken_over(&harness).await?;
    let answered = |task: &Task| Input::task_result(task.clone(), Ok(Value::from(5)), 0);
    let together = vec![answered(&first), answered(&second)];
    assert_eq!(names(&harness.process_together(together).await), ["done", "duplicate"]);
    assert_eq!(names(&harness.process_together(vec![answered(&first)]).await), ["duplicate"]);
    assert_eq!(harness.tea().await.pieces, 5);
    assert_eq!(harness.stats().await.tasks, 0);
    Ok(())
}

/// Guarantee 4.
#[tokio::test]
async fn call_cut_off_by_a_crash_is_repeated_after_the_restart() -> Result<(), StoreFault> {
    let harness = stuck_call().await;
    wait_until("the call is under way", async || !harness.supplier.called().is_empty()).await;
    let key = harness.supplier.called()[0];
    let store = harness.store.clone();
    drop(harness);
    let restarted =
        EngineHarness::with_supplier(store, Pace::default(), Supplier::will([Deed::Answer(5)])).await;
    restarted.no_task_is_open().await;
    assert_eq!(restarted.supplier.called(), [key]);
    assert_eq!(restarted.tea().await.pieces, 5);
    Ok(())
}

/// Guarantee 4: also if a scan takes up few, or there is room for few.
#[tokio::test]
async fn all_calls_cut_off_by_a_crash_are_repeated_without_waiting_for_their_leases() -> Result<(), StoreFault>
{
    for pace in [Pace { due_limit: 3, ..Pace::default() }, Pace { backlog: 4, ..Pace::default() }] {
        let store = in_memory();
        let open = (1..=20).map(|number| task(number, Timestamp::UNIX_EPOCH));
        let until = Timestamp::now() + SignedDuration::from_hours(1);
        commit(store.as_ref(), tasks(open, OWNER, until)).await?;
        let restarted = EngineHarness::with_supplier(store, pace, Arc::default()).await;
        restarted.no_task_is_open().await;
        let mut called = restarted.supplier.called();
        called.sort();
        assert_eq!(called, (1..=20).map(id).collect::<Vec<Uuid>>());
        assert_eq!(restarted.tea().await.pieces, 20);
    }
    Ok(())
}

#[tokio::test]
async fn call_of_a_dead_replica_is_made_by_another_after_its_lease() -> Result<(), StoreFault> {
    let store = in_memory();
    let until = Timestamp::now() + SignedDuration::from_millis(300);
    let open = [task(1, Timestamp::UNIX_EPOCH)];
    commit(store.as_ref(), tasks(open, "another", until)).await?;
    let harness = EngineHarness::over(store, Pace::default()).await;
    harness.no_task_is_open().await;
    assert!(Timestamp::now() >= until, "not before");
    assert_eq!(harness.supplier.called(), [id(1)]);
    Ok(())
}

/// Depot whose call to the supplier hangs.
async fn stuck_call() -> EngineHarness {
    let harness =
        EngineHarness::with_supplier(in_memory(), Pace::default(), Supplier::will([Deed::Hang])).await;
    done(harness.execute(DepotCommand::Supply("tea")).await);
    harness
}

/// The only open task, as its writer claimed it.
async fn only_task(harness: &EngineHarness) -> Result<Task, StoreFault> {
    wait_until("the call is under way", async || !harness.supplier.called().is_empty()).await;
    let payload = r#"{"label":"tea"}"#.to_owned();
    let written = task(0, Timestamp::UNIX_EPOCH);
    Ok(Task { id: harness.supplier.called()[0], payload, ..written })
}

/// The only open task, claimed by another owner after its lease has expired.
async fn taken_over(harness: &EngineHarness) -> Result<Task, StoreFault> {
    let late = Timestamp::now() + SignedDuration::from_hours(2);
    let mut taken = harness.store.claim_due(due_query(late, 9, "another", late)).await?.tasks;
    assert_eq!(taken.len(), 1);
    Ok(taken.remove(0))
}

/// Waits until no task is open, while other calls succeed.
async fn settled_while_others_are_answered(harness: &EngineHarness) {
    // One that fails a thousand times a second would open it, among so few.
    harness.change_breaker(SUPPLIER, BreakerAction::Closed);
    let is_settled = async || {
        // Looked at before another is asked for, which would be open itself.
        if harness.stats().await.tasks == 0 {
            return true;
        }
        done(harness.execute(DepotCommand::Supply("milk")).await);
        settled_but(harness, 1).await;
        false
    };
    wait_until("no task is open", is_settled).await;
}

/// Waits until at most this many tasks are open.
async fn settled_but(harness: &EngineHarness, open: u64) {
    wait_until("others are answered", async || harness.stats().await.tasks <= open).await;
}
