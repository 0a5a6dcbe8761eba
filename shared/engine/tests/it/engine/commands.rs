//! Commands: their answers, and when they are given.

use saga_core::input::{CommandOutcome, Input, Outcome};
use saga_engine::store::StoreFault;
use uuid::Uuid;

use super::{done, names};
use crate::support::{Depot, DepotCommand, EngineHarness, Pace, Reply, UNLUCKY, in_time, shelf, state};

/// Guarantee 1.
#[tokio::test]
async fn command_is_answered_after_its_commit() -> Result<(), StoreFault> {
    let harness = EngineHarness::new().await;
    assert_eq!(done(harness.execute(DepotCommand::Put("tea", 3)).await), Reply { pieces: 3 });
    assert_eq!(state(harness.store.as_ref(), "tea").await?.map(|shelf| shelf.pieces), Some(3));
    assert_eq!(harness.stats().await.outbox_pending, 1);
    Ok(())
}

#[tokio::test]
async fn command_without_effect_writes_nothing() -> Result<(), StoreFault> {
    let harness = EngineHarness::new().await;
    done(harness.execute(DepotCommand::List("tea")).await);
    done(harness.execute(DepotCommand::List("tea")).await);
    assert_eq!(harness.store.events(shelf("tea"), 0, usize::MAX).await?.len(), 1);
    Ok(())
}

/// Guarantee 6.
#[tokio::test]
async fn rejected_command_writes_nothing() -> Result<(), StoreFault> {
    let harness = EngineHarness::new().await;
    let outcome = harness.execute_with_key("key", "body", DepotCommand::Put("tea", 0)).await;
    assert!(matches!(outcome, CommandOutcome::Rejected(_)), "{outcome:?}");
    assert_eq!(state(harness.store.as_ref(), "tea").await?, None);
    // Nor is the no kept under the key: the next one may succeed.
    assert_eq!(done(harness.execute_with_key("key", "body 2", DepotCommand::Put("tea", 1)).await).pieces, 1);
    Ok(())
}

#[tokio::test]
async fn queued_inputs_share_one_transaction_in_their_order() -> Result<(), StoreFault> {
    let harness = EngineHarness::new().await;
    let inputs = (0..100).map(|_| command(DepotCommand::Put("tea", 2))).collect();
    let replies: Vec<_> = harness.process_together(inputs).await.into_iter().map(pieces).collect();
    assert_eq!(
        replies,
        (1..=100).map(|nth| nth * 2).collect::<Vec<_>>(),
        "each sees the row as the one before left it"
    );

    let events = harness.store.events(shelf("tea"), 0, usize::MAX).await?;
    assert_eq!(events.len(), 100);
    assert!(
        events.iter().all(|event| event.recorded_at == events[0].recorded_at),
        "one decision, one commit"
    );
    assert!(harness.metrics.text().expect("metrics").contains("engine_batch_inputs_sum 100"));
    Ok(())
}

#[tokio::test]
async fn repeated_idempotency_key_gets_the_same_answer_after_a_restart() -> Result<(), StoreFault> {
    let harness = EngineHarness::new().await;
    let first = done(harness.execute_with_key("key", "body", DepotCommand::Put("tea", 3)).await);
    done(harness.execute(DepotCommand::Put("tea", 4)).await);
    let again = harness.execute_with_key("key", "body", DepotCommand::Put("tea", 3)).await;
    assert!(matches!(&again, CommandOutcome::Replayed(reply) if *reply == first), "{again:?}");

    let restarted = EngineHarness::over(harness.store.clone(), Pace::default()).await;
    drop(harness);
    let again = restarted.execute_with_key("key", "body", DepotCommand::Put("tea", 3)).await;
    assert!(matches!(&again, CommandOutcome::Replayed(reply) if *reply == first), "{again:?}");
    assert_eq!(restarted.store.events(shelf("tea"), 0, usize::MAX).await?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn simultaneous_requests_with_one_idempotency_key_execute_once() -> Result<(), StoreFault> {
    let harness = EngineHarness::new().await;
    let executing = (0..50).map(|_| harness.execute_with_key("key", "body", DepotCommand::Put("tea", 3)));
    let outcomes = futures::future::join_all(executing).await;
    let names: Vec<_> = outcomes.into_iter().map(|outcome| Outcome::Command(outcome).name()).collect();
    assert_eq!(names.iter().filter(|name| **name == "done").count(), 1);
    assert_eq!(names.iter().filter(|name| **name == "replayed").count(), 49);
    assert_eq!(state(harness.store.as_ref(), "tea").await?.map(|shelf| shelf.pieces), Some(3));
    Ok(())
}

#[tokio::test]
async fn idempotency_key_of_another_request_is_rejected() -> Result<(), StoreFault> {
    let harness = EngineHarness::new().await;
    done(harness.execute_with_key("key", "body", DepotCommand::Put("tea", 3)).await);
    let other = harness.execute_with_key("key", "another body", DepotCommand::Put("tea", 4)).await;
    assert!(matches!(other, CommandOutcome::KeyReused), "{other:?}");
    assert_eq!(state(harness.store.as_ref(), "tea").await?.map(|shelf| shelf.pieces), Some(3));
    Ok(())
}

#[tokio::test]
async fn panicking_command_fails_alone() -> Result<(), StoreFault> {
    let harness = EngineHarness::new().await;
    let put = |pieces| command(DepotCommand::Put("tea", pieces));
    let outcomes = harness.process_together(vec![put(1), put(UNLUCKY), put(2)]).await;
    assert_eq!(names(&outcomes), ["done", "faulted", "done"]);
    assert_eq!(state(harness.store.as_ref(), "tea").await?.map(|shelf| shelf.pieces), Some(3));
    let stats = harness.stats().await;
    assert_eq!((stats.outbox_pending, stats.dead_letters), (2, 0), "nobody was told, the caller was");
    Ok(())
}

#[tokio::test]
async fn watcher_of_a_row_wakes_with_its_change() {
    let harness = EngineHarness::new().await;
    let changed = harness.engine.changed(shelf("tea"));
    let mut other = std::pin::pin!(harness.engine.changed(shelf("coffee")));
    let failed_supplies = harness.engine.changed(shelf("tea"));
    drop(failed_supplies);
    done(harness.execute(DepotCommand::Put("tea", 3)).await);
    in_time("the wake-up", changed).await;
    assert!(futures::poll!(&mut other).is_pending(), "another row did not change");

    // A rejection changes nothing.
    let mut unchanged = std::pin::pin!(harness.engine.changed(shelf("tea")));
    harness.execute(DepotCommand::Put("tea", 0)).await;
    assert!(futures::poll!(&mut unchanged).is_pending());
}

#[tokio::test]
async fn commit_with_outbox_entries_wakes_the_relay() {
    let harness = EngineHarness::new().await;
    let relay = harness.engine.relay_queue();
    let mut woken = Box::pin(relay.woken());
    done(harness.execute(DepotCommand::List("tea")).await);
    assert!(futures::poll!(&mut woken).is_pending(), "nothing to publish");
    done(harness.execute(DepotCommand::Put("tea", 3)).await);
    in_time("the relay's wake-up", woken).await;
}

fn command(command: DepotCommand) -> Input<Depot> {
    Input::command(Uuid::now_v7(), Uuid::now_v7(), command, None)
}

fn pieces(outcome: Outcome<Depot>) -> i64 {
    done(outcome.of_command().expect("a command")).pieces
}
