//! Dead letters that are replayed, discarded or edited: law 8, under repetition and crashes.

use saga_core::dead_letter::{
    DeadLetterMessage, DeadLetterResolved, DeadLetterStatus, DeadLettered, EditedMessage, ReplayEffect,
    ReplayRequested, StoredDeadLetter,
};
use saga_core::input::Input;
use saga_core::retry::{FailedAttempt, FailureKind};
use saga_engine::store::StoreFault;
use uuid::Uuid;

use super::{done, names};
use crate::support::{
    Deed, Depot, DepotCommand, EngineHarness, FILLING, LISTENING, OperatorHarness, Pace, Supplier, arrived,
    at, commanded, discard, discard_after, due_query, edit, for_another, id, in_memory, newest_dead_letters,
    operating, received, replay, restore, state, wait_until,
};

/// Guarantee 8.
#[tokio::test]
async fn replay_reaches_only_the_step_that_failed_and_is_no_duplicate() {
    let mut harness = OperatorHarness::new();
    let tea = || arrived(id(1), "tea", 3);
    let outcomes =
        harness.receives_batch(0, || vec![received(tea()), Input::message(LISTENING, tea(), id(9), 0)]).await;
    assert_eq!(names(&outcomes), ["dead_lettered", "done"]);
    let dead_letter = harness.dead_letter().await.dead_letter;
    harness.executes(1, DepotCommand::List("tea")).await;

    assert_eq!(harness.receives_command(2, replay(dead_letter.id, 1)).await, "done");
    assert_eq!(harness.dead_letter().await.status, DeadLetterStatus::Replaying);
    assert_eq!(harness.retry_due(2).await, ["done"], "due at once");
    assert_eq!(harness.tea().await, 3);
    assert_eq!(harness.dead_letter().await.status, DeadLetterStatus::Resolved);
    let resolved = DeadLetterResolved {
        dead_letter: dead_letter.id,
        service: "depot".to_owned(),
        step: FILLING.name.to_owned(),
        saga: Some(id(1)),
        message_id: id(1),
        replays: 1,
        effect: ReplayEffect::TookEffect,
    };
    assert_eq!(
        facts(&harness).await,
        [
            DeadLetterMessage::DeadLettered(dead_letter.into()),
            DeadLetterMessage::DeadLetterResolved(resolved)
        ]
    );
    assert_eq!((harness.handled(FILLING.name).await, harness.handled(LISTENING.name).await), (1, 1));

    // Nobody hears it a second time.
    assert_eq!(harness.receives(3, || received(tea())).await, "duplicate");
    assert_eq!(harness.retry_due(9).await, [""; 0]);
    assert_eq!((harness.tea().await, in_line(&harness).await), (3, (0, 0, 0)));
}

/// Guarantee 8: it does not wait for the next scan of the timers.
#[tokio::test]
async fn replayed_message_is_processed_at_once() -> Result<(), StoreFault> {
    let harness = EngineHarness::over(in_memory(), Pace { attempts: 1, ..Pace::default() }).await;
    assert_eq!(
        names(&harness.process_together(vec![received(arrived(id(1), "tea", 3))]).await),
        ["dead_lettered"]
    );
    done(harness.execute(DepotCommand::List("tea")).await);
    let dead_letter = newest_dead_letters(harness.store.as_ref(), 9).await?.remove(0);
    assert_eq!(harness.settle(commanded(&replay(dead_letter.id, 1))).await, "done");
    let is_handled = async || {
        let shelf = state(harness.store.as_ref(), "tea").await.expect("the store works");
        shelf.is_some_and(|shelf| shelf.pieces == 3)
    };
    wait_until("the replayed message is handled", is_handled).await;
    assert_eq!(harness.stats().await.dead_letters, 0);
    Ok(())
}

