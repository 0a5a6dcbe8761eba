//! Dead letters: complete, and announced.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use saga_core::dead_letter::{DeadLetterMessage, DeadLettered, DeliveryInfo};
use saga_core::input::Input;
use saga_core::message::Envelope;
use saga_engine::store::{OutboxEntry, StoreFault};

use super::names;
use crate::support::{
    DepotCommand, EngineHarness, FILLING, UNLUCKY, arrived, id, newest_dead_letters, received,
};

/// Guarantee 2: with its payload byte for byte.
#[tokio::test]
async fn message_out_of_attempts_is_dead_lettered_whole_and_announced() -> Result<(), StoreFault> {
    let harness = EngineHarness::new().await;
    // Spaces that no serializer would write: they must survive.
    let payload = spaced(&arrived(id(1), "tea", 3));
    let before = Timestamp::now();
    assert_eq!(names(&harness.process_together(vec![received(payload.clone())]).await), ["retried"]);
    let dead_letter = harness.the_dead_letter().await;

    assert_eq!((dead_letter.service.as_str(), dead_letter.step.as_str()), ("depot", "shelf-filling"));
    assert_eq!((dead_letter.message_id, dead_letter.saga), (id(1), Some(id(1))));
    assert_eq!((dead_letter.message_type.as_deref(), dead_letter.attempts), (Some("ParcelsArrived"), 3));
    assert_eq!(dead_letter.reason, "shelf \"tea\" is not listed yet");
    assert!(
        before <= dead_letter.first_failed_at && dead_letter.first_failed_at < dead_letter.last_failed_at
    );
    assert_eq!(STANDARD.decode(&dead_letter.payload_base64).expect("base64"), payload);
    assert_eq!(announced(&harness).await?, [dead_letter]);
    assert_eq!(harness.stats().await.retries, 0);

    // It is known, so that a redelivery does not start all over.
    assert_eq!(names(&harness.process_together(vec![received(payload)]).await), ["duplicate"]);
    assert_eq!(harness.stats().await.outbox_pending, 1);
    Ok(())
}

#[tokio::test]
async fn unreadable_message_is_dead_lettered_at_once() -> Result<(), StoreFault> {
    let edited = |from: &str, to: &str| edit(&arrived(id(1), "tea", 3), from, to);
    for (payload, is_envelope, reason) in [
        (Bytes::from_static(b"\xff\x00 not JSON"), false, "not an envelope"),
        (Bytes::from_static(b""), false, "not an envelope"),
        (edited("\"producer\":\"courier\",", ""), false, "missing field `producer`"),
        (
            edited("\"version\":1", "\"version\":2"),
            true,
            "unknown version 2 of ParcelsArrived, this build reads 1",
        ),
        (edited("ParcelsArrived", "ParcelsEvaporated"), true, "unknown type \"ParcelsEvaporated\""),
        (edited("\"quantity\":3", "\"quantity\":\"three\""), true, "data is no ParcelsArrived"),
        (edited("\"quantity\":3", "\"quantity\":-1"), true, "data is no ParcelsArrived"),
    ] {
        let harness = EngineHarness::new().await;
        harness.execute(DepotCommand::List("tea")).await;
        let good = received(arrived(id(2), "tea", 3));
        let outcomes = harness.process_together(vec![received(payload.clone()), good]).await;
        assert_eq!(names(&outcomes), ["dead_lettered", "done"], "{reason}");
        let dead_letter = harness.the_dead_letter().await;
        assert!(dead_letter.reason.contains(reason), "{} does not say {reason:?}", dead_letter.reason);
        assert_eq!(dead_letter.attempts, 1);
        assert_eq!(STANDARD.decode(&dead_letter.payload_base64).expect("base64"), payload);
        // What can be read of it is told; the rest is its place in the stream.
        let expected = if is_envelope { (id(1), Some(id(1))) } else { (id(404), None) };
        assert_eq!((dead_letter.message_id, dead_letter.saga), expected);
    }
    Ok(())
}

/// Numbers and ids in the reason do not count.
#[tokio::test]
async fn dead_letters_of_one_cause_share_a_fingerprint() -> Result<(), StoreFault> {
    let harness = EngineHarness::new().await;
    let unreadable = |number: u128, quantity: &str| {
        let to = format!("\"quantity\":{quantity}");
        received(edit(&arrived(id(number), "tea", 3), "\"quantity\":3", &to))
    };
    let inputs = vec![unreadable(1, "-1"), unreadable(2, "-22"), unreadable(3, "true")];
    harness.process_together(inputs).await;
    let mut found = newest_dead_letters(harness.store.as_ref(), 9).await?;
    found.sort_by_key(|dead_letter| dead_letter.message_id);
    assert_eq!(found.len(), 3);
    assert_eq!(found[0].fingerprint, found[1].fingerprint);
    assert_ne!(found[0].fingerprint, found[2].fingerprint);
    Ok(())
}

