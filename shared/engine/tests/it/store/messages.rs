//! Conformance: inbox, retries and idempotency keys.

use saga_core::decision::{InboxState, Reads, Writes};
use saga_core::waiting::Retry;
use saga_engine::store::{Store, StoreFault};
use uuid::Uuid;

use crate::support::{at, commit, dead, due_query, id, keyed, load, newest_dead_letters, retry};

type Outcome = Result<(), StoreFault>;

/// Guarantee 2: a message is processed, waiting, dead-lettered or new, for each step separately.
pub async fn inbox_state_is_kept_per_step(store: &dyn Store) -> Outcome {
    let writes = Writes {
        inbox: vec![("filling", id(1)), ("listening", id(2))],
        retries: vec![retry("filling", 2, at(10))],
        new_dead_letters: vec![dead("filling", 3, at(0))],
        ..Writes::default()
    };
    commit(store, writes).await?;
    let of = |step: &'static str| [1, 2, 3, 4].map(|number| (step, id(number)));
    let inbox_states = inbox_states(store, of("filling")).await?;
    assert_eq!(
        inbox_states,
        [Some(InboxState::Processed), Some(InboxState::Retrying), Some(InboxState::DeadLettered), None]
    );
    let inbox_states = self::inbox_states(store, of("listening")).await?;
    assert_eq!(inbox_states, [None, Some(InboxState::Processed), None, None]);
    Ok(())
}

pub async fn retry_is_replaced_by_next_attempt_and_deleted_when_done(store: &dyn Store) -> Outcome {
    let first = retry("filling", 1, at(10));
    let mut second = retry("filling", 1, at(20));
    second.attempts = 2;
    second.last_error = "still not yet".to_owned();
    commit(store, Writes { retries: vec![first], ..Writes::default() }).await?;
    commit(store, Writes { retries: vec![second.clone()], ..Writes::default() }).await?;
    assert!(due_retries(store, 19).await?.is_empty());
    assert_eq!(due_retries(store, 20).await?, [second]);
    let stats = store.stats().await?;
    assert_eq!((stats.retries, stats.retry_oldest), (1, Some(at(0))), "since the first failure");

    let done = Writes { retries_done: vec![("filling", id(1))], ..Writes::default() };
    commit(store, done).await?;
    assert!(due_retries(store, 20).await?.is_empty());
    let stats = store.stats().await?;
    assert_eq!((stats.retries, stats.retry_oldest), (0, None));
    Ok(())
}

pub async fn processed_message_is_counted_once(store: &dyn Store) -> Outcome {
    let mark = || Writes { inbox: vec![("filling", id(1)), ("listening", id(1))], ..Writes::default() };
    commit(store, mark()).await?;
    // The inbox was not asked, as in the tests that switch it off.
    commit(store, mark()).await?;
    let handled = store.message_counts().await?.handled;
    assert_eq!(handled, [("filling".to_owned(), 1), ("listening".to_owned(), 1)].into());
    Ok(())
}

pub async fn reply_to_key_is_kept(store: &dyn Store) -> Outcome {
    let (key, answer) = keyed("POST /parcels k1", r#"{"parcel":"ü"}"#);
    let writes = Writes { keys: vec![(key.clone(), answer.clone())], ..Writes::default() };
    commit(store, writes).await?;
    let reads = Reads { keys: [key.clone(), "POST /parcels k2".to_owned()].into(), ..Reads::default() };
    let loaded = load(store, reads).await?;
    assert_eq!(loaded.keys, [(key, answer)].into());
    Ok(())
}

pub async fn second_reply_to_key_is_rejected(store: &dyn Store) -> Outcome {
    let write = |reply: &str| Writes { keys: vec![keyed("k1", reply)], ..Writes::default() };
    commit(store, write("1")).await?;
    commit(store, write("2")).await.expect_err("the key has its answer");
    let loaded = load(store, Reads { keys: ["k1".to_owned()].into(), ..Reads::default() }).await?;
    assert_eq!(loaded.keys["k1"].reply, "1");
    Ok(())
}

pub async fn dead_letters_are_listed_newest_first_with_payload(store: &dyn Store) -> Outcome {
    let dead = [dead("filling", 1, at(10)), dead("filling", 2, at(30)), dead("listening", 2, at(20))];
    commit(store, Writes { new_dead_letters: dead.to_vec(), ..Writes::default() }).await?;
    let [oldest, newest, middle] = dead;
    assert_eq!(newest_dead_letters(store, 10).await?, [newest.clone(), middle.clone(), oldest]);
    assert_eq!(newest_dead_letters(store, 2).await?, [newest, middle]);
    let dead = store.message_counts().await?.dead;
    assert_eq!(dead, [("filling".to_owned(), 2), ("listening".to_owned(), 1)].into());
    assert_eq!(store.stats().await?.dead_letters, 3);
    Ok(())
}

pub async fn message_dead_lettered_again_stays_one_dead_letter(store: &dyn Store) -> Outcome {
    let write = |dead_letter| Writes { new_dead_letters: vec![dead_letter], ..Writes::default() };
    commit(store, write(dead("filling", 1, at(10)))).await?;
    let mut again = dead("filling", 1, at(99));
    again.reason = "another reason".to_owned();
    commit(store, write(again.clone())).await?;
    assert_eq!(newest_dead_letters(store, 10).await?, [again]);
    Ok(())
}

async fn inbox_states<const N: usize>(
    store: &dyn Store,
    places: [(&'static str, Uuid); N],
) -> Result<[Option<InboxState>; N], StoreFault> {
    let loaded = load(store, Reads { inbox: places.into(), ..Reads::default() }).await?;
    Ok(places.map(|place| loaded.inbox.get(&place).copied()))
}

async fn due_retries(store: &dyn Store, second: i64) -> Result<Vec<Retry>, StoreFault> {
    Ok(store.claim_due(due_query(at(second), 10, "depot-1", at(second))).await?.retries)
}
