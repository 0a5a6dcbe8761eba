//! Shell: reads rows and events, damaged ones too. A damaged cell hides no other row or event.

use std::collections::BTreeMap;

use saga_core::decider::FieldValue;
use saga_core::query::FoundRow;
use saga_core::row::StoredEvent;
use uuid::Uuid;

use super::cell::Cell;
use super::encoding::timestamp;
use super::sql::{Array, Row, Sql};
use super::sql_error::SqlError;

/// Returns true if a row may have this id.
pub(super) fn is_storable_id<S: Sql>(id: &str) -> bool {
    S::STORES_NUL || !id.contains('\0')
}

/// Reads the columns of a row, without the value that it is ordered by; `None` if the id is damaged. The state of a row with
/// another damaged column is no JSON, so that its readers report it.
pub(super) fn found(row: &Row<'_>) -> Result<Option<FoundRow>, SqlError> {
    let Cell::Text(id) = row.cell(0, false)? else { return Ok(None) };
    let [version, created_at, updated_at] =
        [row.cell(1, true)?.integer(), row.cell(3, true)?.integer(), row.cell(4, true)?.integer()];
    let is_damaged = [
        ("version", version.is_none()),
        ("created_at", created_at.is_none()),
        ("updated_at", updated_at.is_none()),
    ];
    let state = json_beside(row, 2, &is_damaged)?;
    Ok(Some(FoundRow {
        id,
        version: version.unwrap_or_default(),
        state,
        created_at: timestamp(created_at.unwrap_or_default()),
        updated_at: timestamp(updated_at.unwrap_or_default()),
        ordered_by: FieldValue::Null,
    }))
}

/// Reads a JSON text, or text that is no JSON and names the first other column that is damaged.
fn json_beside(row: &Row<'_>, column: usize, is_damaged: &[(&str, bool)]) -> Result<String, SqlError> {
    match is_damaged.iter().find(|(_, is_damaged)| *is_damaged) {
        Some((other, _)) => Ok(format!("damaged: the column {other}")),
        None => row.readable_text(column),
    }
}

/// Columns of a [`StoredEvent`], in the order that [`stored_event`] reads.
pub(super) const EVENT: &str = "version, name, data, causation_id, recorded_at, is_published";

pub(super) fn stored_event(row: &Row<'_>) -> Result<StoredEvent, SqlError> {
    Ok(StoredEvent {
        version: row.get(0)?,
        name: row.get(1)?,
        data: row.get(2)?,
        causation_id: row.get(3)?,
        recorded_at: row.time(4)?,
        is_published: row.get(5)?,
    })
}

/// Reads an event for people and for verification. The data of an event with another damaged column is no JSON, so that its
/// readers report it.
pub(super) fn readable_event(row: &Row<'_>) -> Result<StoredEvent, SqlError> {
    let (version, recorded_at) = (row.cell(0, true)?.integer(), row.cell(4, true)?.integer());
    let (causation_id, is_published): (Option<Uuid>, Option<bool>) = (row.undamaged(3)?, row.undamaged(5)?);
    let is_damaged = [
        ("version", version.is_none()),
        ("recorded_at", recorded_at.is_none()),
        ("causation_id", causation_id.is_none()),
        ("is_published", is_published.is_none()),
    ];
    let data = json_beside(row, 2, &is_damaged)?;
    Ok(StoredEvent {
        version: version.unwrap_or_default(),
        name: row.readable_text(1)?,
        data,
        causation_id: causation_id.unwrap_or_default(),
        recorded_at: timestamp(recorded_at.unwrap_or_default()),
        is_published: is_published.unwrap_or_default(),
    })
}

/// Events of a row with versions between two others, oldest first, damaged ones too.
pub(super) async fn readable_history<S: Sql>(
    db: &S,
    kind: &str,
    id: &str,
    versions: (i64, i64),
    limit: i64,
) -> Result<Vec<StoredEvent>, SqlError> {
    history(db, (kind, id), versions, limit, readable_event).await
}

/// Events of a row with versions between two others, oldest first. None may be damaged.
pub(super) async fn history_between<S: Sql>(
    db: &S,
    kind: &str,
    id: &str,
    versions: (i64, i64),
    limit: i64,
) -> Result<Vec<StoredEvent>, SqlError> {
    history(db, (kind, id), versions, limit, stored_event).await
}

async fn history<S: Sql>(
    db: &S,
    (kind, id): (&str, &str),
    (after, before): (i64, i64),
    limit: i64,
    read: fn(&Row<'_>) -> Result<StoredEvent, SqlError>,
) -> Result<Vec<StoredEvent>, SqlError> {
    if !is_storable_id::<S>(id) {
        return Ok(vec![]);
    }
    let sql = format!(
        "SELECT {EVENT} FROM event WHERE kind = $1 AND row_id = $2 AND version > $3 AND version < $4
         ORDER BY version LIMIT $5"
    );
    db.query(&sql, &[&kind, &id, &after, &before, &limit], read).await
}

/// Whole histories of these rows, in their order.
pub(super) async fn histories<S: Sql>(
    db: &S,
    kind: &str,
    ids: &[String],
) -> Result<Vec<Vec<StoredEvent>>, SqlError> {
    let sql = format!(
        "SELECT {EVENT}, row_id FROM event WHERE kind = $1 AND row_id {} ORDER BY row_id, version",
        S::any(2)
    );
    let read = |row: &Row<'_>| Ok((row.get::<String>(6)?, readable_event(row)?));
    let mut by_row: BTreeMap<String, Vec<StoredEvent>> = BTreeMap::new();
    for (id, event) in db.query(&sql, &[&kind, &Array(ids)], read).await? {
        by_row.entry(id).or_default().push(event);
    }
    Ok(ids.iter().map(|id| by_row.get(id).cloned().unwrap_or_default()).collect())
}
