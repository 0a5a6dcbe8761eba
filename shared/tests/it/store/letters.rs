//! Dead letters as a store keeps them: whole, once, and known to their step whatever becomes of them.

use std::sync::Arc;

use bytes::Bytes;
use shared::contract::{DeadLettered, Delivery, LetterOrigin, OriginalMessage};
use shared::store::{
    Known, LetterStatus, Loaded, Reads, Retry, Store, StoreFault, StoredLetter, Task, Writes,
};
use uuid::Uuid;

use crate::support::writes::{at, commit, dead_letter, id, load, look, retry, task, tasks};

type Promise = Result<(), StoreFault>;

pub async fn a_letter_comes_back_as_it_was_stored(store: &Arc<dyn Store>) -> Promise {
    let letter = everything_about(1);
    parked(store, [letter.clone()]).await?;
    let stored = StoredLetter { letter, status: LetterStatus::Pending, revision: 0, known_as: id(1) };
    assert_eq!(store.dead_letters(9).await?, std::slice::from_ref(&stored));
    assert_eq!(loaded(store, stored.letter.id).await?, Some(stored));
    Ok(())
}

pub async fn a_letter_that_is_not_there_is_not_loaded(store: &Arc<dyn Store>) -> Promise {
    parked(store, [everything_about(1)]).await?;
    assert_eq!(loaded(store, id(1)).await?, None, "that is its message");
    Ok(())
}

/// The edited message has an id of its own; the one that comes again from the broker has the old one.
pub async fn a_changed_letter_keeps_the_name_under_which_its_step_knows_it(
    store: &Arc<dyn Store>,
) -> Promise {
    let letter = everything_about(1);
    parked(store, [letter.clone()]).await?;
    let changed = StoredLetter {
        letter: DeadLettered {
            message_id: id(2),
            replays: 4,
            last_failed_at: at(500),
            payload_base64: "AA==".to_owned(),
            original: Some(OriginalMessage { message_id: id(1), payload_base64: "AP8=".to_owned() }),
            ..letter
        },
        status: LetterStatus::Replaying,
        revision: u64::from(u32::MAX) * 2,
        known_as: id(1),
    };
    commit(store.as_ref(), Writes { letters: vec![changed.clone()], ..Writes::default() }).await?;
    assert_eq!(loaded(store, changed.letter.id).await?, Some(changed.clone()));
    assert_eq!(known(store, id(1)).await?, Some(Known::Parked));
    assert_eq!(known(store, id(2)).await?, None);
    // The newest failure is first, also when it is of an old letter.
    parked(store, [dead_letter("filling", 9, at(400))]).await?;
    assert_eq!(store.dead_letters(1).await?, [changed]);
    Ok(())
}

/// Law 2 and 8: a redelivery finds its message known, until the step has handled it, and then even more so.
pub async fn a_letter_is_known_to_its_step_whatever_becomes_of_it(store: &Arc<dyn Store>) -> Promise {
    let letter = everything_about(1);
    parked(store, [letter.clone()]).await?;
    for status in LetterStatus::ALL {
        changed(store, &letter, status).await?;
        assert_eq!(known(store, id(1)).await?, Some(Known::Parked), "{status:?}");
    }
    let waiting = Writes { retries: vec![retry("filling", 1, at(1))], ..Writes::default() };
    commit(store.as_ref(), waiting).await?;
    assert_eq!(known(store, id(1)).await?, Some(Known::Waiting), "a replay waits");
    let handled = Writes {
        retries_done: vec![("filling", id(1))],
        inbox: vec![("filling", id(1))],
        ..Writes::default()
    };
    commit(store.as_ref(), handled).await?;
    assert_eq!(known(store, id(1)).await?, Some(Known::Handled));
    Ok(())
}

/// Published = handled + waiting + dead: at every moment a message is in one of them.
pub async fn letters_that_wait_or_are_replayed_are_counted_and_the_books_know_the_rest(
    store: &Arc<dyn Store>,
) -> Promise {
    let letter = everything_about(1);
    parked(store, [letter.clone()]).await?;
    for (status, for_humans, in_the_books) in [
        (LetterStatus::Pending, 1, 1),
        // Its retry is counted instead.
        (LetterStatus::Replaying, 1, 0),
        (LetterStatus::Discarded, 0, 1),
        (LetterStatus::Resolved, 0, 0),
    ] {
        changed(store, &letter, status).await?;
        assert_eq!(store.stats().await?.dead_letters, for_humans, "{status:?}");
        let dead = store.tallies().await?.dead.get("filling").copied().unwrap_or(0);
        assert_eq!(dead, in_the_books, "{status:?}");
    }
    Ok(())
}

