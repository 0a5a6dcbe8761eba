//! Edited dead letters of messages and tasks: law 8, under repetition and crashes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use saga_core::dead_letter::{
    DeadLetterMessage, DeadLetterOrigin, DeadLetterStatus, DeadLettered, OriginalMessage, StoredDeadLetter,
};
use saga_core::input::Input;
use saga_core::message::Message as _;
use saga_core::retry::{FailedAttempt, FailureKind};
use serde_json::Value;
use uuid::Uuid;

use super::names;
use super::replays::in_line;
use crate::support::{
    DepotCommand, FILLING, OWNER, OperatorHarness, UNLUCKY, arrived, at, discard, due_query, edit, id,
    received, replay, restore, shelf, state,
};

/// Elsewhere, edit and retry has sent both copies.
#[tokio::test]
async fn edited_message_replaces_its_original() {
    let mut harness = OperatorHarness::new();
    harness.executes(0, DepotCommand::List("tea")).await;
    let original = arrived(id(1), "tea", UNLUCKY);
    let redelivered = || received(arrived(id(1), "tea", UNLUCKY));
    assert_eq!(harness.receives(0, redelivered).await, "dead_lettered");
    let dead_letter = harness.dead_letter().await.dead_letter.id;

    let edited = arrived(id(2), "tea", 12);
    assert_eq!(harness.receives_command(1, edit(dead_letter, 1, id(2), &edited)).await, "done");
    assert_eq!(harness.receives(1, redelivered).await, "duplicate");
    assert_eq!(harness.retry_due(1).await, ["done"]);
    assert_eq!(harness.tea().await, 12);
    for _ in 0..2 {
        assert_eq!(harness.receives(2, redelivered).await, "duplicate");
    }
    assert_eq!((harness.tea().await, harness.handled(FILLING.name).await), (12, 1));

    // What it causes names the edited message as its cause, and the resolution names it as handled.
    let events = harness.store().events(shelf("tea"), 0, usize::MAX).await.expect("the store works");
    assert_eq!(events.last().map(|event| event.causation_id), Some(id(2)));
    let Some((_, DeadLetterMessage::DeadLetterResolved(resolved))) = harness.announced().await.pop() else {
        panic!("it is resolved")
    };
    assert_eq!((resolved.dead_letter, resolved.message_id), (dead_letter, id(2)));
    let original = OriginalMessage { message_id: id(1), payload_base64: STANDARD.encode(original) };
    assert_eq!(harness.dead_letter().await.dead_letter.original, Some(original));
}

#[tokio::test]
async fn edited_message_that_fails_is_the_same_dead_letter_and_keeps_its_original() {
    let mut harness = OperatorHarness::new();
    harness.executes(0, DepotCommand::List("tea")).await;
    let original = arrived(id(1), "tea", UNLUCKY);
    assert_eq!(harness.receives(0, || received(arrived(id(1), "tea", UNLUCKY))).await, "dead_lettered");
    let dead_letter = harness.dead_letter().await.dead_letter.id;
    for (revision, message_id) in [(1, id(2)), (2, id(3))] {
        let edited = arrived(message_id, "tea", UNLUCKY);
        assert_eq!(
            harness.receives_command(1, edit(dead_letter, revision, message_id, &edited)).await,
            "done"
        );
        assert_eq!(harness.retry_due(1).await, ["dead_lettered"]);
        let now = harness.dead_letter().await;
        assert_eq!(
            (now.dead_letter.id, now.inbox_id, now.dead_letter.message_id),
            (dead_letter, id(1), message_id)
        );
        assert_eq!(STANDARD.decode(&now.dead_letter.payload_base64).expect("base64"), edited);
        assert_eq!(
            now.dead_letter.saga,
            Some(id(1)),
            "of the saga that misses it, whatever it was edited into"
        );
        let first = OriginalMessage { message_id: id(1), payload_base64: STANDARD.encode(&original) };
        assert_eq!(now.dead_letter.original, Some(first), "the very first one");
    }
    // A plain replay repeats the last edit.
    assert_eq!(harness.receives_command(5, replay(dead_letter, 3)).await, "done");
    assert_eq!(harness.retry_due(5).await, ["dead_lettered"]);
    assert_eq!(harness.dead_letter().await.dead_letter.message_id, id(3));
}

