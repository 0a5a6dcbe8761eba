//! Results of tasks, and the claims under which they count.

use std::time::Duration;

use jiff::SignedDuration;
use saga_core::input::{Input, MessageOutcome, Outcome};
use saga_core::retry::{FailedAttempt, FailureKind};
use saga_core::waiting::Task;
use serde_json::json;

use super::till::{ATTEMPTS, FULL, NOON, NoCoins, Till, TillCommand};
use super::world::World;

#[test]
fn answer_ends_task_once_under_any_claim() {
    let (mut world, task) = calling();
    // The answer of an expired claim counts: the idempotency key makes it the only one.
    world.tasks.get_mut(&task.id).expect("it is open").claim = 5;
    let (writes, name) = world.decide_one(answered(&task, 7));
    assert_eq!((name, &writes.tasks_done[..]), ("done", &[task.id][..]));
    assert_eq!(world.tin("a").coins, FULL + 7);
    let (writes, name) = world.decide_one(answered(&task, 7));
    assert_eq!((name, writes.is_empty()), ("duplicate", true));
}

#[test]
fn rejected_answer_ends_task() {
    let (mut world, task) = calling();
    let (writes, outcomes) = world.decide(&[answered(&task, -1)]);
    let Outcome::Message(MessageOutcome::Rejected(NoCoins)) = outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!((writes.tasks_done.len(), writes.new_dead_letters.len()), (1, 0));
}

#[test]
fn failed_task_is_retried_until_attempts_are_used_up() {
    let (mut world, task) = calling();
    for attempts in 0..ATTEMPTS {
        let failing = Task { attempts, ..task.clone() };
        let (writes, name) = world.decide_one(failed(&failing, FailureKind::Transient));
        if attempts + 1 < ATTEMPTS {
            let [retry] = &writes.task_retries[..] else { panic!("it is to be made again: {writes:?}") };
            let delay = SignedDuration::from_secs(8 << attempts) - SignedDuration::from_micros(1);
            assert_eq!((name, retry.id, retry.attempts), ("retried", task.id, attempts + 1));
            assert_eq!((retry.next_attempt, &retry.last_error[..]), (NOON + delay, "no answer"));
            assert!(writes.tasks_done.is_empty());
        } else {
            assert_eq!((name, writes.task_retries.len(), writes.tasks_done.len()), ("dead_lettered", 0, 1));
            let [dead] = &writes.new_dead_letters[..] else { panic!("one dead letter") };
            assert_eq!((dead.attempts, dead.first_failed_at), (ATTEMPTS, task.created_at));
            assert_eq!((&dead.step[..], dead.message_id), ("collect", task.id));
            assert_eq!(dead.saga, Some(task.correlation_id));
        }
    }
}

/// A dependency that asks for hours is asked again within a minute.
#[test]
fn next_attempt_waits_as_long_as_the_dependency_asked_within_a_bound() {
    let backoff = SignedDuration::from_secs(8) - SignedDuration::from_micros(1);
    for (asked_for, time) in [(30, 30), (3_600, 60)] {
        let (mut world, task) = calling();
        let reason = FailedAttempt {
            retry_after: Some(Duration::from_secs(asked_for)),
            ..FailedAttempt::new(FailureKind::Transient, "too many requests")
        };
        let (writes, name) = world.decide_one(Input::task_result(task, Err(reason), u32::MAX));
        let next = writes.task_retries[0].next_attempt;
        assert_eq!((name, next), ("retried", NOON + SignedDuration::from_secs(time) + backoff));
    }
}

#[test]
fn task_failure_counts_only_under_newest_claim() {
    let (mut world, task) = calling();
    world.tasks.get_mut(&task.id).expect("it is open").claim = 2;
    assert_eq!(world.decide_one(failed(&task, FailureKind::Permanent)).1, "duplicate");
    assert_eq!(world.decide_one(failed(&Task { claim: 2, ..task }, FailureKind::Outage)).1, "retried");
}

