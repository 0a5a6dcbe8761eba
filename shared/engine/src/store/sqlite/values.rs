//! Shell: conversion of values and faults between SQLite and the store.

use jiff::Timestamp;
use rusqlite::types::{Value, ValueRef};
use saga_core::dead_letter::{DeadLetterStatus, StoredDeadLetter};
use saga_core::decider::FieldValue;
use saga_core::row::RowKind;
use saga_core::trace::TraceContext;

use crate::store::StoreFault;
pub(super) use crate::store::encoding::{hex, micros, timestamp};

pub(super) fn now_micros() -> i64 {
    Timestamp::now().as_microsecond()
}

pub(super) fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Reads a trace context; `None` if it is damaged.
pub(super) fn trace(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Option<TraceContext>> {
    Ok(row.get_ref(column)?.as_blob_or_null()?.and_then(TraceContext::from_bytes))
}

/// Maps an error of SQLite to a fault of the store.
pub(super) fn db_fault(context: &'static str) -> impl Fn(rusqlite::Error) -> StoreFault {
    move |source| match is_rejection(&source) {
        true => StoreFault::Rejected { context, source: Box::new(source) },
        false => StoreFault::Database { context, source: Box::new(source) },
    }
}

/// Returns true if the values are at fault: they conflict with stored ones, or stored ones have a wrong type. The tables
/// have no triggers; tests use them to simulate faults of the disk.
fn is_rejection(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{ConstraintViolation, TooBig, TypeMismatch};
    if let rusqlite::Error::SqliteFailure(failure, _) = error {
        return matches!(failure.code, ConstraintViolation | TooBig | TypeMismatch)
            && failure.extended_code != rusqlite::ffi::SQLITE_CONSTRAINT_TRIGGER;
    }
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::ToSqlConversionFailure(_)
    )
}

pub(super) fn field_value(value: &FieldValue) -> Value {
    match value {
        FieldValue::Text(text) => Value::Text(text.clone()),
        FieldValue::Integer(number) => Value::Integer(*number),
        FieldValue::Null => Value::Null,
    }
}

/// Reads a value that [`field_value`] wrote.
pub(super) fn read_field(value: ValueRef<'_>) -> FieldValue {
    match value {
        ValueRef::Text(text) => FieldValue::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Integer(number) => FieldValue::Integer(number),
        ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => FieldValue::Null,
    }
}

/// Statement that inserts a row, unless its id exists.
pub(super) fn insert_sql(kind: &RowKind) -> String {
    let columns: String = kind.fields.iter().map(|field| format!(", {field}")).collect();
    let parameters: String = (0..kind.fields.len()).map(|n| format!(", ?{}", n + 7)).collect();
    format!(
        "INSERT INTO row_{} (id, version, state, created_at, updated_at, due{columns})
         VALUES (?1, ?2, ?3, ?4, ?5, ?6{parameters}) ON CONFLICT (id) DO NOTHING",
        kind.name
    )
}

/// Reads content, status, revision and message id of a dead letter.
pub(super) fn stored_dead_letter(row: &rusqlite::Row<'_>) -> rusqlite::Result<StoredDeadLetter> {
    let (json, status): (String, String) = (row.get(0)?, row.get(1)?);
    let unreadable = |column, error: Box<dyn std::error::Error + Send + Sync>| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error)
    };
    Ok(StoredDeadLetter {
        dead_letter: serde_json::from_str(&json).map_err(|error| unreadable(0, error.into()))?,
        status: DeadLetterStatus::named(&status).ok_or_else(|| unreadable(1, status.into()))?,
        revision: u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0),
        inbox_id: row.get(3)?,
    })
}
