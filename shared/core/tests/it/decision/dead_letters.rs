//! Creation of dead letters.

use saga_core::dead_letter::{DeadLetterMessage, DeadLetterOrigin, DeadLettered, DeliveryInfo};
use saga_core::decision::{InboxState, Writes};
use saga_core::input::Input;
use saga_core::retry::{FailedAttempt, FailureKind};
use saga_core::waiting::Retry;
use uuid::Uuid;

use super::envelope;
use super::till::{self, COUNTING, Fact, Mood, WATCHING, delivered, paid};
use super::world::World;

#[test]
fn permanent_failure_is_dead_lettered_at_once_with_reason() {
    let edited = |from: &str, to: &str| {
        let text = String::from_utf8(paid(1, "a", 5, Mood::Fine)).expect("text");
        assert!(text.contains(from), "{text}");
        text.replace(from, to).into_bytes()
    };
    for (payload, reason) in [
        (paid(1, "a", 5, Mood::Broken), "the lid is off"),
        (paid(1, "a", 5, Mood::Panics), "panicked: it is dark in a"),
        (edited("\"Paid\"", "\"Praised\""), "unknown type \"Praised\""),
        (edited("\"version\":1", "\"version\":2"), "unknown version 2 of Paid, this build reads 1"),
        (edited("\"coins\"", "\"coin\""), "data is no Paid: data did not match any variant of untagged enum"),
    ] {
        let mut world = World::new();
        let delivery = delivered_on("shop.paid");
        let input = Input::from_broker(COUNTING, payload.clone().into(), delivery.clone(), u32::MAX);
        let (writes, name) = world.decide_one(input);
        let [dead] = &writes.new_dead_letters[..] else { panic!("one dead letter: {writes:?}") };
        assert!(dead.reason.starts_with(reason), "{} is not: {reason}", dead.reason);
        assert_eq!((name, dead.error_chain.join(": ")), ("dead_lettered", dead.reason.clone()));
        assert_eq!((&dead.service[..], &dead.step[..], dead.attempts), ("till", "counting", 1));
        assert_eq!((dead.origin, dead.message_id), (DeadLetterOrigin::Message, Uuid::from_u128(1)));
        assert_eq!((dead.saga, dead.delivery.clone()), (Some(Uuid::from_u128(0x5A6A)), Some(delivery)));
        assert_eq!((dead.replays, dead.original.is_none()), (0, true));
        assert_eq!((announced(&writes), writes.outbox[0].event), (dead.clone(), None));
        assert_eq!((writes.retries.len(), writes.inbox.len(), writes.retries_done.len()), (0, 0, 0));
    }
}

/// A message without an envelope has no id but its stream position.
#[test]
fn message_without_envelope_is_dead_lettered_under_stream_position() {
    let mut world = World::new();
    let (writes, name) = world.decide(&[delivered(COUNTING, b"{}"), delivered(COUNTING, b"{}")]);
    assert_eq!((name[0].name(), name[1].name()), ("dead_lettered", "duplicate"));
    let dead = &writes.new_dead_letters[0];
    assert_eq!((dead.origin, dead.saga, &dead.message_type), (DeadLetterOrigin::Foreign, None, &None));
    assert_eq!(dead.message_id, saga_core::ids::of_stream_position("SHOP", 7));
    assert_ne!(dead.message_id, saga_core::ids::of_stream_position("SHOP", 8));
}

