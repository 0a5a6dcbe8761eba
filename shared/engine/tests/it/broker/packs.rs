//! Packs: which facts arrive, how often, and when they are acknowledged.

use std::time::Duration;

use bytes::Bytes;
use saga_engine::nats::{BusSettings, NatsBus, Publisher};
use saga_engine::runtime::bus::{Bus as _, BusFact as _, FactStream as _, Publish as _};
use saga_engine::runtime::in_progress::InProgress;
use saga_engine::runtime::progress_reports;
use saga_engine::store::OutboxEntry;

use super::consuming::{courier_entry, durable, durable_of, listening, waiting};
use super::{all_done, publish_until_arrived};
use crate::support::{FILLING, Nats, Pace, in_time, newest_dead_letters, no_faults, stored, wait_until};

#[tokio::test]
async fn each_fact_of_a_pack_is_processed_once_and_acknowledged() {
    let nats = Nats::start().await;
    let bus = packing(&nats).await;
    let harness = listening(&bus, Pace::default()).await;
    let entries: Vec<_> = (1..=300).map(courier_entry).collect();
    let seqs: Vec<_> = entries.iter().map(|entry| entry.seq).collect();
    assert_eq!(all_done(publisher(&bus).publish(&entries).await), seqs);
    harness.has_handled(FILLING, 300).await;
    assert_eq!(harness.tea().await.pieces, 300);
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    assert!(stored(&bus, "COURIER").await.len() < 30, "they went one by one");
}

/// Guarantee 1.
#[tokio::test]
async fn facts_repeated_in_another_pack_are_processed_once() {
    let nats = Nats::start().await;
    let bus = packing(&nats).await;
    let harness = listening(&bus, Pace::default()).await;
    for _ in 0..2 {
        all_done(publisher(&bus).publish(&(1..=20).map(courier_entry).collect::<Vec<_>>()).await);
    }
    assert_eq!(stored(&bus, "COURIER").await.len(), 1, "the same pack is known");
    all_done(publisher(&bus).publish(&(11..=30).map(courier_entry).collect::<Vec<_>>()).await);
    harness.has_handled(FILLING, 30).await;
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    assert_eq!(harness.tea().await.pieces, 30);
}

/// Guarantee 1: otherwise all of its facts are redelivered.
#[tokio::test]
async fn pack_is_acknowledged_only_after_all_its_facts() {
    let nats = Nats::start().await;
    let settings = BusSettings { ack_wait: Duration::from_millis(300), ..packed(&nats) };
    let bus = nats.bus_with(settings).await;
    all_done(publisher(&bus).publish(&(1..=5).map(courier_entry).collect::<Vec<_>>()).await);
    let mut deliveries = bus.consume(durable_of(FILLING)).await.expect("a consumer");
    for unacknowledged in [Some(2), Some(4), None] {
        for index in 0..5 {
            let message = in_time("it comes", deliveries.next()).await.expect("a message");
            assert_eq!(message.payload(), courier_entry(index + 1).payload);
            assert_eq!(message.is_redelivery(), unacknowledged != Some(2));
            if unacknowledged != Some(index) {
                message.acknowledge().await.expect("the broker is there");
            }
        }
        if unacknowledged.is_some() {
            assert_eq!(waiting(&bus, FILLING).await, 5, "one of it was left alone");
        }
    }
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
}

/// As a half-open breaker requires.
#[tokio::test]
async fn fetch_returns_no_more_facts_of_a_pack_than_requested() {
    let nats = Nats::start().await;
    let bus = packing(&nats).await;
    all_done(publisher(&bus).publish(&(1..=7).map(courier_entry).collect::<Vec<_>>()).await);
    let mut deliveries = bus.consume(durable_of(FILLING)).await.expect("a consumer");
    let mut facts = deliveries.fetch(1).await.expect("there is one");
    assert_eq!(facts.len(), 1);
    facts.extend(deliveries.fetch(3).await.expect("there are more"));
    facts.extend(deliveries.next_within(Duration::from_secs(1)).await.expect("there is one"));
    facts.push(deliveries.next().await.expect("there is one"));
    facts.extend(deliveries.fetch(9).await.expect("there is one"));
    let payloads: Vec<_> = facts.iter().map(|message| message.payload()).collect();
    assert_eq!(payloads, (1..=7).map(|number| courier_entry(number).payload).collect::<Vec<_>>());
}

