//! Failures of messages: which attempts count, which are retried, and what a dead letter contains.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use saga_core::dead_letter::{DeadLetterOrigin, DeadLetterStatus, DeadLettered, DeliveryInfo};
use saga_core::decision::{self, InboxState, Loaded};
use saga_core::input::Input;
use saga_core::retry::{FailedAttempt, FailureKind};
use saga_core::waiting::Retry;

use super::names;
use crate::support::{
    Depot, DepotCommand, FILLING, OWNER, OperatorHarness, Pace, UNLUCKY, UNREADABLE, arrived, at,
    decision_config, due_query, id, operating, received, replay, retry,
};

/// Guarantee 7.
#[tokio::test]
async fn outage_of_any_length_consumes_no_attempt() {
    let mut harness = OperatorHarness::new().with_attempts(3);
    harness.executes(0, DepotCommand::List("tea")).await;
    let outage = || failing(received(arrived(id(1), "tea", 3)), FailureKind::Outage);
    assert_eq!(harness.receives(0, outage).await, "retried");
    for second in 1..=100 {
        let retry = waiting(&harness, second).await;
        assert_eq!(retry.attempts, 0, "after {second} tries");
        let outcomes =
            harness.process_batch(second, vec![failing(retried(retry), FailureKind::Outage)]).await;
        assert_eq!(names(&outcomes), ["retried"]);
    }
    // It has all its attempts still.
    for (second, outcome) in [(101, "retried"), (102, "retried"), (103, "dead_lettered")] {
        let retry = waiting(&harness, second).await;
        let outcomes =
            harness.process_batch(second, vec![failing(retried(retry), FailureKind::Transient)]).await;
        assert_eq!(names(&outcomes), [outcome]);
    }
    let dead_letter = harness.dead_letter().await.dead_letter;
    assert_eq!(
        (dead_letter.attempts, dead_letter.first_failed_at, dead_letter.last_failed_at),
        (3, at(0), at(103))
    );
}

/// Guarantee 7.
#[tokio::test]
async fn only_failures_of_the_message_itself_count_as_attempts() {
    let mut harness = OperatorHarness::new().with_attempts(3);
    let tea = || received(arrived(id(1), "tea", 3));
    assert_eq!(harness.receives(0, || failing(tea(), FailureKind::Transient)).await, "retried");
    for (kind, attempts, outcome) in [
        (FailureKind::Outage, 1, "retried"),
        (FailureKind::Transient, 1, "retried"),
        (FailureKind::Outage, 2, "retried"),
        (FailureKind::Permanent, 2, "dead_lettered"),
    ] {
        let retry = waiting(&harness, 1).await;
        assert_eq!(retry.attempts, attempts);
        assert_eq!(names(&harness.process_batch(1, vec![failing(retried(retry), kind)]).await), [outcome]);
    }
    assert_eq!(harness.dead_letter().await.dead_letter.attempts, 3);
}

#[tokio::test]
async fn permanent_failure_is_dead_lettered_at_once() {
    let mut harness = OperatorHarness::new().with_attempts(99);
    let tea = || failing(received(arrived(id(1), "tea", 3)), FailureKind::Permanent);
    assert_eq!(harness.receives(0, tea).await, "dead_lettered");
    let dead_letter = harness.dead_letter().await.dead_letter;
    assert_eq!((dead_letter.attempts, dead_letter.reason.as_str()), (1, "injected"));
    assert_eq!(harness.store().stats().await.expect("the store works").retries, 0);
}

/// A later replay is not taken for a duplicate.
#[tokio::test]
async fn failed_attempt_leaves_no_inbox_mark_and_no_effect() {
    let mut harness = OperatorHarness::new().with_attempts(3);
    harness.executes(0, DepotCommand::List("tea")).await;
    let tea = || received(arrived(id(1), "tea", 3));
    assert_eq!(harness.receives(0, || failing(tea(), FailureKind::Transient)).await, "retried");
    assert_eq!((harness.tea().await, harness.handled(FILLING.name).await), (0, 0));
    assert_eq!(harness.retry_due(1).await, ["done"]);
    assert_eq!((harness.tea().await, harness.handled(FILLING.name).await), (3, 1));
}

