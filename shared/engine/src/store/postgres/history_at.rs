//! Shell: past states of rows, and changes since a position.

use saga_core::row::{RowKind, StoredEvent};

use super::pool::Connection;
use super::queries::stored_event;
use super::values::{db_fault, limit_of, query, query_opt};
use crate::store::history::{ChangedRows, EventIdentity, row_at};
use crate::store::{RowAt, StoreFault};

/// Row as of the event at `seq`; `None` if it did not exist yet.
pub(super) async fn row_as_of(
    conn: &Connection,
    kind: &RowKind,
    id: &str,
    seq: i64,
) -> Result<Option<RowAt>, StoreFault> {
    let sql = "SELECT version, name, data, causation_id, recorded_at, is_published FROM event
         WHERE kind = $1 AND row_id = $2 AND seq <= $3 ORDER BY version";
    let context = "reading the history of a row up to a position";
    let history = query(conn, sql, &[&kind.name, &id, &seq]).await.map_err(db_fault(context))?;
    let history: Vec<StoredEvent> = history.iter().map(stored_event).collect();
    Ok(row_at(kind, id, history))
}

/// Rows among the next `limit` events after `after`. Positions follow the order of commits, so that no event appears later
/// before one that was read.
pub(super) async fn changed(conn: &Connection, after: i64, limit: usize) -> Result<ChangedRows, StoreFault> {
    let sql = "SELECT seq, kind, row_id FROM event WHERE seq > $1 ORDER BY seq LIMIT $2";
    let events = query(conn, sql, &[&after, &limit_of(limit)]).await;
    let events = events.map_err(db_fault("reading what has changed"))?;
    Ok(ChangedRows {
        rows: events.iter().map(|event| (event.get(1), event.get(2))).collect(),
        up_to: events.last().map_or(after, |event| event.get(0)),
        is_over: events.len() < limit,
    })
}

/// Hash of the event at this position.
pub(super) async fn event_fingerprint(conn: &Connection, seq: i64) -> Result<Option<String>, StoreFault> {
    let sql = "SELECT kind, row_id, version, data, causation_id, recorded_at FROM event WHERE seq = $1";
    let row = query_opt(conn, sql, &[&seq]).await.map_err(db_fault("reading an event"))?;
    let event = row.as_ref().map(|row| EventIdentity {
        kind: row.get(0),
        row_id: row.get(1),
        version: row.get(2),
        data: row.get(3),
        causation_id: row.get(4),
        recorded_at: row.get(5),
    });
    Ok(event.map(|event| event.fingerprint()))
}
