//! Shell: checks before a database is used: that its server is new enough, and that it belongs to the service.

use saga_core::retry::error_chain;
use saga_core::row::RowKind;
use tokio_postgres::error::SqlState;

use super::pool::Connection;
use crate::store::StoreFault;
use crate::store::identity::{Reason, check_owner};
use crate::store::sql::{Row, Sql as _};
use crate::store::sql_error::{SqlError, db_fault};

/// Oldest supported version, as a `server_version_num`.
const OLDEST_SERVER: i64 = 150_000;

/// Explains a fault on opening a database: the server's message, and what to do.
pub(super) fn unusable(fault: &StoreFault) -> Reason {
    let code = match fault {
        StoreFault::Database { source, .. } | StoreFault::Rejected { source, .. } => {
            database_error(source.as_ref())
        }
        StoreFault::Conflict(_)
        | StoreFault::Unusable(_)
        | StoreFault::DataLost(_)
        | StoreFault::Panicked(_)
        | StoreFault::Closed => None,
    };
    let Some((code, message)) = code else { return error_chain(fault) };
    let advice = match code {
        _ if code == SqlState::INVALID_PASSWORD || code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            ": see the user and the password of store.url, and store.password_file"
        }
        _ if code == SqlState::INVALID_CATALOG_NAME => ": make it first (createdb), or see store.url",
        _ if code == SqlState::INSUFFICIENT_PRIVILEGE => {
            ": its user must own the database, or be granted CREATE and USAGE on its schema public"
        }
        _ => "",
    };
    format!("{message}{advice}")
}

fn database_error(error: &(dyn std::error::Error + 'static)) -> Option<(SqlState, String)> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<tokio_postgres::error::DbError>() {
            return Some((error.code().clone(), error.message().to_owned()));
        }
        next = error.source();
    }
    None
}

/// Checks a server and a database before anything is changed there.
pub(super) async fn check_before(
    conn: &Connection,
    kinds: &[RowKind],
    service: &str,
    must_exist: bool,
) -> Result<(), StoreFault> {
    let sql = "SELECT current_setting('server_version_num')::bigint, pg_is_in_recovery()";
    let read = |row: &Row<'_>| -> Result<(i64, bool), SqlError> { Ok((row.get(0)?, row.get(1)?)) };
    let (version, is_standby) =
        conn.query_one(sql, &[], read).await.map_err(db_fault("reading the version of the server"))?;
    if version < OLDEST_SERVER {
        return Err(StoreFault::Unusable(format!(
            "its server is PostgreSQL {}.{}; 15 or newer is needed",
            version / 10_000,
            version % 10_000
        )));
    }
    if is_standby {
        return Err(StoreFault::Unusable("its server is a standby, which cannot be written".to_owned()));
    }
    let tables = "SELECT relname::text FROM pg_class
         WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace";
    let tables: Vec<String> = conn
        .query(tables, &[], |row| row.get(0))
        .await
        .map_err(db_fault("reading the names of the tables"))?;
    let has = |name: &str| tables.iter().any(|table| table == name);
    match (has("migration"), must_exist) {
        (false, true) => Err(StoreFault::Unusable("there is none".to_owned())),
        (false, false) => check_foreign_tables(&tables, kinds),
        (true, _) if has("identity") => check_owner(conn, service).await,
        (true, _) => Ok(()),
    }
}

/// Rejects tables of another program with the same names: creating ours would fail halfway, or use theirs.
fn check_foreign_tables(tables: &[String], kinds: &[RowKind]) -> Result<(), StoreFault> {
    let is_ours = |name: &&str| {
        ["event", "outbox", "inbox", "task"].contains(name)
            || kinds.iter().any(|kind| name.strip_prefix("row_") == Some(kind.name))
    };
    let foreign: Vec<&str> = tables.iter().map(String::as_str).filter(is_ours).collect();
    match foreign.is_empty() {
        true => Ok(()),
        false => Err(StoreFault::Unusable(format!(
            "it has tables of something else, {}: see store.url",
            foreign.join(", ")
        ))),
    }
}
