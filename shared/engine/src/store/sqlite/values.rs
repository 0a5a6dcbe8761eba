//! Shell: values as the tables keep them, and what everybody who speaks SQL here needs.

use jiff::Timestamp;
use rusqlite::types::{Value, ValueRef};
use saga_core::dead_letter::{DeadLetterStatus, StoredDeadLetter};
use saga_core::decider::FieldValue;
use saga_core::row::RowKind;
use saga_core::trace::TraceContext;

use crate::store::StoreFault;
pub(super) use crate::store::units::{hex, micros, timestamp};

pub(super) fn now_micros() -> i64 {
    Timestamp::now().as_microsecond()
}

/// Where something stands in its trace; of a damaged one nothing is known.
pub(super) fn trace(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Option<TraceContext>> {
    Ok(row.get_ref(column)?.as_blob_or_null()?.and_then(TraceContext::from_bytes))
}

pub(super) fn oops(context: &'static str) -> impl Fn(rusqlite::Error) -> StoreFault {
    move |source| match is_refusal(&source) {
        true => StoreFault::Refused { context, source: Box::new(source) },
        false => StoreFault::Database { context, source: Box::new(source) },
    }
}

/// Whether it is about the values: what is to be written is in the way of what is there, or what is there is no value
/// of its kind. A trigger, of which the tables have none, says what the disk may say.
fn is_refusal(error: &rusqlite::Error) -> bool {
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

/// What [`field_value`] wrote.
pub(super) fn read_field(value: ValueRef<'_>) -> FieldValue {
    match value {
        ValueRef::Text(text) => FieldValue::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Integer(number) => FieldValue::Integer(number),
        ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => FieldValue::Null,
    }
}

pub(super) fn insert_sql(kind: &RowKind) -> String {
    let columns: String = kind.fields.iter().map(|field| format!(", {field}")).collect();
    let places: String = (0..kind.fields.len()).map(|n| format!(", ?{}", n + 7)).collect();
    format!(
        "INSERT INTO row_{} (id, version, state, created_at, updated_at, due{columns})
         VALUES (?1, ?2, ?3, ?4, ?5, ?6{places}) ON CONFLICT (id) DO NOTHING",
        kind.name
    )
}

/// Reads letter, status, revision and message_id.
pub(super) fn stored_dead_letter(row: &rusqlite::Row<'_>) -> rusqlite::Result<StoredDeadLetter> {
    let (json, status): (String, String) = (row.get(0)?, row.get(1)?);
    let unreadable = |column, error: Box<dyn std::error::Error + Send + Sync>| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error)
    };
    Ok(StoredDeadLetter {
        dead_letter: serde_json::from_str(&json).map_err(|error| unreadable(0, error.into()))?,
        status: DeadLetterStatus::named(&status).ok_or_else(|| unreadable(1, status.into()))?,
        revision: u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0),
        known_as: row.get(3)?,
    })
}