/// A foreign message may claim any producer, id and saga. Neither the id nor the saga is trusted: otherwise the
/// real message would be a duplicate.
#[test]
fn message_its_producer_does_not_publish_is_dead_lettered_as_foreign() {
    let text = |payload: Vec<u8>| String::from_utf8(payload).expect("text");
    let (fine, of_shop) = (text(paid(1, "a", 5, Mood::Fine)), "\"producer\":\"shop\"");
    let of = |producer: &str| fine.replace(of_shop, &format!("\"producer\":\"{producer}\""));
    let counted = Fact::Counted { in_tin: "a".to_owned(), before: 0, after: 0, heard: false };
    let lost = DeadLetterMessage::DeadLettered(Box::new(a_dead_letter()));
    let cases = [
        (of("mallory"), "shop.paid", "Paid of \"mallory\" does not belong on shop.paid"),
        (of("till"), "", "Paid of \"till\" does not belong on counting"),
        (fine.clone(), "shop.counted", "Paid of \"shop\" does not belong on shop.counted"),
        (fine.clone(), "mallory.paid", "Paid of \"shop\" does not belong on mallory.paid"),
        (text(till::envelope(1, &counted)), "shop.paid", "Counted of \"shop\" does not belong on shop.paid"),
        (text(till::envelope(1, &lost)), "", "DeadLettered of \"shop\" does not belong on counting"),
        (
            of("mallory").replace("\"Paid\"", "\"Praised\""),
            "",
            "Praised of \"mallory\" does not belong on counting",
        ),
    ];
    for (payload, subject, reason) in cases {
        let mut world = World::new();
        let payload = payload.into_bytes();
        let (writes, name) = world.decide_one(Input::from_broker(
            COUNTING,
            payload.clone().into(),
            delivered_on(subject),
            u32::MAX,
        ));
        let [dead] = &writes.new_dead_letters[..] else { panic!("one dead letter: {writes:?}") };
        assert_eq!((name, &dead.reason[..]), ("dead_lettered", reason));
        let place = saga_core::ids::of_stream_position("SHOP", 7);
        assert_eq!((dead.origin, dead.message_id), (DeadLetterOrigin::Foreign, place));
        assert_eq!((dead.saga, &dead.message_type), (None, &None));
        // A replay is checked in the same way, and the real message is no duplicate of it.
        let retry = Retry { delivery: Some(delivered_on(subject)), ..replayed(dead, payload) };
        world.inbox.insert(("counting", place), InboxState::Retrying);
        assert_eq!(world.decide_one(Input::retry(COUNTING, retry, 0)).1, "dead_lettered");
        assert_eq!(world.decide_one(delivered(COUNTING, fine.as_bytes())).1, "done");
    }
}

fn delivered_on(subject: &str) -> DeliveryInfo {
    DeliveryInfo { stream: "SHOP".to_owned(), sequence: 7, subject: subject.to_owned(), headers: vec![] }
}

fn replayed(dead: &DeadLettered, payload: Vec<u8>) -> Retry {
    Retry {
        step: dead.step.clone(),
        message_id: dead.message_id,
        payload: payload.into(),
        attempts: 0,
        next_attempt: dead.last_failed_at,
        first_failed_at: dead.first_failed_at,
        last_error: dead.reason.clone(),
        delivery: None,
        dead_letter: None,
    }
}

/// One service's announcement is consumed by another's step, which alone would announce it.
#[test]
fn dead_letter_announcement_is_retried_without_end() {
    let about = till::envelope(1, &DeadLetterMessage::DeadLettered(Box::new(a_dead_letter())));
    let mut world = World::new();
    let mut input = delivered(WATCHING, &about);
    for attempts in 1..20 {
        let (writes, name) = world.decide_one(input);
        assert_eq!((name, writes.retries[0].attempts), ("retried", attempts));
        input = Input::retry(WATCHING, writes.retries[0].clone(), u32::MAX);
    }
    // A replay ends like any other: an operator takes care of it.
    let mut retry = world.retries.values().next().expect("it waits").clone();
    retry.dead_letter = Some(Uuid::from_u128(9));
    assert_eq!(world.decide_one(Input::retry(WATCHING, retry, 0)).1, "dead_lettered");
    // Other messages of the same step, and unreadable ones, are dead-lettered.
    let broken = String::from_utf8(about).expect("text").replace("\"attempts\"", "\"tries\"");
    for payload in [paid(2, "a", 1, Mood::Broken), broken.into_bytes()] {
        assert_eq!(World::new().decide_one(delivered(WATCHING, &payload)).1, "dead_lettered");
    }
}

