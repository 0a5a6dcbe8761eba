//! Operator commands about dead letters.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use saga_core::dead_letter::{
    DeadLetterDiscarded, DeadLetterForgotten, DeadLetterMessage, DeadLetterOrigin, DeadLetterResolved,
    DeadLetterRestored, DeadLetterStatus, EditedMessage, ReplayEffect, ReplayRequested, StoredDeadLetter,
};
use saga_core::decision::{InboxState, Writes};
use saga_core::input::Input;
use saga_core::message::Envelope;
use saga_core::retry::{FailedAttempt, FailureKind};
use saga_core::service::{Step, steps_of};
use saga_core::waiting::{Retry, Task};
use serde_json::json;
use uuid::Uuid;

use super::envelope;
use super::till::{self, COUNTING, FULL, Mood, NOON, NoCoins, Till, TillCommand, WATCHING, delivered, paid};
use super::world::World;

#[test]
fn replay_gets_all_attempts_and_is_resolved_when_processed() {
    let (mut world, dead) = world_with_dead_letter();
    let (writes, name) = world.decide_one(operated(replay(dead, 1, None)));
    assert_eq!((name, writes.inbox.len(), stored(&world).status), ("done", 1, DeadLetterStatus::Replaying));
    let [retry] = &writes.retries[..] else { panic!("it is put in line: {writes:?}") };
    assert_eq!((retry.attempts, retry.next_attempt, retry.dead_letter), (0, NOON, Some(dead)));
    assert_eq!((retry.message_id, retry.first_failed_at), (Uuid::from_u128(1), NOON));
    assert_eq!((&retry.step[..], &retry.last_error[..]), ("counting", "the lid is off"));

    // Failed again: the same dead letter, one more replay, all its attempts.
    let (writes, name) = world.decide_one(Input::retry(COUNTING, retry.clone(), 0));
    let [again] = &writes.changed_dead_letters[..] else { panic!("it is the same one: {writes:?}") };
    assert_eq!(
        (name, again.status, writes.new_dead_letters.len()),
        ("dead_lettered", DeadLetterStatus::Pending, 0)
    );
    let it = &again.dead_letter;
    assert_eq!((it.id, it.replays, it.attempts, it.first_failed_at), (dead, 1, 2, NOON));
    assert_ne!(writes.outbox[0].id, Uuid::nil());

    // After the edit it is processed, and its resolution is published.
    world.decide_one(operated(replay(dead, 2, Some(edited(paid(2, "a", 5, Mood::Fine))))));
    let it = stored(&world).dead_letter;
    let original = it.original.expect("what was parked is kept");
    assert_eq!((it.message_id, original.message_id), (Uuid::from_u128(2), Uuid::from_u128(1)));
    let retry = the_retry(&world);
    assert_eq!(
        (retry.message_id, &retry.payload[..]),
        (Uuid::from_u128(1), &paid(2, "a", 5, Mood::Fine)[..])
    );
    let (writes, name) = world.decide_one(Input::retry(COUNTING, retry, 0));
    assert_eq!((name, stored(&world).status), ("done", DeadLetterStatus::Resolved));
    assert_eq!((&writes.inbox[..], world.tin("a").coins), (&[("counting", Uuid::from_u128(1))][..], 5));
    let announced = resolved(&writes);
    assert_eq!(
        (announced.dead_letter, announced.replays, announced.message_id),
        (dead, 2, Uuid::from_u128(2))
    );
    assert_eq!(announced.effect, ReplayEffect::TookEffect);
    assert_eq!((&announced.service[..], &announced.step[..], announced.saga), ("till", "counting", it.saga));
}

/// A rejection is an answer too.
#[test]
fn rejected_replay_is_resolved() {
    let (mut world, dead) = world_with_dead_letter();
    world.decide_one(operated(replay(dead, 1, Some(edited(paid(2, "a", -5, Mood::Fine))))));
    let (writes, name) = world.decide_one(Input::retry(COUNTING, the_retry(&world), 0));
    let announced = resolved(&writes);
    let no = ReplayEffect::Rejected { reason: NoCoins.to_string() };
    assert_eq!((name, announced.replays, announced.effect), ("rejected", 1, no));
}

