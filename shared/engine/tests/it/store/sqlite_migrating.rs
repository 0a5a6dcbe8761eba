//! A database that an older build made: everything in it goes on under this one.

use std::path::Path;

use jiff::Timestamp;
use rusqlite::{Connection, params};
use saga_core::dead_letter::{DeadLetterOrigin, DeadLetterStatus};
use saga_core::decision::{InboxState, Reads, Writes};
use saga_core::service::Service as _;
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{OutboxEntry, Published, RELAY, Store, StoreFault};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::support::{
    Depot, DepotCommand, FILLING, OperatorHarness, arrived, at, commit, due_query, edit, heard, id, load,
    put, recorded, replay, state,
};

const BASE: &str = include_str!("../../../src/store/sqlite/migrations/0001_base.sql");

/// Law 2: what was handled, waiting, parked or open before the upgrade is so after it.
#[tokio::test]
async fn a_database_of_the_build_before_replays_goes_on_under_this_one() -> Result<(), StoreFault> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("depot.db");
    let old = old_database(&path);
    insert(&old, "INSERT INTO inbox VALUES ('shelf-filling', ?1, 5)", id(1));
    insert(
        &old,
        "INSERT INTO retry (step, message_id, payload, attempts, next_attempt, first_failed_at, last_error)
         VALUES ('shelf-filling', ?1, x'00ff', 3, 1000, 900, 'not yet')",
        id(2),
    );
    insert(
        &old,
        "INSERT INTO task (id, kind, correlation_id, payload, attempts, claim, next_attempt, created_at)
         VALUES (?1, 'supply', x'00000000000000000000000000000007', '{\"label\":\"tea\"}', 2, 4, 1000, 900)",
        id(3),
    );
    parked_by_the_old_build(&old, id(4), "shelf-filling", Some("ParcelsArrived"), true);
    parked_by_the_old_build(&old, id(5), "shelf-filling", None, false);
    parked_by_the_old_build(&old, id(6), "insist", None, true);
    drop(old);

    let store = SqliteStore::open(&path, Depot::rows())?;
    let inbox = (1..=5).map(|number| (FILLING.name, id(number))).collect();
    let known = load(&store, Reads { inbox, ..Reads::default() }).await?.inbox;
    let known = [1, 2, 3, 4, 5].map(|number| known.get(&(FILLING.name, id(number))).copied());
    let (handled, waiting, parked) =
        (Some(InboxState::Handled), Some(InboxState::Waiting), Some(InboxState::Parked));
    assert_eq!(known, [handled, waiting, None, parked, parked]);

    let due = store.due(due_query(at(0), 9, "depot-1", at(60))).await?;
    let [retry] = &due.retries[..] else { panic!("one retry: {:?}", due.retries) };
    assert_eq!((retry.attempts, &retry.payload[..], retry.dead_letter), (3, &b"\x00\xff"[..], None));
    assert_eq!(retry.delivery, None);
    let [task] = &due.tasks[..] else { panic!("one task: {:?}", due.tasks) };
    assert_eq!((task.id, task.attempts, task.claim, task.dead_letter), (id(3), 2, 5, None));

    let mut dead_letters = store.dead_letters(9).await?.readable;
    dead_letters.sort_by_key(|stored| stored.known_as);
    let origins: Vec<_> = dead_letters.iter().map(|stored| stored.dead_letter.origin).collect();
    assert_eq!(origins, [DeadLetterOrigin::Message, DeadLetterOrigin::Foreign, DeadLetterOrigin::Task]);
    for (stored, number) in dead_letters.iter().zip([4, 5, 6]) {
        assert_eq!((stored.status, stored.revision), (DeadLetterStatus::Pending, 0));
        assert_eq!((stored.known_as, stored.dead_letter.replays), (id(number), 0));
        assert_eq!(
            (stored.dead_letter.attempts, stored.dead_letter.payload_base64.as_str()),
            (3, "eyJsYWJlbCI6InRlYSJ9")
        );
    }
    assert_eq!(store.tallies().await?.dead, [(FILLING.name.to_owned(), 1)].into(), "the message alone");

    // It is a database like any other.
    commit(&store, recorded("tea", &[], &[put(3)])).await?;
    commit(&store, Writes { dead_letters: dead_letters.clone(), ..Writes::default() }).await?;
    drop(store);
    let store = SqliteStore::open(&path, Depot::rows())?;
    assert_eq!(state(&store, "tea").await?.map(|shelf| shelf.pieces), Some(3));
    assert_eq!(store.dead_letters(9).await?.readable.len(), 3);
    Ok(())
}

/// Law 2: what an older build promised is published by this one, in its order, and what it published is not again.
#[tokio::test]
async fn what_an_older_build_had_yet_to_publish_is_published_by_this_one() -> Result<(), StoreFault> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("depot.db");
    let old = old_database(&path);
    for (seq, status) in [(7, "FAILED"), (5_000, "PENDING"), (5_001, "FAILED"), (5_002, "PENDING")] {
        let envelope = format!(r#"{{"correlation_id":"{}"}}"#, id(u128::try_from(seq).expect("a position")));
        let sql = "INSERT INTO outbox (seq, id, subject, payload, status, created_at) VALUES (?2, ?1, 'depot.stored', ?3, ?4, 9)";
        old.execute(sql, params![id(1), seq, envelope.as_bytes(), status]).expect("an entry");
    }
    drop(old);
    let store = SqliteStore::open(&path, Depot::rows())?;
    let pending = store.pending(9).await?;
    assert_eq!(pending.iter().map(|entry| entry.saga).collect::<Vec<_>>(), [id(5_000), id(5_002)]);
    let stats = store.stats().await?;
    assert_eq!(
        (stats.outbox_pending, stats.outbox_failed, stats.outbox_oldest),
        (2, 2, Some(Timestamp::from_microsecond(9).expect("a time")))
    );
    assert_eq!(store.retry_failed(None).await?, 2);
    let in_order: Vec<_> = store.pending(9).await?.iter().map(|entry| entry.seq).collect();
    assert_eq!(in_order, [7, 5_000, 5_001, 5_002]);
    Ok(())
}

