//! Shell: loads what a batch reads.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};
use saga_core::decision::{Decide, InboxState, KeyedAnswer, Loaded, Reads, Writes};
use saga_core::row::{RowKey, StoredRow};
use uuid::Uuid;

use super::write::{KindSql, sql_of};
use crate::store::StoreFault;
use crate::store::sql::Row;
use crate::store::sql_error::{SqlError, db_fault};

const LOADING: &str = "reading what a batch needs";

/// State of a message: processed, waiting for a retry, or dead-lettered.
const INBOX_STATE: &str = "SELECT 0 FROM inbox WHERE step = ?1 AND message_id = ?2
     UNION ALL SELECT 1 FROM retry WHERE step = ?1 AND message_id = ?2
     UNION ALL SELECT 2 FROM dead_letter WHERE step = ?1 AND message_id = ?2 LIMIT 1";

/// State of a message where none waits for a retry and none is dead-lettered.
const IS_HANDLED: &str = "SELECT 0 FROM inbox WHERE step = ?1 AND message_id = ?2";

/// Loads what a batch reads, and decides it. Repeats both while the batch asks for more rows.
pub(super) fn load_and_decide(
    conn: &Connection,
    kinds: &BTreeMap<&'static str, KindSql>,
    reads: &Reads,
    decide: &mut Decide,
) -> Result<Writes, StoreFault> {
    let mut writes = decide(load(conn, kinds, reads)?);
    let mut also_read = BTreeSet::new();
    while !writes.to_read.is_empty() {
        also_read.append(&mut writes.to_read);
        let mut all = reads.clone();
        all.rows.extend(also_read.iter().cloned());
        writes = decide(Loaded { also_read: also_read.clone(), ..load(conn, kinds, &all)? });
    }
    Ok(writes)
}

fn load(
    conn: &Connection,
    kinds: &BTreeMap<&'static str, KindSql>,
    reads: &Reads,
) -> Result<Loaded, StoreFault> {
    let rows = load_rows(conn, kinds, reads)?;
    load_others(conn, reads).map(|others| Loaded { rows, ..others }).map_err(db_fault(LOADING))
}

fn load_rows(
    conn: &Connection,
    kinds: &BTreeMap<&'static str, KindSql>,
    reads: &Reads,
) -> Result<BTreeMap<RowKey, StoredRow>, StoreFault> {
    let mut rows = BTreeMap::new();
    // Keys are sorted by kind, so that each statement is prepared once.
    let mut of_kind: Option<(&str, CachedStatement<'_>)> = None;
    for key in &reads.rows {
        let select = match &mut of_kind {
            Some((kind, select)) if *kind == key.kind => select,
            _ => {
                let sql = sql_of(kinds, key.kind)?;
                let select = conn.prepare_cached(&sql.load).map_err(db_fault(LOADING))?;
                &mut of_kind.insert((key.kind, select)).1
            }
        };
        let read = |row: &rusqlite::Row<'_>| Ok(StoredRow { version: row.get(0)?, state: row.get(1)? });
        if let Some(row) = select.query_row([&key.id], read).optional().map_err(db_fault(LOADING))? {
            rows.insert(key.clone(), row);
        }
    }
    Ok(rows)
}

/// Loads the states of messages, tasks, idempotency keys and dead letters.
fn load_others(conn: &Connection, reads: &Reads) -> Result<Loaded, SqlError> {
    let mut loaded = Loaded {
        purged_before: conn
            .prepare_cached("SELECT max(saga) FROM purged_before")?
            .query_row([], |row| row.get(0))?,
        ..Loaded::default()
    };
    if !reads.inbox.is_empty() {
        loaded.inbox = inbox_states(conn, &reads.inbox)?;
    }
    for id in &reads.tasks {
        let mut select = conn.prepare_cached("SELECT claim FROM task WHERE id = ?1")?;
        if let Some(claim) = select.query_row([id], |row| row.get(0)).optional()? {
            loaded.tasks.insert(*id, claim);
        }
    }
    for key in &reads.keys {
        let mut select =
            conn.prepare_cached("SELECT fingerprint, reply FROM idempotency_key WHERE key = ?1")?;
        let read = |row: &rusqlite::Row<'_>| Ok(KeyedAnswer { fingerprint: row.get(0)?, reply: row.get(1)? });
        if let Some(answer) = select.query_row([key], read).optional()? {
            loaded.keys.insert(key.clone(), answer);
        }
    }
    for id in &reads.dead_letters {
        let mut select = conn
            .prepare_cached("SELECT content, status, revision, message_id FROM dead_letter WHERE id = ?1")?;
        let mut found = select.query([id])?;
        if let Some(row) = found.next()? {
            loaded.dead_letters.insert(*id, Row::Sqlite(row).dead_letter()?);
        }
    }
    Ok(loaded)
}

/// States of these messages, without new ones.
fn inbox_states(
    conn: &Connection,
    messages: &BTreeSet<(&'static str, Uuid)>,
) -> rusqlite::Result<BTreeMap<(&'static str, Uuid), InboxState>> {
    // Checked once: usually there are neither retries nor dead letters, and no message need be looked up there.
    let has_unprocessed: bool = conn
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM retry) OR EXISTS (SELECT 1 FROM dead_letter)")?
        .query_row([], |row| row.get(0))?;
    let mut select = conn.prepare_cached(if has_unprocessed { INBOX_STATE } else { IS_HANDLED })?;
    let mut all = BTreeMap::new();
    for (step, id) in messages {
        let state: Option<i64> = select.query_row(params![step, id], |row| row.get(0)).optional()?;
        let state = match state {
            None => continue,
            Some(0) => InboxState::Processed,
            Some(1) => InboxState::Retrying,
            Some(_) => InboxState::DeadLettered,
        };
        all.insert((*step, *id), state);
    }
    Ok(all)
}
