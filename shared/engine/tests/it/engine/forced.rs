//! Forced replays, and edits during a replay: no retry is lost, and none is swallowed.

use saga_core::dead_letter::{DeadLetterStatus, DeadLettered};
use saga_core::decision::Writes;
use saga_core::input::Input;
use saga_core::retry::{FailedAttempt, FailureKind};
use serde_json::Value;
use uuid::Uuid;

use super::edits::dead_lettered_call;
use super::names;
use super::replays::{dead_lettered_tea, due_retry, in_line};
use crate::support::{
    DepotCommand, FILLING, OperatorHarness, arrived, commanded, commit, edit, id, received, replay,
};

#[tokio::test]
async fn replay_in_the_batch_of_the_last_failure_makes_the_call_again() {
    let mut harness = OperatorHarness::new();
    let (task, call) = under_replay(&mut harness).await;
    let failed =
        Input::task_result(task.clone(), Err(FailedAttempt::new(FailureKind::Transient, "closed")), 0);
    let together = harness.process_batch(11, vec![failed, commanded(&replay(call.id, 2))]).await;
    assert_eq!(names(&together), ["dead_lettered", "done"]);
    assert_eq!(harness.dead_letter().await.status, DeadLetterStatus::Replaying);
    let again = harness.calls(12).await;
    assert_eq!(again.iter().map(|again| again.id).collect::<Vec<_>>(), [task.id], "it is in line");
    let answered = Input::task_result(again[0].clone(), Ok(Value::from(5)), 0);
    assert_eq!(names(&harness.process_batch(12, vec![answered]).await), ["done"]);
    assert_eq!((harness.tea().await, in_line(&harness).await), (5, (0, 0, 0)));
}

/// As after a repair of the database by hand.
#[tokio::test]
async fn forced_replay_restores_a_lost_retry() {
    let mut harness = OperatorHarness::new();
    let (task, call) = under_replay(&mut harness).await;
    let lost = Writes { tasks_done: vec![task.id], ..Writes::default() };
    commit(harness.store(), lost).await.expect("the store works");
    assert_eq!(harness.receives_command(12, replay(call.id, 2)).await, "done");
    let again = harness.calls(12).await;
    assert_eq!(again.iter().map(|again| again.id).collect::<Vec<_>>(), [task.id]);

    let (mut harness, dead_letter) = dead_lettered_tea().await;
    harness.executes(1, DepotCommand::List("tea")).await;
    assert_eq!(harness.receives_command(1, replay(dead_letter, 1)).await, "done");
    let lost = Writes { retries_done: vec![(FILLING.name, id(1))], ..Writes::default() };
    commit(harness.store(), lost).await.expect("the store works");
    assert_eq!(harness.receives_command(2, replay(dead_letter, 2)).await, "done");
    assert_eq!(harness.retry_due(2).await, ["done"]);
    assert_eq!((harness.tea().await, in_line(&harness).await), (3, (0, 0, 0)));
}

/// In each order within one batch.
#[tokio::test]
async fn forced_replay_in_the_batch_that_ends_the_replay_before_has_no_effect() {
    for command_first in [true, false] {
        let ordered = |command, end| if command_first { vec![command, end] } else { vec![end, command] };
        let mut harness = OperatorHarness::new();
        let (task, call) = under_replay(&mut harness).await;
        let answered = Input::task_result(task, Ok(Value::from(5)), 0);
        harness.process_batch(11, ordered(commanded(&replay(call.id, 2)), answered)).await;
        assert_eq!(harness.dead_letter().await.status, DeadLetterStatus::Resolved);
        assert_eq!((harness.tea().await, in_line(&harness).await), (5, (0, 0, 0)));

        let (mut harness, dead_letter) = dead_lettered_tea().await;
        harness.executes(1, DepotCommand::List("tea")).await;
        assert_eq!(harness.receives_command(1, replay(dead_letter, 1)).await, "done");
        let due = due_retry(&harness, 1).await;
        harness.process_batch(1, ordered(commanded(&replay(dead_letter, 2)), due)).await;
        assert_eq!((harness.tea().await, in_line(&harness).await), (3, (0, 0, 0)));
        assert_eq!(harness.dead_letter().await.status, DeadLetterStatus::Resolved);
    }
}