#[test]
fn outage_consumes_no_attempt_of_task() {
    let (mut world, task) = calling();
    let last = Task { attempts: ATTEMPTS - 1, ..task };
    let (writes, name) = world.decide_one(failed(&last, FailureKind::Outage));
    assert_eq!((name, writes.task_retries[0].attempts), ("retried", ATTEMPTS - 1));
}

/// A task was never attempted if its first claim is the current one.
#[test]
fn unnecessary_task_reports_if_it_was_ever_attempted() {
    let dead_letter = Some(uuid::Uuid::from_u128(3));
    for (claim, dead_letter, kind) in
        [(1, None, "NeverAttempted"), (2, None, "NoLongerNeeded"), (1, dead_letter, "NoLongerNeeded")]
    {
        let (mut world, task) = calling();
        let task = Task { claim, dead_letter, ..task };
        world.tasks.insert(task.id, task.clone());
        assert_eq!(world.decide_one(Input::task_check(task.clone())).1, "task_needed");
        let look = world.command(TillCommand::LookAt("a", NOON));
        world.decide_one(look);
        let (writes, outcomes) = world.decide(&[Input::task_check(task.clone())]);
        let Outcome::Message(MessageOutcome::Dead(reason)) = &outcomes[0] else { panic!("{outcomes:?}") };
        assert_eq!(*reason, format!("{kind} no longer needed"));
        assert_eq!((writes.tasks_done.len(), writes.new_dead_letters[0].attempts), (1, 0));
        assert_eq!(world.decide_one(Input::task_check(task)).1, "duplicate");
    }
}

/// The result of the call then repeats the panic, which dead-letters the task.
#[test]
fn panic_in_necessity_check_makes_the_call() {
    let (mut world, task) = calling();
    let row = world.rows.values_mut().next().expect("a row");
    row.1.state = "no tin".to_owned();
    assert_eq!(world.decide_one(Input::task_check(task.clone())).1, "task_needed");
    let (writes, name) = world.decide_one(answered(&task, 1));
    assert_eq!(
        (name, writes.new_dead_letters[0].attempts),
        ("dead_lettered", 1),
        "its try counts, though it was answered"
    );
    assert!(
        writes.new_dead_letters[0].reason.contains("holds a state that is none"),
        "{}",
        writes.new_dead_letters[0].reason
    );
}

/// Tasks that one batch creates and ends need not be written.
#[test]
fn task_answered_in_same_batch_is_not_written() {
    let (mut fresh, task) = (World::new(), calling().1);
    let put = fresh.command(TillCommand::Put("a", FULL));
    let other = fresh.command(TillCommand::Put("b", FULL));
    let failing = || failed(&Task { attempts: 0, ..task.clone() }, FailureKind::Transient);
    let (writes, outcomes) = fresh.decide(&[put, other, failing(), answered(&task, 1)]);
    assert_eq!((outcomes[2].name(), outcomes[3].name()), ("retried", "done"));
    let left: Vec<_> = writes.tasks.iter().map(|task| &task.payload[..]).collect();
    assert_eq!((left, writes.task_retries.len(), writes.tasks_done.len()), (vec![r#""b""#], 0, 1));
    // A failed attempt of another task stays.
    let (mut world, _) = calling();
    let put = world.command(TillCommand::Put("b", FULL));
    let (writes, _) = world.decide_one(put);
    let of_b = writes.tasks[0].clone();
    let (writes, _) = world.decide(&[failed(&of_b, FailureKind::Transient), answered(&task, 1)]);
    assert_eq!(writes.task_retries.len(), 1);
}

/// A till whose tin `a` is full and must be collected.
fn calling() -> (World, Task) {
    let mut world = World::new();
    let put = world.command(TillCommand::Put("a", FULL));
    let (writes, _) = world.decide_one(put);
    let task = writes.tasks[0].clone();
    (world, task)
}

fn answered(task: &Task, coins: i64) -> Input<Till> {
    Input::task_result(task.clone(), Ok(json!(coins)), 0)
}

fn failed(task: &Task, kind: FailureKind) -> Input<Till> {
    Input::task_result(task.clone(), Err(FailedAttempt::new(kind, "no answer")), u32::MAX)
}
