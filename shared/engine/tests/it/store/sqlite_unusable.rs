//! SQLite: a file that cannot be used is rejected in one line that names the file and the reason.

use std::path::Path;

use rusqlite::Connection;
use saga_core::dead_letter::DeadLettered;
use saga_core::decision::Writes;
use saga_core::service::Service as _;
use saga_engine::store::StoreFault;
use saga_engine::store::roles::{Monitoring as _, Verification as _};
use saga_engine::store::sqlite::SqliteStore;

use crate::support::{Depot, at, commit, dead, put, recorded, state};

#[tokio::test]
async fn file_in_use_is_rejected_and_its_user_continues() -> Result<(), StoreFault> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("depot.db");
    let holder = SqliteStore::open(&path, Depot::rows())?;
    assert_rejected(&path, "another process holds it");
    commit(&holder, recorded("tea", &[], &[put(3)])).await?;
    drop(holder);
    let next = SqliteStore::open(&path, Depot::rows())?;
    assert_eq!(state(&next, "tea").await?.map(|shelf| shelf.pieces), Some(3));
    Ok(())
}

#[test]
fn file_that_is_no_database_is_rejected_unchanged() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("depot.db");
    let dead_letter = "Dear diary, this is not a database. ".repeat(300);
    std::fs::write(&path, &dead_letter).expect("a file");
    assert_rejected(&path, "file is not a database");
    assert_eq!(std::fs::read_to_string(&path).expect("the file"), dead_letter);
}

#[test]
fn damaged_file_is_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("depot.db");
    let conn = Connection::open(&path).expect("a new file");
    conn.execute_batch("CREATE TABLE drawer (spoon TEXT)").expect("a table");
    conn.close().expect("nothing is under way");
    let mut bytes = std::fs::read(&path).expect("the file");
    bytes[100..4096].fill(0xa5);
    std::fs::write(&path, bytes).expect("the damage");
    assert_rejected(&path, "malformed");
}

/// Unreadable ids after damaging one of two dead letters; the other stays readable.
async fn unreadable_after(damage: &str, damaged: &DeadLettered) -> Result<Vec<String>, StoreFault> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("depot.db");
    let sound = dead("filling", 2, at(20));
    let store = SqliteStore::open(&path, Depot::rows())?;
    let new_dead_letters = vec![damaged.clone(), sound.clone()];
    commit(&store, Writes { new_dead_letters, ..Writes::default() }).await?;
    drop(store);
    let by_hand = Connection::open(&path).expect("the file");
    let sql = format!("UPDATE dead_letter SET {damage} WHERE id = ?1");
    assert_eq!(by_hand.execute(&sql, [damaged.id]).expect("the damage"), 1);
    by_hand.close().expect("nothing is under way");

    let found = SqliteStore::open(&path, Depot::rows())?.dead_letters(9).await?;
    let readable: Vec<_> = found.readable.into_iter().map(|stored| stored.dead_letter).collect();
    assert_eq!(readable, [sound]);
    Ok(found.unreadable)
}

#[tokio::test]
async fn damaged_dead_letter_hides_no_other() -> Result<(), StoreFault> {
    let damaged = dead("filling", 1, at(10));
    assert_eq!(unreadable_after("content = '{'", &damaged).await?, [damaged.id.to_string()]);
    Ok(())
}

#[tokio::test]
async fn dead_letter_with_damaged_id_hides_no_other() -> Result<(), StoreFault> {
    let damaged = dead("filling", 1, at(10));
    assert_eq!(unreadable_after("content = '{', id = x'00'", &damaged).await?, ["00"]);
    Ok(())
}

#[test]
fn file_of_newer_build_is_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("depot.db");
    create_and_change(
        &path,
        "INSERT INTO migration (number, checksum, applied_at) SELECT max(number) + 1, 'newer', 0 FROM migration",
    );
    assert_rejected(&path, "start a newer build");
}

#[test]
fn file_with_changed_migration_is_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("depot.db");
    create_and_change(&path, "UPDATE migration SET checksum = 'another' WHERE number = 1");
    assert_rejected(&path, "migration 1 of the database is not the one of this build");
}

/// Not even root can create a folder below a file.
#[test]
fn path_below_file_is_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("a file");
    assert_rejected(&file.join("data").join("depot.db"), "its folder cannot be made");
    assert_rejected(&file.join("depot.db"), "its folder cannot be made");
}

#[test]
fn path_of_folder_is_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("depot.db");
    std::fs::create_dir(&path).expect("a folder in its place");
    assert_rejected(&path, "cannot be opened");
}

#[tokio::test]
async fn missing_folder_is_created() -> Result<(), StoreFault> {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(&folder.path().join("new").join("data").join("depot.db"), Depot::rows())?;
    assert_eq!(store.verify().await?.rows, 0);
    Ok(())
}

/// Creates a database, and changes it after its store is dropped.
fn create_and_change(path: &Path, sql: &str) {
    drop(SqliteStore::open(path, Depot::rows()).expect("a new database"));
    let conn = Connection::open(path).expect("the file");
    conn.execute_batch(sql).expect("the change");
}

#[track_caller]
fn assert_rejected(path: &Path, why: &str) {
    let Err(fault) = SqliteStore::open(path, Depot::rows()) else { panic!("{} was opened", path.display()) };
    let message = fault.to_string();
    assert!(message.contains(&path.display().to_string()), "does not name the file: {message}");
    assert!(message.contains(why), "does not say {why:?}: {message}");
    assert!(!message.contains('\n'), "more than a line: {message}");
    assert!(std::error::Error::source(&fault).is_none(), "the message says it all: {fault:?}");
}
