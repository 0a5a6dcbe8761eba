//! Shell: leases: what one of the processes that share a database does for all. That of a process that is gone lapses at once:
//! it holds its name no more (`names`), and nobody need wait until its time is over.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::names;
use super::pool::Connection;
use super::values::{execute, micros, oops, query_one, timestamp};
use crate::store::leasing::{Taken, fence_of};
use crate::store::{Lease, StoreFault};

/// Whoever holds its name no more for so long is gone, and has not just lost a connection.
const GONE_AFTER: Duration = Duration::from_secs(2);

/// Who is known by its name, and who holds its own no more.
pub(super) struct Missing {
    /// What this process is called; empty when it has no name.
    instance: String,
    /// Owners of leases whose name nobody holds, and since when.
    since: Mutex<BTreeMap<String, Instant>>,
}

impl Missing {
    pub(super) const fn new(instance: String) -> Self {
        Self { instance, since: Mutex::new(BTreeMap::new()) }
    }

    /// Whether owners of leases are names of processes: those of others are where this one's is.
    fn knows_names(&self, owner: &str) -> bool {
        self.instance == owner
    }

    /// Whether it is gone, now that it was seen to hold its name or not.
    fn is_gone(&self, owner: &str, holds_its_name: bool, now: Instant) -> bool {
        let mut missing = self.since.lock();
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
    missing: &Missing,
) -> Result<Option<Lease>, StoreFault> {
    let context = "taking a lease";
    // There is a row to be locked, whoever is first.
    let first = "INSERT INTO lease (name, owner, fence, until) VALUES ($1, '', 0, 0) ON CONFLICT DO NOTHING";
    execute(conn, first, &[&name]).await.map_err(oops(context))?;
    let current = "SELECT owner, fence, until FROM lease WHERE name = $1 FOR UPDATE";
    let current = query_one(conn, current, &[&name]).await.map_err(oops(context))?;
    let taken = Taken { owner: current.get(0), fence: current.get(1), until: timestamp(current.get(2)) };
    let may_be_gone = missing.knows_names(owner) && taken.owner != owner && taken.until > now;
    let is_gone = may_be_gone && {
        let holds_its_name = names::is_there(conn, taken.owner).await.map_err(oops(context))?;
        missing.is_gone(taken.owner, holds_its_name, Instant::now())
    };
    let taken = if is_gone { Taken { until: Timestamp::UNIX_EPOCH, ..taken } } else { taken };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_its_name_no_more_is_gone_after_a_while_and_not_when_it_comes_back() {
        let origin = Instant::now();
        let at = |millis| origin + Duration::from_millis(millis);
        let missing = Missing::new(String::new());
        assert!(!missing.is_gone("order-1", false, at(0)));
        assert!(!missing.is_gone("order-1", false, at(1_999)));
        assert!(!missing.is_gone("order-2", false, at(2_000)), "another one");
        assert!(!missing.is_gone("order-1", true, at(2_000)), "it had lost a connection");
        assert!(!missing.is_gone("order-1", false, at(2_100)));
        assert!(missing.is_gone("order-1", false, at(4_100)));
    }
}
