//! Shell: values as the tables keep them, how a fault of the server is told, and statements that are sent before the
//! answers to those before them are there.

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
pub(super) use crate::store::units::{hex, micros, timestamp};

/// The values of a statement.
pub(super) type Values<'v> = [&'v (dyn ToSql + Sync)];

/// The values of a statement that is put together before it is sent.
pub(super) type Owned = Vec<Box<dyn ToSql + Sync + Send>>;

/// Where something stands in its trace; of a damaged one nothing is known.
pub(super) fn trace(bytes: Option<&[u8]>) -> Option<TraceContext> {
    bytes.and_then(TraceContext::from_bytes)
}

pub(super) fn count_of(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

pub(super) fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A field may have the name of a word of SQL.
pub(super) fn quoted(field: &str) -> String {
    format!("\"{field}\"")
}

/// A value of a column of numbers.
pub(super) fn number(value: FieldValue) -> Option<i64> {
    match value {
        FieldValue::Integer(number) => Some(number),
        FieldValue::Text(_) | FieldValue::Null => None,
    }
}

/// A value of a column of texts.
pub(super) fn text(value: FieldValue) -> Option<String> {
    match value {
        FieldValue::Text(text) => Some(without_nul(text)),
        FieldValue::Integer(number) => Some(number.to_string()),
        FieldValue::Null => None,
    }
}

/// The type of a field's column.
pub(super) fn type_of(kind: &RowKind, field: &str) -> &'static str {
    if kind.is_number(field) { "bigint" } else { "text" }
}

/// A value of a field as its column keeps it.
pub(super) fn kept(kind: &RowKind, field: &str, value: FieldValue) -> FieldValue {
    match kind.is_number(field) {
        true => number(value).map_or(FieldValue::Null, FieldValue::Integer),
        false => text(value).map_or(FieldValue::Null, FieldValue::Text),
    }
}

/// Values of a field, as an array of the type of its column.
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

/// Whether a row may have this id: none holds the one character that no text of PostgreSQL can.
pub(super) fn may_be_an_id(id: &str) -> bool {
    !id.contains('\0')
}

/// What an error says, what a field holds, or somebody looks for, may hold that character.
pub(super) fn without_nul(text: impl Into<String>) -> String {
    let text = text.into();
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

pub(super) fn oops(context: &'static str) -> impl Fn(Error) -> StoreFault {
    move |source| match is_refusal(&source) {
        true => StoreFault::Refused { context, source: Box::new(source) },
        false => StoreFault::Database { context, source: Box::new(source) },
    }
}

/// Whether it is about the values: they are in the way of what is there, or of no kind that a table takes.
/// Classes of <https://www.postgresql.org/docs/15/errcodes-appendix.html>: 22 data, 23 integrity, 54 limits.
fn is_refusal(error: &Error) -> bool {
    match error.code() {
        Some(code) => ["22", "23", "54"].iter().any(|class| code.code().starts_with(class)),
        // What cannot be sent, or cannot be read from what was sent: not what broke a connection.
        None => {
            std::error::Error::source(error).is_some_and(|source| !source.is::<std::io::Error>())
                && !error.is_closed()
                && error.as_db_error().is_none()
                && error.to_string().contains("serializing parameter")
        }
    }
}

/// Whether the server has undone a transaction for the sake of others: the same may be done again at once.
pub(super) fn is_collision(fault: &StoreFault) -> bool {
    code_of(fault).is_some_and(|code| {
        [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code)
    })
}

/// Whether the connection was lost, so that nobody knows what the server has done.
pub(super) fn is_lost(fault: &StoreFault) -> bool {
    let StoreFault::Database { source, .. } = fault else { return false };
    // Of what was not answered it has done nothing, but for a commit: of that nobody knows.
    source.downcast_ref::<Error>().is_some_and(|error| error.code().is_none_or(is_end_of_connection))
}

/// Class 08, and what ends a connection in class 57: the server shuts down, or somebody has ended it. And 25P03, as this
/// process has stood still within a transaction.
fn is_end_of_connection(code: &SqlState) -> bool {
    let code = code.code();
    code.starts_with("08") || (code.starts_with("57P") && code != "57P04") || code == "25P03"
}

fn code_of(fault: &StoreFault) -> Option<&SqlState> {
    match fault {
        StoreFault::Database { source, .. } | StoreFault::Refused { source, .. } => {
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

/// The one row that there always is.
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

/// Answers how many rows it has changed.
pub(super) async fn execute(conn: &Connection, sql: &str, values: &Values<'_>) -> Result<u64, Error> {
    conn.client().execute(&prepared(conn, sql).await?, values).await
}

/// A statement with its values, ready to be sent.
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

/// Sends all of them at once, in their order, and answers the rows of each. Behind one that fails the others fail too.
pub(super) async fn pipelined(conn: &Connection, statements: &[Ready]) -> Vec<Result<Vec<Row>, Error>> {
    let mut under_way: Vec<_> = statements.iter().map(|ready| maybe_done(ready.sent(conn))).collect();
    // A query is sent when it is looked at first, and they are looked at in their order each time.
    poll_fn(|context| {
        let mut is_done = true;
        for query in &mut under_way {
            is_done &= query.poll_unpin(context).is_ready();
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    under_way.iter_mut().filter_map(|query| Pin::new(query).take_output()).collect()
}

/// Reads letter, status, revision and message_id, in columns from the first on.
pub(super) fn stored_dead_letter(row: &Row) -> Result<StoredDeadLetter, String> {
    let (json, status): (&str, &str) = (row.get(0), row.get(1));
    Ok(StoredDeadLetter {
        dead_letter: serde_json::from_str(json).map_err(|error| error.to_string())?,
        status: DeadLetterStatus::named(status).ok_or_else(|| format!("{status:?} is no status"))?,
        revision: count_of(row.get(2)),
        known_as: row.get(3),
    })
}
