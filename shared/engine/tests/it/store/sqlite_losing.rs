//! A database that is not the one it was: refused at the start, in one line that says what is missing and how to go on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use saga_core::retry::error_chain;
use saga_core::row::RowKind;
use saga_core::service::Service as _;
use saga_engine::store::Opening;
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{Store as _, StoreFault};
use tempfile::TempDir;

use crate::support::{Depot, Shelf, commit, put, recorded, shelf, state};

type Outcome = Result<(), StoreFault>;

const OURS: Opening<'static> = Opening {
    service: "depot",
    must_exist: false,
    check_within: Duration::from_secs(60),
    accept_loss: "",
    instance: "",
    alone: false,
    wait: std::time::Duration::ZERO,
};

/// Its file was emptied, or is gone.
#[tokio::test]
async fn a_database_that_is_empty_and_was_not_is_refused() -> Outcome {
    for is_gone in [false, true] {
        let depot = Kept::with(3).await?;
        match is_gone {
            true => std::fs::remove_file(&depot.path).expect("gone"),
            false => std::fs::write(&depot.path, b"").expect("emptied"),
        }
        let sentence = depot.is_refused("it is empty, and had 3 events of depot");
        depot.accepts_the_loss(&sentence).await?;
    }
    Ok(())
}

/// What is written to a file that has no name any more is gone with the process: it counts as not written.
#[tokio::test]
async fn nothing_is_stored_while_the_file_is_not_where_it_was() -> Outcome {
    let depot = Kept::with(3).await?;
    let (store, elsewhere) = (depot.open()?, depot.path.with_extension("moved"));
    let one_more = async || {
        let read = store.events(shelf("tea"), 0, 99).await?.len();
        commit(&store, recorded("tea", &vec![put(1); read], &[put(1)])).await
    };
    one_more().await?;
    std::fs::rename(&depot.path, &elsewhere).expect("moved");
    for is_replaced in [false, true] {
        if is_replaced {
            std::fs::copy(&elsewhere, &depot.path).expect("a copy");
        }
        let written = error_chain(&one_more().await.expect_err("it was not stored"));
        let looked = error_chain(&store.stats().await.expect_err("it is not ready"));
        for said in [written, looked] {
            assert!(said.contains("its file was deleted, moved or replaced while it was in use"), "{said}");
        }
    }
    std::fs::rename(&elsewhere, &depot.path).expect("put back");
    one_more().await?;
    Ok(())
}

/// An older copy of it, or the copy of an older one.
#[tokio::test]
async fn a_database_that_is_behind_what_it_had_come_to_is_refused() -> Outcome {
    let depot = Kept::with(3).await?;
    let older = std::fs::read(&depot.path).expect("the file");
    depot.put(3, 5).await?;
    std::fs::write(&depot.path, older).expect("restored");
    let sentence = depot.is_refused("it had come to event 5");
    assert!(sentence.contains("is at event 3"), "{sentence}");
    depot.accepts_the_loss(&sentence).await?;
    // What was accepted was that loss, and no other.
    let name = name_of(&sentence);
    depot.put(3, 9).await?;
    std::fs::write(&depot.path, b"").expect("emptied");
    let other = SqliteStore::open_as(&depot.path, Depot::rows(), &Opening { accept_loss: &name, ..OURS });
    assert!(other.is_err(), "another loss is not accepted");
    Ok(())
}

/// The log holds what was committed since it was copied back last.
#[tokio::test]
async fn a_database_whose_write_ahead_log_is_gone_or_spoilt_is_refused() -> Outcome {
    for is_gone in [true, false] {
        let depot = Kept::with(3).await?;
        let store = depot.open()?;
        let puts: Vec<_> = (0..5).map(|_| put(1)).collect();
        commit(&store, recorded("tea", &puts[..3], &puts[3..])).await?;
        let (file, log) = (depot.path.clone(), depot.beside("-wal"));
        let crashed = (std::fs::read(&file).expect("the file"), std::fs::read(&log).expect("its log"));
        drop(store);
        std::fs::write(&file, crashed.0).expect("as it was");
        if is_gone {
            std::fs::remove_file(&log).expect("gone");
        } else {
            let mut spoilt = crashed.1;
            spoilt[..32].fill(0);
            std::fs::write(&log, spoilt).expect("its log");
        }
        depot.is_refused("it had come to event 5");
    }
    Ok(())
}

#[tokio::test]
async fn a_database_with_zeroed_pages_or_half_of_it_is_refused() -> Outcome {
    let depot = Kept::with(2_000).await?;
    let whole = std::fs::read(&depot.path).expect("the file");
    let middle = whole.len() / 8192 * 4096;
    let mut zeroed = whole.clone();
    zeroed[middle..middle + 5 * 4096].fill(0);
    for spoilt in [&zeroed[..], &whole[..middle]] {
        std::fs::write(&depot.path, spoilt).expect("the damage");
        depot.is_refused("damaged");
    }
    // Not in a hurry.
    std::fs::write(&depot.path, &whole).expect("whole again");
    let hurried = Opening { check_within: Duration::ZERO, ..OURS };
    drop(SqliteStore::open_as(&depot.path, Depot::rows(), &hurried)?);
    Ok(())
}

