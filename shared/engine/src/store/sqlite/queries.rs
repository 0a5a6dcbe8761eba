//! Shell: queries of rows and their events on SQLite.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params};
use saga_core::query::{FoundRow, Group, Join, Joined, Order, Query};
use saga_core::row::{RowKey, StoredEvent};

use super::values::{db_fault, field_value, limit_of, read_field, timestamp};
use crate::store::StoreFault;

fn found(row: &rusqlite::Row<'_>) -> rusqlite::Result<FoundRow> {
    Ok(FoundRow {
        id: row.get(0)?,
        version: row.get(1)?,
        state: row.get(2)?,
        created_at: timestamp(row.get(3)?),
        updated_at: timestamp(row.get(4)?),
        ordered_by: read_field(row.get_ref(5)?),
    })
}

pub(super) fn row(conn: &Connection, key: &RowKey) -> Result<Option<FoundRow>, StoreFault> {
    let sql = format!(
        "SELECT id, version, state, created_at, updated_at, NULL FROM row_{} WHERE id = ?1",
        key.kind
    );
    conn.prepare_cached(&sql)
        .and_then(|mut select| select.query_row([&key.id], found).optional())
        .map_err(db_fault("reading a row"))
}

/// SQL conditions of a query, to follow `WHERE 1`, with their values.
fn conditions(query: &Query) -> (String, Vec<Value>) {
    let (mut sql, mut values) = (String::new(), Vec::<Value>::new());
    let mut place = |value: Value| {
        values.push(value);
        values.len()
    };
    for (operator, conditions) in [("=", &query.equals), ("<", &query.below), (">=", &query.from)] {
        for (field, value) in conditions {
            let _ = write!(sql, " AND {field} {operator} ?{}", place(field_value(value)));
        }
    }
    for (field, options) in &query.one_of {
        let places: Vec<String> =
            options.iter().map(|value| format!("?{}", place(field_value(value)))).collect();
        let _ = write!(sql, " AND {field} IN ({})", places.join(", "));
    }
    if let Some(text) = &query.text {
        let _ = write!(sql, " AND instr(lower(state), lower(?{})) > 0", place(text.clone().into()));
    }
    let beyond = if query.descending { "<" } else { ">" };
    match (&query.after, query.order) {
        (Some(after), None) => {
            let _ = write!(sql, " AND id {beyond} ?{}", place(after.clone().into()));
        }
        (Some(after), Some(Order { field, after: Some(value) })) => {
            let (value, id) = (place(value.into()), place(after.clone().into()));
            let _ = write!(sql, " AND ({field}, id) {beyond} (?{value}, ?{id})");
        }
        (Some(_), Some(Order { after: None, .. })) | (None, _) => {}
    }
    (sql, values)
}

pub(super) fn find(conn: &Connection, kind: &str, query: &Query) -> Result<Vec<FoundRow>, StoreFault> {
    let (conditions, mut values) = conditions(query);
    let direction = if query.descending { "DESC" } else { "ASC" };
    let first = query.order.map(|order| format!("{} {direction}, ", order.field)).unwrap_or_default();
    let by = query.order.map_or("NULL", |order| order.field);
    values.push(limit_of(query.limit).into());
    let sql = format!(
        "SELECT id, version, state, created_at, updated_at, {by} FROM row_{kind} WHERE 1{conditions}
         ORDER BY {first}id {direction} LIMIT ?{}",
        values.len()
    );
    conn.prepare_cached(&sql)
        .and_then(|mut select| select.query_map(rusqlite::params_from_iter(values), found)?.collect())
        .map_err(db_fault("finding rows"))
}

pub(super) fn counts(
    conn: &Connection,
    kind: &str,
    by: &str,
    query: &Query,
) -> Result<BTreeMap<String, u64>, StoreFault> {
    let (conditions, values) = conditions(query);
    let sql = format!("SELECT {by}, count(*) FROM row_{kind} WHERE 1{conditions} GROUP BY {by}");
    let read = |row: &rusqlite::Row<'_>| {
        let value: Option<String> = row.get(0)?;
        Ok((value.unwrap_or_default(), u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0)))
    };
    conn.prepare_cached(&sql)
        .and_then(|mut select| select.query_map(rusqlite::params_from_iter(values), read)?.collect())
        .map_err(db_fault("counting rows"))
}

