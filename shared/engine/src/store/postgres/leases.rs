//! Shell: leases: what one of the processes that share a database does for all. That of a process that is gone lapses at once:
//! it holds its name no more (`listening`), and nobody need wait until its time is over.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use tokio_postgres::Error;

use super::listening::{NAMES, name_of};
use super::pool::Connection;
use super::values::{execute, micros, oops, query_one, timestamp};
use crate::store::leasing::{Taken, fence_of};
use crate::store::{Lease, StoreFault};

/// Whoever holds its name no more for so long is gone, and has not just lost a connection.
const GONE_AFTER: Duration = Duration::from_secs(2);

/// Owners of leases whose name nobody holds, and since when.
pub(super) struct Missing(Mutex<BTreeMap<String, Instant>>);

impl Missing {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Whether it is gone, now that it was seen to hold its name or not.
    fn is_gone(&self, owner: &str, holds_its_name: bool, now: Instant) -> bool {
        let mut missing = self.0.lock();
        if holds_its_name {
            missing.remove(owner);
            return false;
        }
        let since = *missing.entry(owner.to_owned()).or_insert(now);
        now >= since + GONE_AFTER
    }
}

/// Takes or renews a lease; that of another one who is gone too, where processes are known by their names.
pub(super) async fn take(
    conn: &Connection,
    name: &str,
    held: Option<&Lease>,
    owner: &str,
    (now, until): (Timestamp, Timestamp),
    missing: Option<&Missing>,
) -> Result<Option<Lease>, StoreFault> {
    let context = "taking a lease";
    // There is a row to be locked, whoever is first.
    let first = "INSERT INTO lease (name, owner, fence, until) VALUES ($1, '', 0, 0) ON CONFLICT DO NOTHING";
    execute(conn, first, &[&name]).await.map_err(oops(context))?;
    let current = "SELECT owner, fence, until FROM lease WHERE name = $1 FOR UPDATE";
    let current = query_one(conn, current, &[&name]).await.map_err(oops(context))?;
    let taken = Taken { owner: current.get(0), fence: current.get(1), until: timestamp(current.get(2)) };
    let taken = match missing {
        Some(missing) if taken.owner != owner && taken.until > now => {
            let holds_its_name = holds_name(conn, taken.owner).await.map_err(oops(context))?;
            let is_gone = missing.is_gone(taken.owner, holds_its_name, Instant::now());
            if is_gone { Taken { until: Timestamp::UNIX_EPOCH, ..taken } } else { taken }
        }
        Some(_) | None => taken,
    };
    let taken = Some(taken).filter(|taken| taken.fence > 0);
    let Some(fence) = fence_of(taken, held, owner, (now, until)) else { return Ok(None) };
    let taken = "UPDATE lease SET owner = $2, fence = $3, until = $4 WHERE name = $1";
    execute(conn, taken, &[&name, &owner, &fence, &micros(until)]).await.map_err(oops(context))?;
    Ok(Some(Lease { owner: owner.to_owned(), fence }))
}

/// Whether a process of this name is there.
async fn holds_name(conn: &Connection, name: &str) -> Result<bool, Error> {
    let holds = "SELECT EXISTS (SELECT FROM pg_locks
         WHERE locktype = 'advisory' AND classid = $1::int::oid AND objid = $2::int::oid AND objsubid = 2 AND granted
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
    query_one(conn, holds, &[&NAMES, &name_of(name)]).await.map(|row| row.get(0))
}

pub(super) async fn give_back(conn: &Connection, name: &str, owner: &str) -> Result<(), StoreFault> {
    let given_back = "UPDATE lease SET until = 0 WHERE name = $1 AND owner = $2";
    execute(conn, given_back, &[&name, &owner]).await.map(drop).map_err(oops("giving back a lease"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_its_name_no_more_is_gone_after_a_while_and_not_when_it_comes_back() {
        let origin = Instant::now();
        let at = |millis| origin + Duration::from_millis(millis);
        let missing = Missing::new();
        assert!(!missing.is_gone("order-1", false, at(0)));
        assert!(!missing.is_gone("order-1", false, at(1_999)));
        assert!(!missing.is_gone("order-2", false, at(2_000)), "another one");
        assert!(!missing.is_gone("order-1", true, at(2_000)), "it had lost a connection");
        assert!(!missing.is_gone("order-1", false, at(2_100)));
        assert!(missing.is_gone("order-1", false, at(4_100)));
    }
}
