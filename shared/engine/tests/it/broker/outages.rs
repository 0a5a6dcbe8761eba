//! Brokers that die while messages are published and consumed.

use std::sync::Arc;
use std::time::Duration;

use saga_core::decision::{OutboxWrite, Writes};
use saga_core::service::Service as _;
use saga_engine::nats::{NatsBus, Publisher};
use saga_engine::runtime::bus::Publish as _;
use saga_engine::runtime::clock::SystemClock;
use saga_engine::runtime::relay::{self, Relay, RelaySettings};
use saga_engine::runtime::relay_queue::RelayQueue;
use saga_engine::store::Store;
use saga_engine::store::sqlite::SqliteStore;
use tokio::task::JoinHandle;

use super::consuming::{courier_entry, waiting};
use super::{all_done, publish_until_arrived};
use crate::support::{
    Deed, Depot, DepotCommand, EngineHarness, FILLING, Nats, Pace, Supplier, commit, entries, in_memory,
    in_time, no_faults, shelf, stored, wait_until,
};

/// Laws 1, 2 and 7: the broker is killed while messages are published and consumed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeatedly_killed_broker_loses_and_duplicates_nothing() {
    const FACTS: u128 = 600;
    let (mut nats, bus) = Nats::with_bus().await;
    let folder = tempfile::tempdir().expect("a folder");
    let open = |name: &str| -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(&folder.path().join(name), Depot::rows()).expect("a new database"))
    };
    let (courier, wake) = (open("courier.db"), Arc::new(RelayQueue::default()));
    let courier_relay = relaying(&courier, &bus, "courier", wake.clone());
    let mut harness = EngineHarness::over(open("depot.db"), Pace::default()).await;
    let shop_relay = relaying(&harness.store, &bus, "depot", harness.engine.relay_queue());
    harness.execute(DepotCommand::List("tea")).await;
    harness.listens(&bus, FILLING);

    let numbers: Vec<_> = (1..=FACTS).collect();
    for (index, chunk) in numbers.chunks(10).enumerate() {
        let outbox = chunk.iter().map(|number| outbox_write(*number)).collect();
        commit(courier.as_ref(), Writes { outbox, ..Writes::default() }).await.expect("the store works");
        wake.request_scan();
        let sent = u64::try_from((index + 1) * 10).expect("a small number");
        match index {
            19 | 39 => nats.kill(),
            24 | 44 => nats.restart().await,
            // In step with the consumer, so that each death finds something under way.
            0..20 | 25..40 | 45.. => {
                let most = async || harness.handled(FILLING).await + 30 >= sent;
                wait_until("the depot keeps up", most).await;
            }
            _ => {}
        }
    }
    let all = u64::try_from(FACTS).expect("a small number");
    harness.has_handled(FILLING, all).await;
    assert_eq!(harness.tea().await.pieces, i64::try_from(FACTS).expect("a small number"));
    assert_eq!(
        harness.store.events(shelf("tea"), 0, usize::MAX).await.expect("the store works").len() as u64,
        all + 1
    );
    let stats = harness.stats().await;
    assert_eq!((stats.retries, stats.dead_letters), (0, 0), "an outage is nobody's fault");

    for store in [&courier, &harness.store] {
        let is_empty = async || store.stats().await.is_ok_and(|stats| stats.outbox_pending == 0);
        wait_until("everything is published", is_empty).await;
        assert_eq!(store.stats().await.expect("the store works").outbox_failed, 0);
    }
    for stream in ["COURIER", "DEPOT"] {
        let mut ids: Vec<_> = stored(&bus, stream).await.iter().map(|message| message.id).collect();
        assert_eq!(ids.len() as u64, all, "{stream}");
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len() as u64, all, "{stream}");
    }
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    courier_relay.abort();
    shop_relay.abort();
}