pub(super) fn groups(
    conn: &Connection,
    kind: &str,
    by: &str,
    times: &str,
    query: &Query,
) -> Result<Vec<Group>, StoreFault> {
    let (conditions, mut values) = conditions(query);
    values.push(limit_of(query.limit).into());
    // With max() as the only aggregate of its kind, SQLite takes the bare column `id` from the row of the maximum
    // (https://sqlite.org/lang_select.html#bareagg). A min() beside it would break that, so it has its own subquery.
    let sql = format!(
        "SELECT latest.value, latest.count, oldest.first, latest.last, latest.id
         FROM (SELECT coalesce({by}, '') AS value, count(*) AS count, max({times}) AS last, id
               FROM row_{kind} WHERE 1{conditions} GROUP BY 1) AS latest
         JOIN (SELECT coalesce({by}, '') AS value, min({times}) AS first
               FROM row_{kind} WHERE 1{conditions} GROUP BY 1) AS oldest USING (value)
         ORDER BY latest.count DESC, latest.value LIMIT ?{}",
        values.len()
    );
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Group {
            value: row.get(0)?,
            count: u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0),
            first: row.get(2)?,
            last: row.get(3)?,
            latest: row.get(4)?,
        })
    };
    conn.prepare_cached(&sql)
        .and_then(|mut select| select.query_map(rusqlite::params_from_iter(values), read)?.collect())
        .map_err(db_fault("counting rows by a field"))
}

pub(super) fn joined(
    conn: &Connection,
    kind: &str,
    join: &Join,
    query: &Query,
) -> Result<Vec<Joined>, StoreFault> {
    let (conditions, mut values) = conditions(query);
    let Join { by, and, through, kind: other, their, range, after } = *join;
    values.push(after.into());
    let after = values.len();
    let sql = format!(
        "SELECT mine.one, mine.two, other.{their}, count(*), count(*) FILTER (WHERE other.{range} <= ?{after}),
                min(other.{range}) FILTER (WHERE other.{range} > ?{after}),
                max(other.{range}) FILTER (WHERE other.{range} > ?{after})
         FROM (SELECT coalesce({by}, '') AS one, coalesce({and}, '') AS two, {through} AS through
               FROM row_{kind} WHERE 1{conditions}) AS mine
         LEFT JOIN row_{other} AS other ON other.id = mine.through
         GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    );
    let read = |row: &rusqlite::Row<'_>| {
        let count = |column| Ok::<_, rusqlite::Error>(u64::try_from(row.get::<_, i64>(column)?).unwrap_or(0));
        let (least, greatest): (Option<i64>, Option<i64>) = (row.get(5)?, row.get(6)?);
        Ok(Joined {
            by: row.get(0)?,
            and: row.get(1)?,
            their: row.get(2)?,
            count: count(3)?,
            past: count(4)?,
            range: least.zip(greatest),
        })
    };
    conn.prepare_cached(&sql)
        .and_then(|mut select| select.query_map(rusqlite::params_from_iter(values), read)?.collect())
        .map_err(db_fault("counting related rows"))
}

/// Reads version, name, data, causation id, time and publication of an event.
pub(super) fn stored_event(row: &rusqlite::Row<'_>) -> rusqlite::Result<StoredEvent> {
    Ok(StoredEvent {
        version: row.get(0)?,
        name: row.get(1)?,
        data: row.get(2)?,
        causation_id: row.get(3)?,
        recorded_at: timestamp(row.get(4)?),
        is_published: row.get(5)?,
    })
}

/// Events of a row after the version `after`, oldest first.
pub(super) fn history(
    conn: &Connection,
    kind: &str,
    id: &str,
    after: i64,
    limit: usize,
) -> Result<Vec<StoredEvent>, StoreFault> {
    history_between(conn, kind, id, after, i64::MAX, limit_of(limit))
        .map_err(db_fault("reading the history of a row"))
}

/// Events of a row after the version `after` and before the version `before`.
pub(super) fn history_between(
    conn: &Connection,
    kind: &str,
    id: &str,
    after: i64,
    before: i64,
    limit: i64,
) -> rusqlite::Result<Vec<StoredEvent>> {
    conn.prepare_cached(
        "SELECT version, name, data, causation_id, recorded_at, is_published FROM event
         WHERE kind = ?1 AND row_id = ?2 AND version > ?3 AND version < ?4 ORDER BY version LIMIT ?5",
    )?
    .query_map(params![kind, id, after, before, limit], stored_event)?
    .collect()
}
