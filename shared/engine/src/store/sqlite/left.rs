//! Shell: what is known of finished rows that have left: whose they may be, and what still counts of them.

use rusqlite::{Connection, params};
use saga_core::row::RowKind;
use uuid::Uuid;

use super::values::oops;
use crate::store::{Left, StoreFault};

/// Finished rows of sagas with lower ids may have left.
pub(super) fn left_before(conn: &Connection) -> rusqlite::Result<Option<Uuid>> {
    conn.prepare_cached("SELECT max(saga) FROM purged_before")?.query_row([], |row| row.get(0))
}

/// What of the rows of a kind has left.
pub(super) fn left_of(conn: &Connection, kind: &str) -> Result<Left, StoreFault> {
    let read = || {
        let mut carried = conn.prepare_cached("SELECT name, sum FROM purged_sum WHERE kind = ?1")?;
        let carried = carried.query_map([kind], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(Left { before: left_before(conn)?, carried: carried.collect::<rusqlite::Result<_>>()? })
    };
    read().map_err(oops("reading what has left"))
}

/// Counts something of a row that has left.
pub(super) fn carry(conn: &Connection, kind: &str, name: &str, sum: i64) -> rusqlite::Result<usize> {
    conn.prepare_cached(
        "INSERT INTO purged_sum (kind, name, sum) VALUES (?1, ?2, ?3)
         ON CONFLICT (kind, name) DO UPDATE SET sum = sum + excluded.sum",
    )?
    .execute(params![kind, name, sum])
}

/// Rows that were brought back are there again: they are carried no more. Called when they are folded anew.
pub(super) fn carry_no_more(conn: &Connection, kind: &RowKind) -> rusqlite::Result<()> {
    let states: Vec<String> = conn
        .prepare(&format!(
            "SELECT state FROM restored_row JOIN row_{} AS folded ON folded.id = row_id WHERE kind = ?1",
            kind.name
        ))?
        .query_map([kind.name], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for state in states {
        for (name, sum) in (kind.finished)(&state).ok().flatten().unwrap_or_default() {
            carry(conn, kind.name, &name, -sum)?;
        }
    }
    conn.execute("DELETE FROM restored_row WHERE kind = ?1", [kind.name]).map(drop)
}
