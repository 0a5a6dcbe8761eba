//! Shell: errors of SQL statements on both databases, and the store's faults that they become.

use tokio_postgres::error::SqlState;

use super::StoreFault;

/// Error of a statement, or of reading its rows.
#[derive(Debug)]
pub(super) enum SqlError {
    Sqlite(rusqlite::Error),
    Postgres(tokio_postgres::Error),
    /// A stored value cannot be read.
    Unreadable(Box<dyn std::error::Error + Send + Sync>),
}

impl From<rusqlite::Error> for SqlError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<tokio_postgres::Error> for SqlError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Postgres(error)
    }
}

impl std::fmt::Display for SqlError {
    fn fmt(&self, form: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sqlite(error) => error.fmt(form),
            Self::Postgres(error) => error.fmt(form),
            Self::Unreadable(error) => error.fmt(form),
        }
    }
}

/// Maps an error to a fault of the store.
pub(super) fn db_fault<E: Into<SqlError>>(context: &'static str) -> impl Fn(E) -> StoreFault {
    move |error| {
        let error = error.into();
        let is_rejected = match &error {
            SqlError::Sqlite(error) => is_rejected_by_sqlite(error),
            SqlError::Postgres(error) => is_rejected_by_postgres(error),
            SqlError::Unreadable(_) => true,
        };
        let source: Box<dyn std::error::Error + Send + Sync> = match error {
            SqlError::Sqlite(error) => Box::new(error),
            SqlError::Postgres(error) => Box::new(error),
            SqlError::Unreadable(error) => error,
        };
        match is_rejected {
            true => StoreFault::Rejected { context, source },
            false => StoreFault::Database { context, source },
        }
    }
}

/// Returns true if the values are at fault: they conflict with stored ones, or stored ones have a wrong type. The tables
/// have no triggers; tests use them to simulate faults of the disk.
fn is_rejected_by_sqlite(error: &rusqlite::Error) -> bool {
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

/// Returns true if the values are at fault: they conflict with stored ones, or have a wrong type.
/// Classes of <https://www.postgresql.org/docs/15/errcodes-appendix.html>: 22 data, 23 integrity, 54 limits.
fn is_rejected_by_postgres(error: &tokio_postgres::Error) -> bool {
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

/// Returns true if the server takes no writes: it is a standby, or was made read-only. A statement had no effect.
pub(super) fn is_read_only(fault: &StoreFault) -> bool {
    sql_state(fault) == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

/// Returns true if the disk, or the share of it that the database may use, is full.
pub(super) fn is_full(fault: &StoreFault) -> bool {
    sql_state(fault) == Some(&SqlState::DISK_FULL)
        || sqlite_code(fault) == Some(rusqlite::ErrorCode::DiskFull)
}

/// Returns true if another process holds a lock on the file.
pub(super) fn is_locked(fault: &StoreFault) -> bool {
    sqlite_code(fault) == Some(rusqlite::ErrorCode::DatabaseBusy)
}

fn sqlite_code(fault: &StoreFault) -> Option<rusqlite::ErrorCode> {
    let StoreFault::Database { source, .. } = fault else { return None };
    source.downcast_ref::<rusqlite::Error>()?.sqlite_error_code()
}

/// Code of an error of PostgreSQL.
pub(super) fn sql_state(fault: &StoreFault) -> Option<&SqlState> {
    match fault {
        StoreFault::Database { source, .. } | StoreFault::Rejected { source, .. } => {
            source.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::code)
        }
        StoreFault::Conflict(_)
        | StoreFault::Unusable(_)
        | StoreFault::DataLost(_)
        | StoreFault::Panicked(_)
        | StoreFault::Closed => None,
    }
}
