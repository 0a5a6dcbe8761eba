//! A database that an older build made: everything in it goes on under this one.

use std::path::Path;

use rusqlite::{Connection, params};
use sha2::{Digest as _, Sha256};
use shared::contract::LetterOrigin;
use shared::service::Service as _;
use shared::store::sqlite::SqliteStore;
use shared::store::{Known, LetterStatus, Reads, Store, StoreFault, Writes};
use uuid::Uuid;

use crate::support::desk::Desk;
use crate::support::shop::{FILLING, Shop, ShopCommand, heard, replenished};
use crate::support::wishes::replay;
use crate::support::writes::{at, commit, id, load, look, put, recorded, state};

const BASE: &str = include_str!("../../../src/store/sqlite/migrations/0001_base.sql");

/// Law 2: what was handled, waiting, parked or open before the upgrade is so after it.
#[tokio::test]
async fn a_database_of_the_build_before_replays_goes_on_under_this_one() -> Result<(), StoreFault> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("shop.db");
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
         VALUES (?1, 'supply', x'00000000000000000000000000000007', '{\"sku\":\"tea\"}', 2, 4, 1000, 900)",
        id(3),
    );
    letter(&old, id(4), "shelf-filling", Some("StockReplenished"), true);
    letter(&old, id(5), "shelf-filling", None, false);
    letter(&old, id(6), "insist", None, true);
    drop(old);

    let store = SqliteStore::open(&path, Shop::rows())?;
    let inbox = (1..=5).map(|number| (FILLING.name, id(number))).collect();
    let known = load(&store, Reads { inbox, ..Reads::default() }).await?.inbox;
    let known = [1, 2, 3, 4, 5].map(|number| known.get(&(FILLING.name, id(number))).copied());
    let (handled, waiting, parked) = (Some(Known::Handled), Some(Known::Waiting), Some(Known::Parked));
    assert_eq!(known, [handled, waiting, None, parked, parked]);

    let due = store.due(look(at(0), 9, "shop-1", at(60))).await?;
    let [retry] = &due.retries[..] else { panic!("one retry: {:?}", due.retries) };
    assert_eq!((retry.attempts, &retry.payload[..], retry.letter), (3, &b"\x00\xff"[..], None));
    assert_eq!(retry.delivery, None);
    let [task] = &due.tasks[..] else { panic!("one task: {:?}", due.tasks) };
    assert_eq!((task.id, task.attempts, task.claim, task.letter), (id(3), 2, 5, None));

    let mut letters = store.dead_letters(9).await?;
    letters.sort_by_key(|stored| stored.known_as);
    let origins: Vec<_> = letters.iter().map(|stored| stored.letter.origin).collect();
    assert_eq!(origins, [LetterOrigin::Message, LetterOrigin::Foreign, LetterOrigin::Task]);
    for (stored, number) in letters.iter().zip([4, 5, 6]) {
        assert_eq!((stored.status, stored.revision), (LetterStatus::Pending, 0));
        assert_eq!((stored.known_as, stored.letter.replays), (id(number), 0));
        assert_eq!(
            (stored.letter.attempts, stored.letter.payload_base64.as_str()),
            (3, "eyJza3UiOiJ0ZWEifQ==")
        );
    }
    assert_eq!(store.tallies().await?.dead, [(FILLING.name.to_owned(), 1)].into(), "the message alone");

    // It is a database like any other.
    commit(&store, recorded("tea", &[], &[put(3)])).await?;
    commit(&store, Writes { letters: letters.clone(), ..Writes::default() }).await?;
    drop(store);
    let store = SqliteStore::open(&path, Shop::rows())?;
    assert_eq!(state(&store, "tea").await?.map(|shelf| shelf.pieces), Some(3));
    assert_eq!(store.dead_letters(9).await?.len(), 3);
    Ok(())
}

/// Money that was owed before the upgrade can be paid after it: the letter of a call is replayed as a call.
#[tokio::test]
async fn letters_from_before_the_upgrade_can_be_replayed() {
    let mut desk = Desk::over(|path| {
        let old = old_database(path);
        letter(&old, id(6), "insist", None, true);
    });
    let stored = desk.letter().await;
    assert_eq!(desk.is_told(10, replay(stored.letter.id, 1)).await, "done");
    let [call] = &desk.calls(10).await[..] else { panic!("one call") };
    assert_eq!((call.id, call.kind.as_str(), call.payload.as_str()), (id(6), "insist", r#"{"sku":"tea"}"#));

    let mut desk = Desk::over(|path| {
        let old = old_database(path);
        letter(&old, id(5), FILLING.name, None, false);
    });
    desk.is_asked(0, ShopCommand::List("tea")).await;
    let letter = desk.letter().await.letter.id;
    let edited = replenished(id(8), "tea", 2);
    assert_eq!(desk.is_told(1, crate::support::wishes::edit(letter, 1, id(8), &edited)).await, "done");
    assert_eq!(desk.tries_again(1).await, ["done"]);
    assert_eq!((desk.tea().await, desk.handled(FILLING.name).await), (2, 0));
    assert_eq!(desk.hears_one(2, || heard(replenished(id(9), "tea", 1))).await, "done");
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

/// A letter as the old build wrote it: without an origin, an error chain, replays, a delivery, or an original.
fn letter(conn: &Connection, message: Uuid, step: &str, message_type: Option<&str>, has_saga: bool) {
    let id = shared::ids::derived(&["dead-letter", step, &message.to_string()]);
    let json = serde_json::json!({
        "id": id, "service": "order", "step": step, "message_id": message, "message_type": message_type,
        "saga": has_saga.then_some(message), "reason": "x", "fingerprint": "f00", "attempts": 3,
        "first_failed_at": at(1), "last_failed_at": at(2), "payload_base64": "eyJza3UiOiJ0ZWEifQ==",
    });
    conn.execute(
        "INSERT INTO dead_letter (id, step, message_id, letter, last_failed_at) VALUES (?1, ?2, ?3, ?4, 2)",
        params![id, step, message, json.to_string()],
    )
    .expect("an old letter");
}
