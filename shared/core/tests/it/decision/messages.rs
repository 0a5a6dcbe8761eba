//! Messages: processed once, retried, dead-lettered.

use std::time::Duration;

use jiff::SignedDuration;
use saga_core::decision::InboxState;
use saga_core::input::Input;
use saga_core::retry::{FailedAttempt, FailureKind, RetryPolicy};
use saga_core::waiting::Retry;
use uuid::Uuid;

use super::fact;
use super::till::{ATTEMPTS, COUNTING, Fact, Mood, NOON, TillCommand, WATCHING, delivered, paid};
use super::world::World;

#[test]
fn message_is_processed_once_per_step() {
    let mut world = World::new();
    let message = || paid(1, "a", 5, Mood::Fine);
    let (writes, outcomes) =
        world.decide(&[delivered(COUNTING, &message()), delivered(COUNTING, &message())]);
    assert_eq!((outcomes[0].name(), outcomes[1].name()), ("done", "duplicate"));
    assert_eq!(writes.inbox, [("counting", Uuid::from_u128(1))]);
    let Fact::Counted { heard: true, .. } = fact(&writes.outbox[0].payload) else {
        panic!("its policy sees what was heard")
    };
    assert_eq!(world.decide_one(delivered(COUNTING, &message())).1, "duplicate");
    // Two steps of one service derive different ids.
    let (other, name) = world.decide_one(delivered(WATCHING, &message()));
    assert_eq!((name, world.tin("a").coins), ("done", 10));
    assert_ne!(other.outbox[0].id, writes.outbox[0].id);
    // Without the inbox only retries and dead letters are known.
    world.rules.use_inbox = false;
    assert_eq!(world.decide_one(delivered(COUNTING, &message())).1, "done");
}

/// A rejection is an answer: no retry follows.
#[test]
fn rejected_message_counts_as_processed() {
    let mut world = World::new();
    let (writes, name) = world.decide_one(delivered(COUNTING, &paid(1, "a", -5, Mood::Fine)));
    assert_eq!((name, writes.inbox.len(), writes.events.len()), ("rejected", 1, 0));
    assert_eq!(world.decide_one(delivered(COUNTING, &paid(1, "a", -5, Mood::Fine))).1, "duplicate");
}

#[test]
fn transient_failure_backs_off_and_is_dead_lettered_after_last_attempt() {
    let mut world = World::new();
    let first = delivered(COUNTING, &paid(1, "a", 5, Mood::NotYet));
    let (writes, name) = world.decide_one(first);
    assert_eq!((name, writes.inbox.len(), writes.new_dead_letters.len()), ("retried", 0, 0));
    // The longest delay is a microsecond below the ceiling.
    for (attempts, seconds) in [(1, 4), (2, 8)] {
        let retry = the_retry(&world);
        let delay = retry.next_attempt.duration_since(world.now);
        assert_eq!(delay, SignedDuration::from_secs(seconds) - SignedDuration::from_micros(1));
        assert_eq!((retry.attempts, retry.first_failed_at), (attempts, NOON));
        assert_eq!((&retry.last_error[..], retry.dead_letter), ("nobody has counted", None));
        // A redelivery by the broker has no effect.
        let (writes, name) = world.decide_one(delivered(COUNTING, &paid(1, "a", 5, Mood::NotYet)));
        assert_eq!((name, writes.is_empty()), ("duplicate", true));
        world.now = retry.next_attempt;
        let (writes, name) = world.decide_one(Input::retry(COUNTING, retry, u32::MAX));
        assert_eq!(name, if attempts + 1 < ATTEMPTS { "retried" } else { "dead_lettered" });
        if name == "dead_lettered" {
            let [dead] = &writes.new_dead_letters[..] else { panic!("one dead letter: {writes:?}") };
            assert_eq!((dead.attempts, dead.first_failed_at, dead.last_failed_at), (3, NOON, world.now));
            assert_eq!(writes.retries_done, [("counting", Uuid::from_u128(1))]);
            assert_eq!(writes.retries.len(), 0);
        }
    }
    assert!(world.retries.is_empty());
    world.inbox.insert(("counting", Uuid::from_u128(1)), InboxState::DeadLettered);
    assert_eq!(world.decide_one(delivered(COUNTING, &paid(1, "a", 5, Mood::NotYet))).1, "duplicate");
}