/// Guarantee 8.
#[tokio::test]
async fn replayed_task_is_called_at_once_under_the_same_key() -> Result<(), StoreFault> {
    let pace = Pace { attempts: 1, ..Pace::default() };
    let harness =
        EngineHarness::with_supplier(in_memory(), pace, Supplier::will([Deed::Refuse, Deed::Answer(5)]))
            .await;
    done(harness.execute(DepotCommand::Insist("tea")).await);
    wait_until("it is parked", async || harness.stats().await.dead_letters == 1).await;
    let dead_letter = newest_dead_letters(harness.store.as_ref(), 9).await?.remove(0);
    assert_eq!(harness.settle(commanded(&replay(dead_letter.id, 1))).await, "done");
    wait_until("it is resolved", async || harness.stats().await.dead_letters == 0).await;
    let called = harness.supplier.called();
    assert_eq!(called, [called[0]; 2], "one key, or the supplier would deliver twice");
    assert_eq!(state(harness.store.as_ref(), "tea").await?.map(|shelf| shelf.pieces), Some(5));
    Ok(())
}

/// Each failure is announced.
#[tokio::test]
async fn failed_replay_is_the_same_dead_letter_with_one_more_replay() {
    let mut harness = OperatorHarness::new().with_attempts(2);
    let tea = || received(arrived(id(1), "tea", 3));
    assert_eq!(harness.receives(0, tea).await, "retried");
    assert_eq!(harness.retry_due(5).await, ["dead_lettered"]);
    let first = harness.dead_letter().await.dead_letter;
    assert_eq!((first.attempts, first.replays), (2, 0));
    assert_eq!((first.first_failed_at, first.last_failed_at), (at(0), at(5)));

    for (replays, second) in [(1, 100), (2, 200)] {
        assert_eq!(harness.receives_command(second, replay(first.id, replays)).await, "done");
        assert_eq!(harness.retry_due(second).await, ["retried"], "a replay has all its attempts");
        assert_eq!(harness.dead_letter().await.status, DeadLetterStatus::Replaying);
        assert_eq!(harness.retry_due(second + 5).await, ["dead_lettered"]);
        let StoredDeadLetter { dead_letter, status, .. } = harness.dead_letter().await;
        assert_eq!(status, DeadLetterStatus::Pending);
        let expected = DeadLettered {
            replays: u32::try_from(replays).expect("a small number"),
            attempts: first.attempts + 2 * u32::try_from(replays).expect("a small number"),
            last_failed_at: at(second + 5),
            ..first.clone()
        };
        assert_eq!(dead_letter, expected, "id, first failure, payload and place stay");
    }
    let announced = harness.announced().await;
    assert_eq!(announced.len(), 3);
    assert_eq!(
        announced[2].1,
        DeadLetterMessage::DeadLettered(harness.dead_letter().await.dead_letter.into())
    );
    let ids: std::collections::BTreeSet<Uuid> = announced.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids.len(), 3, "none of them is taken for another by whoever hears them");

    // And in the end it works.
    harness.executes(300, DepotCommand::List("tea")).await;
    assert_eq!(harness.receives_command(300, replay(first.id, 3)).await, "done");
    assert_eq!(harness.retry_due(300).await, ["done"]);
    let Some((_, DeadLetterMessage::DeadLetterResolved(resolved))) = harness.announced().await.pop() else {
        panic!("it is resolved")
    };
    assert_eq!(resolved.replays, 3);
}

#[tokio::test]
async fn older_or_repeated_operator_command_has_no_effect() {
    let (mut harness, dead_letter) = dead_lettered_tea().await;
    assert_eq!(harness.receives_command(1, discard(dead_letter, 5)).await, "done");
    for old in [
        replay(dead_letter, 4),
        restore(dead_letter, 5),
        replay(dead_letter, 5),
        edit(dead_letter, 3, id(2), b"x"),
    ] {
        assert_eq!(harness.receives_command(2, old.clone()).await, "done", "{old:?}");
        let stored = harness.dead_letter().await;
        assert_eq!((stored.status, stored.revision), (DeadLetterStatus::Discarded, 5), "{old:?}");
        assert_eq!(stored.dead_letter.original, None, "{old:?}");
    }
    assert_eq!(in_line(&harness).await, (0, 0, 0));
    assert_eq!(harness.receives_command(3, restore(dead_letter, 6)).await, "done");
    assert_eq!(harness.receives_command(4, replay(dead_letter, 7)).await, "done");
    assert_eq!(harness.receives_command(4, replay(dead_letter, 7)).await, "duplicate", "the same message");
    assert_eq!(harness.retry_due(4).await, ["dead_lettered"]);
    assert_eq!(harness.retry_due(9).await, [""; 0], "one command, one replay");
    assert_eq!(harness.dead_letter().await.dead_letter.replays, 1);
}

