//! Shell: conversion of values and faults between PostgreSQL and the store, and pipelined statements.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use futures::FutureExt as _;
use futures::future::{BoxFuture, maybe_done};
use saga_core::dead_letter::{DeadLetterStatus, StoredDeadLetter};
use saga_core::decider::FieldValue;
use saga_core::row::RowKind;
use saga_core::trace::TraceContext;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row, Statement};

use super::pool::Connection;
use crate::store::StoreFault;
pub(super) use crate::store::encoding::{micros, timestamp};

pub(super) type Values<'v> = [&'v (dyn ToSql + Sync)];

/// Parameters of a statement that is built before it is sent.
pub(super) type Owned = Vec<Box<dyn ToSql + Sync + Send>>;

/// Reads a trace context; `None` if it is damaged.
pub(super) fn trace(bytes: Option<&[u8]>) -> Option<TraceContext> {
    bytes.and_then(TraceContext::from_bytes)
}

pub(super) fn count_of(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

pub(super) fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Quotes the name of a field, which may be a keyword of SQL.
pub(super) fn quoted(field: &str) -> String {
    format!("\"{field}\"")
}

/// Value for a numeric column.
pub(super) fn number(value: FieldValue) -> Option<i64> {
    match value {
        FieldValue::Integer(number) => Some(number),
        FieldValue::Text(_) | FieldValue::Null => None,
    }
}

/// Value for a text column.
pub(super) fn text(value: FieldValue) -> Option<String> {
    match value {
        FieldValue::Text(text) => Some(without_nul(text)),
        FieldValue::Integer(number) => Some(number.to_string()),
        FieldValue::Null => None,
    }
}

/// Type of a field's column.
pub(super) fn type_of(kind: &RowKind, field: &str) -> &'static str {
    if kind.is_number(field) { "bigint" } else { "text" }
}

/// Values of a field, as an array of its column's type.
pub(super) fn array_of(
    kind: &RowKind,
    field: &str,
    values: impl Iterator<Item = FieldValue>,
) -> Box<dyn ToSql + Sync + Send> {
    match kind.is_number(field) {
        true => Box::new(values.map(number).collect::<Vec<_>>()),
        false => Box::new(values.map(text).collect::<Vec<_>>()),
    }
}

/// Returns true if a row may have this id. PostgreSQL stores no text with a NUL character.
pub(super) fn is_storable_id(id: &str) -> bool {
    !id.contains('\0')
}