#[test]
fn successful_retry_is_deleted_and_stale_retry_does_nothing() {
    let mut world = World::new();
    world.decide_one(delivered(COUNTING, &paid(1, "a", 5, Mood::NotYet)));
    let retry = Retry { payload: paid(1, "a", 5, Mood::Fine).into(), ..the_retry(&world) };
    let (writes, name) = world.decide_one(Input::retry(COUNTING, retry.clone(), 0));
    assert_eq!((name, writes.retries_done.len(), writes.inbox.len()), ("done", 1, 1));
    // Another replica may have taken the same retry.
    let (writes, name) = world.decide_one(Input::retry(COUNTING, retry.clone(), 0));
    assert_eq!((name, writes.is_empty()), ("duplicate", true));
    world.rules.use_inbox = false;
    assert_eq!(world.decide_one(Input::retry(COUNTING, retry.clone(), 0)).1, "duplicate");
    world.inbox.clear();
    assert_eq!(world.decide_one(Input::retry(COUNTING, retry, 0)).1, "duplicate", "nothing waits");
}

/// A message may fail and be retried in one batch: the last change counts.
#[test]
fn retry_created_and_ended_in_one_batch_is_not_written() {
    let mut world = World::new();
    let failing = paid(1, "a", 5, Mood::NotYet);
    world.decide_one(delivered(COUNTING, &failing));
    let retry = the_retry(&world);
    let last = Retry { attempts: 2, ..retry.clone() };
    let other = delivered(WATCHING, &failing);
    let third = delivered(COUNTING, &paid(2, "a", 5, Mood::NotYet));
    let inputs =
        [other, third, Input::retry(COUNTING, retry, u32::MAX), Input::retry(COUNTING, last, u32::MAX)];
    let (writes, outcomes) = world.decide(&inputs);
    assert_eq!((outcomes[2].name(), outcomes[3].name()), ("retried", "dead_lettered"));
    let places: Vec<_> = writes.retries.iter().map(|it| (&it.step[..], it.message_id)).collect();
    assert_eq!(places, [("watching", Uuid::from_u128(1)), ("counting", Uuid::from_u128(2))]);
}

#[test]
fn step_policy_overrides_default() {
    let mut world = World::new();
    let patient = RetryPolicy { max_attempts: 1, base: Duration::from_secs(1), cap: Duration::from_secs(1) };
    world.rules.step_retry.insert("watching".to_owned(), patient);
    let names =
        [COUNTING, WATCHING].map(|step| world.decide_one(delivered(step, &paid(1, "a", 5, Mood::NotYet))).1);
    assert_eq!(names, ["retried", "dead_lettered"]);
}

/// An outage or an injected fault is known before the handler runs.
#[test]
fn attempt_with_injected_failure_is_not_handled() {
    let mut world = World::new();
    let failure = FailedAttempt::new(FailureKind::Outage, "the power is off");
    let fine = paid(1, "a", 5, Mood::Fine);
    for _ in 0..2 * ATTEMPTS {
        let input = match world.retries.values().next() {
            None => delivered(COUNTING, &fine),
            Some(retry) => Input::retry(COUNTING, retry.clone(), 0),
        };
        assert_eq!(world.decide_one(input.with_injected_failure(Some(failure.clone()))).1, "retried");
    }
    let retry = the_retry(&world);
    assert_eq!((retry.attempts, world.tin("a").coins), (0, 0));
    assert_eq!(world.decide_one(Input::retry(COUNTING, retry, 0)).1, "done");
    // The repeated attempt keeps everything but its result.
    let input = delivered(COUNTING, &paid(2, "a", 5, Mood::Fine));
    let saga_core::input::InputKind::Message(message) = &input.kind else { panic!("a message") };
    let again = input
        .with_failure(message, FailedAttempt::new(FailureKind::Permanent, "it kills whoever decides it"));
    assert_eq!((again.id, again.correlation_id), (input.id, input.correlation_id));
    let (writes, name) = world.decide_one(again);
    assert_eq!(
        (name, &writes.new_dead_letters[0].reason[..]),
        ("dead_lettered", "it kills whoever decides it")
    );
}

#[test]
fn handler_finds_additional_rows() {
    let mut world = World::new();
    let put = world.command(TillCommand::Put("a", 7));
    world.decide_one(put);
    let (writes, name) = world.decide_one(delivered(COUNTING, &paid(1, "a", 5, Mood::OnRecord)));
    assert_eq!((name, world.tin("7").coins, world.tin("a").coins), ("done", 5, 7));
    assert_eq!(writes.rows.len(), 1);
    // Rows that are read anyway are not requested again.
    let (_, outcomes) = world.decide(&[
        delivered(COUNTING, &paid(2, "7", 1, Mood::Fine)),
        delivered(COUNTING, &paid(3, "a", 1, Mood::OnRecord)),
    ]);
    assert_eq!((outcomes[0].name(), outcomes[1].name(), world.tin("7").coins), ("done", "done", 7));
}

#[track_caller]
fn the_retry(world: &World) -> Retry {
    let mut all = world.retries.values();
    let (retry, other) = (all.next().expect("it waits"), all.next());
    assert!(other.is_none(), "{other:?}");
    retry.clone()
}
