//! Shell: SQL as both databases execute it: statements, parameters, rows, and the fragments in which the dialects differ.
//!
//! Statements are written once where both databases accept them. Parameters are `$1`, `$2` and so on, with a cast such as
//! `$1::bigint` where PostgreSQL needs one; SQLite takes all of that for the name of the parameter.

use std::collections::BTreeMap;

use bytes::BytesMut;
use jiff::Timestamp;
use saga_core::dead_letter::{DeadLetterStatus, StoredDeadLetter};
use saga_core::decider::FieldValue;
use saga_core::row::{Projected, RowKind};
use saga_core::trace::TraceContext;
use serde::Serialize;
use uuid::Uuid;

use super::cell::Cell;
use super::encoding::{hex, timestamp};
use super::sql_error::SqlError;

/// Parameter that both databases accept.
pub(super) trait Parameter: tokio_postgres::types::ToSql + rusqlite::types::ToSql + Sync {}

impl<T: tokio_postgres::types::ToSql + rusqlite::types::ToSql + Sync> Parameter for T {}

/// Parameters of a statement: `$1` is the first.
pub(super) type Values<'v> = [&'v dyn Parameter];

/// Value that a column may have.
pub(super) trait Column:
    rusqlite::types::FromSql + for<'a> tokio_postgres::types::FromSql<'a>
{
}

impl<T: rusqlite::types::FromSql + for<'a> tokio_postgres::types::FromSql<'a>> Column for T {}

/// Parameter of several values, for [`Sql::any`]: an array on PostgreSQL, JSON on SQLite.
#[derive(Debug)]
pub(super) struct Array<T>(pub(super) T);

impl<T: tokio_postgres::types::ToSql> tokio_postgres::types::ToSql for Array<T> {
    fn to_sql(
        &self,
        of: &tokio_postgres::types::Type,
        out: &mut BytesMut,
    ) -> Result<tokio_postgres::types::IsNull, Box<dyn std::error::Error + Sync + Send>> {
        self.0.to_sql(of, out)
    }

    fn accepts(of: &tokio_postgres::types::Type) -> bool {
        T::accepts(of)
    }

    tokio_postgres::types::to_sql_checked!();
}

impl<T: Serialize> rusqlite::types::ToSql for Array<T> {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        serde_json::to_string(&self.0)
            .map(Into::into)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
    }
}

/// Row that a statement returns.
pub(super) enum Row<'r> {
    Sqlite(&'r rusqlite::Row<'r>),
    Postgres(&'r tokio_postgres::Row),
}

impl Row<'_> {
    pub(super) fn get<T: Column>(&self, column: usize) -> Result<T, SqlError> {
        match self {
            Self::Sqlite(row) => Ok(row.get(column)?),
            Self::Postgres(row) => Ok(row.try_get(column)?),
        }
    }

    pub(super) fn count(&self, column: usize) -> Result<u64, SqlError> {
        Ok(u64::try_from(self.get::<i64>(column)?).unwrap_or(0))
    }

    pub(super) fn attempts(&self, column: usize) -> Result<u32, SqlError> {
        Ok(u32::try_from(self.get::<i64>(column)?).unwrap_or(u32::MAX))
    }

    pub(super) fn time(&self, column: usize) -> Result<Timestamp, SqlError> {
        Ok(timestamp(self.get(column)?))
    }

    /// Reads a trace context; `None` if it is damaged.
    pub(super) fn trace(&self, column: usize) -> Result<Option<TraceContext>, SqlError> {
        let bytes: Option<Vec<u8>> = self.get(column)?;
        Ok(bytes.as_deref().and_then(TraceContext::from_bytes))
    }

    /// Reads an id as text; as hexadecimal digits if it is damaged.
    pub(super) fn id_text(&self, column: usize) -> Result<String, SqlError> {
        match (self.get::<Uuid>(column), self) {
            (Ok(id), _) => Ok(id.to_string()),
            (Err(_), Self::Sqlite(row)) => {
                let bytes = row.get_ref(column)?.as_bytes().unwrap_or_default();
                Ok(hex(bytes).to_uppercase())
            }
            (Err(error), Self::Postgres(_)) => Err(error),
        }
    }

    /// Reads a column of a row's table with the type that it has there.
    pub(super) fn cell(&self, column: usize, is_number: bool) -> Result<Cell, SqlError> {
        match self {
            Self::Sqlite(row) => Ok(row.get_ref(column)?.into()),
            Self::Postgres(_) if is_number => {
                Ok(self.get::<Option<i64>>(column)?.map_or(Cell::Null, Cell::Integer))
            }
            Self::Postgres(_) => Ok(self.get::<Option<String>>(column)?.map_or(Cell::Null, Cell::Text)),
        }
    }

    /// Reads a value that SQLite may store with a wrong type; `None` if it is damaged.
    pub(super) fn undamaged<T: Column>(&self, column: usize) -> Result<Option<T>, SqlError> {
        match (self.get(column), self) {
            (Ok(value), _) => Ok(Some(value)),
            (Err(_), Self::Sqlite(_)) => Ok(None),
            (Err(error), Self::Postgres(_)) => Err(error),
        }
    }

    /// Reads text for people; describes it if it is damaged.
    pub(super) fn readable_text(&self, column: usize) -> Result<String, SqlError> {
        Ok(match self.cell(column, false)? {
            Cell::Text(text) => text,
            other @ (Cell::Null | Cell::Integer(_) | Cell::Damaged(_)) => other.to_string(),
        })
    }

    /// Reads content, status, revision and message id of a dead letter from the first columns.
    pub(super) fn dead_letter(&self) -> Result<StoredDeadLetter, SqlError> {
        let (json, status): (String, String) = (self.get(0)?, self.get(1)?);
        let status_of = DeadLetterStatus::named(&status);
        Ok(StoredDeadLetter {
            dead_letter: serde_json::from_str(&json).map_err(|error| SqlError::Unreadable(error.into()))?,
            status: status_of
                .ok_or_else(|| SqlError::Unreadable(format!("{status:?} is no status").into()))?,
            revision: self.count(2)?,
            inbox_id: self.get(3)?,
        })
    }
}