/// What stands behind an entry that the broker refused waits for the operator after the upgrade, not for the broker:
/// nobody is told that the broker is late.
#[tokio::test]
async fn what_an_older_build_had_behind_a_failed_entry_is_held() -> Result<(), StoreFault> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("depot.db");
    let old = old_database(&path);
    for (seq, saga, status) in [(7, 1, "FAILED"), (5_000, 1, "PENDING"), (9_000, 2, "PENDING")] {
        let envelope = format!(r#"{{"correlation_id":"{}"}}"#, id(saga));
        let sql = "INSERT INTO outbox (seq, id, subject, payload, status, created_at) VALUES (?2, ?1, 'depot.stored', ?3, ?4, 9)";
        old.execute(sql, params![id(1), seq, envelope.as_bytes(), status]).expect("an entry");
    }
    drop(old);
    let store = SqliteStore::open(&path, Depot::rows())?;
    let seqs = |entries: Vec<OutboxEntry>| entries.iter().map(|entry| entry.seq).collect::<Vec<_>>();
    assert_eq!(seqs(store.pending(9).await?), [9_000]);
    let stats = store.stats().await?;
    assert_eq!(
        (stats.outbox_pending, stats.outbox_failed),
        (1, 2),
        "what is gone from between is not counted"
    );
    let lease = store.take_lease(RELAY, None, "depot-1", at(0), at(10)).await?.expect("nobody holds it");
    store.settle(&lease, Published { done: vec![9_000], ..Published::default() }, at(1)).await?;
    let stats = store.stats().await?;
    assert_eq!((stats.outbox_pending, stats.outbox_failed, stats.outbox_oldest), (0, 2, None));
    assert_eq!(store.retry_failed(None).await?, 1);
    assert_eq!(seqs(store.pending(9).await?), [7, 5_000]);
    Ok(())
}

/// Money that was owed before the upgrade can be paid after it: the dead letter of a call is replayed as a call.
#[tokio::test]
async fn dead_letters_from_before_the_upgrade_can_be_replayed() {
    let mut harness = OperatorHarness::over(|path| {
        let old = old_database(path);
        parked_by_the_old_build(&old, id(6), "insist", None, true);
    });
    let stored = harness.dead_letter().await;
    assert_eq!(harness.is_told(10, replay(stored.dead_letter.id, 1)).await, "done");
    let [call] = &harness.calls(10).await[..] else { panic!("one call") };
    assert_eq!((call.id, call.kind.as_str(), call.payload.as_str()), (id(6), "insist", r#"{"label":"tea"}"#));

    let mut harness = OperatorHarness::over(|path| {
        let old = old_database(path);
        parked_by_the_old_build(&old, id(5), FILLING.name, None, false);
    });
    harness.is_asked(0, DepotCommand::List("tea")).await;
    let dead_letter = harness.dead_letter().await.dead_letter.id;
    let edited = arrived(id(8), "tea", 2);
    assert_eq!(harness.is_told(1, edit(dead_letter, 1, id(8), &edited)).await, "done");
    assert_eq!(harness.tries_again(1).await, ["done"]);
    assert_eq!((harness.tea().await, harness.handled(FILLING.name).await), (2, 0));
    assert_eq!(harness.hears_one(2, || heard(arrived(id(9), "tea", 1))).await, "done");
}

/// A database as the build with the first migration alone left it.
fn old_database(path: &Path) -> Connection {
    let conn = Connection::open(path).expect("a new file");
    conn.execute_batch(
        "CREATE TABLE migration (
             number INTEGER PRIMARY KEY, checksum TEXT NOT NULL, applied_at INTEGER NOT NULL)",
    )
    .expect("the table of migrations");
    conn.execute_batch(BASE).expect("the first migration");
    let checksum: String = Sha256::digest(BASE).iter().map(|byte| format!("{byte:02x}")).collect();
    conn.execute("INSERT INTO migration VALUES (1, ?1, 0)", [checksum]).expect("its mark");
    conn
}

fn insert(conn: &Connection, sql: &str, id: Uuid) {
    conn.execute(sql, [id]).expect("an old row");
}

/// A dead letter as the old build wrote it: without an origin, an error chain, replays, a delivery, or an original.
fn parked_by_the_old_build(
    conn: &Connection,
    message: Uuid,
    step: &str,
    message_type: Option<&str>,
    has_saga: bool,
) {
    let id = saga_core::ids::derived(&["dead-letter", step, &message.to_string()]);
    let json = serde_json::json!({
        "id": id, "service": "depot", "step": step, "message_id": message, "message_type": message_type,
        "saga": has_saga.then_some(message), "reason": "x", "fingerprint": "f00", "attempts": 3,
        "first_failed_at": at(1), "last_failed_at": at(2), "payload_base64": "eyJsYWJlbCI6InRlYSJ9",
    });
    conn.execute(
        "INSERT INTO dead_letter (id, step, message_id, letter, last_failed_at) VALUES (?1, ?2, ?3, ?4, 2)",
        params![id, step, message, json.to_string()],
    )
    .expect("an old dead letter");
}