/// Guarantee 7: no entry is rejected or reported as published meanwhile.
#[tokio::test]
async fn outbox_waits_while_the_broker_is_down_and_is_published_afterwards() {
    let (mut nats, bus) = Nats::with_bus().await;
    let publisher = Publisher::new(bus.clone(), "depot", no_faults());
    for (first, last) in [(1, 3), (11, 30)] {
        nats.kill();
        let left = entries(first..=last);
        let published = in_time("an answer", publisher.publish(&left)).await;
        assert_eq!((published.done, published.rejected), (vec![], vec![]));
        assert_eq!(published.delayed.map(|(seq, _)| seq), Some(first.into()));
        nats.restart().await;
        publish_until_arrived(&publisher, left).await;
    }
    assert_eq!(stored(&bus, "DEPOT").await.len(), 3 + 20);
}

/// The outage fills the client's buffers. The engine waits for no acknowledgement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engine_answers_commands_during_a_broker_outage() {
    let (mut nats, bus) = Nats::with_bus().await;
    let pace = Pace { backlog: 1, ..Pace::default() };
    let mut harness = EngineHarness::with_supplier(in_memory(), pace, Supplier::will([Deed::Hang])).await;
    harness.execute(DepotCommand::List("tea")).await;
    harness.execute(DepotCommand::Supply("coffee")).await;
    wait_until("the call is under way", async || !harness.supplier.called().is_empty()).await;
    harness.listens(&bus, FILLING);
    super::consuming::say(&bus, 1..=3).await;
    let in_hand = async || {
        let mut consumer = super::consuming::durable(&bus, FILLING).await?;
        consumer.info().await.ok().map(|info| info.num_ack_pending)
    };
    wait_until("the consumer has messages in hand", async || in_hand().await == Some(3)).await;

    nats.kill();
    wait_until("the broker is gone", async || !bus.is_connected()).await;
    // The relay does not do so any more, but whoever speaks through this client may.
    let client = bus.jetstream().client();
    let producer = client.clone();
    let speaking =
        tokio::spawn(async move { while producer.publish("anything", "".into()).await.is_ok() {} });
    let is_full = async || {
        let more = client.publish("anything", "".into());
        tokio::time::timeout(Duration::from_millis(50), more).await.is_err()
    };
    wait_until("the client holds all it can", is_full).await;

    // Only now the engine gets the messages, and has acknowledgements to send.
    harness.supplier.release();
    wait_until("the engine has a message to acknowledge", async || harness.handled(FILLING).await > 0).await;
    harness.execute(DepotCommand::Put("milk", 1)).await;
    speaking.abort();
}

/// Guarantee 7: the relay repeats it anyway.
#[tokio::test]
async fn publish_without_connection_leaves_nothing_in_the_client() {
    let (mut nats, bus) = Nats::with_bus().await;
    let publisher = Publisher::new(bus.clone(), "depot", no_faults());
    nats.kill();
    wait_until("the broker is gone", async || !bus.is_connected()).await;
    for _ in 0..20 {
        let published = in_time("an answer", publisher.publish(&entries(1..=500))).await;
        assert_eq!((published.done.len(), published.rejected), (0, vec![]));
        assert_eq!(published.delayed.map(|(seq, _)| seq), Some(1));
    }
    nats.restart().await;
    wait_until("it is back", async || bus.is_connected()).await;
    all_done(publisher.publish(&entries(1..=3)).await);
    let arrived: Vec<_> = stored(&bus, "DEPOT").await.iter().map(|message| message.id.as_u128()).collect();
    assert_eq!(arrived, [1, 2, 3]);
}

fn relaying(
    store: &Arc<dyn Store>,
    bus: &NatsBus,
    service: &'static str,
    wake: Arc<RelayQueue>,
) -> JoinHandle<()> {
    let relay = Relay::new(store.clone(), format!("{service}-1"), RelaySettings::default());
    tokio::spawn(relay::run(
        relay,
        Box::new(Publisher::new(bus.clone(), service, no_faults())),
        wake,
        Arc::new(SystemClock),
        Arc::new(()),
    ))
}

fn outbox_write(number: u128) -> OutboxWrite {
    let entry = courier_entry(number);
    OutboxWrite {
        trace: None,
        id: entry.id,
        saga: entry.id,
        subject: entry.subject,
        payload: entry.payload,
        event: None,
    }
}
