//! Shell: overrides by operators on PostgreSQL.

use super::pool::Connection;
use super::values::{db_fault, execute, query_one};
use crate::store::{StoreFault, StoredOverrides};

pub(super) async fn overrides(conn: &Connection) -> Result<StoredOverrides, StoreFault> {
    let found = query_one(conn, "SELECT revision, text FROM overrides", &[]).await;
    let overridden = found.map(|row| StoredOverrides { revision: row.get(0), text: row.get(1) });
    overridden.map_err(db_fault("reading the overrides"))
}

pub(super) async fn replace_overrides(
    conn: &Connection,
    revision: i64,
    text: &str,
) -> Result<bool, StoreFault> {
    let changed = "UPDATE overrides SET revision = revision + 1, text = $2 WHERE revision = $1";
    let changed = execute(conn, changed, &[&revision, &text]).await;
    changed.map(|changed| changed > 0).map_err(db_fault("replacing the overrides"))
}
