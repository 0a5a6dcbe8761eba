//! What the engine hands over in memory: published without being read, never out of its order, and never lost.

use std::sync::Arc;

use saga_engine::runtime::handover::Handover;
use saga_engine::runtime::relay::{Relay, Round};
use saga_engine::store::{Store, StoreFault};

use crate::support::{commit, in_memory, promised, promises, wait_until};

use super::broker::{Broker, Outcome, of_subjects, relay, round};

/// A relay that the engine feeds, and has seen that nothing waits.
async fn fed(store: &Arc<dyn Store>, broker: &Broker) -> Result<(Relay, Arc<Handover>), StoreFault> {
    let handover = Arc::new(Handover::default());
    let mut relay = relay(store, "depot-1").fed_by(handover.clone());
    assert_eq!(round(&mut relay, broker, 0).await?, Round::Idle);
    Ok((relay, handover))
}

async fn is_settled(store: &Arc<dyn Store>) {
    wait_until("all is settled", async || store.stats().await.expect("it works").outbox_pending == 0).await;
}

#[tokio::test]
async fn what_is_handed_over_is_published_in_order_once_and_settled() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    let (mut relay, handover) = fed(&store, &broker).await?;
    for numbers in [1..=2, 3..=3, 4..=6] {
        handover.give(promised(store.as_ref(), promises(numbers.clone())).await?);
        assert_eq!(round(&mut relay, &broker, 1).await?, Round::Published(numbers.count()));
    }
    is_settled_after_rounds(&mut relay, &broker, &store).await?;
    assert_eq!(broker.arrived(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(store.message_counts().await?.published, [("depot.stored".to_owned(), 6)].into());
    Ok(())
}

/// What waits behind a settlement is settled with the next round.
async fn is_settled_after_rounds(relay: &mut Relay, broker: &Broker, store: &Arc<dyn Store>) -> Outcome {
    while store.stats().await?.outbox_pending > 0 {
        assert_eq!(round(relay, broker, 1).await?, Round::Idle);
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// The entries of a batch that was handed over before the one in front of it has not been read: nobody overtakes it.
#[tokio::test]
async fn what_does_not_follow_is_read_from_the_outbox() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    let (mut relay, handover) = fed(&store, &broker).await?;
    commit(store.as_ref(), promises([1])).await?;
    handover.give(promised(store.as_ref(), promises([2])).await?);
    assert_eq!(round(&mut relay, &broker, 1).await?, Round::Published(2));
    assert_eq!(broker.arrived(), [1, 2]);
    // What was read is not published once more from memory.
    assert_eq!(round(&mut relay, &broker, 1).await?, Round::Idle);
    handover.give(promised(store.as_ref(), promises([3])).await?);
    assert_eq!(round(&mut relay, &broker, 1).await?, Round::Published(1));
    assert_eq!(broker.arrived(), [1, 2, 3]);
    is_settled_after_rounds(&mut relay, &broker, &store).await?;
    Ok(())
}

/// After an outage, however much was committed meanwhile.
#[tokio::test]
async fn what_the_broker_did_not_take_is_published_in_its_place() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    let (mut relay, handover) = fed(&store, &broker).await?;
    handover.give(promised(store.as_ref(), promises([1, 2, 3])).await?);
    broker.takes_next(1, "no answer");
    assert_eq!(round(&mut relay, &broker, 1).await?, Round::Delayed("no answer".to_owned()));
    for number in 4..9_000 {
        handover.give(promised(store.as_ref(), promises([number])).await?);
    }
    let mut published = 1;
    while let Round::Published(count) = round(&mut relay, &broker, 2).await? {
        published += count;
    }
    assert_eq!((published, broker.arrived()), (8_999, (1..9_000).collect()));
    is_settled(&store).await;
    Ok(())
}

/// Law 1: dying between publish and settlement repeats the same ids.
#[tokio::test]
async fn what_was_not_settled_is_published_again_by_the_next_life() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    let (mut relay, handover) = fed(&store, &broker).await?;
    handover.give(promised(store.as_ref(), promises([1, 2])).await?);
    assert_eq!(round(&mut relay, &broker, 1).await?, Round::Published(2));
    // Its settlement has begun, and not got to the store.
    drop(relay);
    let mut next = self::relay(&store, "depot-1").fed_by(Arc::default());
    assert_eq!(round(&mut next, &broker, 2).await?, Round::Published(2));
    assert_eq!(broker.arrived(), [1, 2, 1, 2]);
    assert_eq!(
        store.message_counts().await?.published,
        [("depot.stored".to_owned(), 2)].into(),
        "counted once"
    );
    Ok(())
}

/// Fencing: another has taken over meanwhile, and has published the same.
#[tokio::test]
async fn a_run_is_not_settled_under_a_lease_that_has_lapsed() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    let (mut slow, handover) = fed(&store, &broker).await?;
    let mut other = relay(&store, "depot-2");
    handover.give(promised(store.as_ref(), promises([1])).await?);
    broker.stalls_after_taking();
    let mut publishing = Box::pin(slow.round(&broker, &(), crate::support::at(1)));
    assert!(futures::poll!(&mut publishing).is_pending());
    assert_eq!(round(&mut other, &broker, 20).await?, Round::Published(1));
    broker.goes_on();
    assert_eq!(publishing.await?, Round::Published(1));
    tokio::task::yield_now().await;
    assert_eq!(round(&mut slow, &broker, 2).await?, Round::Standby);
    assert_eq!(
        store.message_counts().await?.published,
        [("depot.stored".to_owned(), 1)].into(),
        "counted once"
    );
    Ok(())
}