/// Row that was folded, with the times of its own events.
pub(super) struct FoldedRow {
    pub(super) id: String,
    pub(super) version: i64,
    pub(super) created_at: i64,
    pub(super) updated_at: i64,
    pub(super) projected: Projected,
}

/// Connection that executes statements. On SQLite none of it ever waits.
pub(super) trait Sql: Sync + 'static {
    /// Number of events or rows to read at once.
    const PAGE: i64;

    /// True if text may contain NUL characters.
    const STORES_NUL: bool;

    /// Locks selected rows, and skips those that another transaction has locked.
    const SKIP_LOCKED: &'static str;

    /// Keeps a selected row unchanged until the end of the transaction.
    const FOR_SHARE: &'static str;

    /// Function that returns the position of a text in another.
    const POSITION: &'static str;

    /// Position of the last event.
    const LAST_EVENT: &'static str;
    /// Number of the last writing transaction; `None` where the database does not count them.
    const GENERATION: Option<&'static str>;

    /// Position of the last outbox entry.
    const LAST_ENTRY: &'static str;

    /// Query for the time of the server in microseconds; `None` if the database runs in this process.
    const CLOCK: Option<&'static str>;

    /// Index of the outbox entries out of sequence, for a planner without statistics.
    const BY_STATUS: &'static str;

    /// Index of the entries that were published out of sequence, for a planner without statistics.
    const BY_PUBLICATION: &'static str;

    /// End of the first claim of another replica on a due retry.
    const FIRST_RETRY_CLAIM: &'static str;

    /// Statement that returns due retries, and claims them where replicas share the database.
    const DUE_RETRIES: &'static str;

    /// Statement that appends an event to the log, unless it exists.
    const APPEND_EVENT: &'static str;

    /// Condition that a value is among those of an [`Array`].
    fn any(parameter: usize) -> String;

    /// Condition that a value is among the selected keys.
    fn among(select: &str) -> String;

    /// Condition that a value is among the selected keys, which are locked unless the database has one writer.
    fn among_locked(select: &str) -> String {
        Self::among(&format!("{}{}", select.trim_end(), Self::SKIP_LOCKED))
    }

    /// Executes a statement and reads the rows that it returns.
    fn query<T: Send>(
        &self,
        sql: &str,
        values: &Values<'_>,
        read: impl Fn(&Row<'_>) -> Result<T, SqlError> + Send,
    ) -> impl Future<Output = Result<Vec<T>, SqlError>> + Send;

    /// Executes a statement. Returns the number of changed rows.
    fn execute(&self, sql: &str, values: &Values<'_>) -> impl Future<Output = Result<u64, SqlError>> + Send;

    /// Reads the first row, if there is one.
    fn query_opt<T: Send>(
        &self,
        sql: &str,
        values: &Values<'_>,
        read: impl Fn(&Row<'_>) -> Result<T, SqlError> + Send,
    ) -> impl Future<Output = Result<Option<T>, SqlError>> + Send {
        async move { Ok(self.query(sql, values, read).await?.into_iter().next()) }
    }

    /// Reads the row of a statement that returns one.
    fn query_one<T: Send>(
        &self,
        sql: &str,
        values: &Values<'_>,
        read: impl Fn(&Row<'_>) -> Result<T, SqlError> + Send,
    ) -> impl Future<Output = Result<T, SqlError>> + Send {
        async move {
            let row = self.query_opt(sql, values, read).await?;
            row.ok_or_else(|| SqlError::Unreadable("a row is missing".into()))
        }
    }

    /// Locks the log and the outbox until the end of the transaction, so that no batch writes them.
    fn lock_log(&self) -> impl Future<Output = Result<(), SqlError>> + Send;

    /// Locks the table of a kind, so that no batch writes rows of it.
    fn lock_table(&self, kind: &'static str) -> impl Future<Output = Result<(), SqlError>> + Send;

    /// Locks rows of a kind. Returns the ids of those that no batch has locked and that have these versions.
    fn lock_rows(
        &self,
        kind: &'static str,
        ids: Vec<String>,
        versions: Vec<i64>,
    ) -> impl Future<Output = Result<Vec<String>, SqlError>> + Send;

    /// Inserts folded rows into the emptied table of a kind.
    fn insert_rows(
        &self,
        kind: &RowKind,
        rows: Vec<FoldedRow>,
    ) -> impl Future<Output = Result<(), SqlError>> + Send;

    /// Adds to the lifetime counts of messages.
    fn add_to_message_counts(
        &self,
        outcome: &'static str,
        counts: &BTreeMap<String, i64>,
    ) -> impl Future<Output = Result<(), SqlError>> + Send;

    /// Value as the column of the field stores it.
    fn stored_value(kind: &RowKind, field: &str, value: FieldValue) -> FieldValue;
}

/// Quotes the name of a field, which may be a keyword of SQL.
pub(super) fn quoted(field: &str) -> String {
    format!("\"{field}\"")
}

pub(super) fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
