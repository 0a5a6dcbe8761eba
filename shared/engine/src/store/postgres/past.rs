//! Shell: how a row was, and which have changed since: what a look needs that begins where the last one ended.

use std::collections::BTreeSet;

use saga_core::row::{RowKind, StoredEvent};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::pool::Connection;
use super::read::stored_event;
use super::values::{hex, limit_of, oops, query, query_opt};
use crate::store::as_of::row_of;
use crate::store::{Changes, RowAsOf, StoreFault};

/// A row when the event at `seq` was the last; `None` when it was not there yet.
pub(super) async fn row_as_of(
    conn: &Connection,
    kind: &RowKind,
    id: &str,
    seq: i64,
) -> Result<Option<RowAsOf>, StoreFault> {
    let sql = "SELECT version, name, data, causation_id, recorded_at, is_published FROM event
         WHERE kind = $1 AND row_id = $2 AND seq <= $3 ORDER BY version";
    let context = "reading the history of a row up to a time";
    let history = query(conn, sql, &[&kind.name, &id, &seq]).await.map_err(oops(context))?;
    let history: Vec<StoredEvent> = history.iter().map(stored_event).collect();
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

/// The rows among the next `limit` events behind `after`. Positions are given in the order of the commits: none comes later
/// that stands before one that was seen.
pub(super) async fn changed(conn: &Connection, after: i64, limit: usize) -> Result<Changed, StoreFault> {
    let sql = "SELECT seq, kind, row_id FROM event WHERE seq > $1 ORDER BY seq LIMIT $2";
    let found =
        query(conn, sql, &[&after, &limit_of(limit)]).await.map_err(oops("reading what has changed"))?;
    Ok(Changed {
        rows: found.iter().map(|event| (event.get(1), event.get(2))).collect(),
        up_to: found.last().map_or(after, |event| event.get(0)),
        is_over: found.len() < limit,
    })
}

/// The same of one kind.
pub(super) async fn changes(
    conn: &Connection,
    kind: &str,
    after: i64,
    limit: usize,
) -> Result<Changes, StoreFault> {
    let Changed { rows, up_to, is_over } = changed(conn, after, limit).await?;
    let ids = rows.into_iter().filter(|(of, _)| of == kind).map(|(_, id)| id).collect();
    Ok(Changes { ids, up_to, is_over })
}

/// A hash of the event at this position.
pub(super) async fn fingerprint(conn: &Connection, seq: i64) -> Result<Option<String>, StoreFault> {
    let sql = "SELECT kind, row_id, version, data, causation_id, recorded_at FROM event WHERE seq = $1";
    let event = query_opt(conn, sql, &[&seq]).await.map_err(oops("reading an event"))?;
    Ok(event.map(|row| {
        let (kind, id, version): (&str, &str, i64) = (row.get(0), row.get(1), row.get(2));
        let (data, cause, at): (&str, Uuid, i64) = (row.get(3), row.get(4), row.get(5));
        hex(&Sha256::digest(format!("{kind}/{id}/{version}/{cause}/{at}/{data}")))
    }))
}