/// A replay that comes too late is resolved, and its lack of effect is published.
#[test]
fn replay_without_effect_reports_no_change() {
    let (mut world, dead) = world_with_dead_letter();
    world.decide_one(operated(replay(dead, 1, Some(edited(paid(2, "a", 0, Mood::Fine))))));
    // Other changes in the batch are not its effect.
    let inputs = [
        world.command(TillCommand::Put("b", 3)),
        Input::retry(COUNTING, the_retry(&world), 0),
        world.command(TillCommand::Put("b", 4)),
    ];
    let (writes, _) = world.decide(&inputs);
    let resolved = writes.outbox.iter().find(|entry| entry.subject == "till.dead_letter_resolved");
    let announced = envelope(&resolved.expect("it is told").payload).open().expect("a message").fact;
    let DeadLetterMessage::DeadLetterResolved(announced) = announced else { panic!("{announced:?}") };
    assert_eq!(announced.effect, ReplayEffect::ChangedNothing);
}

/// Repeated and outdated commands have no effect.
#[test]
fn only_command_with_higher_revision_has_effect() {
    let (mut world, dead) = world_with_dead_letter();
    world.decide_one(operated(discard(dead, 5, None)));
    for revision in [1, 5] {
        let (writes, name) = world.decide_one(operated(replay(dead, revision, None)));
        assert_eq!(
            (name, writes.changed_dead_letters.len(), writes.retries.len()),
            ("done", 0, 0),
            "{revision}"
        );
    }
    assert_eq!(stored(&world).status, DeadLetterStatus::Discarded);
    world.decide_one(operated(restore(dead, 6)));
    assert_eq!((stored(&world).status, stored(&world).revision), (DeadLetterStatus::Pending, 6));
}

#[test]
fn command_effect_depends_on_status() {
    use DeadLetterStatus::{Discarded, Pending, Replaying, Resolved};
    for (before, after) in [
        (Pending, [Replaying, Discarded, Discarded, Pending, Pending]),
        (Discarded, [Replaying, Discarded, Discarded, Discarded, Pending]),
        (Replaying, [Replaying; 5]),
        (Resolved, [Resolved; 5]),
    ] {
        let commands = |dead| {
            [
                replay(dead, 9, None),
                discard(dead, 9, None),
                discard(dead, 9, Some(0)),
                // A replay failed since the operator looked.
                discard(dead, 9, Some(1)),
                restore(dead, 9),
            ]
        };
        for (index, after) in after.into_iter().enumerate() {
            let (mut world, dead) = world_with_dead_letter();
            world.dead_letters.get_mut(&dead).expect("it is there").status = before;
            let (writes, name) = world.decide_one(operated(commands(dead)[index].clone()));
            assert_eq!((name, stored(&world).status), ("done", after), "{before:?}, {index}");
            assert_eq!(stored(&world).revision, 9, "it is not done again");
            // A running replay is scheduled again only if its retry was lost.
            let in_line = (writes.retries.len(), writes.retries_again.len());
            let expected = match (index, before) {
                (0, Replaying) => (0, 1),
                (0, Pending | Discarded) => (1, 0),
                _ => (0, 0),
            };
            assert_eq!(in_line, expected, "{before:?}, {index}");
        }
    }
}

#[test]
fn edited_replay_replaces_running_replay() {
    let (mut world, dead) = world_with_dead_letter();
    world.decide_one(operated(replay(dead, 1, None)));
    let before = the_retry(&world);
    let (writes, _) = world.decide_one(operated(replay(dead, 2, Some(edited(paid(2, "a", 5, Mood::Fine))))));
    assert_eq!((writes.retries.len(), writes.retries_again.len()), (1, 0));
    // The result of the attempt before the edit is ignored.
    let (writes, name) = world.decide_one(Input::retry(COUNTING, before, 0));
    assert_eq!((name, writes.is_empty()), ("duplicate", true));
    assert_eq!(world.decide_one(Input::retry(COUNTING, the_retry(&world), 0)).1, "done");
}

