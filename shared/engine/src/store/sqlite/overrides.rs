//! Shell: what operators have the machinery do otherwise.

use rusqlite::{Connection, params};

use super::values::oops;
use crate::store::{Overridden, StoreFault};

pub(super) fn overrides(conn: &Connection) -> Result<Overridden, StoreFault> {
    let found = |row: &rusqlite::Row<'_>| Ok(Overridden { revision: row.get(0)?, text: row.get(1)? });
    conn.prepare_cached("SELECT revision, text FROM overrides")
        .and_then(|mut found_by| found_by.query_row([], found))
        .map_err(oops("reading what operators override"))
}

pub(super) fn override_with(conn: &Connection, revision: i64, text: &str) -> Result<bool, StoreFault> {
    conn.prepare_cached("UPDATE overrides SET revision = revision + 1, text = ?2 WHERE revision = ?1")
        .and_then(|mut changed| changed.execute(params![revision, text]))
        .map(|changed| changed > 0)
        .map_err(oops("writing what operators override"))
}