/// Reconciliation counts published = processed + waiting + dead.
#[tokio::test]
async fn foreign_message_is_never_counted_even_after_an_edit() {
    let mut harness = OperatorHarness::new();
    harness.executes(0, DepotCommand::List("tea")).await;
    let garbage = || received(Bytes::from_static(b"\xff garbage"));
    assert_eq!(harness.receives(0, garbage).await, "dead_lettered");
    let dead_letter = harness.dead_letter().await.dead_letter;
    assert_eq!(
        (dead_letter.origin, dead_letter.message_type, dead_letter.saga),
        (DeadLetterOrigin::Foreign, None, None)
    );
    let is_not_counted = async |harness: &OperatorHarness| {
        let counts = harness.store().message_counts().await.expect("the store works");
        let of =
            |counts: &std::collections::BTreeMap<String, u64>| counts.get(FILLING.name).copied().unwrap_or(0);
        assert_eq!((of(&counts.handled), of(&counts.retrying), of(&counts.dead)), (0, 0, 0));
    };
    is_not_counted(&harness).await;
    assert_eq!(harness.store().stats().await.expect("the store works").dead_letters, 1, "a human sees it");

    assert_eq!(
        harness.receives_command(1, edit(dead_letter.id, 1, id(2), &arrived(id(2), "tea", 4))).await,
        "done"
    );
    is_not_counted(&harness).await;
    assert_eq!(harness.retry_due(1).await, ["done"]);
    assert_eq!(harness.tea().await, 4);
    is_not_counted(&harness).await;
    assert_eq!(harness.receives(2, garbage).await, "duplicate", "it is known all the same");
    assert_eq!(harness.dead_letter().await.status, DeadLetterStatus::Resolved);
}

