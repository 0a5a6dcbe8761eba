//! Shell: conversion of values between SQLite and the store.

use jiff::Timestamp;
use rusqlite::types::Value;
use saga_core::decider::FieldValue;
use saga_core::row::RowKind;

use crate::store::encoding::indexed;

pub(super) fn now_micros() -> i64 {
    Timestamp::now().as_microsecond()
}

pub(super) fn field_value(value: &FieldValue) -> Value {
    match value {
        FieldValue::Text(text) => Value::Text(indexed(text.clone())),
        FieldValue::Integer(number) => Value::Integer(*number),
        FieldValue::Null => Value::Null,
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
