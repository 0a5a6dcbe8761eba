//! Messages of clients outside the system change nothing and are dead-lettered.

use async_nats::HeaderMap;
use async_nats::jetstream::stream::{Config, Republish};
use bytes::Bytes;
use saga_core::dead_letter::DeadLetterOrigin;
use saga_engine::nats::NatsBus;

use super::consuming::{listening, say};
use crate::support::{EngineHarness, FILLING, Nats, Pace, arrived, id, newest_dead_letters, wait_until};

/// The owner of a stream may copy messages to any subject.
#[tokio::test]
async fn message_copied_by_the_broker_to_another_subject_is_dead_lettered() {
    let (_nats, bus) = Nats::with_bus().await;
    let copying = Config {
        name: "MALLORY".to_owned(),
        subjects: vec!["mallory.>".to_owned()],
        republish: Some(Republish {
            source: "mallory.x".to_owned(),
            destination: "courier.parcels_arrived".to_owned(),
            headers_only: false,
        }),
        ..Config::default()
    };
    bus.jetstream().create_stream(copying).await.expect("a stream");
    let harness = listening(&bus, Pace::default()).await;
    // It may say itself that it was said there.
    let mut claimed = HeaderMap::new();
    claimed.insert("Nats-Subject", "courier.parcels_arrived");
    let forged = bus.jetstream().publish_with_headers("mallory.x", claimed, arrived(id(7), "tea", 5)).await;
    forged.expect("published").await.expect("stored");
    is_dead_lettered(
        &harness,
        "ParcelsArrived of \"courier\" does not belong on \"mallory.x\", copied to courier.parcels_arrived",
    )
    .await;
    assert_eq!(harness.tea().await.pieces, 0);

    // Its id and its saga are nobody's: the courier's own message under that id is no repetition.
    say(&bus, 7..=7).await;
    harness.has_handled(FILLING, 1).await;
    assert_eq!(harness.tea().await.pieces, 1);
}

/// A defect: anybody can write the header of a copy, and it was trusted.
#[tokio::test]
async fn message_that_claims_to_be_a_copy_is_dead_lettered() {
    for claim in ["", "courier.parcels_lost"] {
        let (_nats, bus) = Nats::with_bus().await;
        let harness = listening(&bus, Pace::default()).await;
        let mut claimed = HeaderMap::new();
        claimed.insert("Nats-Subject", claim);
        let forged = String::from_utf8(arrived(id(7), "tea", 5).to_vec()).expect("JSON");
        let sent =
            bus.jetstream().publish_with_headers("courier.parcels_arrived", claimed, forged.into()).await;
        sent.expect("published").await.expect("stored");
        let place = format!("{claim:?}, copied to courier.parcels_arrived");
        is_dead_lettered(&harness, &format!("ParcelsArrived of \"courier\" does not belong on {place}"))
            .await;
        assert_eq!(harness.tea().await.pieces, 0);
    }
}

#[tokio::test]
async fn message_in_the_name_of_another_producer_is_dead_lettered_as_foreign() {
    let (_nats, bus) = Nats::with_bus().await;
    let harness = listening(&bus, Pace::default()).await;
    let ours = String::from_utf8(arrived(id(7), "tea", 5).to_vec()).expect("JSON");
    raw(&bus, "courier.parcels_arrived", &ours.replace("\"courier\"", "\"mallory\"")).await;
    is_dead_lettered(&harness, "ParcelsArrived of \"mallory\" does not belong on courier.parcels_arrived")
        .await;
    assert_eq!(harness.tea().await.pieces, 0);
}

async fn raw(bus: &NatsBus, subject: &'static str, payload: &str) {
    let ack = bus.jetstream().publish(subject, Bytes::from(payload.to_owned())).await.expect("published");
    ack.await.expect("stored");
}

/// Waits until both steps have dead-lettered one message, for this reason and without a saga.
async fn is_dead_lettered(harness: &EngineHarness, reason: &str) {
    wait_until("both steps have parked it", async || {
        newest_dead_letters(harness.store.as_ref(), 9).await.expect("the store works").len() == 2
    })
    .await;
    for dead_letter in newest_dead_letters(harness.store.as_ref(), 9).await.expect("the store works") {
        assert_eq!(dead_letter.reason, reason);
        assert_eq!((dead_letter.origin, dead_letter.saga), (DeadLetterOrigin::Foreign, None));
    }
}
