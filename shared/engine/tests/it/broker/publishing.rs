//! Publishing of outbox entries to their stream.

use std::sync::atomic::Ordering;

use saga_engine::nats::Publisher;
use saga_engine::runtime::bus::Publish as _;
use saga_engine::runtime::relay::{Relay, RelaySettings};
use saga_engine::store::OutboxEntry;

use super::all_done;
use crate::support::{
    Nats, Stored, at, commit, entries, entry, in_memory, no_faults, outbox_writes, stored, wait_until,
};

/// Default maximum message size of the broker, with headers.
const MAX_PAYLOAD: usize = 1024 * 1024;

#[tokio::test]
async fn messages_arrive_once_and_in_order() {
    let (_nats, bus) = Nats::with_bus().await;
    let publisher = Publisher::new(bus.clone(), "depot", no_faults());
    // A few in any order, and more than are in flight at once.
    for expected in [entries([3, 1, 2]), entries(101..=1300)] {
        let before = stored(&bus, "DEPOT").await.len();
        let seqs: Vec<_> = expected.iter().map(|entry| entry.seq).collect();
        assert_eq!(all_done(publisher.publish(&expected).await), seqs);
        let arrived = stored(&bus, "DEPOT").await.split_off(before);
        let arrived = arrived.into_iter().map(|Stored { id, subject, payload }| (id, subject, payload));
        let expected = expected.into_iter().map(|entry| (entry.id, entry.subject, entry.payload));
        assert!(arrived.eq(expected));
    }
}

/// Guarantee 1: message ids repeat too.
#[tokio::test]
async fn repeated_message_arrives_once() {
    let (_nats, bus) = Nats::with_bus().await;
    let publisher = Publisher::new(bus.clone(), "depot", no_faults());
    for _ in 0..3 {
        assert_eq!(all_done(publisher.publish(&entries(1..=5)).await), [1, 2, 3, 4, 5]);
    }
    assert_eq!(stored(&bus, "DEPOT").await.len(), 5);
}

/// A service that was restored from a copy needs it at once, not after the duplicate window.
#[tokio::test]
async fn repetition_for_an_operator_arrives_within_the_duplicate_window() {
    let (_nats, bus) = Nats::with_bus().await;
    let publisher = Publisher::new(bus.clone(), "depot", no_faults());
    all_done(publisher.publish(&entries(1..=5)).await);
    let repeated: Vec<_> =
        entries(1..=5).into_iter().map(|entry| OutboxEntry { is_repetition: true, ..entry }).collect();
    all_done(publisher.publish(&repeated).await);
    assert_eq!(stored(&bus, "DEPOT").await.len(), 10);
}

#[tokio::test]
async fn messages_of_which_some_are_duplicates_arrive_once_and_in_order() {
    let (_nats, bus) = Nats::with_bus().await;
    let publisher = Publisher::new(bus.clone(), "depot", no_faults());
    all_done(publisher.publish(&entries(1..=20)).await);
    assert_eq!(all_done(publisher.publish(&entries(1..=20)).await).len(), 20, "all known");
    assert_eq!(all_done(publisher.publish(&entries(11..=60)).await).len(), 50, "some known");
    let arrived: Vec<_> = stored(&bus, "DEPOT").await.iter().map(|message| message.id.as_u128()).collect();
    assert_eq!(arrived, (1..=60).collect::<Vec<_>>());
}

/// Guarantee 2.
#[tokio::test]
async fn oversized_message_is_rejected_and_others_arrive() {
    let (_nats, bus) = Nats::with_bus().await;
    let publisher = Publisher::new(bus.clone(), "depot", no_faults());
    // Too large by itself, and too large only with its headers; among few and among many.
    for (size, first, last) in
        [(MAX_PAYLOAD + 1, 1, 3), (MAX_PAYLOAD - 10, 11, 13), (MAX_PAYLOAD + 1, 101, 120)]
    {
        let mut expected = entries(first..=last);
        expected[1] = entry(first + 1, vec![b'x'; size]);
        let published = publisher.publish(&expected).await;
        assert_eq!(published.delayed, None);
        let rejected: Vec<_> = published.rejected.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(rejected, [i64::from(first) + 1]);
        assert!(published.rejected[0].1.contains("exceeded"), "{}", published.rejected[0].1);
        assert_eq!(published.done.len(), expected.len() - 1);
    }
    assert_eq!(stored(&bus, "DEPOT").await.len(), 2 + 2 + 19);
}

