//! Shell: what is looked at before a database is used: whose it is, whether it is whole, and whether it has lost what it
//! had.
//!
//! How far a database has come is written down beside it, about once a second, in its lock file. A database that is
//! behind that has lost something: an older copy, a write-ahead log that is gone, a file that was emptied. That is
//! refused, as nothing else would tell.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension as _, params};
use sha2::{Digest as _, Sha256};
use tracing::warn;
use uuid::Uuid;

use super::values::{hex, oops};
use crate::store::{Mark, Opening, StoreFault};

/// The place of the mark, in the lock file.
pub(super) struct MarkFile {
    file: File,
    written: Instant,
}

/// Bytes of a mark: it is written over the one before.
const MARK_BYTES: usize = 512;

/// Between two marks: a look at the database and one small write.
const MARK_EVERY: Duration = Duration::from_secs(1);

type Sentence = String;

impl Mark {
    pub(super) fn of(conn: &Connection) -> Result<Self, StoreFault> {
        let named: Option<(String, Uuid)> = conn
            .query_row("SELECT service, id FROM identity", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(oops("reading whose database it is"))?;
        let (service, id) = named.unwrap_or_default();
        let count =
            |sql: &str| conn.query_row(sql, [], |row| row.get(0)).map_err(oops("reading how far it came"));
        let events = count("SELECT coalesce(max(seq), 0) FROM event")?;
        Ok(Self {
            service,
            id,
            events,
            messages: count("SELECT coalesce(sum(count), 0) FROM message_count")?,
        })
    }

    /// What is lost of what had come so far; `None` when nothing is.
    fn lost(&self, found: Option<&Self>) -> Option<Sentence> {
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

    /// Whether a database that is `found` so far may go on where another hand has written this mark.
    ///
    /// # Errors
    /// What is lost, and how to go on, unless this very loss is accepted.
    pub fn check(&self, found: &Self, accept_loss: &str) -> Result<(), Sentence> {
        let Some(lost) = self.lost(Some(found)) else { return Ok(()) };
        // By the mark alone: what is found grows until there is a newer mark.
        let name = self.name_of_loss(None);
        if name == accept_loss {
            warn!("a loss is accepted: {lost}");
            return Ok(());
        }
        Err(refused(&lost, &name))
    }

    /// Names one loss and no other, so that a setting that accepts it cannot accept the next.
    fn name_of_loss(&self, found: Option<&Self>) -> String {
        let found = found.map(|found| (found.id, found.events, found.messages));
        hex(&Sha256::digest(format!("{} {} {} {found:?}", self.id, self.events, self.messages)))[..12]
            .to_owned()
    }
}

impl MarkFile {
    pub(super) fn new(lock: &File) -> std::io::Result<Self> {
        Ok(Self { file: lock.try_clone()?, written: Instant::now() })
    }

    /// The mark; `None` when there is none, or when it was cut off while it was written.
    fn read(&self) -> Option<Mark> {
        let mut bytes = [b' '; MARK_BYTES];
        let count = self.file.read_at(&mut bytes, 0).ok()?;
        serde_json::from_slice(&bytes[..count]).ok()
    }

    /// Writes down how far the database has come. A mark that is missing only finds less.
    pub(super) fn write(&mut self, conn: &Connection) {
        self.written = Instant::now();
        let Ok(Ok(mut text)) = Mark::of(conn).map(|mark| serde_json::to_vec(&mark)) else { return };
        text.resize(MARK_BYTES.max(text.len()), b' ');
        if let Err(error) = self.file.write_all_at(&text, 0) {
            warn!("how far the database has come cannot be written down: {error}");
        }
    }

    /// The same, when it is time.
    pub(super) fn write_now_and_then(&mut self, conn: &Connection) {
        if self.written.elapsed() >= MARK_EVERY {
            self.write(conn);
        }
    }
}

/// Looks at a database before anything is changed in it.
pub(super) fn check_before(
    conn: &mut Connection,
    opening: &Opening<'_>,
    marks: &MarkFile,
) -> Result<(), Sentence> {
    let fault = |fault: StoreFault| saga_core::retry::error_chain(&fault);
    check_pages(conn, opening.check_within)?;
    check_owner(conn, opening.service).map_err(fault)??;
    if let Some(mark) = marks.read()
        && names(conn).map_err(fault)?.is_empty()
    {
        check_loss(&mark, None, opening)?;
    }
    Ok(())
}

/// Looks at it when its tables are up to date.
pub(super) fn check_after(
    conn: &Connection,
    made: &Connection,
    opening: &Opening<'_>,
    marks: &mut MarkFile,
) -> Result<(), Sentence> {
    let fault = |fault: StoreFault| saga_core::retry::error_chain(&fault);
    let (there, wanted) = (names(conn).map_err(fault)?, names(made).map_err(fault)?);
    let missing: Vec<&str> = wanted.difference(&there).map(String::as_str).collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Err(format!("it is damaged, {missing} is missing: restore it from a copy"));
    }
    identify(conn, opening.service).map_err(fault)?;
    if let Some(mark) = marks.read() {
        let found = Mark::of(conn).map_err(fault)?;
        check_loss(&mark, Some(&found), opening)?;
    }
    marks.write(conn);
    Ok(())
}

fn check_loss(mark: &Mark, found: Option<&Mark>, opening: &Opening<'_>) -> Result<(), Sentence> {
    let Some(lost) = mark.lost(found) else { return Ok(()) };
    let name = mark.name_of_loss(found);
    // What was emptied is filled with tables before it is looked at again.
    if [&name, &mark.name_of_loss(None)].iter().any(|accepted| *accepted == opening.accept_loss) {
        warn!("a loss is accepted: {lost}");
        return Ok(());
    }
    Err(refused(&lost, &name))
}

/// What is said of a loss that nobody has accepted. Its name comes last.
fn refused(lost: &str, name: &str) -> Sentence {
    format!(
        "{lost}; restore it from a copy, or accept this loss: sagactl start SERVICE --accept-loss {name}, or --set \
         store.accept_loss={name}"
    )
}

/// What is said of a database that is no whole one.
fn damaged(what: &dyn std::fmt::Display) -> Sentence {
    let what = what.to_string().replace('\n', " ");
    format!("it is damaged: {what}; restore it from a copy")
}

/// What is said of a file that SQLite cannot use.
pub(super) fn unusable(error: &rusqlite::Error) -> Sentence {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseCorrupt) => damaged(error),
        _ => format!("cannot be used: {error}"),
    }
}

