//! Shell: checks before a database file is used: that it is undamaged, belongs to the service, and has lost no data.
//!
//! The position of the database is written into its lock file, about once a second. A database that is behind that position
//! has lost data: it is an older copy, its write-ahead log is gone, or it was emptied. The broker remembers a position too, but is not always there.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use saga_core::retry::error_chain;
use tracing::warn;

use super::connection::SharedConnection;
use super::run;
use crate::store::highest_position::HighestPosition;
use crate::store::identity::{Reason, check_owner, identify};
use crate::store::sql_error::db_fault;
use crate::store::{DatabasePosition, OpenOptions, StoreFault};

/// Position of the database, as the lock file keeps it.
pub(super) struct PositionFile {
    file: File,
    highest: HighestPosition,
    written: Instant,
}

/// Size of a position in bytes. Each overwrites the one before.
const POSITION_BYTES: usize = 512;

/// Interval between two writes of the position.
const WRITE_EVERY: Duration = Duration::from_secs(1);

impl PositionFile {
    pub(super) fn new(lock: &File, highest: HighestPosition) -> std::io::Result<Self> {
        Ok(Self { file: lock.try_clone()?, highest, written: Instant::now() })
    }

    /// Highest position of the database in this process.
    pub(super) const fn highest(&self) -> &HighestPosition {
        &self.highest
    }

    /// Reads the position; `None` if there is none, or if its writing was cut off.
    fn read(&self) -> Option<DatabasePosition> {
        let mut bytes = [b' '; POSITION_BYTES];
        let count = self.file.read_at(&mut bytes, 0).ok()?;
        serde_json::from_slice(&bytes[..count]).ok()
    }

    /// Writes the position. Of a database that has gone back in time it writes the highest one, as evidence for the next
    /// start. A write that fails only weakens the check then.
    pub(super) fn write(&mut self, conn: &SharedConnection) {
        self.written = Instant::now();
        let position = match run(self.highest.read(conn)) {
            Ok(position) => Some(position),
            Err(StoreFault::DataLost(_)) => self.highest.known(),
            Err(_) => None,
        };
        let Some(Ok(mut text)) = position.map(|position| serde_json::to_vec(&position)) else { return };
        text.resize(POSITION_BYTES.max(text.len()), b' ');
        if let Err(error) = self.file.write_all_at(&text, 0) {
            warn!("the position of the database cannot be written to its lock file: {error}");
        }
    }

    /// Writes the position if it is time.
    pub(super) fn write_if_due(&mut self, conn: &SharedConnection) {
        if self.written.elapsed() >= WRITE_EVERY {
            self.write(conn);
        }
    }
}

/// Checks a database before anything in it is changed.
pub(super) fn check_before(
    conn: &mut SharedConnection,
    options: &OpenOptions<'_>,
    positions: &PositionFile,
) -> Result<(), Reason> {
    check_pages(conn.get_mut(), options.check_within)?;
    let names = names(conn).map_err(reason)?;
    if names.contains("identity") {
        run(check_owner(conn, options.service)).map_err(reason)?;
    }
    match positions.read() {
        Some(position) if names.is_empty() => position.check_file(None, options.accept_loss),
        Some(_) | None => Ok(()),
    }
}

/// Checks a database after its tables were brought up to date. It must have all tables of `reference`.
pub(super) fn check_after(
    conn: &SharedConnection,
    reference: &SharedConnection,
    options: &OpenOptions<'_>,
    positions: &mut PositionFile,
) -> Result<(), Reason> {
    let (found, expected) = (names(conn).map_err(reason)?, names(reference).map_err(reason)?);
    let missing: Vec<&str> = expected.difference(&found).map(String::as_str).collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Err(format!("it is damaged, {missing} is missing: restore it from a copy"));
    }
    run(identify(conn, options.service)).map_err(reason)?;
    if let Some(position) = positions.read() {
        let found = run(DatabasePosition::read(conn));
        let found = found.map_err(db_fault("reading the position of the database")).map_err(reason)?;
        position.check_file(Some(&found), options.accept_loss)?;
    }
    positions.write(conn);
    trim_publications(conn).map_err(reason)
}

/// Deletes publications beyond the last entry, in case someone deleted the last entries by hand: their positions will be
/// assigned again.
fn trim_publications(conn: &SharedConnection) -> Result<(), StoreFault> {
    let sql = "DELETE FROM publication WHERE up_to > (SELECT coalesce(max(seq), 0) FROM outbox)";
    conn.lock().execute(sql, []).map(drop).map_err(db_fault("checking the published position"))
}

fn reason(fault: StoreFault) -> Reason {
    error_chain(&fault)
}

/// Error about a damaged database.
fn damaged(what: &dyn std::fmt::Display) -> Reason {
    let what = what.to_string().replace('\n', " ");
    format!("it is damaged: {what}; restore it from a copy")
}

/// Error about a file that SQLite cannot use.
pub(super) fn unusable(error: &rusqlite::Error) -> Reason {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseCorrupt) => damaged(error),
        _ => format!("cannot be used: {error}"),
    }
}

/// Checks all pages, or as many as the time limit allows.
fn check_pages(conn: &mut Connection, within: Duration) -> Result<(), Reason> {
    /// Some tens of microseconds of SQLite's virtual machine.
    const STEPS: i32 = 1_000;
    let began = Instant::now();
    let is_late = move || began.elapsed() > within;
    conn.progress_handler(STEPS, Some(is_late)).map_err(|error| damaged(&error))?;
    let found: rusqlite::Result<String> = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
    conn.progress_handler(0, None::<fn() -> bool>).map_err(|error| damaged(&error))?;
    match found {
        Ok(found) if found == "ok" => Ok(()),
        Ok(found) => Err(damaged(&found)),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::OperationInterrupted) => {
            warn!(
                "not all of the database was checked within {within:?}: `verify` checks it while the service is stopped"
            );
            Ok(())
        }
        Err(error) => Err(damaged(&error)),
    }
}

/// Names of all tables and indexes.
fn names(conn: &SharedConnection) -> Result<BTreeSet<String>, StoreFault> {
    conn.lock()
        .prepare(
            "SELECT name FROM sqlite_schema WHERE type IN ('table', 'index') AND name NOT LIKE 'sqlite_%'",
        )
        .and_then(|mut select| select.query_map([], |row| row.get(0))?.collect())
        .map_err(db_fault("reading the names of the tables"))
}
