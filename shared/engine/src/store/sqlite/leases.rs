//! Shell: leases in a SQLite file, with fencing tokens.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use crate::store::encoding::{micros, timestamp};
use crate::store::leases::{StoredLease, granted_fence};
use crate::store::sql_error::db_fault;
use crate::store::{Lease, StoreFault};

pub(super) fn acquire(
    conn: &Connection,
    name: &str,
    held: Option<&Lease>,
    owner: &str,
    now: Timestamp,
    until: Timestamp,
) -> Result<Option<Lease>, StoreFault> {
    let context = "acquiring a lease";
    let stored: Option<(String, i64, i64)> = conn
        .query_row("SELECT owner, fence, until FROM lease WHERE name = ?1", [name], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()
        .map_err(db_fault(context))?;
    let stored = stored.as_ref().map(|(owner, fence, until)| StoredLease {
        owner,
        fence: *fence,
        until: timestamp(*until),
    });
    let Some(fence) = granted_fence(stored, held, owner, (now, until)) else { return Ok(None) };
    conn.execute(
        "INSERT INTO lease (name, owner, fence, until) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, fence = excluded.fence, until = excluded.until",
        params![name, owner, fence, micros(until)],
    )
    .map_err(db_fault(context))?;
    Ok(Some(Lease { owner: owner.to_owned(), fence }))
}

pub(super) fn release(conn: &Connection, name: &str, owner: &str) -> Result<(), StoreFault> {
    conn.execute("UPDATE lease SET until = 0 WHERE name = ?1 AND owner = ?2", params![name, owner])
        .map(drop)
        .map_err(db_fault("releasing a lease"))
}