/// An announcement must fit into a message.
#[tokio::test]
async fn large_payload_is_stored_and_announced_without() -> Result<(), StoreFault> {
    let harness = EngineHarness::new().await;
    let payload = Bytes::from(vec![b'x'; 900_000]);
    assert_eq!(names(&harness.process_together(vec![received(payload.clone())]).await), ["dead_lettered"]);
    let dead_letter = harness.the_dead_letter().await;
    assert_eq!(STANDARD.decode(&dead_letter.payload_base64).expect("base64"), payload);
    let without = DeadLettered { payload_base64: String::new(), ..dead_letter };
    assert_eq!(announced(&harness).await?, [without]);
    let entries = harness.store.pending_entries(9).await?;
    assert!(entries[0].payload.len() < 2_000);
    Ok(())
}

/// The sender of a message chooses the words of some errors.
#[tokio::test]
async fn long_reason_is_shortened_in_the_announcement() -> Result<(), StoreFault> {
    let harness = EngineHarness::new().await;
    // Nearly all that fits a message.
    let verbose = "x".repeat(1_048_000);
    let payload = edit(&arrived(id(1), "tea", 3), "ParcelsArrived", &verbose);
    assert_eq!(names(&harness.process_together(vec![received(payload)]).await), ["dead_lettered"]);
    let entries = harness.store.pending_entries(9).await?;
    assert!(entries[0].payload.len() < 100_000, "{} bytes would be refused", entries[0].payload.len());
    Ok(())
}

/// The sender of a message chooses its headers, and the characters of its texts.
#[tokio::test]
async fn announcement_fits_into_a_message_whatever_the_headers_and_texts() -> Result<(), StoreFault> {
    let harness = EngineHarness::new().await;
    let large = vec![("huge".to_owned(), "h".repeat(1_000_000))];
    let many = (0..60_000).map(|number| (format!("header-{number}"), "value".to_owned())).collect();
    let expected = ["huge", "header-0"];
    for ((sequence, headers), first) in (1..).zip([large, many]).zip(expected) {
        let payload = Bytes::from(vec![1; 10_000]);
        let (stream, subject) = ("COURIER".to_owned(), "s".repeat(700_000));
        let delivery = DeliveryInfo { stream, sequence, subject, headers };
        harness.process_together(vec![Input::from_broker(FILLING, payload, delivery, 0)]).await;
        let entry = harness.store.pending_entries(9).await?.pop().expect("an announcement");
        assert!(entry.payload.len() < 1_000_000, "{} bytes would be rejected", entry.payload.len());
        let announced = announced(&harness).await?.pop().expect("an announcement");
        assert!(!announced.payload_base64.is_empty(), "the payload is small");
        assert_eq!(announced.delivery.expect("a delivery").headers[0].0, first);
    }
    Ok(())
}

#[tokio::test]
async fn facts_keep_their_order_around_an_announcement() -> Result<(), StoreFault> {
    let harness = EngineHarness::new().await;
    harness.execute(DepotCommand::List("tea")).await;
    let tea = |number, pieces| received(arrived(id(number), "tea", pieces));
    harness.process_together(vec![tea(1, 3), tea(2, UNLUCKY), tea(3, 4)]).await;
    let subjects: Vec<_> =
        harness.store.pending_entries(9).await?.into_iter().map(|entry| entry.subject).collect();
    assert_eq!(subjects, ["depot.stored", "depot.dead_lettered", "depot.stored"]);
    Ok(())
}

/// Dead letters in unpublished announcements.
async fn announced(harness: &EngineHarness) -> Result<Vec<DeadLettered>, StoreFault> {
    let entries = harness.store.pending_entries(9).await?;
    let announcements = entries.iter().filter(|entry| entry.subject == "depot.dead_lettered");
    let dead_letter = |entry: &OutboxEntry| {
        let message = Envelope::from_bytes(&entry.payload).and_then(|envelope| envelope.open());
        let DeadLetterMessage::DeadLettered(dead_letter) = message.expect("a message").fact else {
            panic!("another fact under the subject of dead letters");
        };
        *dead_letter
    };
    Ok(announcements.map(dead_letter).collect())
}

fn spaced(payload: &Bytes) -> Bytes {
    edit(payload, "\":", "\" :\t ")
}

fn edit(payload: &Bytes, from: &str, to: &str) -> Bytes {
    let text = std::str::from_utf8(payload).expect("JSON");
    assert!(text.contains(from), "{text} has no {from}");
    Bytes::from(text.replace(from, to))
}
