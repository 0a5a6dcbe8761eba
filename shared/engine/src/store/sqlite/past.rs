//! Shell: how a row was, and which have changed since: what a look needs that begins where the last one ended.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};
use saga_core::row::{RowKind, StoredEvent};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::read::stored_event;
use super::values::{hex, oops};
use crate::store::as_of::row_of;
use crate::store::{Changes, RowAsOf, StoreFault};

/// A row when the event at `seq` was the last; `None` when it was not there yet.
pub(super) fn row_as_of(
    conn: &Connection,
    kind: &RowKind,
    id: &str,
    seq: i64,
) -> Result<Option<RowAsOf>, StoreFault> {
    let history: Vec<StoredEvent> = conn
        .prepare_cached(
            "SELECT version, name, data, causation_id, recorded_at, is_published FROM event
             WHERE kind = ?1 AND row_id = ?2 AND seq <= ?3 ORDER BY version",
        )
        .and_then(|mut select| select.query_map(params![kind.name, id, seq], stored_event)?.collect())
        .map_err(oops("reading the history of a row up to a time"))?;
    Ok(row_of(kind, id, history))
}

/// Rows of all kinds that have changed.
pub(super) struct Changed {
    /// The kind and the id of each.
    pub(super) rows: BTreeSet<(String, String)>,
    /// The position of the last event that was looked at.
    pub(super) up_to: i64,
    /// Whether there was no more.
    pub(super) is_over: bool,
}

/// The rows among the next `limit` events behind `after`.
pub(super) fn changed(conn: &Connection, after: i64, limit: usize) -> Result<Changed, StoreFault> {
    let read = || {
        let mut select =
            conn.prepare_cached("SELECT seq, kind, row_id FROM event WHERE seq > ?1 ORDER BY seq LIMIT ?2")?;
        let mut found = select.query(params![after, i64::try_from(limit).unwrap_or(i64::MAX)])?;
        let (mut rows, mut up_to, mut count) = (BTreeSet::new(), after, 0);
        while let Some(event) = found.next()? {
            (up_to, count) = (event.get(0)?, count + 1);
            rows.insert((event.get(1)?, event.get(2)?));
        }
        Ok(Changed { rows, up_to, is_over: count < limit })
    };
    read().map_err(oops("reading what has changed"))
}

/// The same of one kind.
pub(super) fn changes(
    conn: &Connection,
    kind: &str,
    after: i64,
    limit: usize,
) -> Result<Changes, StoreFault> {
    let Changed { rows, up_to, is_over } = changed(conn, after, limit)?;
    let ids = rows.into_iter().filter(|(of, _)| of == kind).map(|(_, id)| id).collect();
    Ok(Changes { ids, up_to, is_over })
}

/// A hash of the event at this position.
pub(super) fn fingerprint(conn: &Connection, seq: i64) -> Result<Option<String>, StoreFault> {
    let read = |row: &rusqlite::Row<'_>| {
        let (kind, id, version): (String, String, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (data, cause, at): (String, Uuid, i64) = (row.get(3)?, row.get(4)?, row.get(5)?);
        Ok(format!("{kind}/{id}/{version}/{cause}/{at}/{data}"))
    };
    let event = conn
        .prepare_cached(
            "SELECT kind, row_id, version, data, causation_id, recorded_at FROM event WHERE seq = ?1",
        )
        .and_then(|mut select| select.query_row([seq], read).optional())
        .map_err(oops("reading an event"))?;
    Ok(event.map(|event| hex(&Sha256::digest(event))))
}
