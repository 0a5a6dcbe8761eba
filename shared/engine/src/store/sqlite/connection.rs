//! Shell: a connection to SQLite that executes the statements of the store.

use std::collections::BTreeMap;
use std::future::ready;

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};
use rusqlite::types::ToSql;
use rusqlite::{Connection, Statement, params};
use saga_core::decider::FieldValue;
use saga_core::row::{Projected, RowKind};

use super::values::{field_value, insert_sql};
use crate::store::encoding::{indexed, micros};
use crate::store::sql::{FoldedRow, Row, Sql, Values};
use crate::store::sql_error::SqlError;

/// Connection that one thread at a time uses. The lock lets futures hold it; it is never contended.
pub(in crate::store) struct SharedConnection(ReentrantMutex<Connection>);

impl SharedConnection {
    pub(super) const fn new(conn: Connection) -> Self {
        Self(ReentrantMutex::new(conn))
    }

    pub(super) fn lock(&self) -> ReentrantMutexGuard<'_, Connection> {
        self.0.lock()
    }

    pub(super) fn get_mut(&mut self) -> &mut Connection {
        self.0.get_mut()
    }

    fn query_now<T>(
        &self,
        sql: &str,
        values: &Values<'_>,
        read: impl Fn(&Row<'_>) -> Result<T, SqlError>,
    ) -> Result<Vec<T>, SqlError> {
        let conn = self.lock();
        let mut statement = conn.prepare_cached(sql)?;
        bind(&mut statement, values)?;
        let (mut rows, mut all) = (statement.raw_query(), Vec::new());
        while let Some(row) = rows.next()? {
            all.push(read(&Row::Sqlite(row))?);
        }
        Ok(all)
    }

    fn execute_now(&self, sql: &str, values: &Values<'_>) -> Result<u64, SqlError> {
        let conn = self.lock();
        let mut statement = conn.prepare_cached(sql)?;
        bind(&mut statement, values)?;
        Ok(u64::try_from(statement.raw_execute()?).unwrap_or(u64::MAX))
    }

    fn insert_rows_now(&self, kind: &RowKind, rows: &[FoldedRow]) -> Result<(), SqlError> {
        let conn = self.lock();
        let mut insert = conn.prepare_cached(&insert_sql(kind))?;
        for FoldedRow { id, version, created_at, updated_at, projected } in rows {
            let Projected { state, fields, due } = projected;
            let due = due.map(micros);
            let head: [&dyn ToSql; 6] = [id, version, state, created_at, updated_at, &due];
            let fields: Vec<_> = fields.iter().map(field_value).collect();
            let values = head.into_iter().chain(fields.iter().map(|value| value as &dyn ToSql));
            insert.execute(rusqlite::params_from_iter(values))?;
        }
        Ok(())
    }
}

/// Binds values to the parameters, whose names are `$1` or `$1::type`.
fn bind(statement: &mut Statement<'_>, values: &Values<'_>) -> Result<(), SqlError> {
    for index in 1..=statement.parameter_count() {
        let name = statement.parameter_name(index).unwrap_or_default();
        let number = name.trim_start_matches('$').split(':').next().and_then(|digits| digits.parse().ok());
        let value = number.and_then(|number: usize| values.get(number.checked_sub(1)?));
        let value: &dyn ToSql = match value {
            Some(value) => *value,
            None => return Err(rusqlite::Error::InvalidParameterName(name.to_owned()).into()),
        };
        statement.raw_bind_parameter(index, value)?;
    }
    Ok(())
}

/// Adds to the lifetime counts of messages.
pub(super) fn add_to_message_counts(
    conn: &Connection,
    outcome: &str,
    counts: &BTreeMap<impl AsRef<str>, i64>,
) -> rusqlite::Result<()> {
    for (name, count) in counts {
        conn.prepare_cached(
            "INSERT INTO message_count (outcome, name, count) VALUES (?1, ?2, ?3)
             ON CONFLICT (outcome, name) DO UPDATE SET count = count + excluded.count",
        )?
        .execute(params![outcome, name.as_ref(), count])?;
    }
    Ok(())
}

/// Nothing needs a lock: while one transaction writes, no other does.
impl Sql for SharedConnection {
    // Small, because a read that nobody waits for is interrupted only within SQL.
    const PAGE: i64 = 200;
    const STORES_NUL: bool = true;
    const SKIP_LOCKED: &'static str = "";
    const FOR_SHARE: &'static str = "";
    const POSITION: &'static str = "instr";
    const LAST_EVENT: &'static str = "(SELECT coalesce(max(seq), 0) FROM event)";
    const GENERATION: Option<&'static str> = None;
    const LAST_ENTRY: &'static str = "(SELECT coalesce(max(seq), 0) FROM outbox)";
    const CLOCK: Option<&'static str> = None;
    const BY_STATUS: &'static str = " INDEXED BY outbox_out_of_sequence";
    const BY_PUBLICATION: &'static str = " INDEXED BY outbox_published_out_of_sequence";
    const FIRST_RETRY_CLAIM: &'static str = "NULL";
    const DUE_RETRIES: &'static str = include_str!("sql/due_retries.sql");
    const APPEND_EVENT: &'static str = include_str!("sql/append_event.sql");

    fn any(parameter: usize) -> String {
        format!("IN (SELECT value FROM json_each(${parameter}))")
    }

    fn among(select: &str) -> String {
        format!("IN ({select})")
    }

    fn query<T: Send>(
        &self,
        sql: &str,
        values: &Values<'_>,
        read: impl Fn(&Row<'_>) -> Result<T, SqlError> + Send,
    ) -> impl Future<Output = Result<Vec<T>, SqlError>> + Send {
        ready(self.query_now(sql, values, read))
    }

    fn execute(&self, sql: &str, values: &Values<'_>) -> impl Future<Output = Result<u64, SqlError>> + Send {
        ready(self.execute_now(sql, values))
    }

    async fn lock_log(&self) -> Result<(), SqlError> {
        Ok(())
    }

    async fn lock_table(&self, _kind: &'static str) -> Result<(), SqlError> {
        Ok(())
    }

    async fn lock_rows(
        &self,
        _kind: &'static str,
        ids: Vec<String>,
        _versions: Vec<i64>,
    ) -> Result<Vec<String>, SqlError> {
        Ok(ids)
    }

    fn insert_rows(
        &self,
        kind: &RowKind,
        rows: Vec<FoldedRow>,
    ) -> impl Future<Output = Result<(), SqlError>> + Send {
        ready(self.insert_rows_now(kind, &rows))
    }

    async fn add_to_message_counts(
        &self,
        outcome: &'static str,
        counts: &BTreeMap<String, i64>,
    ) -> Result<(), SqlError> {
        Ok(add_to_message_counts(&self.lock(), outcome, counts)?)
    }

    fn stored_value(kind: &RowKind, field: &str, value: FieldValue) -> FieldValue {
        match value {
            FieldValue::Text(text) if kind.fields.contains(&field) => FieldValue::Text(indexed(text)),
            FieldValue::Text(_) | FieldValue::Integer(_) | FieldValue::Null => value,
        }
    }
}