/// The broker tells connected clients nothing when its `max_payload` is raised.
#[tokio::test]
async fn rejected_entries_are_published_after_a_raise_of_max_payload_and_a_retry() {
    let (mut nats, bus) = Nats::with_bus().await;
    let publisher = Publisher::new(bus.clone(), "depot", no_faults());
    let mut writes = outbox_writes(1..=4);
    for at in [1, 2] {
        writes.outbox[at].payload = vec![b'x'; 2 * MAX_PAYLOAD].into();
    }
    let store = in_memory();
    commit(store.as_ref(), writes).await.expect("a store");
    let mut relay = Relay::new(store.clone(), "depot-1".to_owned(), RelaySettings::default());
    let stats = async || {
        let stats = store.stats().await.expect("a store");
        (stats.outbox_pending, stats.outbox_failed)
    };
    let connects = || bus.jetstream().client().statistics().connects.load(Ordering::Relaxed);

    relay.round(&publisher, &(), at(0)).await.expect("a store");
    assert_eq!(
        (stats().await, connects()),
        ((0, 2), 1),
        "a message that is just too large interrupts nothing"
    );

    nats.reload_with(format!("max_payload: {}\n", 4 * MAX_PAYLOAD)).await;
    store.retry_failed_entries(None).await.expect("a store");
    let is_published = async || {
        relay.round(&publisher, &(), at(1)).await.expect("a store");
        assert_eq!(stats().await.1, 0, "rejected again");
        stats().await.0 == 0
    };
    wait_until("all is published", is_published).await;
    let arrived: Vec<_> = stored(&bus, "DEPOT").await.iter().map(|message| message.id.as_u128()).collect();
    assert_eq!((&arrived[..], connects()), (&[1, 4, 2, 3][..], 2));
}

#[tokio::test]
async fn rejected_message_blocks_its_saga_beyond_its_window() {
    let (_nats, bus) = Nats::with_bus().await;
    let mut expected = entries(1..=1_020);
    expected[990] = entry(991, vec![b'x'; MAX_PAYLOAD + 1]);
    expected[1_010].saga = expected[990].saga;
    let published = Publisher::new(bus.clone(), "depot", no_faults()).publish(&expected).await;
    assert_eq!((published.rejected.len(), published.delayed), (1, None));
    assert_eq!(published.done.len(), 1_018);
    assert!(!published.done.contains(&1_011), "it has overtaken the one before it");
}

/// Guarantee 2.
#[tokio::test]
async fn message_without_a_stream_is_rejected_and_others_arrive() {
    let (_nats, bus) = Nats::with_bus().await;
    for (first, last) in [(1, 3), (11, 30)] {
        let mut expected = entries(first..=last);
        expected[1].subject = "ordering.confirmed".to_owned();
        let published = Publisher::new(bus.clone(), "depot", no_faults()).publish(&expected).await;
        assert_eq!(
            published.rejected.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(),
            [i64::from(first) + 1]
        );
        assert_eq!((published.done.len(), published.delayed), (expected.len() - 1, None));
    }
    assert_eq!(stored(&bus, "DEPOT").await.len(), 2 + 19);
}

/// Operators may set such a limit.
#[tokio::test]
async fn message_over_the_limit_of_its_stream_is_rejected() {
    let (_nats, bus) = Nats::with_bus().await;
    let mut stream = bus.jetstream().get_stream("DEPOT").await.expect("the stream");
    let mut config = stream.info().await.expect("its state").config.clone();
    config.max_message_size = 500;
    bus.jetstream().update_stream(config).await.expect("the operator may");
    let publisher = Publisher::new(bus.clone(), "depot", no_faults());
    for (first, last) in [(1, 3), (11, 30)] {
        let mut expected = entries(first..=last);
        expected[1] = entry(first + 1, vec![b'x'; 1000]);
        let published = publisher.publish(&expected).await;
        assert_eq!((published.rejected.len(), published.delayed), (1, None));
        assert_eq!(published.done.len(), expected.len() - 1);
    }
}
