//! The relay, one round at a time, with a scripted broker and the time as an argument.

mod any_order;
mod broker;
mod rejected;
mod relay_queue;
mod unanswered;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use saga_engine::host::metrics::Metrics;
use saga_engine::runtime::relay::{Relay, RelaySettings, Round};

use crate::support::{at, commit, in_memory, outbox_writes, wait_until};

use self::broker::{Broker, Outcome, relay, round, running, with_outbox};

#[tokio::test]
async fn pending_entries_are_published_in_order_and_once() -> Outcome {
    let (store, broker, mut relay) = with_outbox(outbox_writes([3, 1, 2])).await?;
    assert_eq!(round(&mut relay, &broker, 1).await?, Round::Published(3));
    assert_eq!(broker.arrived(), [3, 1, 2]);
    assert_eq!(round(&mut relay, &broker, 2).await?, Round::Idle);
    assert_eq!(store.stats().await?.outbox_pending, 0);
    assert_eq!(store.message_counts().await?.published, [("depot.stored".to_owned(), 3)].into());
    Ok(())
}

#[tokio::test]
async fn round_publishes_at_most_one_batch() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    commit(store.as_ref(), outbox_writes(1..=5)).await?;
    let settings = RelaySettings { max_batch: 2, ..RelaySettings::default() };
    let mut relay = Relay::new(store.clone(), "depot-1".to_owned(), settings);
    for published in [2, 2, 1] {
        assert_eq!(round(&mut relay, &broker, 1).await?, Round::Published(published));
    }
    assert_eq!(broker.arrived(), [1, 2, 3, 4, 5]);
    Ok(())
}

/// Guarantee 7: no entry is lost or overtaken.
#[tokio::test]
async fn entries_wait_in_order_during_an_outage() -> Outcome {
    let (store, broker, mut relay) = with_outbox(outbox_writes([1, 2, 3, 4])).await?;
    broker.takes_next(2, "no answer");
    assert_eq!(round(&mut relay, &broker, 0).await?, Round::Delayed("no answer".to_owned()));
    assert_eq!(store.stats().await?.outbox_pending, 2);
    commit(store.as_ref(), outbox_writes([5])).await?;
    for hour in 1..=100 {
        broker.takes_nothing();
        let round = round(&mut relay, &broker, hour * 3600).await?;
        assert_eq!(round, Round::Delayed("no answer".to_owned()));
    }
    assert_eq!(store.outbox_items(1).await?[0].attempts, 101);
    broker.takes_all_again();
    assert_eq!(round(&mut relay, &broker, 999_999).await?, Round::Published(3));
    assert_eq!(broker.arrived(), [1, 2, 3, 4, 5]);
    Ok(())
}

/// Republishing after a loss of the broker's data depends on it.
#[tokio::test(start_paused = true)]
async fn publish_time_is_the_time_of_the_acknowledgement() -> Outcome {
    let (store, broker, mut relay) = with_outbox(outbox_writes([1])).await?;
    broker.stalls_after_taking();
    let publishing = round(&mut relay, &broker, 0);
    let going_on = async {
        tokio::time::sleep(Duration::from_secs(4)).await;
        broker.continues();
    };
    assert_eq!(tokio::join!(publishing, going_on).0?, Round::Published(1));
    assert_eq!(store.republish(at(4), 0, 9).await?.count, 1);
    Ok(())
}

/// Guarantee 1.
#[tokio::test]
async fn relay_republishes_same_ids_after_crash_between_publish_and_settle() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    commit(store.as_ref(), outbox_writes([1, 2, 3])).await?;
    let mut first_life = relay(&store, "depot-1");
    broker.stalls_after_taking();
    let dying = first_life.round(&broker, &(), at(0));
    assert!(dying.now_or_never().is_none(), "it waits for an answer, and dies");
    assert_eq!(broker.arrived(), [1, 2, 3]);
    assert_eq!(store.stats().await?.outbox_pending, 3);

    // Its next life does not wait for the lease of the first.
    let mut second_life = relay(&store, "depot-1");
    assert_eq!(round(&mut second_life, &broker, 1).await?, Round::Published(3));
    assert_eq!(broker.arrived(), [1, 2, 3, 1, 2, 3]);
    assert_eq!(
        store.message_counts().await?.published,
        [("depot.stored".to_owned(), 3)].into(),
        "counted once"
    );
    Ok(())
}

