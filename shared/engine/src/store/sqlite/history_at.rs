//! Shell: past states of rows, and changes since a position.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};
use saga_core::row::{RowKind, StoredEvent};

use super::queries::stored_event;
use super::values::db_fault;
use crate::store::history::{ChangedRows, EventIdentity, row_at};
use crate::store::{RowAt, StoreFault};

/// Row as of the event at `seq`; `None` if it did not exist yet.
pub(super) fn row_as_of(
    conn: &Connection,
    kind: &RowKind,
    id: &str,
    seq: i64,
) -> Result<Option<RowAt>, StoreFault> {
    let history: Vec<StoredEvent> = conn
        .prepare_cached(
            "SELECT version, name, data, causation_id, recorded_at, is_published FROM event
             WHERE kind = ?1 AND row_id = ?2 AND seq <= ?3 ORDER BY version",
        )
        .and_then(|mut select| select.query_map(params![kind.name, id, seq], stored_event)?.collect())
        .map_err(db_fault("reading the history of a row up to a position"))?;
    Ok(row_at(kind, id, history))
}

/// Rows among the next `limit` events after `after`.
pub(super) fn changed(conn: &Connection, after: i64, limit: usize) -> Result<ChangedRows, StoreFault> {
    let read = || {
        let mut select =
            conn.prepare_cached("SELECT seq, kind, row_id FROM event WHERE seq > ?1 ORDER BY seq LIMIT ?2")?;
        let mut events = select.query(params![after, i64::try_from(limit).unwrap_or(i64::MAX)])?;
        let (mut rows, mut up_to, mut count) = (BTreeSet::new(), after, 0);
        while let Some(event) = events.next()? {
            (up_to, count) = (event.get(0)?, count + 1);
            rows.insert((event.get(1)?, event.get(2)?));
        }
        Ok(ChangedRows { rows, up_to, is_over: count < limit })
    };
    read().map_err(db_fault("reading what has changed"))
}

/// Hash of the event at this position.
pub(super) fn event_fingerprint(conn: &Connection, seq: i64) -> Result<Option<String>, StoreFault> {
    let read = |row: &rusqlite::Row<'_>| {
        let event = EventIdentity {
            kind: row.get_ref(0)?.as_str()?,
            row_id: row.get_ref(1)?.as_str()?,
            version: row.get(2)?,
            data: row.get_ref(3)?.as_str()?,
            causation_id: row.get(4)?,
            recorded_at: row.get(5)?,
        };
        Ok(event.fingerprint())
    };
    conn.prepare_cached(
        "SELECT kind, row_id, version, data, causation_id, recorded_at FROM event WHERE seq = ?1",
    )
    .and_then(|mut select| select.query_row([seq], read).optional())
    .map_err(db_fault("reading an event"))
}