pub async fn what_nobody_of_this_system_sent_is_in_no_tally(store: &Arc<dyn Store>) -> Promise {
    let foreign = DeadLettered { origin: LetterOrigin::Foreign, ..dead_letter("filling", 1, at(0)) };
    let call = DeadLettered { origin: LetterOrigin::Task, ..dead_letter("filling", 2, at(0)) };
    parked(store, [foreign.clone(), call]).await?;
    let waiting = |number, letter| Retry { letter, ..retry("filling", number, at(1)) };
    let retries = vec![waiting(1, Some(foreign.id)), waiting(3, None)];
    commit(store.as_ref(), Writes { retries, ..Writes::default() }).await?;
    let tallies = store.tallies().await?;
    assert_eq!(tallies.dead, [].into());
    assert_eq!(tallies.retrying, [("filling".to_owned(), 1)].into(), "the message alone");
    assert_eq!(store.stats().await?.dead_letters, 2, "but a human sees both");
    Ok(())
}

pub async fn a_retry_of_a_letter_comes_back_with_its_letter_and_its_place(store: &Arc<dyn Store>) -> Promise {
    let written = Retry {
        delivery: Some(place()),
        letter: Some(id(7)),
        payload: Bytes::from_static(b"\x00\xff"),
        ..retry("filling", 1, at(1))
    };
    commit(store.as_ref(), Writes { retries: vec![written.clone()], ..Writes::default() }).await?;
    assert_eq!(store.due(look(at(1), 9, "shop-1", at(2))).await?.retries, [written]);
    Ok(())
}

/// Law 4: a call that is made again is the same call.
pub async fn a_task_that_is_taken_up_again_is_claimed_by_nobody_and_due_at_once(
    store: &Arc<dyn Store>,
) -> Promise {
    let again = Task { letter: Some(id(7)), attempts: 0, claim: 0, ..task(1, at(5)) };
    commit(store.as_ref(), Writes { tasks_again: vec![again.clone()], ..Writes::default() }).await?;
    assert_eq!(store.due(look(at(4), 9, "shop-2", at(60))).await?.tasks, [], "not before its time");
    let claimed = store.due(look(at(5), 9, "shop-2", at(60))).await?.tasks;
    assert_eq!(claimed, [Task { claim: 1, ..again }]);
    assert_eq!(store.due(look(at(59), 9, "shop-1", at(99))).await?.tasks, []);
    Ok(())
}

pub async fn a_task_that_is_open_is_not_taken_up_a_second_time(store: &Arc<dyn Store>) -> Promise {
    let open = Task { attempts: 3, ..task(1, at(0)) };
    commit(store.as_ref(), tasks([open.clone()], "shop-1", at(60))).await?;
    let again = Task { claim: 0, attempts: 0, ..task(1, at(5)) };
    commit(store.as_ref(), Writes { tasks_again: vec![again], ..Writes::default() }).await?;
    assert_eq!(store.due(look(at(59), 9, "shop-2", at(99))).await?.tasks, [], "it is claimed as it was");
    let claimed = store.due(look(at(60), 9, "shop-2", at(99))).await?.tasks;
    assert_eq!(claimed, [Task { claim: 2, ..open }]);
    Ok(())
}

fn everything_about(number: u128) -> DeadLettered {
    DeadLettered {
        origin: LetterOrigin::Message,
        message_type: Some("StockReplenished".to_owned()),
        saga: Some(id(42)),
        error_chain: vec!["ü outer".to_owned(), "inner 'quoted' \u{0}".to_owned()],
        attempts: 8,
        replays: 2,
        delivery: Some(place()),
        ..dead_letter("filling", number, at(10))
    }
}

fn place() -> Delivery {
    let headers = vec![("Nats-Msg-Id".to_owned(), "1".to_owned())];
    Delivery { stream: "INVENTORY".to_owned(), sequence: u64::from(u32::MAX) * 9, headers }
}

async fn parked(store: &Arc<dyn Store>, letters: impl IntoIterator<Item = DeadLettered>) -> Promise {
    let dead_letters = letters.into_iter().collect();
    commit(store.as_ref(), Writes { dead_letters, ..Writes::default() }).await
}

async fn changed(store: &Arc<dyn Store>, letter: &DeadLettered, status: LetterStatus) -> Promise {
    let letters =
        vec![StoredLetter { letter: letter.clone(), status, revision: 1, known_as: letter.message_id }];
    commit(store.as_ref(), Writes { letters, ..Writes::default() }).await
}

async fn loaded(store: &Arc<dyn Store>, letter: Uuid) -> Result<Option<StoredLetter>, StoreFault> {
    let reads = Reads { letters: [letter].into(), ..Reads::default() };
    let Loaded { mut letters, .. } = load(store.as_ref(), reads).await?;
    Ok(letters.remove(&letter))
}

async fn known(store: &Arc<dyn Store>, message: Uuid) -> Result<Option<Known>, StoreFault> {
    let reads = Reads { inbox: [("filling", message)].into(), ..Reads::default() };
    Ok(load(store.as_ref(), reads).await?.inbox.get(&("filling", message)).copied())
}
