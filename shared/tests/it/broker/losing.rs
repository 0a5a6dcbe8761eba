//! Consumers and streams that vanish, and messages that nobody acknowledged: everything is made good.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use shared::bus::{Publish as _, Publisher};
use shared::service::Service as _;
use shared::store::sqlite::SqliteStore;

use super::consuming::{durable, handled, listening, pieces, say, waiting};
use crate::support::nats::{Nats, entries, stored};
use crate::support::rig::{Pace, Rig, no_faults};
use crate::support::shop::{FILLING, LISTENING, Shop, ShopCommand};
use crate::support::wait_until;

/// Law 1: nothing is acknowledged before it is committed; what was not comes again.
#[tokio::test]
async fn what_could_not_be_committed_is_not_acknowledged_and_comes_again() {
    let nats = Nats::start().await;
    let bus = nats.bus().await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("shop.db");
    let store = SqliteStore::open(&path, Shop::rows()).expect("a new database");
    let mut rig = Rig::over(Arc::new(store), Pace::default()).await;
    rig.ask(ShopCommand::List("tea")).await;
    let by_hand = |sql: &str| {
        let conn = Connection::open(&path).expect("the file");
        conn.busy_timeout(Duration::from_secs(5)).expect("a pragma");
        conn.execute_batch(sql).expect("the change");
    };
    by_hand("CREATE TRIGGER broken BEFORE INSERT ON inbox BEGIN SELECT RAISE(ABORT, 'disk full'); END");
    rig.listens(&bus, FILLING);
    say(&bus, 1..=3).await;
    let has_failed = async || !rig.metrics.text().expect("metrics").contains("store_faults_total 0");
    wait_until("a batch could not be stored", has_failed).await;
    assert_eq!(waiting(&bus, FILLING).await, 3);
    assert_eq!(pieces(&rig).await, 0);

    by_hand("DROP TRIGGER broken");
    handled(&rig, FILLING, 3).await;
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    assert_eq!(pieces(&rig).await, 3);
}

/// Law 2: a consumer that somebody deleted hears all of it again; the inbox knows what it has handled.
#[tokio::test]
async fn a_consumer_that_was_deleted_is_made_again_and_handles_nothing_twice() {
    let nats = Nats::start().await;
    let bus = nats.bus().await;
    let rig = listening(&bus, Pace::default()).await;
    say(&bus, 1..=5).await;
    handled(&rig, FILLING, 5).await;
    bus.jetstream().delete_consumer_from_stream(FILLING.name, "INVENTORY").await.expect("it is there");
    say(&bus, 6..=7).await;
    handled(&rig, FILLING, 7).await;
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    assert_eq!(pieces(&rig).await, 7);
    handled(&rig, LISTENING, 7).await;
}

#[tokio::test]
async fn a_stream_that_was_lost_is_made_again_by_whoever_listens_to_it() {
    let nats = Nats::start().await;
    let bus = nats.bus().await;
    let rig = listening(&bus, Pace::default()).await;
    say(&bus, 1..=2).await;
    handled(&rig, FILLING, 2).await;
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    bus.jetstream().delete_stream("INVENTORY").await.expect("it is there");
    wait_until("the consumer is there again", async || durable(&bus, FILLING).await.is_some()).await;
    say(&bus, 3..=4).await;
    handled(&rig, FILLING, 4).await;
    assert_eq!(pieces(&rig).await, 4);
}

/// Law 2: "no such stream" is not the message's fault: it waits until the stream is there again.
#[tokio::test]
async fn a_stream_that_was_lost_is_made_again_by_whoever_speaks() {
    let nats = Nats::start().await;
    let bus = nats.bus().await;
    let publisher = Publisher::new(bus.clone(), "order", no_faults());
    for (first, last) in [(1, 3), (11, 40)] {
        bus.jetstream().delete_stream("ORDER").await.expect("it is there");
        let mut left = entries(first..=last);
        let has_arrived = async || {
            let published = publisher.publish(&left).await;
            assert_eq!(published.refused, []);
            left.retain(|entry| !published.done.contains(&entry.seq));
            left.is_empty()
        };
        wait_until("everything has arrived", has_arrived).await;
        let arrived: Vec<_> = stored(&bus, "ORDER").await.iter().map(|it| it.id.as_u128()).collect();
        assert_eq!(arrived, (first.into()..=last.into()).collect::<Vec<u128>>());
    }
}

/// Law 7: a stream that is there, and does not take what it should, is an outage; nobody has to retry by hand.
///
/// The same answer comes while a stream is being made by somebody else, or has no leader yet.
#[tokio::test]
async fn a_stream_that_was_changed_by_hand_is_mended_and_nothing_is_refused() {
    let nats = Nats::start().await;
    let bus = nats.bus().await;
    let mut stream = bus.jetstream().get_stream("ORDER").await.expect("the stream");
    let mut config = stream.info().await.expect("its state").config.clone();
    config.subjects = vec!["order.created".to_owned()];
    bus.jetstream().update_stream(config).await.expect("the operator may");
    let publisher = Publisher::new(bus.clone(), "order", no_faults());
    let mut left = entries(1..=3);
    let has_arrived = async || {
        let published = publisher.publish(&left).await;
        assert_eq!(published.refused, []);
        left.retain(|entry| !published.done.contains(&entry.seq));
        left.is_empty()
    };
    wait_until("everything has arrived", has_arrived).await;
    assert_eq!(stored(&bus, "ORDER").await.len(), 3);
}