#[tokio::test]
async fn forced_replay_of_a_waiting_retry_keeps_its_attempts() {
    let (harness, dead_letter) = dead_lettered_tea().await;
    let mut harness = harness.with_attempts(2);
    assert_eq!(harness.receives_command(1, replay(dead_letter, 1)).await, "done");
    assert_eq!(harness.retry_due(1).await, ["retried"]);
    assert_eq!(harness.receives_command(2, replay(dead_letter, 2)).await, "done");
    assert_eq!(harness.retry_due(9).await, ["dead_lettered"], "the second of two attempts");
}

#[tokio::test]
async fn edit_during_a_replay_replaces_the_waiting_message() {
    let (mut harness, dead_letter) = dead_lettered_tea().await;
    harness.executes(1, DepotCommand::List("tea")).await;
    assert_eq!(harness.receives_command(1, replay(dead_letter, 1)).await, "done");
    let edited = arrived(id(2), "tea", 4);
    assert_eq!(harness.receives_command(2, edit(dead_letter, 2, id(2), &edited)).await, "done");
    assert_eq!(in_line(&harness).await, (1, 0, 1), "one of them, not both");
    assert_eq!(harness.retry_due(2).await, ["done"]);
    assert_eq!((harness.tea().await, in_line(&harness).await), (4, (0, 0, 0)));
    assert_eq!(harness.receives(3, || received(arrived(id(1), "tea", 3))).await, "duplicate");
}

#[tokio::test]
async fn attempt_at_a_message_edited_meanwhile_has_no_effect() {
    for is_listed in [true, false] {
        let (mut harness, dead_letter) = dead_lettered_tea().await;
        assert_eq!(harness.receives_command(1, replay(dead_letter, 1)).await, "done");
        let stale = due_retry(&harness, 1).await;
        if is_listed {
            harness.executes(1, DepotCommand::List("tea")).await;
        }
        let edited = arrived(id(2), "tea", 4);
        assert_eq!(harness.receives_command(2, edit(dead_letter, 2, id(2), &edited)).await, "done");
        assert_eq!(names(&harness.process_batch(2, vec![stale]).await), ["duplicate"]);
        let stored = harness.dead_letter().await;
        assert_eq!((stored.status, stored.dead_letter.replays), (DeadLetterStatus::Replaying, 0));
        if !is_listed {
            harness.executes(3, DepotCommand::List("tea")).await;
        }
        assert_eq!(harness.retry_due(3).await, ["done"]);
        assert_eq!((harness.tea().await, in_line(&harness).await), (4, (0, 0, 0)));
    }
}

/// The call may be in flight with the old data.
#[tokio::test]
async fn edit_of_a_task_in_replay_is_rejected() {
    let mut harness = OperatorHarness::new();
    let (_, call) = under_replay(&mut harness).await;
    let edited = br#"{"label":"coffee"}"#;
    assert_eq!(harness.receives_command(11, edit(call.id, 2, id(2), edited)).await, "dead_lettered");
    let reasons: Vec<_> =
        harness.dead_letters().await.into_iter().map(|stored| stored.dead_letter.reason).collect();
    assert!(reasons.iter().any(|reason| reason.contains("the task is being replayed")), "{reasons:?}");
}

/// Task in replay and claimed, with its dead letter.
async fn under_replay(harness: &mut OperatorHarness) -> (saga_core::waiting::Task, DeadLettered) {
    let (_, call): (Uuid, _) = dead_lettered_call(harness).await;
    assert_eq!(harness.receives_command(10, replay(call.id, 1)).await, "done");
    (harness.calls(10).await.remove(0), call)
}
