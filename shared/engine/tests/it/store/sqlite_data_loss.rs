//! SQLite: a database that has lost data is rejected on open, in one line with the loss and the way on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use saga_core::retry::error_chain;
use saga_core::row::RowKind;
use saga_core::service::Service as _;
use saga_engine::store::roles::{Monitoring as _, Queries as _, Verification as _};
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{DEFAULT_MAX_CONNECTIONS, OpenOptions, StoreFault};
use tempfile::TempDir;

use crate::support::{Depot, Shelf, commit, put, recorded, shelf, state};

type Outcome = Result<(), StoreFault>;

const OURS: OpenOptions<'static> = OpenOptions {
    service: "depot",
    must_exist: false,
    check_within: Duration::from_secs(60),
    accept_loss: "",
    instance: "",
    alone: false,
    wait: std::time::Duration::ZERO,
    max_connections: DEFAULT_MAX_CONNECTIONS,
};

#[tokio::test]
async fn emptied_database_is_rejected() -> Outcome {
    for is_gone in [false, true] {
        let depot = ClosedDatabase::with(3).await?;
        match is_gone {
            true => std::fs::remove_file(&depot.path).expect("gone"),
            false => std::fs::write(&depot.path, b"").expect("emptied"),
        }
        let message = depot.assert_rejected("it is empty, and had 3 events of depot");
        depot.open_accepting_loss(&message).await?;
    }
    Ok(())
}

/// Writes to a file without a path are lost with the process, so that they must fail.
#[tokio::test]
async fn moved_or_replaced_file_fails_commits() -> Outcome {
    let depot = ClosedDatabase::with(3).await?;
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
        let health = error_chain(&store.stats().await.expect_err("it is not ready"));
        for message in [written, health] {
            assert!(
                message.contains("its file was deleted, moved or replaced while it was in use"),
                "{message}"
            );
        }
    }
    std::fs::rename(&elsewhere, &depot.path).expect("put back");
    one_more().await?;
    Ok(())
}

/// The process holds the last copy, and the error has the commands that save it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn deleted_file_is_copied_whole_by_the_commands_of_the_error() -> Outcome {
    let depot = ClosedDatabase::with(3).await?;
    let store = depot.open()?;
    commit(&store, recorded("tea", &[put(1), put(1), put(1)], &[put(1)])).await?;
    for suffix in ["", "-wal"] {
        let file = format!("{}{suffix}", depot.path.display());
        std::fs::remove_file(&file).expect(&file);
    }
    let message = error_chain(&store.stats().await.expect_err("it is not ready"));
    let (_, commands) = message.split_once("(to copy it: ").expect("commands");
    let commands = commands.split_once(')').expect("their end").0;
    let copied = std::process::Command::new("sh").args(["-c", commands]).status().expect("a shell");
    assert!(copied.success(), "{commands}");
    drop(store);
    let saved = SqliteStore::open(Path::new(&format!("{}.saved", depot.path.display())), Depot::rows())?;
    assert_eq!(saved.events(shelf("tea"), 0, 99).await?.len(), 4, "with the last commit");
    Ok(())
}

/// As after restoring an older copy.
#[tokio::test]
async fn database_behind_its_position_is_rejected() -> Outcome {
    let depot = ClosedDatabase::with(3).await?;
    let older = std::fs::read(&depot.path).expect("the file");
    depot.put(3, 5).await?;
    std::fs::write(&depot.path, older).expect("restored");
    let message = depot.assert_rejected("it had come to event 5");
    assert!(message.contains("is at event 3"), "{message}");
    depot.open_accepting_loss(&message).await?;
    // What was accepted was that loss, and no other.
    let name = name_of(&message);
    depot.put(3, 9).await?;
    std::fs::write(&depot.path, b"").expect("emptied");
    let other = SqliteStore::open_as(&depot.path, Depot::rows(), &OpenOptions { accept_loss: &name, ..OURS });
    assert!(other.is_err(), "another loss is not accepted");
    Ok(())
}

/// The log holds everything since the last checkpoint.
#[tokio::test]
async fn database_with_lost_or_damaged_log_is_rejected() -> Outcome {
    for is_gone in [true, false] {
        let depot = ClosedDatabase::with(3).await?;
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
        depot.assert_rejected("it had come to event 5");
    }
    Ok(())
}

#[tokio::test]
async fn database_with_zeroed_or_missing_pages_is_rejected() -> Outcome {
    let depot = ClosedDatabase::with(2_000).await?;
    let whole = std::fs::read(&depot.path).expect("the file");
    let middle = whole.len() / 8192 * 4096;
    let mut zeroed = whole.clone();
    zeroed[middle..middle + 5 * 4096].fill(0);
    for spoilt in [&zeroed[..], &whole[..middle]] {
        std::fs::write(&depot.path, spoilt).expect("the damage");
        depot.assert_rejected("damaged");
    }
    // Not in a hurry.
    std::fs::write(&depot.path, &whole).expect("whole again");
    let hurried = OpenOptions { check_within: Duration::ZERO, ..OURS };
    drop(SqliteStore::open_as(&depot.path, Depot::rows(), &hurried)?);
    Ok(())
}