/// Whether all pages hold what they should, as far as there is time.
fn check_pages(conn: &mut Connection, within: Duration) -> Result<(), Sentence> {
    /// Some tens of microseconds of SQLite's machine.
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
                "the database was not checked whole within {within:?}: `verify` does, while the service is stopped"
            );
            Ok(())
        }
        Err(error) => Err(damaged(&error)),
    }
}

/// Rejects a database of another service.
fn check_owner(conn: &Connection, service: &str) -> Result<Result<(), Sentence>, StoreFault> {
    let there = names(conn)?;
    if there.contains("identity") {
        let owner: Option<String> = conn
            .query_row("SELECT service FROM identity", [], |row| row.get(0))
            .optional()
            .map_err(oops("reading whose database it is"))?;
        if let Some(owner) = owner.filter(|owner| ![service, ""].contains(&owner.as_str()))
            && !service.is_empty()
        {
            return Ok(Err(format!("it is {owner}'s, not {service}'s: see store.url")));
        }
    }
    Ok(Ok(()))
}

/// Says whose it is, if nobody did.
fn identify(conn: &Connection, service: &str) -> Result<(), StoreFault> {
    let named = conn.execute("UPDATE identity SET service = ?1 WHERE service = '' AND ?1 <> ''", [service]);
    let made = conn.execute(
        "INSERT INTO identity (service, id) SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM identity)",
        params![service, Uuid::now_v7()],
    );
    named.and(made).map(drop).map_err(oops("saying whose database it is"))
}

/// The names of all tables and indexes.
fn names(conn: &Connection) -> Result<BTreeSet<String>, StoreFault> {
    conn.prepare(
        "SELECT name FROM sqlite_schema WHERE type IN ('table', 'index') AND name NOT LIKE 'sqlite_%'",
    )
    .and_then(|mut select| select.query_map([], |row| row.get(0))?.collect())
    .map_err(oops("reading which tables there are"))
}