/// Replaces NUL characters, which error messages, fields and searched texts may contain.
pub(super) fn without_nul(text: impl Into<String>) -> String {
    let text = text.into();
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// Maps an error of PostgreSQL to a fault of the store.
pub(super) fn db_fault(context: &'static str) -> impl Fn(Error) -> StoreFault {
    move |source| match is_rejection(&source) {
        true => StoreFault::Rejected { context, source: Box::new(source) },
        false => StoreFault::Database { context, source: Box::new(source) },
    }
}

/// Returns true if the values are at fault: they conflict with stored ones, or have a wrong type.
/// Classes of <https://www.postgresql.org/docs/15/errcodes-appendix.html>: 22 data, 23 integrity, 54 limits.
fn is_rejection(error: &Error) -> bool {
    match error.code() {
        Some(code) => ["22", "23", "54"].iter().any(|class| code.code().starts_with(class)),
        // A value that cannot be encoded; not a broken connection.
        None => {
            std::error::Error::source(error).is_some_and(|source| !source.is::<std::io::Error>())
                && !error.is_closed()
                && error.as_db_error().is_none()
                && error.to_string().contains("serializing parameter")
        }
    }
}

/// Returns true if the server aborted a transaction in favour of another, so that it may be repeated at once.
pub(super) fn is_collision(fault: &StoreFault) -> bool {
    code_of(fault).is_some_and(|code| {
        [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code)
    })
}

/// Returns true if the connection was lost, so that the result of the last statement is unknown.
pub(super) fn is_lost(fault: &StoreFault) -> bool {
    let StoreFault::Database { source, .. } = fault else { return false };
    // An unanswered statement had no effect, unless it was a commit.
    source.downcast_ref::<Error>().is_some_and(|error| error.code().is_none_or(is_end_of_connection))
}

/// Class 08; the codes of class 57 that end a connection, such as a shutdown; and 25P03, after this process hung in a
/// transaction.
fn is_end_of_connection(code: &SqlState) -> bool {
    let code = code.code();
    code.starts_with("08") || (code.starts_with("57P") && code != "57P04") || code == "25P03"
}

fn code_of(fault: &StoreFault) -> Option<&SqlState> {
    match fault {
        StoreFault::Database { source, .. } | StoreFault::Rejected { source, .. } => {
            source.downcast_ref::<Error>().and_then(Error::code)
        }
        StoreFault::Conflict(_) | StoreFault::Unusable(_) | StoreFault::Panicked(_) | StoreFault::Closed => {
            None
        }
    }
}

/// Prepares a statement, once for each connection.
pub(super) async fn prepared(conn: &Connection, sql: &str) -> Result<Statement, Error> {
    conn.client().prepare_cached(sql).await
}

pub(super) async fn query(conn: &Connection, sql: &str, values: &Values<'_>) -> Result<Vec<Row>, Error> {
    conn.client().query(&prepared(conn, sql).await?, values).await
}

pub(super) async fn query_one(conn: &Connection, sql: &str, values: &Values<'_>) -> Result<Row, Error> {
    conn.client().query_one(&prepared(conn, sql).await?, values).await
}

pub(super) async fn query_opt(
    conn: &Connection,
    sql: &str,
    values: &Values<'_>,
) -> Result<Option<Row>, Error> {
    conn.client().query_opt(&prepared(conn, sql).await?, values).await
}

/// Executes a statement. Returns the number of changed rows.
pub(super) async fn execute(conn: &Connection, sql: &str, values: &Values<'_>) -> Result<u64, Error> {
    conn.client().execute(&prepared(conn, sql).await?, values).await
}

/// Prepared statement with its parameters.
pub(super) struct Ready {
    statement: Statement,
    values: Owned,
}

impl Ready {
    pub(super) async fn of(conn: &Connection, sql: &str, values: Owned) -> Result<Self, Error> {
        Ok(Self { statement: prepared(conn, sql).await?, values })
    }

    fn sent<'s>(&'s self, conn: &'s Connection) -> BoxFuture<'s, Result<Vec<Row>, Error>> {
        let values: Vec<_> = self.values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
        Box::pin(async move { conn.client().query(&self.statement, &values).await })
    }
}

/// Sends all statements at once, in order, and returns the rows of each. After one that fails, the others fail too.
pub(super) async fn pipelined(conn: &Connection, statements: &[Ready]) -> Vec<Result<Vec<Row>, Error>> {
    let mut queries: Vec<_> = statements.iter().map(|ready| maybe_done(ready.sent(conn))).collect();
    // A query is sent when it is first polled, and queries are polled in order.
    poll_fn(|context| {
        let mut is_done = true;
        for query in &mut queries {
            is_done &= query.poll_unpin(context).is_ready();
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    queries.iter_mut().filter_map(|query| Pin::new(query).take_output()).collect()
}

/// Reads content, status, revision and message id of a dead letter from the first columns.
pub(super) fn stored_dead_letter(row: &Row) -> Result<StoredDeadLetter, String> {
    let (json, status): (&str, &str) = (row.get(0), row.get(1));
    Ok(StoredDeadLetter {
        dead_letter: serde_json::from_str(json).map_err(|error| error.to_string())?,
        status: DeadLetterStatus::named(status).ok_or_else(|| format!("{status:?} is no status"))?,
        revision: count_of(row.get(2)),
        inbox_id: row.get(3),
    })
}
