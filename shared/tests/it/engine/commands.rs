//! What callers are told, and when.

use shared::engine::{Input, Outcome};
use shared::store::StoreFault;
use uuid::Uuid;

use super::{done, names};
use crate::support::in_time;
use crate::support::rig::{Pace, Rig};
use crate::support::shop::{Reply, Shop, ShopCommand, UNLUCKY};
use crate::support::writes::{shelf, state};

/// Law 1: whoever has an answer finds it in the store.
#[tokio::test]
async fn a_command_is_answered_when_it_is_durable() -> Result<(), StoreFault> {
    let rig = Rig::new().await;
    assert_eq!(done(rig.ask(ShopCommand::Put("tea", 3)).await), Reply { pieces: 3 });
    assert_eq!(state(rig.store.as_ref(), "tea").await?.map(|shelf| shelf.pieces), Some(3));
    assert_eq!(rig.store.stats().await?.outbox_pending, 1);
    Ok(())
}

#[tokio::test]
async fn what_is_so_already_is_done_without_a_trace() -> Result<(), StoreFault> {
    let rig = Rig::new().await;
    done(rig.ask(ShopCommand::List("tea")).await);
    done(rig.ask(ShopCommand::List("tea")).await);
    assert_eq!(rig.store.events(shelf("tea")).await?.len(), 1);
    Ok(())
}

/// Law 6: a no is an answer, and leaves nothing behind.
#[tokio::test]
async fn a_rejected_command_leaves_nothing() -> Result<(), StoreFault> {
    let rig = Rig::new().await;
    let outcome = rig.ask_under("key", "body", ShopCommand::Put("tea", 0)).await;
    assert!(matches!(outcome, Outcome::Rejected(_)), "{outcome:?}");
    assert_eq!(state(rig.store.as_ref(), "tea").await?, None);
    // Nor is the no kept under the key: the next one may succeed.
    assert_eq!(done(rig.ask_under("key", "body 2", ShopCommand::Put("tea", 1)).await).pieces, 1);
    Ok(())
}

#[tokio::test]
async fn inputs_that_gather_share_one_transaction_in_their_order() -> Result<(), StoreFault> {
    let rig = Rig::new().await;
    let inputs = (0..100).map(|_| command(ShopCommand::Put("tea", 2))).collect();
    let replies: Vec<_> = rig.settle_together(inputs).await.into_iter().map(|it| done(it).pieces).collect();
    assert_eq!(
        replies,
        (1..=100).map(|nth| nth * 2).collect::<Vec<_>>(),
        "each sees the row as the one before left it"
    );

    let events = rig.store.events(shelf("tea")).await?;
    assert_eq!(events.len(), 100);
    assert!(
        events.iter().all(|event| event.recorded_at == events[0].recorded_at),
        "one decision, one commit"
    );
    assert!(rig.metrics.text().expect("metrics").contains("engine_batch_inputs_sum 100"));
    Ok(())
}

#[tokio::test]
async fn the_same_key_gets_the_same_answer_again_even_after_a_restart() -> Result<(), StoreFault> {
    let rig = Rig::new().await;
    let first = done(rig.ask_under("key", "body", ShopCommand::Put("tea", 3)).await);
    done(rig.ask(ShopCommand::Put("tea", 4)).await);
    let again = rig.ask_under("key", "body", ShopCommand::Put("tea", 3)).await;
    assert!(matches!(&again, Outcome::Replayed(reply) if *reply == first), "{again:?}");

    let restarted = Rig::over(rig.store.clone(), Pace::default()).await;
    drop(rig);
    let again = restarted.ask_under("key", "body", ShopCommand::Put("tea", 3)).await;
    assert!(matches!(&again, Outcome::Replayed(reply) if *reply == first), "{again:?}");
    assert_eq!(restarted.store.events(shelf("tea")).await?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn one_key_fifty_times_at_once_does_it_once() -> Result<(), StoreFault> {
    let rig = Rig::new().await;
    let asked = (0..50).map(|_| rig.ask_under("key", "body", ShopCommand::Put("tea", 3)));
    let outcomes = futures::future::join_all(asked).await;
    let names = names(&outcomes);
    assert_eq!(names.iter().filter(|name| **name == "done").count(), 1);
    assert_eq!(names.iter().filter(|name| **name == "replayed").count(), 49);
    assert_eq!(state(rig.store.as_ref(), "tea").await?.map(|shelf| shelf.pieces), Some(3));
    Ok(())
}

#[tokio::test]
async fn a_key_of_another_request_is_refused() -> Result<(), StoreFault> {
    let rig = Rig::new().await;
    done(rig.ask_under("key", "body", ShopCommand::Put("tea", 3)).await);
    let other = rig.ask_under("key", "another body", ShopCommand::Put("tea", 4)).await;
    assert!(matches!(other, Outcome::KeyReused), "{other:?}");
    assert_eq!(state(rig.store.as_ref(), "tea").await?.map(|shelf| shelf.pieces), Some(3));
    Ok(())
}

#[tokio::test]
async fn a_command_that_panics_is_told_so_and_touches_no_other() -> Result<(), StoreFault> {
    let rig = Rig::new().await;
    let put = |pieces| command(ShopCommand::Put("tea", pieces));
    let outcomes = rig.settle_together(vec![put(1), put(UNLUCKY), put(2)]).await;
    assert_eq!(names(&outcomes), ["done", "faulted", "done"]);
    assert_eq!(state(rig.store.as_ref(), "tea").await?.map(|shelf| shelf.pieces), Some(3));
    let stats = rig.store.stats().await?;
    assert_eq!((stats.outbox_pending, stats.dead_letters), (2, 0), "nobody was told, the caller was");
    Ok(())
}

#[tokio::test]
async fn who_waits_for_a_row_wakes_with_its_change() {
    let rig = Rig::new().await;
    let changed = rig.engine.changed(shelf("tea"));
    let mut other = std::pin::pin!(rig.engine.changed(shelf("coffee")));
    let given_up = rig.engine.changed(shelf("tea"));
    drop(given_up);
    done(rig.ask(ShopCommand::Put("tea", 3)).await);
    in_time("the wake-up", changed).await;
    assert!(futures::poll!(&mut other).is_pending(), "another row did not change");

    // A rejection changes nothing.
    let mut unchanged = std::pin::pin!(rig.engine.changed(shelf("tea")));
    rig.ask(ShopCommand::Put("tea", 0)).await;
    assert!(futures::poll!(&mut unchanged).is_pending());
}

#[tokio::test]
async fn the_relay_is_woken_by_the_commit_that_has_something_to_publish() {
    let rig = Rig::new().await;
    let wake = rig.engine.relay_wake();
    let mut woken = Box::pin(wake.notified());
    done(rig.ask(ShopCommand::List("tea")).await);
    assert!(futures::poll!(&mut woken).is_pending(), "nothing to publish");
    done(rig.ask(ShopCommand::Put("tea", 3)).await);
    in_time("the relay's wake-up", woken).await;
}

fn command(command: ShopCommand) -> Input<Shop> {
    Input::command(Uuid::now_v7(), Uuid::now_v7(), command, None)
}