/// Guarantee 4: the call repeats its idempotency key.
#[tokio::test]
async fn replayed_task_keeps_its_id_and_is_resolved_by_its_result() {
    let mut harness = OperatorHarness::new();
    let (task, dead_letter) = dead_lettered_call(&mut harness).await;
    assert_eq!(
        (dead_letter.origin, dead_letter.message_id, dead_letter.step.as_str()),
        (DeadLetterOrigin::Task, task, "insist")
    );
    assert_eq!(harness.receives_command(10, replay(dead_letter.id, 1)).await, "done");
    let [again] = &harness.calls(10).await[..] else { panic!("one call") };
    assert_eq!((again.id, again.attempts, again.kind.as_str()), (task, 0, "insist"));
    assert_eq!((again.payload.as_str(), again.dead_letter), (r#"{"label":"tea"}"#, Some(dead_letter.id)));
    let settled =
        harness.process_batch(11, vec![Input::task_result(again.clone(), Ok(Value::from(5)), 0)]).await;
    assert_eq!(names(&settled), ["done"]);
    assert_eq!((harness.tea().await, in_line(&harness).await), (5, (0, 0, 0)));
    let Some((_, DeadLetterMessage::DeadLetterResolved(resolved))) = harness.announced().await.pop() else {
        panic!("it is resolved")
    };
    let expected = (dead_letter.id, "insist", dead_letter.saga, 1);
    assert_eq!((resolved.dead_letter, resolved.step.as_str(), resolved.saga, resolved.replays), expected);
    // The answer of an earlier try comes after all: there is only one.
    let late =
        harness.process_batch(12, vec![Input::task_result(again.clone(), Ok(Value::from(5)), 0)]).await;
    assert_eq!((names(&late), harness.tea().await), (vec!["duplicate"], 5));
}

#[tokio::test]
async fn replayed_task_that_fails_is_the_same_dead_letter() {
    let mut harness = OperatorHarness::new();
    let (task, first) = dead_lettered_call(&mut harness).await;
    assert_eq!(harness.receives_command(10, replay(first.id, 1)).await, "done");
    let again = harness.calls(10).await.remove(0);
    let failed = Err(FailedAttempt::new(FailureKind::Transient, "still closed"));
    assert_eq!(
        names(&harness.process_batch(11, vec![Input::task_result(again, failed, 0)]).await),
        ["dead_lettered"]
    );
    let StoredDeadLetter { dead_letter, status, inbox_id, .. } = harness.dead_letter().await;
    assert_eq!((dead_letter.id, status, inbox_id), (first.id, DeadLetterStatus::Pending, task));
    assert_eq!((dead_letter.replays, dead_letter.attempts), (1, 2));
    assert_eq!((dead_letter.first_failed_at, dead_letter.last_failed_at), (first.first_failed_at, at(11)));
    assert_eq!(dead_letter.reason, "no supply: still closed");
    assert_eq!(harness.announced().await.len(), 2);
}

#[tokio::test]
async fn edited_task_is_called_with_the_edit_under_its_old_key() {
    let mut harness = OperatorHarness::new();
    let (task, dead_letter) = dead_lettered_call(&mut harness).await;
    assert_eq!(
        harness.receives_command(10, edit(dead_letter.id, 1, id(2), br#"{"label":"coffee"}"#)).await,
        "done"
    );
    let again = harness.calls(10).await.remove(0);
    assert_eq!((again.id, again.payload.as_str()), (task, r#"{"label":"coffee"}"#));
    let settled = harness.process_batch(11, vec![Input::task_result(again, Ok(Value::from(5)), 0)]).await;
    assert_eq!(names(&settled), ["done"]);
    let coffee = state(harness.store(), "coffee").await.expect("the store works");
    assert_eq!((coffee.map(|shelf| shelf.pieces), harness.tea().await), (Some(5), 0));
}

/// Laws 1, 2, 4 and 8.
#[tokio::test]
async fn crash_after_any_commit_loses_and_duplicates_nothing() {
    let mut deaths = 0;
    loop {
        let mut harness = OperatorHarness::dying_after(deaths);
        let tea = || received(arrived(id(1), "tea", 3));
        assert_eq!(harness.receives(0, tea).await, "dead_lettered");
        let dead_letter = harness.dead_letter().await.dead_letter.id;
        // It fails again, is given up, is restored, is edited, and is handled.
        assert_eq!(harness.receives_command(1, replay(dead_letter, 1)).await, "done");
        assert_eq!(harness.retry_due(1).await, ["dead_lettered"]);
        assert_eq!(harness.receives_command(2, discard(dead_letter, 2)).await, "done");
        assert_eq!(harness.receives_command(3, restore(dead_letter, 3)).await, "done");
        harness.executes(4, DepotCommand::List("tea")).await;
        let edited = arrived(id(2), "tea", 4);
        assert_eq!(harness.receives_command(5, edit(dead_letter, 4, id(2), &edited)).await, "done");
        assert_eq!(harness.retry_due(5).await, ["done"]);
        assert_eq!(harness.receives(6, tea).await, "duplicate");

        let (_, call) = dead_lettered_call(&mut harness).await;
        assert_eq!(harness.receives_command(20, replay(call.id, 1)).await, "done");
        let again = harness.calls(20).await.remove(0);
        let answer = Input::task_result(again, Ok(Value::from(5)), 0);
        assert_eq!(names(&harness.process_batch(21, vec![answer]).await), ["done"]);
        harness.dies();

        assert_eq!((harness.tea().await, in_line(&harness).await), (4 + 5, (0, 0, 0)), "death {deaths}");
        let announced: Vec<_> = harness
            .announced()
            .await
            .into_iter()
            .map(|(_, announced)| announced.message_type().name)
            .collect();
        let expected =
            ["DeadLettered", "DeadLettered", "DeadLetterResolved", "DeadLettered", "DeadLetterResolved"];
        assert_eq!(announced, expected, "death {deaths}");
        assert!(harness.store().verify().await.expect("the store works").differing.is_empty());
        if harness.has_yet_to_die() {
            break;
        }
        deaths += 1;
    }
    assert!(deaths >= 13, "every commit was a death once: {deaths}");
}

/// Dead-lettered call of a required task: its key and its dead letter.
pub async fn dead_lettered_call(harness: &mut OperatorHarness) -> (Uuid, DeadLettered) {
    harness.executes(7, DepotCommand::Insist("tea")).await;
    // The task belongs to the writer until its lease lapses, or it starts anew.
    let mut recovering = due_query(at(8), 9, OWNER, at(60));
    recovering.recover = true;
    let task = harness.store().claim_due(recovering).await.expect("the store works").tasks.remove(0);
    let failed = Err(FailedAttempt::new(FailureKind::Transient, "closed"));
    assert_eq!(
        names(&harness.process_batch(8, vec![Input::task_result(task.clone(), failed, 0)]).await),
        ["dead_lettered"]
    );
    harness.dies();
    (task.id, harness.dead_letters().await.remove(0).dead_letter)
}