#[tokio::test]
async fn standby_relay_takes_over_when_the_lease_expires() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    let (mut first, mut second) = (relay(&store, "depot-1"), relay(&store, "depot-2"));
    assert_eq!(round(&mut first, &broker, 0).await?, Round::Idle);
    commit(store.as_ref(), outbox_writes([1])).await?;
    assert_eq!(round(&mut second, &broker, 9).await?, Round::Standby);
    assert_eq!(broker.arrived(), []);
    assert_eq!(round(&mut second, &broker, 10).await?, Round::Published(1), "the first is gone");
    assert_eq!(round(&mut first, &broker, 11).await?, Round::Standby, "and has to queue up when it returns");
    Ok(())
}

#[tokio::test]
async fn relay_renews_its_lease() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    let (mut first, mut second) = (relay(&store, "depot-1"), relay(&store, "depot-2"));
    for second_of_day in 0..60 {
        assert_eq!(round(&mut first, &broker, second_of_day).await?, Round::Idle);
        assert_eq!(round(&mut second, &broker, second_of_day).await?, Round::Standby);
    }
    Ok(())
}

/// Guarantee 1 and fencing.
#[tokio::test]
async fn relay_that_lost_its_lease_during_a_publish_settles_nothing() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    commit(store.as_ref(), outbox_writes([1, 2])).await?;
    let (mut slow, mut other) = (relay(&store, "depot-1"), relay(&store, "depot-2"));
    broker.stalls_after_taking();
    let mut publishing = Box::pin(slow.round(&broker, &(), at(0)));
    assert!(futures::poll!(&mut publishing).is_pending());

    // The other takes over and publishes the first entry only.
    broker.takes_next(1, "no answer");
    assert_eq!(round(&mut other, &broker, 10).await?, Round::Delayed("no answer".to_owned()));
    broker.continues();
    assert_eq!(publishing.await?, Round::Standby);
    assert_eq!(store.stats().await?.outbox_pending, 1, "the second entry is the other's to settle");
    assert_eq!(store.message_counts().await?.published, [("depot.stored".to_owned(), 1)].into());

    assert_eq!(round(&mut other, &broker, 11).await?, Round::Published(1));
    assert_eq!(broker.arrived(), [1, 2, 1, 2]);
    assert_eq!(round(&mut slow, &broker, 12).await?, Round::Standby);
    Ok(())
}

/// It does not wait for its poll interval.
#[tokio::test]
async fn relay_loop_is_woken_by_a_commit() -> Outcome {
    let (store, broker) = (in_memory(), Arc::new(Broker::default()));
    let metrics = Metrics::default();
    let (running, wake) = running(&store, &broker, Arc::new(metrics.clone()));
    for number in 1..=3 {
        commit(store.as_ref(), outbox_writes([number])).await?;
        wake.request_scan();
        let count = usize::try_from(number).expect("a small number");
        wait_until("it is published", async || broker.arrived().len() == count).await;
    }
    running.abort();
    assert!(metrics.text().expect("metrics").contains("outbox_published_total 3"));
    Ok(())
}

/// No wake-up is lost.
#[tokio::test]
async fn entry_written_during_a_round_is_published_in_the_next() -> Outcome {
    let (store, broker) = (in_memory(), Arc::new(Broker::default()));
    commit(store.as_ref(), outbox_writes([1])).await?;
    broker.stalls_after_taking();
    let (running, wake) = running(&store, &broker, Arc::new(()));
    wait_until("the first is under way", async || broker.arrived().len() == 1).await;
    commit(store.as_ref(), outbox_writes([2])).await?;
    wake.request_scan();
    broker.continues();
    wait_until("the second follows", async || broker.arrived() == [1, 2]).await;
    running.abort();
    Ok(())
}