#[test]
fn fingerprint_groups_failures_by_cause() {
    let of = |step, payload: &[u8], reason: &str| {
        let failure = FailedAttempt::new(FailureKind::Permanent, reason);
        let (writes, _) =
            World::new().decide_one(delivered(step, payload).with_injected_failure(Some(failure)));
        writes.new_dead_letters[0].fingerprint.clone()
    };
    let fine = paid(1, "a", 5, Mood::Fine);
    let one = of(COUNTING, &fine, "order 17 of 018f-aa7 is late by 3s");
    assert_eq!(one.len(), 12);
    assert_eq!(of(COUNTING, &fine, "order 4711 of 0190-bb8 is late by 12s"), one, "ids and numbers vary");
    for other in [
        of(COUNTING, &fine, "order 17 of 018f-aa7 is lost by 3s"),
        of(COUNTING, &fine, "order 17, of 018f-aa7 is late by 3s"),
        of(COUNTING, &fine, "order 17 of 018f-aa7 is late by-3s"),
        of(WATCHING, &fine, "order 17 of 018f-aa7 is late by 3s"),
        of(COUNTING, b"x", "order 17 of 018f-aa7 is late by 3s"),
    ] {
        assert_ne!(other, one);
    }
}

/// In base64 the payload might exceed the broker's limit. The service's own table keeps it whole.
#[test]
fn oversized_payload_is_stored_but_not_announced() {
    let dead_lettered_with = |payload: &[u8], reason: &str| {
        let chain = std::iter::repeat_n(reason.to_owned(), 17).collect();
        let failure = FailedAttempt { chain, kind: FailureKind::Permanent, retry_after: None };
        let (writes, _) =
            World::new().decide_one(delivered(COUNTING, payload).with_injected_failure(Some(failure)));
        (writes.new_dead_letters[0].clone(), announced(&writes))
    };
    let (kib, long) = (1024, "ö".repeat(4 * 1024));
    let (dead, fits) = dead_lettered_with(&vec![b' '; 256 * kib], &long);
    assert!(fits.payload_base64 == dead.payload_base64);
    assert_eq!((fits.error_chain.len(), &fits.error_chain[15]), (16, &long), "exactly as long as may be");
    assert_eq!((dead.error_chain.len(), dead.reason.chars().count()), (17, 17 * 4096 + 16 * 2));
    assert_eq!(fits.reason, format!("{long}…"));

    let (dead, too_large) = dead_lettered_with(&vec![b' '; 256 * kib + 3], &format!("{long}!"));
    assert_eq!((dead.payload_base64.len(), &too_large.payload_base64[..]), ((256 * kib + 3) / 3 * 4 + 4, ""));
    assert_eq!(too_large.error_chain[0], format!("{long}…"));
}

/// Retries and dead letters are known without the inbox.
#[test]
fn redelivered_dead_letter_is_not_processed() {
    let mut world = World::new();
    world.rules.use_inbox = false;
    for state in [InboxState::Retrying, InboxState::DeadLettered] {
        world.inbox.insert(("counting", Uuid::from_u128(1)), state);
        assert_eq!(world.decide_one(delivered(COUNTING, &paid(1, "a", 5, Mood::Fine))).1, "duplicate");
    }
}

/// The announcement of a dead letter.
fn announced(writes: &Writes) -> DeadLettered {
    let [entry] = &writes.outbox[..] else { panic!("one message: {writes:?}") };
    let envelope = envelope(&entry.payload);
    assert_eq!(entry.subject, "till.dead_lettered");
    let announced = envelope.open().expect("a message of the engine").fact;
    let DeadLetterMessage::DeadLettered(announced) = announced else { panic!("{announced:?}") };
    *announced
}

fn a_dead_letter() -> DeadLettered {
    let (writes, _) = World::new().decide_one(delivered(COUNTING, &paid(5, "a", 5, Mood::Broken)));
    announced(&writes)
}
