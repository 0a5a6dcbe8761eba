//! Conformance: dead letters, and how inboxes and counts treat them.

use bytes::Bytes;
use saga_core::dead_letter::{
    DeadLetterOrigin, DeadLetterStatus, DeadLettered, DeliveryInfo, OriginalMessage, StoredDeadLetter,
};
use saga_core::decision::{InboxState, Loaded, Reads, Writes};
use saga_core::waiting::{Retry, Task};
use saga_engine::store::{Store, StoreFault};
use uuid::Uuid;

use crate::support::{at, commit, dead, due_query, id, load, retry, task, tasks};

type Outcome = Result<(), StoreFault>;

pub async fn dead_letter_is_read_as_stored(store: &dyn Store) -> Outcome {
    let dead_letter = everything_about(1);
    park(store, [dead_letter.clone()]).await?;
    let stored =
        StoredDeadLetter { dead_letter, status: DeadLetterStatus::Pending, revision: 0, inbox_id: id(1) };
    assert_eq!(store.dead_letters(9).await?.readable, std::slice::from_ref(&stored));
    assert_eq!(loaded(store, stored.dead_letter.id).await?, Some(stored));
    Ok(())
}

pub async fn missing_dead_letter_is_not_loaded(store: &dyn Store) -> Outcome {
    park(store, [everything_about(1)]).await?;
    assert_eq!(loaded(store, id(1)).await?, None, "that is its message");
    Ok(())
}

/// The edited message has a new id, while the broker redelivers the original one.
pub async fn edited_dead_letter_keeps_inbox_id(store: &dyn Store) -> Outcome {
    let dead_letter = everything_about(1);
    park(store, [dead_letter.clone()]).await?;
    let changed = StoredDeadLetter {
        dead_letter: DeadLettered {
            message_id: id(2),
            replays: 4,
            last_failed_at: at(500),
            payload_base64: "AA==".to_owned(),
            original: Some(OriginalMessage { message_id: id(1), payload_base64: "AP8=".to_owned() }),
            ..dead_letter
        },
        status: DeadLetterStatus::Replaying,
        revision: u64::from(u32::MAX) * 2,
        inbox_id: id(1),
    };
    commit(store, Writes { changed_dead_letters: vec![changed.clone()], ..Writes::default() }).await?;
    assert_eq!(loaded(store, changed.dead_letter.id).await?, Some(changed.clone()));
    assert_eq!(inbox_state(store, id(1)).await?, Some(InboxState::DeadLettered));
    assert_eq!(inbox_state(store, id(2)).await?, None);
    // The newest failure is first, also when it is of an old dead letter.
    park(store, [dead("filling", 9, at(400))]).await?;
    assert_eq!(store.dead_letters(1).await?.readable, [changed]);
    Ok(())
}

/// Laws 2 and 8: a redelivered message is a duplicate, also after its dead letter was replayed.
pub async fn dead_letter_stays_in_inbox_of_its_step(store: &dyn Store) -> Outcome {
    let dead_letter = everything_about(1);
    park(store, [dead_letter.clone()]).await?;
    for status in DeadLetterStatus::ALL {
        changed(store, &dead_letter, *status).await?;
        assert_eq!(inbox_state(store, id(1)).await?, Some(InboxState::DeadLettered), "{status:?}");
    }
    let waiting = Writes { retries: vec![retry("filling", 1, at(1))], ..Writes::default() };
    commit(store, waiting).await?;
    assert_eq!(inbox_state(store, id(1)).await?, Some(InboxState::Retrying), "a replay waits");
    let handled = Writes {
        retries_done: vec![("filling", id(1))],
        inbox: vec![("filling", id(1))],
        ..Writes::default()
    };
    commit(store, handled).await?;
    assert_eq!(inbox_state(store, id(1)).await?, Some(InboxState::Processed));
    Ok(())
}

/// Guarantee 2: published = processed + waiting + dead-lettered at every moment.
pub async fn open_dead_letters_are_counted_in_stats_and_message_counts(store: &dyn Store) -> Outcome {
    let dead_letter = everything_about(1);
    park(store, [dead_letter.clone()]).await?;
    for (status, for_humans, in_message_counts) in [
        (DeadLetterStatus::Pending, 1, 1),
        // Its retry is counted instead.
        (DeadLetterStatus::Replaying, 1, 0),
        (DeadLetterStatus::Discarded, 0, 1),
        (DeadLetterStatus::Resolved, 0, 0),
    ] {
        changed(store, &dead_letter, status).await?;
        assert_eq!(store.stats().await?.dead_letters, for_humans, "{status:?}");
        let dead = store.message_counts().await?.dead.get("filling").copied().unwrap_or(0);
        assert_eq!(dead, in_message_counts, "{status:?}");
    }
    Ok(())
}

