//! Shell: leases: what one process does for all that share a database.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use saga_core::waiting::is_over;

use super::values::{micros, oops, timestamp};
use crate::store::{Lease, StoreFault};

pub(super) fn take(
    conn: &Connection,
    name: &str,
    held: Option<&Lease>,
    owner: &str,
    now: Timestamp,
    until: Timestamp,
) -> Result<Option<Lease>, StoreFault> {
    let context = "taking a lease";
    let current: Option<(String, i64, i64)> = conn
        .query_row("SELECT owner, fence, until FROM lease WHERE name = ?1", [name], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()
        .map_err(oops(context))?;
    let fence = match (&current, held) {
        // A renewal keeps its fence; after a lapse that somebody used, the fences differ.
        (Some((_, fence, _)), Some(held)) if *fence == held.fence => *fence,
        // An earlier life of the same owner is over: this process holds its database alone.
        (Some((holder, fence, _)), _) if holder == owner => fence + 1,
        (Some((_, fence, ends)), _) if is_over(timestamp(*ends), now, until.duration_since(now)) => fence + 1,
        (Some(_), _) => return Ok(None),
        (None, _) => 1,
    };
    conn.execute(
        "INSERT INTO lease (name, owner, fence, until) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, fence = excluded.fence, until = excluded.until",
        params![name, owner, fence, micros(until)],
    )
    .map_err(oops(context))?;
    Ok(Some(Lease { owner: owner.to_owned(), fence }))
}