#[tokio::test]
async fn second_command_finds_the_dead_letter_in_replay() {
    let (mut harness, dead_letter) = dead_lettered_tea().await;
    assert_eq!(harness.receives_command(1, replay(dead_letter, 1)).await, "done");
    let in_flight = in_line(&harness).await;
    for (revision, command) in
        [(2, replay(dead_letter, 2)), (3, discard(dead_letter, 3)), (4, restore(dead_letter, 4))]
    {
        assert_eq!(harness.receives_command(2, command).await, "done");
        let stored = harness.dead_letter().await;
        assert_eq!((stored.status, stored.revision), (DeadLetterStatus::Replaying, revision));
        assert_eq!((stored.dead_letter.message_id, stored.dead_letter.original), (id(1), None));
    }
    assert_eq!(in_line(&harness).await, in_flight);
    harness.executes(3, DepotCommand::List("tea")).await;
    assert_eq!(harness.retry_due(3).await, ["done"]);
    assert_eq!(harness.tea().await, 3, "once");
}

/// The operator has not seen that failure.
#[tokio::test]
async fn discard_has_no_effect_after_another_failed_replay() {
    let (mut harness, dead_letter) = dead_lettered_tea().await;
    assert_eq!(harness.receives_command(1, replay(dead_letter, 1)).await, "done");
    assert_eq!(harness.retry_due(1).await, ["dead_lettered"]);
    assert_eq!(harness.receives_command(2, discard_after(0, dead_letter, 2)).await, "done");
    let stored = harness.dead_letter().await;
    assert_eq!((stored.status, stored.revision), (DeadLetterStatus::Pending, 2));
    assert_eq!(harness.receives_command(3, discard_after(1, dead_letter, 3)).await, "done");
    assert_eq!(harness.dead_letter().await.status, DeadLetterStatus::Discarded);
}

#[tokio::test]
async fn command_for_a_resolved_dead_letter_changes_nothing() {
    let (mut harness, dead_letter) = dead_lettered_tea().await;
    harness.executes(1, DepotCommand::List("tea")).await;
    assert_eq!(harness.receives_command(1, replay(dead_letter, 1)).await, "done");
    assert_eq!(harness.retry_due(1).await, ["done"]);
    for command in [replay(dead_letter, 2), discard(dead_letter, 3), restore(dead_letter, 4)] {
        assert_eq!(harness.receives_command(2, command).await, "done");
        assert_eq!(harness.dead_letter().await.status, DeadLetterStatus::Resolved);
    }
    assert_eq!((harness.retry_due(9).await, harness.tea().await), (vec![], 3));
}