#[tokio::test]
async fn database_of_another_service_is_rejected_unchanged() -> Outcome {
    let depot = ClosedDatabase::with(3).await?;
    let other = || vec![RowKind { name: "parcel", ..RowKind::of::<Shelf>() }];
    let theirs = OpenOptions { service: "courier", ..OURS };
    let before = std::fs::read(&depot.path).expect("the file");
    let fault = SqliteStore::open_as(&depot.path, other(), &theirs).err().expect("refused");
    assert!(fault.to_string().contains("it is depot's, not courier's"), "{fault}");
    assert!(std::fs::read(&depot.path).expect("the file") == before, "it was changed");
    assert_eq!(state(&depot.open()?, "tea").await?.map(|shelf| shelf.pieces), Some(3));
    Ok(())
}

/// Names the missing table on open. The table of a kind is rebuilt from the events.
#[tokio::test]
async fn missing_table_is_reported_on_open() -> Outcome {
    let depot = ClosedDatabase::with(3).await?;
    depot.execute("DROP TABLE row_shelf");
    assert_eq!(state(&depot.open()?, "tea").await?.map(|shelf| shelf.pieces), Some(3));
    depot.execute("DROP TABLE outbox");
    depot.assert_rejected("damaged, outbox");
    Ok(())
}

/// The stored position is never ahead, so that a crash is no loss.
#[tokio::test]
async fn crash_and_truncated_position_are_no_data_loss() -> Outcome {
    let depot = ClosedDatabase::with(3).await?;
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
    let position = std::fs::read(&lock).expect("the position");
    std::fs::write(&lock, &position[..20]).expect("cut off");
    drop(depot.open()?);
    assert_eq!(std::fs::read(&lock).expect("the position"), position, "written anew");
    Ok(())
}

#[test]
fn required_database_is_not_created() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("new").join("depot.db");
    let opening = OpenOptions { must_exist: true, ..OURS };
    let fault = SqliteStore::open_as(&path, Depot::rows(), &opening).err().expect("refused");
    assert!(fault.to_string().contains("there is none"), "{fault}");
    assert!(!folder.path().join("new").exists(), "nothing was made");
}

/// Closed database of the depot.
struct ClosedDatabase {
    path: PathBuf,
    _folder: TempDir,
}

impl ClosedDatabase {
    /// Database with so many events.
    async fn with(events: usize) -> Result<Self, StoreFault> {
        let folder = tempfile::tempdir().expect("a folder");
        let database = Self { path: folder.path().join("depot.db"), _folder: folder };
        database.put(0, events).await?;
        Ok(database)
    }

    fn open(&self) -> Result<SqliteStore, StoreFault> {
        SqliteStore::open_as(&self.path, Depot::rows(), &OURS)
    }

    /// Adds so many events.
    async fn put(&self, before: usize, after: usize) -> Outcome {
        let puts: Vec<_> = (0..after).map(|_| put(1)).collect();
        commit(&self.open()?, recorded("tea", &puts[..before], &puts[before..])).await?;
        self.execute("PRAGMA user_version = 0");
        Ok(())
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(suffix);
        Path::new(&name).to_owned()
    }

    #[track_caller]
    fn assert_rejected(&self, why: &str) -> String {
        let Err(fault) = self.open() else { panic!("it was opened") };
        let message = fault.to_string();
        assert!(message.contains(why) && message.contains("depot.db"), "does not say {why:?}: {message}");
        assert!(message.contains("restore it from a copy"), "does not say how to go on: {message}");
        assert!(!message.contains('\n'), "more than a line: {message}");
        message
    }

    async fn open_accepting_loss(&self, message: &str) -> Outcome {
        let name = name_of(message);
        let accepting = OpenOptions { accept_loss: &name, ..OURS };
        drop(SqliteStore::open_as(&self.path, Depot::rows(), &accepting)?);
        // From now on it is the one.
        assert!(self.open()?.verify().await?.differing.is_empty());
        Ok(())
    }

    /// Changes the database by another connection, which checkpoints the log when it closes.
    fn execute(&self, sql: &str) {
        Connection::open(&self.path).expect("the file").execute_batch(sql).expect("the change");
    }
}

/// Name of the loss in the error.
fn name_of(message: &str) -> String {
    message.rsplit_once("store.accept_loss=").expect("a name").1.to_owned()
}
