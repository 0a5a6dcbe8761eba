//! Shell: queries of rows and their events on PostgreSQL.

use std::collections::BTreeMap;

use saga_core::decider::FieldValue;
use saga_core::query::{FoundRow, Group, Join, Joined, Order, Query};
use saga_core::row::{RowKey, RowKind, StoredEvent};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::pool::Connection;
use super::values::{
    Owned, array_of, count_of, db_fault, is_storable_id, limit_of, number, query, query_opt, quoted, text,
    timestamp, without_nul,
};
use crate::store::StoreFault;

fn found(row: &Row, ordered_by: FieldValue) -> FoundRow {
    FoundRow {
        id: row.get(0),
        version: row.get(1),
        state: row.get(2),
        created_at: timestamp(row.get(3)),
        updated_at: timestamp(row.get(4)),
        ordered_by,
    }
}

pub(super) async fn row(conn: &Connection, key: &RowKey) -> Result<Option<FoundRow>, StoreFault> {
    if !is_storable_id(&key.id) {
        return Ok(None);
    }
    let sql =
        format!("SELECT id, version, state, created_at, updated_at FROM row_{} WHERE id = $1", key.kind);
    let row = query_opt(conn, &sql, &[&key.id]).await.map_err(db_fault("reading a row"))?;
    Ok(row.map(|row| found(&row, FieldValue::Null)))
}

/// Id without NUL characters that sorts like this one among the ids of rows, none of which contains one.
fn storable_bound(id: &str) -> String {
    id.replace('\0', "\u{1}")
}

/// SQL conditions of a query, to follow `WHERE true`, with their parameters.
#[derive(Default)]
struct Conditions {
    sql: String,
    values: Owned,
}

impl Conditions {
    fn parameter(&mut self, value: impl ToSql + Sync + Send + 'static) -> usize {
        self.values.push(Box::new(value));
        self.values.len()
    }

    /// Adds a value of a field, in the type of its column.
    fn field(&mut self, kind: &RowKind, field: &str, value: &FieldValue) -> String {
        let number_of = match kind.is_number(field) {
            true => self.parameter(number(value.clone())),
            false => self.parameter(text(value.clone())),
        };
        format!("${number_of}")
    }

    fn of(kind: &RowKind, query: &Query) -> Self {
        let mut all = Self::default();
        for (operator, conditions) in [("=", &query.equals), ("<", &query.below), (">=", &query.from)] {
            for (field, value) in conditions {
                let place = all.field(kind, field, value);
                all.sql.push_str(&format!(" AND {} {operator} {place}", quoted(field)));
            }
        }
        for (field, options) in &query.one_of {
            all.values.push(array_of(kind, field, options.iter().cloned()));
            all.sql.push_str(&format!(" AND {} = ANY (${})", quoted(field), all.values.len()));
        }
        if let Some(sought) = &query.text {
            let place = all.parameter(without_nul(sought.as_str()));
            all.sql.push_str(&format!(" AND strpos(lower(state), lower(${place})) > 0"));
        }
        let beyond = if query.descending { "<" } else { ">" };
        match (&query.after, query.order) {
            (Some(after), None) => {
                let place = all.parameter(storable_bound(after));
                all.sql.push_str(&format!(" AND id {beyond} ${place}"));
            }
            (Some(after), Some(Order { field, after: Some(value) })) => {
                let (value, id) = (all.parameter(value), all.parameter(storable_bound(after)));
                all.sql.push_str(&format!(" AND ({}, id) {beyond} (${value}, ${id})", quoted(field)));
            }
            (Some(_), Some(Order { after: None, .. })) | (None, _) => {}
        }
        all
    }

    async fn rows(
        &self,
        conn: &Connection,
        sql: &str,
        context: &'static str,
    ) -> Result<Vec<Row>, StoreFault> {
        let values: Vec<_> = self.values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
        query(conn, sql, &values).await.map_err(db_fault(context))
    }
}

pub(super) async fn find(
    conn: &Connection,
    kind: &RowKind,
    query: &Query,
) -> Result<Vec<FoundRow>, StoreFault> {
    let mut conditions = Conditions::of(kind, query);
    let direction = if query.descending { "DESC" } else { "ASC" };
    let by = query.order.map(|order| order.field);
    let first = by.map(|field| format!("{} {direction}, ", quoted(field))).unwrap_or_default();
    let ordered_by = by.map_or_else(|| "NULL::bigint".to_owned(), quoted);
    let limit = conditions.parameter(limit_of(query.limit));
    let sql = format!(
        "SELECT id, version, state, created_at, updated_at, {ordered_by} FROM row_{} WHERE true{}
         ORDER BY {first}id {direction} LIMIT ${limit}",
        kind.name, conditions.sql,
    );
    let is_number = by.is_none_or(|field| kind.is_number(field));
    let ordered = |row: &Row| match is_number {
        true => row.get::<_, Option<i64>>(5).map_or(FieldValue::Null, FieldValue::Integer),
        false => row.get::<_, Option<String>>(5).map_or(FieldValue::Null, FieldValue::Text),
    };
    let rows = conditions.rows(conn, &sql, "finding rows").await?;
    Ok(rows.iter().map(|row| found(row, ordered(row))).collect())
}

