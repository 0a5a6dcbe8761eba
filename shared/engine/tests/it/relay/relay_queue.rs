//! Entries queued in memory: published without a read, in order, and never lost.

use std::sync::Arc;

use saga_core::decision::Writes;
use saga_engine::runtime::relay::{Relay, Round};
use saga_engine::runtime::relay_queue::RelayQueue;
use saga_engine::store::{Store, StoreFault};

use crate::support::{commit, commit_entries, outbox_writes, wait_until};

use super::broker::{Broker, Outcome, of_subjects, relay, round, with_outbox};

/// Relay with a queue that has found an empty outbox.
async fn with_queue() -> Result<(Arc<dyn Store>, Broker, Relay, Arc<RelayQueue>), StoreFault> {
    let (store, broker, relay) = with_outbox(Writes::default()).await?;
    let relay_queue = Arc::new(RelayQueue::default());
    let mut relay = relay.with_queue(relay_queue.clone());
    assert_eq!(round(&mut relay, &broker, 0).await?, Round::Idle);
    Ok((store, broker, relay, relay_queue))
}

async fn is_settled(store: &Arc<dyn Store>) {
    wait_until("all is settled", async || store.stats().await.expect("it works").outbox_pending == 0).await;
}

#[tokio::test]
async fn queued_entries_are_published_in_order_once_and_settled() -> Outcome {
    let (store, broker, mut relay, relay_queue) = with_queue().await?;
    for numbers in [1..=2, 3..=3, 4..=6] {
        relay_queue.push(commit_entries(store.as_ref(), outbox_writes(numbers.clone())).await?);
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

#[tokio::test]
async fn gap_before_queued_entries_is_read_from_the_outbox() -> Outcome {
    let (store, broker, mut relay, relay_queue) = with_queue().await?;
    commit(store.as_ref(), outbox_writes([1])).await?;
    relay_queue.push(commit_entries(store.as_ref(), outbox_writes([2])).await?);
    assert_eq!(round(&mut relay, &broker, 1).await?, Round::Published(2));
    assert_eq!(broker.arrived(), [1, 2]);
    // What was read is not published once more from memory.
    assert_eq!(round(&mut relay, &broker, 1).await?, Round::Idle);
    relay_queue.push(commit_entries(store.as_ref(), outbox_writes([3])).await?);
    assert_eq!(round(&mut relay, &broker, 1).await?, Round::Published(1));
    assert_eq!(broker.arrived(), [1, 2, 3]);
    is_settled_after_rounds(&mut relay, &broker, &store).await?;
    Ok(())
}

#[tokio::test]
async fn delayed_entries_are_published_before_queued_ones_after_an_outage() -> Outcome {
    let (store, broker, mut relay, relay_queue) = with_queue().await?;
    relay_queue.push(commit_entries(store.as_ref(), outbox_writes([1, 2, 3])).await?);
    broker.takes_next(1, "no answer");
    assert_eq!(round(&mut relay, &broker, 1).await?, Round::Delayed("no answer".to_owned()));
    for number in 4..9_000 {
        relay_queue.push(commit_entries(store.as_ref(), outbox_writes([number])).await?);
    }
    let mut published = 1;
    while let Round::Published(count) = round(&mut relay, &broker, 2).await? {
        published += count;
    }
    assert_eq!((published, broker.arrived()), (8_999, (1..9_000).collect()));
    is_settled(&store).await;
    Ok(())
}

/// Guarantee 1: under the same ids.
#[tokio::test]
async fn unsettled_entries_are_published_again_after_a_restart() -> Outcome {
    let (store, broker, mut relay, relay_queue) = with_queue().await?;
    relay_queue.push(commit_entries(store.as_ref(), outbox_writes([1, 2])).await?);
    assert_eq!(round(&mut relay, &broker, 1).await?, Round::Published(2));
    // Its settlement has begun, and not got to the store.
    drop(relay);
    let mut next = self::relay(&store, "depot-1").with_queue(Arc::default());
    assert_eq!(round(&mut next, &broker, 2).await?, Round::Published(2));
    assert_eq!(broker.arrived(), [1, 2, 1, 2]);
    assert_eq!(
        store.message_counts().await?.published,
        [("depot.stored".to_owned(), 2)].into(),
        "counted once"
    );
    Ok(())
}

/// Fencing: another relay has published the same entries.
#[tokio::test]
async fn expired_lease_cannot_settle() -> Outcome {
    let (store, broker, mut slow, relay_queue) = with_queue().await?;
    let mut other = relay(&store, "depot-2");
    relay_queue.push(commit_entries(store.as_ref(), outbox_writes([1])).await?);
    broker.stalls_after_taking();
    let mut publishing = Box::pin(slow.round(&broker, &(), crate::support::at(1)));
    assert!(futures::poll!(&mut publishing).is_pending());
    assert_eq!(round(&mut other, &broker, 20).await?, Round::Published(1));
    broker.continues();
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

/// Messages of a saga never overtake each other.
#[tokio::test]
async fn retried_entries_are_published_before_queued_ones() -> Outcome {
    let (store, broker, mut relay, relay_queue) = with_queue().await?;
    broker.always_rejects(1);
    relay_queue
        .push(commit_entries(store.as_ref(), of_subjects(&[(1, 7, "stored"), (9, 8, "stored")])).await?);
    round(&mut relay, &broker, 1).await?;
    relay_queue.push(commit_entries(store.as_ref(), of_subjects(&[(2, 7, "stored")])).await?);
    assert_eq!(round(&mut relay, &broker, 1).await?, Round::Idle, "it is held behind the other");
    broker.takes_all_again();
    store.retry_failed_entries(None).await?;
    // Committed before the relay has heard of that.
    let since = commit_entries(store.as_ref(), of_subjects(&[(3, 7, "stored")])).await?;
    assert!(since.is_empty(), "{since:?}");
    relay_queue.push(since);
    while round(&mut relay, &broker, 2).await? != Round::Idle {}
    assert_eq!(broker.arrived(), [9, 1, 2, 3]);
    relay_queue.request_scan();
    while round(&mut relay, &broker, 3).await? != Round::Idle {}
    // And then it goes on in memory.
    assert_eq!(commit_entries(store.as_ref(), outbox_writes([4])).await?.len(), 1);
    Ok(())
}

/// Another relay may have recorded a rejection.
#[tokio::test]
async fn relay_scans_the_outbox_after_it_regains_the_lease() -> Outcome {
    let (store, broker, mut relay, relay_queue) = with_queue().await?;
    let mut other = self::relay(&store, "depot-2");
    relay_queue.push(commit_entries(store.as_ref(), outbox_writes([1])).await?);
    broker.always_rejects(1);
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

/// While the broker is down, entries wait in the outbox only.
#[tokio::test]
async fn queue_keeps_nothing_that_a_scan_will_read() -> Outcome {
    let (store, broker, mut relay, relay_queue) = with_queue().await?;
    broker.takes_nothing();
    let mut payloads = Vec::new();
    for number in 1..=20 {
        let commit_entries = commit_entries(store.as_ref(), outbox_writes([number])).await?;
        payloads.extend(commit_entries.iter().map(|entry| entry.payload.clone()));
        relay_queue.push(commit_entries);
        round(&mut relay, &broker, 1).await?;
    }
    assert_eq!(payloads.len(), 20);
    let kept = payloads.iter().filter(|payload| !payload.is_unique()).count();
    assert_eq!(kept, 0, "of what waits in the outbox");
    Ok(())
}

/// Several processes share the outbox.
#[tokio::test]
async fn entries_of_other_processes_are_published_in_order() -> Outcome {
    let (store, broker, mut relay, relay_queue) = with_queue().await?;
    relay_queue.push(commit_entries(store.as_ref(), outbox_writes([1])).await?);
    assert_eq!(round(&mut relay, &broker, 1).await?, Round::Published(1));
    commit(store.as_ref(), outbox_writes([2])).await?;
    relay_queue.request_tail();
    assert_eq!(round(&mut relay, &broker, 1).await?, Round::Published(1));
    relay_queue.push(commit_entries(store.as_ref(), outbox_writes([3])).await?);
    commit(store.as_ref(), outbox_writes([4])).await?;
    relay_queue.request_tail();
    relay_queue.push(commit_entries(store.as_ref(), outbox_writes([5])).await?);
    while round(&mut relay, &broker, 1).await? != Round::Idle {}
    assert_eq!(broker.arrived(), [1, 2, 3, 4, 5]);
    // More than one round takes.
    for number in 6..=2_100 {
        commit(store.as_ref(), outbox_writes([number])).await?;
    }
    relay_queue.request_tail();
    while round(&mut relay, &broker, 1).await? != Round::Idle {}
    assert_eq!(broker.arrived(), (1..=2_100).collect::<Vec<_>>());
    is_settled_after_rounds(&mut relay, &broker, &store).await?;
    assert_eq!(store.message_counts().await?.published, [("depot.stored".to_owned(), 2_100)].into());
    Ok(())
}

#[tokio::test]
async fn tail_is_not_read_while_an_earlier_entry_waits() -> Outcome {
    let (store, broker, mut relay, relay_queue) = with_queue().await?;
    broker.always_rejects(1);
    relay_queue
        .push(commit_entries(store.as_ref(), of_subjects(&[(1, 7, "stored"), (9, 8, "stored")])).await?);
    round(&mut relay, &broker, 1).await?;
    commit(store.as_ref(), of_subjects(&[(2, 7, "stored"), (3, 8, "stored")])).await?;
    relay_queue.request_tail();
    while round(&mut relay, &broker, 1).await? != Round::Idle {}
    assert_eq!(broker.arrived(), [9, 3], "the other one of its saga is held");
    broker.takes_all_again();
    store.retry_failed_entries(None).await?;
    relay_queue.request_tail();
    while round(&mut relay, &broker, 2).await? != Round::Idle {}
    assert_eq!(broker.arrived(), [9, 3, 1, 2]);
    Ok(())
}