pub async fn foreign_message_is_in_no_message_count(store: &dyn Store) -> Outcome {
    let foreign = DeadLettered { origin: DeadLetterOrigin::Foreign, ..dead("filling", 1, at(0)) };
    let call = DeadLettered { origin: DeadLetterOrigin::Task, ..dead("filling", 2, at(0)) };
    park(store, [foreign.clone(), call]).await?;
    let waiting = |number, dead_letter| Retry { dead_letter, ..retry("filling", number, at(1)) };
    let retries = vec![waiting(1, Some(foreign.id)), waiting(3, None)];
    commit(store, Writes { retries, ..Writes::default() }).await?;
    let counts = store.message_counts().await?;
    assert_eq!(counts.dead, [].into());
    assert_eq!(counts.retrying, [("filling".to_owned(), 1)].into(), "the message alone");
    assert_eq!(store.stats().await?.dead_letters, 2, "but a human sees both");
    Ok(())
}

pub async fn retry_keeps_dead_letter_id_and_delivery(store: &dyn Store) -> Outcome {
    let written = Retry {
        delivery: Some(place()),
        dead_letter: Some(id(7)),
        payload: Bytes::from_static(b"\x00\xff"),
        ..retry("filling", 1, at(1))
    };
    commit(store, Writes { retries: vec![written.clone()], ..Writes::default() }).await?;
    assert_eq!(store.claim_due(due_query(at(1), 9, "depot-1", at(2))).await?.retries, [written]);
    Ok(())
}

/// Guarantee 4: a replayed task keeps its id.
pub async fn replayed_task_is_unclaimed_and_due_at_once(store: &dyn Store) -> Outcome {
    let again = Task { dead_letter: Some(id(7)), attempts: 0, claim: 0, ..task(1, at(5)) };
    commit(store, Writes { tasks_again: vec![again.clone()], ..Writes::default() }).await?;
    assert_eq!(
        store.claim_due(due_query(at(4), 9, "depot-2", at(60))).await?.tasks,
        [],
        "not before its time"
    );
    let claimed = store.claim_due(due_query(at(5), 9, "depot-2", at(60))).await?.tasks;
    assert_eq!(claimed, [Task { claim: 1, ..again }]);
    assert_eq!(store.claim_due(due_query(at(59), 9, "depot-1", at(99))).await?.tasks, []);
    Ok(())
}

pub async fn open_task_is_not_created_twice(store: &dyn Store) -> Outcome {
    let open = Task { attempts: 3, ..task(1, at(0)) };
    commit(store, tasks([open.clone()], "depot-1", at(60))).await?;
    let again = Task { claim: 0, attempts: 0, ..task(1, at(5)) };
    commit(store, Writes { tasks_again: vec![again], ..Writes::default() }).await?;
    assert_eq!(
        store.claim_due(due_query(at(59), 9, "depot-2", at(99))).await?.tasks,
        [],
        "it is claimed as it was"
    );
    let claimed = store.claim_due(due_query(at(60), 9, "depot-2", at(99))).await?.tasks;
    assert_eq!(claimed, [Task { claim: 2, ..open }]);
    Ok(())
}

fn everything_about(number: u128) -> DeadLettered {
    DeadLettered {
        origin: DeadLetterOrigin::Message,
        message_type: Some("ParcelsArrived".to_owned()),
        saga: Some(id(42)),
        error_chain: vec!["ü outer".to_owned(), "inner 'quoted' \u{0}".to_owned()],
        attempts: 8,
        replays: 2,
        delivery: Some(place()),
        ..dead("filling", number, at(10))
    }
}

fn place() -> DeliveryInfo {
    let headers = vec![("Nats-Msg-Id".to_owned(), "1".to_owned())];
    DeliveryInfo {
        stream: "COURIER".to_owned(),
        sequence: u64::from(u32::MAX) * 9,
        subject: "courier.parcels_arrived".to_owned(),
        headers,
    }
}

async fn park(store: &dyn Store, dead_letters: impl IntoIterator<Item = DeadLettered>) -> Outcome {
    let new = dead_letters.into_iter().collect();
    commit(store, Writes { new_dead_letters: new, ..Writes::default() }).await
}

async fn changed(store: &dyn Store, dead_letter: &DeadLettered, status: DeadLetterStatus) -> Outcome {
    let dead_letters = vec![StoredDeadLetter {
        dead_letter: dead_letter.clone(),
        status,
        revision: 1,
        inbox_id: dead_letter.message_id,
    }];
    commit(store, Writes { changed_dead_letters: dead_letters, ..Writes::default() }).await
}

async fn loaded(store: &dyn Store, dead_letter: Uuid) -> Result<Option<StoredDeadLetter>, StoreFault> {
    let reads = Reads { dead_letters: [dead_letter].into(), ..Reads::default() };
    let Loaded { mut dead_letters, .. } = load(store, reads).await?;
    Ok(dead_letters.remove(&dead_letter))
}

async fn inbox_state(store: &dyn Store, message: Uuid) -> Result<Option<InboxState>, StoreFault> {
    let reads = Reads { inbox: [("filling", message)].into(), ..Reads::default() };
    Ok(load(store, reads).await?.inbox.get(&("filling", message)).copied())
}
