//! The pure core of the engine: the same inputs on the same rows make the same decisions.

use bytes::Bytes;
use saga_core::decision::{self, InboxState, Loaded, Writes};
use saga_core::input::{Input, Outcome};
use saga_core::row::StoredRow;
use saga_core::waiting::Retry;
use uuid::Uuid;

use super::names;
use crate::support::{
    Depot, DepotCommand, FILLING, LISTENING, Pace, Shelf, UNLUCKY, arrived, at, decision_config, id,
    received, retry, shelf,
};

/// Guarantee 4.
#[test]
fn repeated_decision_derives_the_same_ids() {
    let inputs = || {
        vec![
            received(arrived(id(1), "tea", 3)),
            received(arrived(id(2), "tea", UNLUCKY)),
            received(arrived(id(3), "coffee", 1)),
            received(Bytes::from_static(b"not JSON")),
            Input::command(id(4), id(5), DepotCommand::Supply("tea"), None),
        ]
    };
    let (first, outcomes) = decide(inputs(), listed());
    let (second, _) = decide(inputs(), listed());
    assert_eq!(names(&outcomes), ["done", "dead_lettered", "retried", "dead_lettered", "done"]);
    assert_eq!(format!("{first:?}"), format!("{second:?}"));
    assert_eq!((first.outbox.len(), first.tasks.len(), first.events.len()), (3, 1, 1));
}

/// A defect: two reactions to one cause had the same id, and the second was dropped as a duplicate.
#[test]
fn outbox_entries_never_share_an_id() {
    let payload = arrived(id(8), "tea", 1);
    let for_step = |step| Input::message(step, payload.clone(), id(8), 0);
    let mut inputs = vec![for_step(FILLING), for_step(LISTENING)];
    inputs.extend([1, 2].map(|number| received(arrived(id(number), "tea", UNLUCKY))));
    inputs.push(Input::message(LISTENING, Bytes::from_static(b"not JSON"), id(1), 0));
    inputs.push(Input::message(FILLING, Bytes::from_static(b"not JSON"), id(7), 0));
    inputs.extend(
        [1, 2].map(|pieces| Input::command(id(pieces.into()), id(5), DepotCommand::Put("tea", pieces), None)),
    );
    inputs.extend([3, 4].map(|number| Input::command(id(number), id(5), DepotCommand::Supply("tea"), None)));
    let (writes, _) = decide(inputs, listed());
    let commit_entries = writes.outbox.iter().map(|entry| entry.id);
    let ids: Vec<Uuid> = commit_entries.chain(writes.tasks.iter().map(|task| task.id)).collect();
    assert_eq!(ids.len(), 2 + 4 + 2 + 2);
    assert_eq!(std::collections::BTreeSet::from_iter(&ids).len(), ids.len());
}

/// Taken for a missing row, it would be overwritten.
#[test]
fn unreadable_row_stays_unreadable_for_the_whole_batch() {
    let mut loaded = Loaded::default();
    let state = r#"{"listed":"by somebody else"}"#.to_owned();
    loaded.rows.insert(shelf("tea"), StoredRow { version: 5, state });
    let put = |number| Input::command(id(number), id(number), DepotCommand::Put("tea", 1), None);
    let (writes, outcomes) = decide(vec![put(1), put(2), put(3)], loaded);
    assert_eq!(names(&outcomes), ["faulted"; 3]);
    assert!(writes.rows.is_empty() && writes.events.is_empty(), "{:?}", writes.rows);
}

#[test]
fn only_changed_rows_are_written() {
    let command = |number, command| Input::command(id(number), id(number), command, None);
    let inputs = vec![
        command(1, DepotCommand::List("tea")),
        command(2, DepotCommand::Put("coffee", 0)),
        command(3, DepotCommand::Put("milk", UNLUCKY)),
        command(4, DepotCommand::Put("sugar", 1)),
    ];
    let (writes, outcomes) = decide(inputs, listed());
    assert_eq!(names(&outcomes), ["done", "rejected", "faulted", "done"]);
    let written: Vec<_> =
        writes.rows.iter().map(|row| (&row.key.id[..], row.read_version, row.version)).collect();
    assert_eq!(written, [("sugar", 0, 1)]);
    assert_eq!((writes.events.len(), writes.outbox.len()), (1, 1));
}

/// Guarantee 2.
#[test]
fn retry_without_a_waiting_entry_has_no_effect() {
    let waiting = Retry { payload: arrived(id(1), "tea", 3), ..retry(FILLING.name, 1, at(0)) };
    let retried = || Input::<Depot>::retry(FILLING, waiting.clone(), 0);
    for (known, name) in [
        (Some(InboxState::Retrying), "done"),
        (Some(InboxState::Processed), "duplicate"),
        (Some(InboxState::DeadLettered), "duplicate"),
        (None, "duplicate"),
    ] {
        let mut loaded = listed();
        loaded.inbox.extend(known.map(|known| ((FILLING.name, id(1)), known)));
        let (writes, outcomes) = decide(vec![retried()], loaded);
        assert_eq!(names(&outcomes), [name], "{known:?}");
        let over = if name == "done" { vec![(FILLING.name, id(1))] } else { vec![] };
        assert_eq!((&writes.retries_done, &writes.inbox), (&over, &over), "{known:?}");
    }
}

/// Only tests switch the inbox off: the domain must tolerate repetition.
#[test]
fn message_is_decided_again_without_an_inbox() {
    let mut loaded = listed();
    loaded.inbox.insert((FILLING.name, id(1)), InboxState::Processed);
    let without = decision::DecisionConfig { use_inbox: false, ..decision_config(Pace::default()) };
    let inputs = [received(arrived(id(1), "tea", 3))];
    let (_, outcomes) = decision::decide(&Depot, &inputs, loaded.clone(), &without, at(0));
    assert_eq!(names(&outcomes), ["done"]);
    let (_, outcomes) = decide(inputs.into(), loaded);
    assert_eq!(names(&outcomes), ["duplicate"]);
}

/// Shelf for tea, listed.
fn listed() -> Loaded {
    let state = serde_json::to_string(&Shelf { listed: true, ..Default::default() });
    let row = StoredRow { version: 1, state: state.expect("a state has a JSON form") };
    Loaded { rows: [(shelf("tea"), row)].into(), ..Loaded::default() }
}

fn decide(inputs: Vec<Input<Depot>>, loaded: Loaded) -> (Writes, Vec<Outcome<Depot>>) {
    decision::decide(&Depot, &inputs, loaded, &decision_config(Pace::default()), at(0))
}