pub(super) async fn counts(
    conn: &Connection,
    kind: &RowKind,
    by: &str,
    query: &Query,
) -> Result<BTreeMap<String, u64>, StoreFault> {
    let conditions = Conditions::of(kind, query);
    let sql = format!(
        "SELECT coalesce({by}::text, ''), count(*) FROM row_{} WHERE true{} GROUP BY 1",
        kind.name,
        conditions.sql,
        by = quoted(by),
    );
    let rows = conditions.rows(conn, &sql, "counting rows").await?;
    Ok(rows.iter().map(|row| (row.get(0), count_of(row.get(1)))).collect())
}

pub(super) async fn groups(
    conn: &Connection,
    kind: &RowKind,
    by: &str,
    times: &str,
    query: &Query,
) -> Result<Vec<Group>, StoreFault> {
    let mut conditions = Conditions::of(kind, query);
    let limit = conditions.parameter(limit_of(query.limit));
    // The latest row of a group, by its time and then its id.
    let sql = format!(
        "SELECT value, count(*), min(time), max(time), (array_agg(id ORDER BY time DESC, id))[1]
         FROM (SELECT coalesce({by}::text, '') COLLATE \"C\" AS value, {times} AS time, id FROM row_{} WHERE true{}) AS row
         GROUP BY value ORDER BY 2 DESC, value LIMIT ${limit}",
        kind.name,
        conditions.sql,
        by = quoted(by),
        times = quoted(times),
    );
    let rows = conditions.rows(conn, &sql, "counting rows by a field").await?;
    let group = |row: &Row| Group {
        value: row.get(0),
        count: count_of(row.get(1)),
        first: row.get(2),
        last: row.get(3),
        latest: row.get(4),
    };
    Ok(rows.iter().map(group).collect())
}

pub(super) async fn joined(
    conn: &Connection,
    kind: &RowKind,
    join: &Join,
    query: &Query,
) -> Result<Vec<Joined>, StoreFault> {
    let mut conditions = Conditions::of(kind, query);
    let Join { by, and, through, kind: other, their, range, after } = *join;
    let after = conditions.parameter(after);
    let (by, and, through) = (quoted(by), quoted(and), quoted(through));
    let (their, range) = (quoted(their), quoted(range));
    let sql = format!(
        "SELECT mine.one, mine.two, other.{their}::text COLLATE \"C\", count(*),
                count(*) FILTER (WHERE other.{range} <= ${after}),
                min(other.{range}) FILTER (WHERE other.{range} > ${after}),
                max(other.{range}) FILTER (WHERE other.{range} > ${after})
         FROM (SELECT coalesce({by}::text, '') COLLATE \"C\" AS one, coalesce({and}::text, '') COLLATE \"C\" AS two,
                      {through} AS through FROM row_{} WHERE true{}) AS mine
         LEFT JOIN row_{other} AS other ON other.id = mine.through
         GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 NULLS FIRST",
        kind.name, conditions.sql,
    );
    let rows = conditions.rows(conn, &sql, "counting related rows").await?;
    let joined = |row: &Row| {
        let (least, greatest): (Option<i64>, Option<i64>) = (row.get(5), row.get(6));
        Joined {
            by: row.get(0),
            and: row.get(1),
            their: row.get(2),
            count: count_of(row.get(3)),
            past: count_of(row.get(4)),
            range: least.zip(greatest),
        }
    };
    Ok(rows.iter().map(joined).collect())
}

/// Reads version, name, data, causation id, time and publication of an event.
pub(super) fn stored_event(row: &Row) -> StoredEvent {
    StoredEvent {
        version: row.get(0),
        name: row.get(1),
        data: row.get(2),
        causation_id: row.get(3),
        recorded_at: timestamp(row.get(4)),
        is_published: row.get(5),
    }
}

/// Events of a row after the version `after`, oldest first.
pub(super) async fn history(
    conn: &Connection,
    kind: &str,
    id: &str,
    after: i64,
    limit: usize,
) -> Result<Vec<StoredEvent>, StoreFault> {
    if !is_storable_id(id) {
        return Ok(vec![]);
    }
    let events = history_between(conn, kind, id, after, i64::MAX, limit_of(limit));
    events.await.map_err(db_fault("reading the history of a row"))
}

/// Whole histories of these rows, in their order.
pub(super) async fn histories(
    conn: &Connection,
    kind: &str,
    ids: &[String],
) -> Result<Vec<Vec<StoredEvent>>, StoreFault> {
    let sql = "SELECT version, name, data, causation_id, recorded_at, is_published, row_id FROM event
         WHERE kind = $1 AND row_id = ANY ($2) ORDER BY row_id, version";
    let events = query(conn, sql, &[&kind, &ids]).await.map_err(db_fault("reading the history of rows"))?;
    let mut by_row: BTreeMap<&str, Vec<StoredEvent>> = BTreeMap::new();
    for row in &events {
        by_row.entry(row.get(6)).or_default().push(stored_event(row));
    }
    Ok(ids.iter().map(|id| by_row.get(id.as_str()).cloned().unwrap_or_default()).collect())
}

/// Events of a row after the version `after` and before the version `before`.
pub(super) async fn history_between(
    conn: &Connection,
    kind: &str,
    id: &str,
    after: i64,
    before: i64,
    limit: i64,
) -> Result<Vec<StoredEvent>, Error> {
    let sql = "SELECT version, name, data, causation_id, recorded_at, is_published FROM event
         WHERE kind = $1 AND row_id = $2 AND version > $3 AND version < $4 ORDER BY version LIMIT $5";
    let events = query(conn, sql, &[&kind, &id, &after, &before, &limit]).await?;
    Ok(events.iter().map(stored_event).collect())
}