/// Reconciliation counts no foreign messages: only the dead letter remembers them.
#[test]
fn edited_foreign_message_is_processed_without_inbox_entry() {
    let mut world = World::new();
    world.decide_one(delivered(COUNTING, b"{}"));
    let dead = stored(&world).dead_letter.id;
    world.decide_one(operated(replay(dead, 1, Some(edited(paid(2, "a", 5, Mood::Fine))))));
    let (writes, name) = world.decide_one(Input::retry(COUNTING, the_retry(&world), 0));
    assert_eq!((name, writes.inbox.len(), world.tin("a").coins), ("done", 0, 5));
    // The saga that missed it is unknown. Its origin stays.
    assert_eq!(stored(&world).dead_letter.origin, DeadLetterOrigin::Foreign);
}

#[test]
fn replayed_task_keeps_its_key() {
    let mut world = World::new();
    let put = world.command(TillCommand::Put("a", FULL));
    let task = world.decide_one(put).0.tasks[0].clone();
    let failure = FailedAttempt::new(FailureKind::Permanent, "no courier");
    world.decide_one(Input::task_result(task.clone(), Err(failure), 0));
    let dead = stored(&world).dead_letter.id;
    assert_eq!(stored(&world).dead_letter.origin, DeadLetterOrigin::Task);
    let (writes, name) = world.decide_one(operated(replay(dead, 1, None)));
    let again = Task { claim: 0, dead_letter: Some(dead), ..task };
    assert_eq!((name, &writes.tasks_again[..]), ("done", &[again.clone()][..]));
    // A running call may have had an effect: it can be repeated, not edited.
    let (writes, name) = world.decide_one(operated(replay(dead, 2, Some(edited(b"\"b\"".to_vec())))));
    assert_eq!((name, writes.tasks_again.len(), stored(&world).revision), ("dead_lettered", 0, 1));
    assert_eq!(world.decide_one(operated(replay(dead, 3, None))).0.tasks_again.len(), 1);
    let (writes, name) = world.decide_one(Input::task_result(again, Ok(json!(1)), 0));
    assert_eq!((name, resolved(&writes).step), ("done", "collect".to_owned()));
    assert_eq!(writes.tasks_done.len(), 1);
}

/// A task edited before its replay is called as edited.
#[test]
fn task_can_be_edited_only_before_replay() {
    let mut world = World::new();
    let put = world.command(TillCommand::Put("a", FULL));
    let task = world.decide_one(put).0.tasks[0].clone();
    world.decide_one(Input::task_result(
        task,
        Err(FailedAttempt::new(FailureKind::Permanent, "no courier")),
        0,
    ));
    let dead = stored(&world).dead_letter.id;
    let (writes, _) = world.decide_one(operated(replay(dead, 1, Some(edited(b"\"b\"".to_vec())))));
    assert_eq!(writes.tasks_again[0].payload, "\"b\"");
}

/// Resolved and discarded dead letters are purged after a while. Commands about them are answered.
#[test]
fn command_about_purged_dead_letter_is_answered_as_forgotten() {
    let (mut world, _) = world_with_dead_letter();
    let absent = Uuid::from_u128(77);
    let (writes, name) = world.decide_one(operated(discard(absent, 1, None)));
    assert_eq!(
        (name, writes.new_dead_letters.len(), writes.outbox.len()),
        ("done", 0, 0),
        "it is given up as it is"
    );
    world.inbox.clear();
    for (command, revision) in [(replay(absent, 1, None), 1), (restore(absent, 2), 2)] {
        let (writes, name) = world.decide_one(operated(command));
        assert_eq!((name, writes.new_dead_letters.len(), writes.changed_dead_letters.len()), ("done", 0, 0));
        let [entry] = &writes.outbox[..] else { panic!("one message: {writes:?}") };
        let announced =
            Envelope::from_bytes(&entry.payload).expect("an envelope").open::<DeadLetterMessage>();
        let forgotten = DeadLetterForgotten { dead_letter: absent, service: "till".to_owned(), revision };
        assert_eq!(announced.expect("a message").fact, DeadLetterMessage::DeadLetterForgotten(forgotten));
        world.inbox.clear();
    }
}

