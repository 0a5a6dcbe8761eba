//! Shell: checks before a database file is used: that it is undamaged, belongs to the service, and has lost no data.
//!
//! The position of the database is written into its lock file, about once a second. A database that is behind that position
//! has lost data: it is an older copy, its write-ahead log is gone, or it was emptied. Nothing else would notice.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension as _, params};
use sha2::{Digest as _, Sha256};
use tracing::warn;
use uuid::Uuid;

use super::values::{db_fault, hex};
use crate::store::{DatabasePosition, OpenOptions, StoreFault};

/// Position of the database, as the lock file keeps it.
pub(super) struct PositionFile {
    file: File,
    written: Instant,
}

/// Size of a position in bytes. Each overwrites the one before.
const POSITION_BYTES: usize = 512;

/// Interval between two writes of the position.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// Reason why a database cannot be used, for people.
type Reason = String;

impl DatabasePosition {
    pub(super) fn read(conn: &Connection) -> Result<Self, StoreFault> {
        let named: Option<(String, Uuid)> = conn
            .query_row("SELECT service, id FROM identity", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(db_fault("reading the owner of the database"))?;
        let (service, id) = named.unwrap_or_default();
        let count = |sql: &str| {
            conn.query_row(sql, [], |row| row.get(0))
                .map_err(db_fault("reading the position of the database"))
        };
        let events = count("SELECT coalesce(max(seq), 0) FROM event")?;
        Ok(Self {
            service,
            id,
            events,
            messages: count("SELECT coalesce(sum(count), 0) FROM message_count")?,
        })
    }

    /// Describes the loss of a database that had this position and is `found` at another; `None` if nothing is lost.
    fn lost(&self, found: Option<&Self>) -> Option<Reason> {
        let Self { service, events, messages, .. } = self;
        match found {
            None => Some(format!("it is empty, and had {events} events of {service}")),
            Some(found) if found.id != self.id => Some(format!(
                "it is another one than the one with {events} events of {service} that was here"
            )),
            Some(found) if found.events < *events || found.messages < *messages => Some(format!(
                "it has lost data: it had come to event {events} and message {messages}, and is at event {} and \
                 message {}",
                found.events, found.messages
            )),
            Some(_) => None,
        }
    }

    /// Checks a database that is `found` at a position against this one, which was kept elsewhere.
    ///
    /// # Errors
    /// Describes a loss that was not accepted, and the command that accepts it.
    pub fn check(&self, found: &Self, accept_loss: &str) -> Result<(), Reason> {
        let Some(lost) = self.lost(Some(found)) else { return Ok(()) };
        // Without the found position, which grows until this one is written again.
        let name = self.name_of_loss(None);
        if name == accept_loss {
            warn!("a loss is accepted: {lost}");
            return Ok(());
        }
        Err(not_accepted(&lost, &name))
    }

    /// Name of exactly one loss, so that a setting that accepts it accepts no other.
    fn name_of_loss(&self, found: Option<&Self>) -> String {
        let found = found.map(|found| (found.id, found.events, found.messages));
        hex(&Sha256::digest(format!("{} {} {} {found:?}", self.id, self.events, self.messages)))[..12]
            .to_owned()
    }
}

impl PositionFile {
    pub(super) fn new(lock: &File) -> std::io::Result<Self> {
        Ok(Self { file: lock.try_clone()?, written: Instant::now() })
    }

    /// Reads the position; `None` if there is none, or if its writing was cut off.
    fn read(&self) -> Option<DatabasePosition> {
        let mut bytes = [b' '; POSITION_BYTES];
        let count = self.file.read_at(&mut bytes, 0).ok()?;
        serde_json::from_slice(&bytes[..count]).ok()
    }

    /// Writes the position. A write that fails only weakens the check at the next start.
    pub(super) fn write(&mut self, conn: &Connection) {
        self.written = Instant::now();
        let Ok(Ok(mut text)) = DatabasePosition::read(conn).map(|position| serde_json::to_vec(&position))
        else {
            return;
        };
        text.resize(POSITION_BYTES.max(text.len()), b' ');
        if let Err(error) = self.file.write_all_at(&text, 0) {
            warn!("the position of the database cannot be written to its lock file: {error}");
        }
    }

