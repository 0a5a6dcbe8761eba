//! Shell: leases: what one of the processes that share a database does for all.

use jiff::Timestamp;

use super::pool::Connection;
use super::values::{execute, micros, oops, query_one, timestamp};
use crate::store::leasing::{Taken, fence_of};
use crate::store::{Lease, StoreFault};

pub(super) async fn take(
    conn: &Connection,
    name: &str,
    held: Option<&Lease>,
    owner: &str,
    now: Timestamp,
    until: Timestamp,
) -> Result<Option<Lease>, StoreFault> {
    let context = "taking a lease";
    // There is a row to be locked, whoever is first.
    let first = "INSERT INTO lease (name, owner, fence, until) VALUES ($1, '', 0, 0) ON CONFLICT DO NOTHING";
    execute(conn, first, &[&name]).await.map_err(oops(context))?;
    let current = "SELECT owner, fence, until FROM lease WHERE name = $1 FOR UPDATE";
    let current = query_one(conn, current, &[&name]).await.map_err(oops(context))?;
    let taken = Taken { owner: current.get(0), fence: current.get(1), until: timestamp(current.get(2)) };
    let taken = Some(taken).filter(|taken| taken.fence > 0);
    let Some(fence) = fence_of(taken, held, owner, (now, until)) else { return Ok(None) };
    let taken = "UPDATE lease SET owner = $2, fence = $3, until = $4 WHERE name = $1";
    execute(conn, taken, &[&name, &owner, &fence, &micros(until)]).await.map_err(oops(context))?;
    Ok(Some(Lease { owner: owner.to_owned(), fence }))
}

pub(super) async fn give_back(conn: &Connection, name: &str, owner: &str) -> Result<(), StoreFault> {
    let given_back = "UPDATE lease SET until = 0 WHERE name = $1 AND owner = $2";
    execute(conn, given_back, &[&name, &owner]).await.map(drop).map_err(oops("giving back a lease"))
}