#[test]
fn impossible_operator_command_is_dead_lettered() {
    let (mut world, dead) = world_with_dead_letter();
    let mut elsewhere =
        ReplayRequested { dead_letter: dead, service: "bank".into(), revision: 1, edited: None };
    let no_payload = EditedMessage { message_id: Uuid::nil(), payload_base64: "?".to_owned() };
    let renamed = |world: &mut World| {
        world.dead_letters.get_mut(&dead).expect("it is there").dead_letter.step = "polishing".to_owned();
    };
    for (message, reason) in [
        (DeadLetterMessage::ReplayRequested(elsewhere.clone()), "this is for bank, not for till"),
        (replay(dead, 1, Some(no_payload)), "payload: Invalid"),
        (replay(dead, 1, None), "there is no step polishing here"),
    ] {
        if reason.contains("polishing") {
            renamed(&mut world);
        }
        elsewhere.revision += 1;
        let (writes, name) = world.decide_one(operated(message));
        assert_eq!(
            (name, writes.changed_dead_letters.len(), writes.retries.len()),
            ("dead_lettered", 0, 0),
            "{reason}"
        );
        assert!(
            writes.new_dead_letters[0].reason.starts_with(reason),
            "{}",
            writes.new_dead_letters[0].reason
        );
        world.dead_letters.remove(&writes.new_dead_letters[0].id);
        world.inbox.clear();
        assert_eq!((stored(&world).status, stored(&world).revision), (DeadLetterStatus::Pending, 0));
    }
    // An operator command is about a dead letter, which is no saga.
    let (writes, _) = world.decide_one(operated(DeadLetterMessage::ReplayRequested(elsewhere)));
    assert_eq!(writes.new_dead_letters[0].saga, None);
    // An announcement is no command.
    let announced = DeadLetterMessage::DeadLettered(Box::new(stored(&world).dead_letter));
    let input = Input::message(operations(), till::envelope(90, &announced).into(), Uuid::nil(), 0);
    let (writes, _) = world.decide_one(input);
    assert_eq!(
        writes.new_dead_letters[0].reason,
        "DeadLettered of \"shop\" does not belong on till-operations"
    );
    let input = delivered(WATCHING, &till::envelope(91, &announced));
    assert_eq!(world.decide_one(input).1, "retried", "no command, to a step that hears of dead letters");
}

/// A message may be replayed and processed in one batch: the last change counts.
#[test]
fn replay_processed_in_same_batch_leaves_no_retry() {
    let (mut world, dead) = world_with_dead_letter();
    world.decide_one(operated(replay(dead, 1, Some(edited(paid(2, "a", 5, Mood::Fine))))));
    let retry = the_retry(&world);
    // The retry of another dead letter stays.
    world.decide_one(delivered(COUNTING, &paid(3, "a", 5, Mood::Broken)));
    let other = world.dead_letters.values().find(|it| it.dead_letter.id != dead).expect("two").dead_letter.id;
    world.decide_one(operated(replay(other, 1, None)));
    let inputs =
        [operated(replay(dead, 2, None)), operated(replay(other, 2, None)), Input::retry(COUNTING, retry, 0)];
    let (writes, outcomes) = world.decide(&inputs);
    assert_eq!(outcomes[2].name(), "done");
    let in_line: Vec<_> = writes.retries_again.iter().map(|retry| retry.dead_letter).collect();
    assert_eq!(in_line, [Some(other)]);
}