    /// Writes the position if it is time.
    pub(super) fn write_if_due(&mut self, conn: &Connection) {
        if self.written.elapsed() >= WRITE_EVERY {
            self.write(conn);
        }
    }
}

/// Checks a database before anything in it is changed.
pub(super) fn check_before(
    conn: &mut Connection,
    options: &OpenOptions<'_>,
    positions: &PositionFile,
) -> Result<(), Reason> {
    let fault = |fault: StoreFault| saga_core::retry::error_chain(&fault);
    check_pages(conn, options.check_within)?;
    check_owner(conn, options.service).map_err(fault)??;
    if let Some(position) = positions.read()
        && names(conn).map_err(fault)?.is_empty()
    {
        check_loss(&position, None, options)?;
    }
    Ok(())
}

/// Checks a database after its tables were brought up to date.
pub(super) fn check_after(
    conn: &Connection,
    made: &Connection,
    options: &OpenOptions<'_>,
    positions: &mut PositionFile,
) -> Result<(), Reason> {
    let fault = |fault: StoreFault| saga_core::retry::error_chain(&fault);
    let (there, wanted) = (names(conn).map_err(fault)?, names(made).map_err(fault)?);
    let missing: Vec<&str> = wanted.difference(&there).map(String::as_str).collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Err(format!("it is damaged, {missing} is missing: restore it from a copy"));
    }
    identify(conn, options.service).map_err(fault)?;
    if let Some(position) = positions.read() {
        let found = DatabasePosition::read(conn).map_err(fault)?;
        check_loss(&position, Some(&found), options)?;
    }
    positions.write(conn);
    Ok(())
}

fn check_loss(
    position: &DatabasePosition,
    found: Option<&DatabasePosition>,
    options: &OpenOptions<'_>,
) -> Result<(), Reason> {
    let Some(lost) = position.lost(found) else { return Ok(()) };
    let name = position.name_of_loss(found);
    // An emptied database gets its tables between the two checks.
    if [&name, &position.name_of_loss(None)].iter().any(|accepted| *accepted == options.accept_loss) {
        warn!("a loss is accepted: {lost}");
        return Ok(());
    }
    Err(not_accepted(&lost, &name))
}

/// Error about a loss that was not accepted. The name of the loss comes last.
fn not_accepted(lost: &str, name: &str) -> Reason {
    format!(
        "{lost}; restore it from a copy, or accept this loss: sagactl start SERVICE --accept-loss {name}, or --set \
         store.accept_loss={name}"
    )
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

/// Rejects a database of another service.
fn check_owner(conn: &Connection, service: &str) -> Result<Result<(), Reason>, StoreFault> {
    let there = names(conn)?;
    if there.contains("identity") {
        let owner: Option<String> = conn
            .query_row("SELECT service FROM identity", [], |row| row.get(0))
            .optional()
            .map_err(db_fault("reading the owner of the database"))?;
        if let Some(owner) = owner.filter(|owner| ![service, ""].contains(&owner.as_str()))
            && !service.is_empty()
        {
            return Ok(Err(format!("it is {owner}'s, not {service}'s: see store.url")));
        }
    }
    Ok(Ok(()))
}

/// Records the owner of the database, unless it has one.
fn identify(conn: &Connection, service: &str) -> Result<(), StoreFault> {
    let named = conn.execute("UPDATE identity SET service = ?1 WHERE service = '' AND ?1 <> ''", [service]);
    let made = conn.execute(
        "INSERT INTO identity (service, id) SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM identity)",
        params![service, Uuid::now_v7()],
    );
    named.and(made).map(drop).map_err(db_fault("recording the owner of the database"))
}

/// Names of all tables and indexes.
fn names(conn: &Connection) -> Result<BTreeSet<String>, StoreFault> {
    conn.prepare(
        "SELECT name FROM sqlite_schema WHERE type IN ('table', 'index') AND name NOT LIKE 'sqlite_%'",
    )
    .and_then(|mut select| select.query_map([], |row| row.get(0))?.collect())
    .map_err(db_fault("reading the names of the tables"))
}