#[tokio::test]
async fn commands_and_replays_in_one_batch_act_as_in_sequence() {
    // The replay fails, and the operator's next command is in the same batch.
    for command in [|dead_letter| discard(dead_letter, 2), |dead_letter| replay(dead_letter, 2)] {
        let (harness, dead_letter) = dead_lettered_tea().await;
        let outcomes = harness.process_batch(1, vec![commanded(&replay(dead_letter, 1))]).await;
        assert_eq!(names(&outcomes), ["done"]);
        let due = due_retry(&harness, 1).await;
        let together = harness.process_batch(1, vec![due, commanded(&command(dead_letter))]).await;
        assert_eq!(names(&together), ["dead_lettered", "done"]);
        let stored = harness.dead_letter().await;
        let is_in_line = in_line(&harness).await.0 == 1;
        assert_eq!(stored.dead_letter.replays, 1, "the failed replay is counted");
        assert_eq!(stored.status == DeadLetterStatus::Replaying, is_in_line, "{:?}", stored.status);
        assert_ne!(stored.status, DeadLetterStatus::Pending, "the command came after the failure");
    }
    // The replay succeeds, and a late command is in the same batch.
    let (mut harness, dead_letter) = dead_lettered_tea().await;
    harness.executes(1, DepotCommand::List("tea")).await;
    harness.process_batch(1, vec![commanded(&replay(dead_letter, 1))]).await;
    let due = due_retry(&harness, 1).await;
    let together = harness.process_batch(1, vec![due, commanded(&discard(dead_letter, 2))]).await;
    assert_eq!(names(&together), ["done", "done"]);
    assert_eq!(harness.dead_letter().await.status, DeadLetterStatus::Resolved);
    // A redelivery in the same batch as the command: what goes back in line is not handled beside it.
    let (mut harness, dead_letter) = dead_lettered_tea().await;
    harness.executes(1, DepotCommand::List("tea")).await;
    let tea = || received(arrived(id(1), "tea", 3));
    let together = harness.process_batch(1, vec![tea(), commanded(&replay(dead_letter, 1)), tea()]).await;
    assert_eq!(names(&together), ["duplicate", "done", "duplicate"]);
    assert_eq!(harness.retry_due(1).await, ["done"]);
    assert_eq!(harness.tea().await, 3);
}

#[tokio::test]
async fn impossible_command_is_dead_lettered_and_its_target_stays() {
    let (mut harness, dead_letter) = dead_lettered_tea().await;
    let before = harness.dead_letter().await;
    let not_base64 = ReplayRequested {
        edited: Some(EditedMessage { message_id: id(2), payload_base64: "no base64!".to_owned() }),
        dead_letter,
        service: "depot".to_owned(),
        revision: 2,
    };
    let impossible = [
        (for_another(replay(dead_letter, 1)), "this is for ferry, not for depot"),
        (DeadLetterMessage::ReplayRequested(not_base64), "payload: "),
    ];
    for (count, (command, why)) in impossible.iter().enumerate() {
        assert_eq!(harness.receives_command(1, command.clone()).await, "dead_lettered", "{command:?}");
        let all = harness.dead_letters().await;
        assert_eq!(all.len(), count + 2, "{command:?}");
        let of_the_command = all.iter().filter(|stored| stored.dead_letter.step == operating().name);
        let announced =
            of_the_command.map(|stored| &stored.dead_letter.reason).filter(|reason| reason.contains(why));
        assert!(announced.count() >= 1, "nobody says {why:?}");
        assert!(all.contains(&before), "{command:?} changed it: {all:?}");
    }
    // Not even a trace that would keep a good command from working.
    assert_eq!(harness.receives_command(2, replay(dead_letter, 3)).await, "done");
    assert_eq!(harness.retry_due(2).await, ["dead_lettered"]);
}

#[tokio::test]
async fn impossible_command_affects_no_other_of_its_batch() {
    let (mut harness, dead_letter) = dead_lettered_tea().await;
    let bad = || {
        // Its revision is the higher one: it must not stay either.
        let mut command = edit(dead_letter, 5, id(2), b"");
        if let DeadLetterMessage::ReplayRequested(ReplayRequested { edited: Some(edited), .. }) = &mut command
        {
            edited.payload_base64 = "no base64!".to_owned();
        }
        commanded(&command)
    };
    let outcomes = harness.process_batch(1, vec![bad(), commanded(&replay(dead_letter, 2))]).await;
    assert_eq!(names(&outcomes), ["dead_lettered", "done"]);
    harness.executes(1, DepotCommand::List("tea")).await;
    assert_eq!(harness.retry_due(1).await, ["done"]);
    assert_eq!(harness.tea().await, 3, "the message as it was parked");
}