#[tokio::test]
async fn another_services_database_is_refused_and_left_alone() -> Outcome {
    let depot = Kept::with(3).await?;
    let other = || vec![RowKind { name: "parcel", ..RowKind::of::<Shelf>() }];
    let theirs = Opening { service: "courier", ..OURS };
    let before = std::fs::read(&depot.path).expect("the file");
    let fault = SqliteStore::open_as(&depot.path, other(), &theirs).err().expect("refused");
    assert!(fault.to_string().contains("it is depot's, not courier's"), "{fault}");
    assert!(std::fs::read(&depot.path).expect("the file") == before, "it was changed");
    assert_eq!(state(&depot.open()?, "tea").await?.map(|shelf| shelf.pieces), Some(3));
    Ok(())
}

/// Said at once, by its name; the table of a kind is made of the events again.
#[tokio::test]
async fn a_missing_table_is_said_at_the_start() -> Outcome {
    let depot = Kept::with(3).await?;
    depot.by_hand("DROP TABLE row_shelf");
    assert_eq!(state(&depot.open()?, "tea").await?.map(|shelf| shelf.pieces), Some(3));
    depot.by_hand("DROP TABLE outbox");
    depot.is_refused("damaged, outbox");
    Ok(())
}

/// The mark is at most behind: whoever dies at any moment has lost nothing.
#[tokio::test]
async fn a_crash_is_no_loss_and_neither_is_a_mark_that_was_cut_off() -> Outcome {
    let depot = Kept::with(3).await?;
    let store = depot.open()?;
    let puts: Vec<_> = (0..5).map(|_| put(1)).collect();
    commit(&store, recorded("tea", &puts[..3], &puts[3..])).await?;
    let image = tempfile::tempdir().expect("a folder");
    for name in ["depot.db", "depot.db-wal", "depot.db.lock"] {
        std::fs::copy(depot.path.with_file_name(name), image.path().join(name)).expect("a copy");
    }
    let crashed = SqliteStore::open_as(&image.path().join("depot.db"), Depot::rows(), &OURS)?;
    assert_eq!(state(&crashed, "tea").await?.map(|shelf| shelf.pieces), Some(5));
    drop(store);
    let lock = depot.beside(".lock");
    let mark = std::fs::read(&lock).expect("the mark");
    std::fs::write(&lock, &mark[..20]).expect("cut off");
    drop(depot.open()?);
    assert_eq!(std::fs::read(&lock).expect("the mark"), mark, "written anew");
    Ok(())
}

#[test]
fn a_database_that_must_be_there_is_not_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("new").join("depot.db");
    let opening = Opening { must_exist: true, ..OURS };
    let fault = SqliteStore::open_as(&path, Depot::rows(), &opening).err().expect("refused");
    assert!(fault.to_string().contains("there is none"), "{fault}");
    assert!(!folder.path().join("new").exists(), "nothing was made");
}

/// The depot's database, closed.
struct Kept {
    path: PathBuf,
    _folder: TempDir,
}

impl Kept {
    /// With so many events.
    async fn with(events: usize) -> Result<Self, StoreFault> {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = Self { path: folder.path().join("depot.db"), _folder: folder };
        kept.put(0, events).await?;
        Ok(kept)
    }

    fn open(&self) -> Result<SqliteStore, StoreFault> {
        SqliteStore::open_as(&self.path, Depot::rows(), &OURS)
    }

    /// So many events more than those before.
    async fn put(&self, before: usize, after: usize) -> Outcome {
        let puts: Vec<_> = (0..after).map(|_| put(1)).collect();
        commit(&self.open()?, recorded("tea", &puts[..before], &puts[before..])).await?;
        self.by_hand("PRAGMA user_version = 0");
        Ok(())
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(suffix);
        Path::new(&name).to_owned()
    }

    #[track_caller]
    fn is_refused(&self, why: &str) -> String {
        let Err(fault) = self.open() else { panic!("it was opened") };
        let sentence = fault.to_string();
        assert!(sentence.contains(why) && sentence.contains("depot.db"), "does not say {why:?}: {sentence}");
        assert!(sentence.contains("restore it from a copy"), "does not say how to go on: {sentence}");
        assert!(!sentence.contains('\n'), "more than a line: {sentence}");
        sentence
    }

    async fn accepts_the_loss(&self, sentence: &str) -> Outcome {
        let name = name_of(sentence);
        let accepting = Opening { accept_loss: &name, ..OURS };
        drop(SqliteStore::open_as(&self.path, Depot::rows(), &accepting)?);
        // From now on it is the one.
        assert!(self.open()?.verify().await?.differing.is_empty());
        Ok(())
    }

    /// Changes it from outside; with the last connection, its log is copied back.
    fn by_hand(&self, sql: &str) {
        Connection::open(&self.path).expect("the file").execute_batch(sql).expect("the change");
    }
}

/// The loss's name, as the refusal says it.
fn name_of(sentence: &str) -> String {
    sentence.rsplit_once("store.accept_loss=").expect("a name").1.to_owned()
}
