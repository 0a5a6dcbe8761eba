//! Shell: conversion of values between PostgreSQL and the store, kinds of faults, and pipelined statements.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use deadpool_postgres::PoolError;
use futures::FutureExt as _;
use futures::future::{BoxFuture, maybe_done};
use saga_core::decider::FieldValue;
use saga_core::row::RowKind;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row, Statement};

use super::pool::Connection;
use super::pooler::Unanswered;
use crate::store::StoreFault;
use crate::store::encoding::{indexed, without_nul};
use crate::store::sql_error::{is_read_only, sql_state};

/// Parameters of a statement that is built before it is sent.
pub(super) type Owned = Vec<Box<dyn ToSql + Sync + Send>>;

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
        FieldValue::Text(text) => Some(indexed(without_nul(text))),
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

/// Returns true if the server aborted a transaction in favour of another, so that it may be repeated at once.
pub(super) fn is_collision(fault: &StoreFault) -> bool {
    sql_state(fault).is_some_and(|code| {
        [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code)
    })
}

/// Returns true if the work may succeed on another connection. Either this one was lost, with the result of the last statement
/// unknown, or its server is not the primary.
pub(super) fn is_lost(fault: &StoreFault) -> bool {
    if is_read_only(fault) {
        return true;
    }
    let StoreFault::Database { source, .. } = fault else { return false };
    // An unanswered statement had no effect, unless it was a commit.
    source.downcast_ref::<Error>().is_some_and(|error| error.code().is_none_or(is_end_of_connection))
}

/// Returns true if the server did not answer an attempt to connect in time.
pub(super) fn is_unanswered(fault: &StoreFault) -> bool {
    let StoreFault::Database { source, .. } = fault else { return false };
    source.is::<Unanswered>()
        || source.downcast_ref::<PoolError>().is_some_and(|error| matches!(error, PoolError::Timeout(_)))
}

/// Class 08; the codes of class 57 that end a connection, such as a shutdown; and 25P03, after this process hung in a
/// transaction.
fn is_end_of_connection(code: &SqlState) -> bool {
    let code = code.code();
    code.starts_with("08") || (code.starts_with("57P") && code != "57P04") || code == "25P03"
}

/// Prepares a statement, once for each connection.
pub(super) async fn prepared(conn: &Connection, sql: &str) -> Result<Statement, Error> {
    conn.client().prepare_cached(sql).await
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