#[tokio::test]
async fn failed_attempt_at_a_command_does_not_change_its_dead_letter() {
    let (harness, dead_letter) = dead_lettered_tea().await;
    let before = harness.dead_letter().await;
    let failure = |kind| Some(FailedAttempt::new(kind, "injected"));
    for (command, kind, outcome) in [
        (replay(dead_letter, 1), FailureKind::Permanent, "dead_lettered"),
        (discard(dead_letter, 2), FailureKind::Transient, "dead_lettered"),
        (restore(dead_letter, 3), FailureKind::Outage, "retried"),
    ] {
        let outcomes =
            harness.process_batch(1, vec![commanded(&command).with_injected_failure(failure(kind))]).await;
        assert_eq!(names(&outcomes), [outcome]);
        assert!(harness.dead_letters().await.contains(&before), "{command:?}");
    }
    assert_eq!(harness.dead_letters().await.len(), 3, "the dead letter and the two commands that died");
}

/// The broker may redeliver it.
#[tokio::test]
async fn discarded_message_is_not_processed_until_it_is_restored() {
    let (mut harness, dead_letter) = dead_lettered_tea().await;
    harness.executes(1, DepotCommand::List("tea")).await;
    assert_eq!(harness.receives_command(2, discard(dead_letter, 1)).await, "done");
    assert_eq!(harness.dead_letter().await.status, DeadLetterStatus::Discarded);
    assert_eq!(
        harness.store().stats().await.expect("the store works").dead_letters,
        0,
        "nobody waits for it"
    );
    assert_eq!(dead_letters_counted(&harness).await, 1, "but the tallies know where it is");
    let tea = || received(arrived(id(1), "tea", 3));
    assert_eq!(harness.receives(3, tea).await, "duplicate");
    assert_eq!(harness.retry_due(9).await, [""; 0]);
    assert_eq!(harness.tea().await, 0);

    assert_eq!(harness.receives_command(10, restore(dead_letter, 2)).await, "done");
    assert_eq!(harness.dead_letter().await.status, DeadLetterStatus::Pending);
    assert_eq!(harness.receives(11, tea).await, "duplicate", "restored is not replayed");
    assert_eq!(harness.receives_command(12, replay(dead_letter, 3)).await, "done");
    assert_eq!(harness.retry_due(12).await, ["done"]);
    assert_eq!((harness.tea().await, dead_letters_counted(&harness).await), (3, 0));
}

#[tokio::test]
async fn discarded_dead_letter_can_be_replayed() {
    let (mut harness, dead_letter) = dead_lettered_tea().await;
    harness.executes(1, DepotCommand::List("tea")).await;
    assert_eq!(harness.receives_command(2, discard(dead_letter, 1)).await, "done");
    assert_eq!(harness.receives_command(3, replay(dead_letter, 2)).await, "done");
    assert_eq!(harness.retry_due(3).await, ["done"]);
    assert_eq!(harness.tea().await, 3);
}

/// Harness with a message for a missing shelf, and its dead letter.
pub async fn dead_lettered_tea() -> (OperatorHarness, Uuid) {
    let mut harness = OperatorHarness::new();
    assert_eq!(harness.receives(0, || received(arrived(id(1), "tea", 3))).await, "dead_lettered");
    let dead_letter = harness.dead_letter().await.dead_letter.id;
    (harness, dead_letter)
}

pub async fn due_retry(harness: &OperatorHarness, second: i64) -> Input<Depot> {
    let state = due_query(at(second), 9, "depot-1", at(second));
    let retry = harness.store().claim_due(state).await.expect("the store works").retries.remove(0);
    Input::retry(FILLING, retry, 0)
}

async fn dead_letters_counted(harness: &OperatorHarness) -> u64 {
    let counts = harness.store().message_counts().await.expect("the store works");
    counts.dead.get(FILLING.name).copied().unwrap_or(0)
}

async fn facts(harness: &OperatorHarness) -> Vec<DeadLetterMessage> {
    harness.announced().await.into_iter().map(|(_, announced)| announced).collect()
}

/// Numbers of retries, open tasks, and dead letters that wait or are in replay.
pub async fn in_line(harness: &OperatorHarness) -> (u64, u64, u64) {
    let stats = harness.store().stats().await.expect("the store works");
    (stats.retries, stats.tasks, stats.dead_letters)
}