/// Guarantee 2.
#[tokio::test]
async fn dead_letter_has_everything_about_the_message() {
    let edited = |from: &str, to: &str| {
        let text = String::from_utf8(arrived(id(1), "tea", 3).to_vec()).expect("JSON");
        assert!(text.contains(from), "{text} has no {from}");
        Bytes::from(text.replace(from, to))
    };
    let unreadable = "\"quantity\":3";
    for (payload, step, message_type, links) in [
        (Bytes::from_static(b"\xff\x00 not JSON"), FILLING, None, &["not an envelope", "expected value"][..]),
        (Bytes::from_static(b""), FILLING, None, &["not an envelope", "EOF"]),
        (
            edited("\"version\":1", "\"version\":2"),
            FILLING,
            Some("ParcelsArrived"),
            &["unknown version 2 of ParcelsArrived"],
        ),
        (
            edited("ParcelsArrived", "ParcelsEvaporated"),
            FILLING,
            Some("ParcelsEvaporated"),
            &["unknown type \"ParcelsEvaporated\""],
        ),
        (
            edited(unreadable, "\"quantity\":-1"),
            FILLING,
            Some("ParcelsArrived"),
            &["data is no ParcelsArrived", "invalid value"],
        ),
        (
            arrived(id(1), "tea", 3),
            operating(),
            None,
            &["ParcelsArrived of \"courier\" does not belong on courier.parcels_arrived"],
        ),
        (arrived(id(1), UNREADABLE, 3), FILLING, Some("ParcelsArrived"), &["panicked: row"]),
    ] {
        let mut harness = OperatorHarness::new().with_attempts(5);
        harness.executes(0, DepotCommand::List("tea")).await;
        let message = || Input::from_broker(step, payload.clone(), index(), 0);
        assert_eq!(harness.receives(9, message).await, "dead_lettered", "{links:?}");
        let stored = harness.dead_letter().await;
        let dead_letter = stored.dead_letter;
        let is_envelope = message_type.is_some();
        let nobodys = saga_core::ids::of_stream_position("COURIER", 42);
        let (message_id, saga) = if is_envelope { (id(1), Some(id(1))) } else { (nobodys, None) };
        let origin = if is_envelope { DeadLetterOrigin::Message } else { DeadLetterOrigin::Foreign };
        assert_eq!(
            (stored.status, stored.revision, stored.inbox_id),
            (DeadLetterStatus::Pending, 0, message_id)
        );
        let expected = DeadLettered {
            trace: None,
            id: dead_letter.id,
            service: "depot".to_owned(),
            step: step.name.to_owned(),
            origin,
            message_id,
            message_type: message_type.map(str::to_owned),
            saga,
            reason: dead_letter.error_chain.join(": "),
            error_chain: dead_letter.error_chain.clone(),
            fingerprint: dead_letter.fingerprint.clone(),
            attempts: 1,
            first_failed_at: at(9),
            last_failed_at: at(9),
            replays: 0,
            delivery: Some(index()),
            payload_base64: STANDARD.encode(&payload),
            original: None,
        };
        assert_eq!(dead_letter, expected);
        assert_eq!(dead_letter.error_chain.len(), links.len(), "a link each: {:?}", dead_letter.error_chain);
        for (link, words) in dead_letter.error_chain.iter().zip(links) {
            assert!(link.contains(words), "{link:?} does not say {words:?}");
        }
        assert_eq!(dead_letter.fingerprint.len(), 12);
    }
}

