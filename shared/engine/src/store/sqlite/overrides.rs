//! Shell: overrides by operators on SQLite.

use rusqlite::{Connection, params};

use super::values::db_fault;
use crate::store::{StoreFault, StoredOverrides};

pub(super) fn overrides(conn: &Connection) -> Result<StoredOverrides, StoreFault> {
    let read = |row: &rusqlite::Row<'_>| Ok(StoredOverrides { revision: row.get(0)?, text: row.get(1)? });
    conn.prepare_cached("SELECT revision, text FROM overrides")
        .and_then(|mut select| select.query_row([], read))
        .map_err(db_fault("reading the overrides"))
}

pub(super) fn replace_overrides(conn: &Connection, revision: i64, text: &str) -> Result<bool, StoreFault> {
    conn.prepare_cached("UPDATE overrides SET revision = revision + 1, text = ?2 WHERE revision = ?1")
        .and_then(|mut update| update.execute(params![revision, text]))
        .map(|changed| changed > 0)
        .map_err(db_fault("replacing the overrides"))
}