/// A saga's messages never overtake each other: what is tried again goes before what was promised since.
#[tokio::test]
async fn nothing_is_handed_over_while_anything_stands_out_of_line() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    let (mut relay, handover) = fed(&store, &broker).await?;
    broker.always_refuses(1);
    handover.give(promised(store.as_ref(), of_subjects(&[(1, 7, "stored"), (9, 8, "stored")])).await?);
    round(&mut relay, &broker, 1).await?;
    handover.give(promised(store.as_ref(), of_subjects(&[(2, 7, "stored")])).await?);
    assert_eq!(round(&mut relay, &broker, 1).await?, Round::Idle, "it is held behind the other");
    broker.takes_all_again();
    store.retry_failed_entries(None).await?;
    // Committed before the relay has heard of that.
    let since = promised(store.as_ref(), of_subjects(&[(3, 7, "stored")])).await?;
    assert!(since.is_empty(), "{since:?}");
    handover.give(since);
    while round(&mut relay, &broker, 2).await? != Round::Idle {}
    assert_eq!(broker.arrived(), [9, 1, 2, 3]);
    handover.look_again();
    while round(&mut relay, &broker, 3).await? != Round::Idle {}
    // And then it goes on in memory.
    assert_eq!(promised(store.as_ref(), promises([4])).await?.len(), 1);
    Ok(())
}

/// Fencing: while nobody renewed it, another had the lease, and was told that something is refused.
#[tokio::test]
async fn who_takes_the_lease_back_looks_what_the_other_did_with_what_was_handed_over() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    let (mut relay, handover) = fed(&store, &broker).await?;
    let mut other = self::relay(&store, "depot-2");
    handover.give(promised(store.as_ref(), promises([1])).await?);
    broker.always_refuses(1);
    round(&mut other, &broker, 20).await?;
    assert_eq!(store.stats().await?.outbox_failed, 1);
    assert_eq!(round(&mut relay, &broker, 40).await?, Round::Idle);
    broker.takes_all_again();
    assert_eq!(store.retry_failed_entries(None).await?, 1);
    while round(&mut relay, &broker, 41).await? != Round::Idle {}
    assert_eq!(broker.arrived(), [1]);
    assert_eq!(
        store.message_counts().await?.published,
        [("depot.stored".to_owned(), 1)].into(),
        "counted once"
    );
    Ok(())
}

/// Bounds: while the broker is away everything waits in the outbox, and not in memory as well.
#[tokio::test]
async fn what_the_relay_reads_anyway_is_not_kept_in_memory() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    let (mut relay, handover) = fed(&store, &broker).await?;
    broker.takes_nothing();
    let mut payloads = Vec::new();
    for number in 1..=20 {
        let promised = promised(store.as_ref(), promises([number])).await?;
        payloads.extend(promised.iter().map(|entry| entry.payload.clone()));
        handover.give(promised);
        round(&mut relay, &broker, 1).await?;
    }
    assert_eq!(payloads.len(), 20);
    let kept = payloads.iter().filter(|payload| !payload.is_unique()).count();
    assert_eq!(kept, 0, "of what waits in the outbox");
    Ok(())
}

/// Several processes share the outbox: what others have promised is published in its place, among what is handed over.
#[tokio::test]
async fn what_others_have_promised_is_published_in_its_place() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    let (mut relay, handover) = fed(&store, &broker).await?;
    handover.give(promised(store.as_ref(), promises([1])).await?);
    assert_eq!(round(&mut relay, &broker, 1).await?, Round::Published(1));
    commit(store.as_ref(), promises([2])).await?;
    handover.look_behind();
    assert_eq!(round(&mut relay, &broker, 1).await?, Round::Published(1));
    handover.give(promised(store.as_ref(), promises([3])).await?);
    commit(store.as_ref(), promises([4])).await?;
    handover.look_behind();
    handover.give(promised(store.as_ref(), promises([5])).await?);
    while round(&mut relay, &broker, 1).await? != Round::Idle {}
    assert_eq!(broker.arrived(), [1, 2, 3, 4, 5]);
    // More than one round takes.
    for number in 6..=2_100 {
        commit(store.as_ref(), promises([number])).await?;
    }
    handover.look_behind();
    while round(&mut relay, &broker, 1).await? != Round::Idle {}
    assert_eq!(broker.arrived(), (1..=2_100).collect::<Vec<_>>());
    is_settled_after_rounds(&mut relay, &broker, &store).await?;
    assert_eq!(store.message_counts().await?.published, [("depot.stored".to_owned(), 2_100)].into());
    Ok(())
}

/// What was put back in line goes before what others promise behind it.
#[tokio::test]
async fn while_anything_stands_out_of_line_nothing_is_read_behind_it() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    let (mut relay, handover) = fed(&store, &broker).await?;
    broker.always_refuses(1);
    handover.give(promised(store.as_ref(), of_subjects(&[(1, 7, "stored"), (9, 8, "stored")])).await?);
    round(&mut relay, &broker, 1).await?;
    commit(store.as_ref(), of_subjects(&[(2, 7, "stored"), (3, 8, "stored")])).await?;
    handover.look_behind();
    while round(&mut relay, &broker, 1).await? != Round::Idle {}
    assert_eq!(broker.arrived(), [9, 3], "the other one of its saga is held");
    broker.takes_all_again();
    store.retry_failed_entries(None).await?;
    handover.look_behind();
    while round(&mut relay, &broker, 2).await? != Round::Idle {}
    assert_eq!(broker.arrived(), [9, 3, 1, 2]);
    Ok(())
}