#[tokio::test]
async fn facts_in_flight_are_bounded_although_a_pack_is_one_message() {
    let nats = Nats::start().await;
    let bus = nats.bus_with(BusSettings { max_ack_pending: 3, ..packed(&nats) }).await;
    all_done(publisher(&bus).publish(&(1..=5).map(courier_entry).collect::<Vec<_>>()).await);
    let mut deliveries = bus.consume(durable_of(FILLING)).await.expect("a consumer");
    let mut in_flight = Vec::new();
    for _ in 0..3 {
        in_flight.push(in_time("there is room", deliveries.next()).await.expect("a message"));
    }
    let fourth = tokio::time::timeout(Duration::from_millis(100), deliveries.next()).await;
    assert!(fourth.is_err(), "there was room for a fourth");
    in_flight.pop();
    in_time("there is room again", deliveries.next()).await.expect("a message");
}

/// Facts that waited in the client's buffer came again and again, each as a full attempt.
#[tokio::test]
async fn packs_that_wait_for_a_slow_step_are_not_redelivered() {
    let nats = Nats::start().await;
    let settings =
        BusSettings { ack_wait: Duration::from_millis(500), max_ack_pending: 100, ..packed(&nats) };
    let bus = nats.bus_with(settings).await;
    all_done(publisher(&bus).publish(&(1..=4_000).map(courier_entry).collect::<Vec<_>>()).await);
    let held = InProgress::default();
    let mut deliveries = bus.consume(durable_of(FILLING)).await.expect("a consumer");
    deliveries.hold(&held);
    let mut facts = 0;
    let taking = async {
        while facts < 4_000 {
            let message = in_time("it comes", deliveries.next()).await.expect("a message");
            facts += 1;
            message.acknowledge().await.expect("the broker is there");
            // Slower than the acknowledgement wait allows for what is requested at once.
            if facts % 100 == 0 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    };
    tokio::select! {
        () = taking => {}
        () = progress_reports::report(&bus, held) => {}
    }
    let messages = stored(&bus, "COURIER").await.len();
    let mut consumer = durable(&bus, FILLING).await.expect("it is there");
    let delivered = consumer.info().await.expect("its state").delivered.consumer_sequence;
    assert_eq!((delivered, facts), (messages as u64, 4_000), "each message was delivered once");
}

/// The broker counts messages.
#[tokio::test]
async fn backlog_counts_the_facts_of_packs() {
    let nats = Nats::start().await;
    let bus = nats.bus_with(BusSettings { max_ack_pending: 100, ..packed(&nats) }).await;
    all_done(publisher(&bus).publish(&(1..=1_000).map(courier_entry).collect::<Vec<_>>()).await);
    let mut deliveries = bus.consume(durable_of(FILLING)).await.expect("a consumer");
    let _message = in_time("it comes", deliveries.next()).await.expect("a message");
    assert_eq!(bus.progress(durable_of(FILLING)).await.expect("an answer").backlog.all(), 1_000);
}

/// Guarantee 2.
#[tokio::test]
async fn unreadable_facts_of_a_pack_are_dead_lettered_one_by_one() {
    let nats = Nats::start().await;
    let bus = packing(&nats).await;
    let harness = listening(&bus, Pace::default()).await;
    let garbage =
        |number| OutboxEntry { payload: Bytes::from_static(b"\xff garbage"), ..courier_entry(number) };
    all_done(publisher(&bus).publish(&[garbage(1), courier_entry(2), garbage(3)]).await);
    // What says that it is a pack and is none.
    let claimed = async_nats::HeaderMap::from_iter([(
        "Saga-Pack".parse::<async_nats::HeaderName>().expect("a name"),
        "7".parse::<async_nats::HeaderValue>().expect("a value"),
    )]);
    let sent = bus.jetstream().publish_with_headers("courier.parcels_arrived", claimed, "none".into()).await;
    sent.expect("published").await.expect("stored");
    harness.has_handled(FILLING, 1).await;
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    let dead_letters = newest_dead_letters(harness.store.as_ref(), 9).await.expect("the store works");
    let dead_letters: Vec<_> =
        dead_letters.iter().filter(|dead_letter| dead_letter.step == FILLING.name).collect();
    let mut payloads: Vec<_> =
        dead_letters.iter().map(|dead_letter| dead_letter.payload_base64.as_str()).collect();
    payloads.sort_unstable();
    assert_eq!(payloads, ["/yBnYXJiYWdl", "/yBnYXJiYWdl", "bm9uZQ=="]);
}

/// Guarantee 2.
#[tokio::test]
async fn oversized_fact_is_rejected_and_others_of_its_pack_arrive() {
    let nats = Nats::start().await;
    let bus = packing(&nats).await;
    let mut entries: Vec<_> = (1..=20).map(courier_entry).collect();
    entries[4].payload = vec![b'x'; 1024 * 1024 + 1].into();
    entries[9].subject = "nobodys.business".to_owned();
    let published = publisher(&bus).publish(&entries).await;
    let rejected: Vec<_> = published.rejected.iter().map(|(seq, _)| *seq).collect();
    assert_eq!((rejected, published.done.len(), published.delayed), (vec![5, 10], 18, None));
}

/// Guarantee 1.
#[tokio::test]
async fn repeatedly_killed_broker_loses_no_fact_of_a_pack() {
    let mut nats = Nats::start().await;
    let bus = nats.bus_with(BusSettings { ack_wait: Duration::from_millis(500), ..packed(&nats) }).await;
    let harness = listening(&bus, Pace::default()).await;
    let mut left: Vec<_> = (1..=1_000).map(courier_entry).collect();
    for _ in 0..3 {
        let publisher = publisher(&bus);
        let mut some: Vec<_> = left.iter().take(400).cloned().collect();
        let (published, ()) = tokio::join!(publisher.publish(&some), async { nats.kill() });
        assert_eq!(published.rejected, []);
        some.retain(|entry| published.done.contains(&entry.seq));
        left.retain(|entry| !some.iter().any(|done| done.seq == entry.seq));
        nats.restart().await;
        wait_until("it is back", async || bus.is_connected()).await;
    }
    let publisher = publisher(&bus);
    publish_until_arrived(&publisher, left).await;
    harness.has_handled(FILLING, 1_000).await;
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    assert_eq!(harness.tea().await.pieces, 1_000);
}

#[tokio::test]
async fn broker_without_answer_delays_the_first_entry_and_gets_one_request() {
    let nats = Nats::start().await;
    let bus = packing(&nats).await;
    let publisher = publisher(&bus);
    nats.freeze();
    let entries: Vec<_> = (1..=300).map(courier_entry).collect();
    let began = tokio::time::Instant::now();
    let published = in_time("an answer", publisher.publish(&entries)).await;
    assert_eq!((published.done.len(), published.rejected.len()), (0, 0));
    assert_eq!(published.delayed.map(|(seq, _)| seq), Some(1));
    let limit = packed(&nats).publish_timeout;
    assert!(began.elapsed() < 2 * limit, "{:?} instead of {limit:?}", began.elapsed());
}

fn packed(nats: &Nats) -> BusSettings {
    BusSettings { max_pack: 100, ..nats.settings() }
}

async fn packing(nats: &Nats) -> NatsBus {
    nats.bus_with(packed(nats)).await
}

fn publisher(bus: &NatsBus) -> Publisher {
    Publisher::new(bus.clone(), "courier", no_faults())
}
