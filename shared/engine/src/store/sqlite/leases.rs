//! Shell: leases: what one process does for all that share a database.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::values::{micros, oops, timestamp};
use crate::store::leasing::{Taken, fence_of};
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
    let taken = current.as_ref().map(|(owner, fence, until)| Taken {
        owner,
        fence: *fence,
        until: timestamp(*until),
    });
    let Some(fence) = fence_of(taken, held, owner, (now, until)) else { return Ok(None) };
    conn.execute(
        "INSERT INTO lease (name, owner, fence, until) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, fence = excluded.fence, until = excluded.until",
        params![name, owner, fence, micros(until)],
    )
    .map_err(oops(context))?;
    Ok(Some(Lease { owner: owner.to_owned(), fence }))
}
