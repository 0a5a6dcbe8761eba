//! Queued tasks: whether they are still needed, and where they wait.

use saga_core::breaker::{BreakerPolicy, Window};
use saga_engine::runtime::admission::BreakerAction;

use super::done;
use crate::support::{
    DepotCommand, EngineHarness, FULL, Pace, SUPPLIER, Shelf, Supplier, in_memory, wait_until,
};

#[tokio::test(start_paused = true)]
async fn unneeded_task_ends_without_a_call_although_the_breaker_is_open() {
    let harness = EngineHarness::new().await;
    harness.change_breaker(SUPPLIER, BreakerAction::Open);
    done(harness.execute(DepotCommand::Supply("tea")).await);
    done(harness.execute(DepotCommand::Supply("milk")).await);
    done(harness.execute(DepotCommand::Put("tea", FULL)).await);
    wait_until("the tea is given up", async || harness.stats().await.tasks == 1).await;
    assert_eq!(harness.tea().await, Shelf { pieces: FULL.into(), failed_supplies: 1, ..Shelf::default() });
    assert_eq!(settled(&harness), 1, "that the milk is still wanted is nothing that was done");
    assert_eq!((harness.supplier.called().len(), harness.admission.open_tasks()), (0, 1));
    harness.change_breaker(SUPPLIER, BreakerAction::Closed);
    harness.no_task_is_open().await;
    assert_eq!(harness.supplier.called().len(), 1, "the milk is wanted still");
    wait_until("no call is counted as open", async || harness.admission.open_tasks() == 0).await;
}

/// Inputs about calls that are counted as settled; each is timed as well.
fn settled(harness: &EngineHarness) -> usize {
    let text = harness.metrics.text().expect("metrics");
    let count = |name: &str| {
        let lines = text.lines().filter(|line| line.starts_with(name) && line.contains("step=\"supply\""));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).sum::<usize>()
    };
    let settled = count("saga_input_total");
    assert_eq!(count("step_duration_seconds_count"), settled, "{text}");
    settled
}

#[tokio::test]
async fn failed_call_is_not_repeated_once_its_task_is_unneeded() {
    let policy =
        BreakerPolicy { minimum_calls: 10_000, window: Window::Calls(10_000), ..BreakerPolicy::default() };
    let harness = EngineHarness::guarded(in_memory(), Pace::default(), Supplier::closed(), policy).await;
    done(harness.execute(DepotCommand::Supply("tea")).await);
    wait_until("it has failed again and again", async || harness.supplier.called().len() > 9).await;
    done(harness.execute(DepotCommand::Put("tea", FULL)).await);
    harness.no_task_is_open().await;
    assert_eq!(harness.tea().await.failed_supplies, 1);
    assert_eq!(harness.stats().await.dead_letters, 0);
}

#[tokio::test(start_paused = true)]
async fn unneeded_task_gives_its_permit_back() {
    let pace = Pace { concurrency: 1, ..Pace::default() };
    let harness = EngineHarness::over(in_memory(), pace).await;
    harness.change_breaker(SUPPLIER, BreakerAction::Open);
    for _ in 0..9 {
        done(harness.execute(DepotCommand::Supply("tea")).await);
    }
    done(harness.execute(DepotCommand::Supply("milk")).await);
    done(harness.execute(DepotCommand::Put("tea", FULL)).await);
    // Long enough for what was just decided to be asked about.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    harness.change_breaker(SUPPLIER, BreakerAction::Closed);
    harness.no_task_is_open().await;
    assert_eq!((harness.supplier.called().len(), harness.tea().await.failed_supplies), (1, 9));
}

#[tokio::test]
async fn tasks_beyond_the_backlog_stay_in_the_store() {
    let pace = Pace { backlog: 2, ..Pace::default() };
    let harness = EngineHarness::over(in_memory(), pace).await;
    harness.change_breaker(SUPPLIER, BreakerAction::Open);
    for _ in 0..10 {
        done(harness.execute(DepotCommand::Supply("tea")).await);
        assert!(harness.admission.open_tasks() <= 2, "{} are held", harness.admission.open_tasks());
    }
    assert_eq!(harness.stats().await.tasks, 10);
    harness.change_breaker(SUPPLIER, BreakerAction::Closed);
    harness.no_task_is_open().await;
    assert_eq!((harness.supplier.called().len(), harness.tea().await.pieces), (10, 10));
}