#[test]
fn replayed_task_ending_in_same_batch_leaves_no_task() {
    let mut world = World::new();
    for tin in ["a", "b"] {
        let put = world.command(TillCommand::Put(tin, FULL));
        let task = world.decide_one(put).0.tasks[0].clone();
        world.decide_one(Input::task_result(
            task,
            Err(FailedAttempt::new(FailureKind::Permanent, "no courier")),
            0,
        ));
    }
    let dead: Vec<_> = world.dead_letters.keys().copied().collect();
    let again: Vec<_> = dead
        .iter()
        .map(|dead| world.decide_one(operated(replay(*dead, 1, None))).0.tasks_again[0].clone())
        .collect();
    let (writes, _) = world.decide(&[
        operated(replay(dead[0], 2, None)),
        operated(replay(dead[1], 2, None)),
        Input::task_result(again[0].clone(), Ok(json!(1)), 0),
    ]);
    assert_eq!(writes.tasks_again, again[1..]);
}

/// A retry and a dead letter with arbitrary content.
pub(super) fn examples() -> (Retry, StoredDeadLetter) {
    let (mut world, dead) = world_with_dead_letter();
    world.decide_one(operated(replay(dead, 1, None)));
    (the_retry(&world), stored(&world))
}

/// A till with one dead letter, and its id.
fn world_with_dead_letter() -> (World, Uuid) {
    let mut world = World::new();
    world.decide_one(delivered(COUNTING, &paid(1, "a", 5, Mood::Broken)));
    world.inbox.insert(("counting", Uuid::from_u128(1)), InboxState::DeadLettered);
    let dead = stored(&world).dead_letter.id;
    (world, dead)
}

/// The first dead letter.
#[track_caller]
fn stored(world: &World) -> StoredDeadLetter {
    let is_it = |it: &&StoredDeadLetter| it.dead_letter.step != "till-operations";
    world.dead_letters.values().find(is_it).expect("a dead letter").clone()
}

#[track_caller]
fn the_retry(world: &World) -> Retry {
    world.retries.values().next().expect("it is in line").clone()
}

fn replay(dead_letter: Uuid, revision: u64, edited: Option<EditedMessage>) -> DeadLetterMessage {
    let service = "till".to_owned();
    DeadLetterMessage::ReplayRequested(ReplayRequested { dead_letter, service, revision, edited })
}

fn discard(dead_letter: Uuid, revision: u64, replays: Option<u32>) -> DeadLetterMessage {
    let service = "till".to_owned();
    DeadLetterMessage::DeadLetterDiscarded(DeadLetterDiscarded { dead_letter, service, revision, replays })
}

fn restore(dead_letter: Uuid, revision: u64) -> DeadLetterMessage {
    let service = "till".to_owned();
    DeadLetterMessage::DeadLetterRestored(DeadLetterRestored { dead_letter, service, revision })
}

fn edited(payload: Vec<u8>) -> EditedMessage {
    EditedMessage { message_id: Uuid::from_u128(2), payload_base64: BASE64.encode(payload) }
}

/// The engine's step for operator commands.
fn operations() -> &'static Step {
    steps_of::<Till>().into_iter().find(|step| step.is_for_operators()).expect("operators speak to the till")
}

/// A command from the broker, each as a message of its own.
fn operated(message: DeadLetterMessage) -> Input<Till> {
    let payload = till::envelope(1, &message);
    let id = saga_core::ids::derived(&[&String::from_utf8(payload.clone()).expect("text")]);
    let payload = till::envelope(id.as_u128(), &message);
    Input::message(operations(), payload.into(), Uuid::nil(), 0)
}

#[track_caller]
fn resolved(writes: &Writes) -> DeadLetterResolved {
    let last = writes.outbox.last().expect("it is told");
    assert_eq!(last.subject, "till.dead_letter_resolved");
    let announced = envelope(&last.payload).open().expect("a message of the engine").fact;
    let DeadLetterMessage::DeadLetterResolved(announced) = announced else { panic!("{announced:?}") };
    announced
}