#[tokio::test]
async fn dead_letter_keeps_its_stream_position_through_retries_replays_and_crashes() {
    let mut deaths = 0;
    loop {
        let mut harness = OperatorHarness::dying_after(deaths).with_attempts(2);
        let tea = || Input::from_broker(FILLING, arrived(id(1), "tea", 3), index(), 0);
        assert_eq!(harness.receives(0, tea).await, "retried");
        assert_eq!(harness.retry_due(1).await, ["dead_lettered"]);
        let dead_letter = harness.dead_letter().await.dead_letter;
        assert_eq!(dead_letter.delivery, Some(index()));
        assert_eq!(harness.receives_command(2, replay(dead_letter.id, 1)).await, "done");
        assert_eq!(harness.retry_due(2).await, ["retried"]);
        assert_eq!(harness.retry_due(3).await, ["dead_lettered"]);
        assert_eq!(harness.dead_letter().await.dead_letter.delivery, Some(index()));
        if harness.has_yet_to_die() {
            return;
        }
        deaths += 1;
    }
}

/// Guarantee 2.
#[tokio::test]
async fn poison_messages_delay_no_others() {
    let mut harness = OperatorHarness::new().with_attempts(3);
    harness.executes(0, DepotCommand::List("tea")).await;
    let good = |number| received(arrived(id(number), "tea", 1));
    let poison = |number: u128| match number % 5 {
        0 => received(Bytes::from_static(b"{}")),
        1 => received(arrived(id(number), "tea", UNLUCKY)),
        2 => received(arrived(id(number), UNREADABLE, 1)),
        3 => failing(received(arrived(id(number), "tea", 1)), FailureKind::Outage),
        // Comes before its shelf, and will for a long time.
        _ => received(arrived(id(number), "nowhere", 1)),
    };
    let mixed = (0..50).flat_map(|number| [poison(1000 + number), good(number)]).collect();
    let outcomes = harness.process_batch(0, mixed).await;
    let good_ones = outcomes.iter().skip(1).step_by(2);
    assert!(good_ones.clone().all(|outcome| outcome.name() == "done"), "{outcomes:?}");
    assert_eq!(harness.tea().await, 50);
    let stats = harness.store().stats().await.expect("the store works");
    // All the empty objects have one place in the stream here: one dead letter.
    assert_eq!((stats.dead_letters, stats.retries), (1 + 10 + 10, 10 + 10));
    assert_eq!(harness.dead_letters().await.len(), 21);
}

#[tokio::test]
async fn step_uses_its_own_retry_policy() {
    let mut config = decision_config(Pace { attempts: 2, ..Pace::default() });
    let own = saga_core::retry::RetryPolicy { max_attempts: 7, ..config.retry };
    config.step_retry.insert(FILLING.name.to_owned(), own);
    let outcome = |step: &'static saga_core::service::Step, attempts| {
        let waiting = Retry { payload: arrived(id(1), "tea", 3), attempts, ..retry(step.name, 1, at(0)) };
        let input = failing(Input::retry(step, waiting, 0), FailureKind::Transient);
        let inbox = [((step.name, id(1)), InboxState::Retrying)].into();
        let loaded = Loaded { inbox, ..Loaded::default() };
        decision::decide(&Depot, &[input], loaded, &config, at(0)).1.remove(0).name()
    };
    assert_eq!([1, 5, 6].map(|attempts| outcome(FILLING, attempts)), ["retried", "retried", "dead_lettered"]);
    assert_eq!([0, 1].map(|attempts| outcome(operating(), attempts)), ["retried", "dead_lettered"]);
}

fn index() -> DeliveryInfo {
    let headers = [("Nats-Msg-Id", "1"), ("traceparent", "00-0af7-b7ad-01")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    DeliveryInfo {
        stream: "COURIER".to_owned(),
        sequence: 42,
        subject: "courier.parcels_arrived".to_owned(),
        headers,
    }
}

fn failing(input: Input<Depot>, kind: FailureKind) -> Input<Depot> {
    input.with_injected_failure(Some(FailedAttempt::new(kind, "injected")))
}

async fn waiting(harness: &OperatorHarness, second: i64) -> Retry {
    let due = harness
        .store()
        .claim_due(due_query(at(second), 9, OWNER, at(second)))
        .await
        .expect("the store works");
    let [retry] = &due.retries[..] else { panic!("one retry waits: {:?}", due.retries) };
    retry.clone()
}

fn retried(retry: Retry) -> Input<Depot> {
    Input::retry(FILLING, retry, 0)
}
