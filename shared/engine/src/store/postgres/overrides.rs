//! Shell: what operators have the machinery do otherwise.

use super::pool::Connection;
use super::values::{execute, oops, query_one};
use crate::store::{Overridden, StoreFault};

pub(super) async fn overrides(conn: &Connection) -> Result<Overridden, StoreFault> {
    let found = query_one(conn, "SELECT revision, text FROM overrides", &[]).await;
    let overridden = found.map(|row| Overridden { revision: row.get(0), text: row.get(1) });
    overridden.map_err(oops("reading what operators override"))
}

pub(super) async fn override_with(conn: &Connection, revision: i64, text: &str) -> Result<bool, StoreFault> {
    let changed = "UPDATE overrides SET revision = revision + 1, text = $2 WHERE revision = $1";
    let changed = execute(conn, changed, &[&revision, &text]).await;
    changed.map(|changed| changed > 0).map_err(oops("writing what operators override"))
}
