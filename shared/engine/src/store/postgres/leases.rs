//! Shell: leases on PostgreSQL. The lease of a dead replica is free early: a replica that no longer holds its name is dead.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::instance_names;
use super::pool::Connection;
use super::values::{db_fault, execute, micros, query_one, timestamp};
use crate::store::leases::{StoredLease, granted_fence};
use crate::store::{Lease, StoreFault};

/// Time without its name after which a replica counts as dead. A shorter time may be a lost connection.
const DEAD_AFTER: Duration = Duration::from_secs(2);

/// Lease owners whose replicas may have died.
pub(super) struct DeadOwners {
    /// Name of this replica; empty if it has none.
    instance: String,
    /// Owners whose names nobody holds, and since when.
    nameless_since: Mutex<BTreeMap<String, Instant>>,
}

impl DeadOwners {
    pub(super) const fn new(instance: String) -> Self {
        Self { instance, nameless_since: Mutex::new(BTreeMap::new()) }
    }

    /// True if lease owners are names of replicas: they are for all replicas if they are for this one.
    fn are_names(&self, owner: &str) -> bool {
        self.instance == owner
    }

    /// Returns true if the owner counts as dead, given whether it holds its name now.
    fn is_dead(&self, owner: &str, holds_its_name: bool, now: Instant) -> bool {
        let mut nameless = self.nameless_since.lock();
        if holds_its_name {
            nameless.remove(owner);
            return false;
        }
        let since = *nameless.entry(owner.to_owned()).or_insert(now);
        now >= since + DEAD_AFTER
    }
}

/// Acquires or renews a lease, also that of a replica that has died.
pub(super) async fn acquire(
    conn: &Connection,
    name: &str,
    held: Option<&Lease>,
    owner: &str,
    (now, until): (Timestamp, Timestamp),
    dead_owners: &DeadOwners,
) -> Result<Option<Lease>, StoreFault> {
    let context = "acquiring a lease";
    // Inserts the row to lock, for the first owner.
    let first = "INSERT INTO lease (name, owner, fence, until) VALUES ($1, '', 0, 0) ON CONFLICT DO NOTHING";
    execute(conn, first, &[&name]).await.map_err(db_fault(context))?;
    let current = "SELECT owner, fence, until FROM lease WHERE name = $1 FOR UPDATE";
    let current = query_one(conn, current, &[&name]).await.map_err(db_fault(context))?;
    let stored =
        StoredLease { owner: current.get(0), fence: current.get(1), until: timestamp(current.get(2)) };
    let may_be_dead = dead_owners.are_names(owner) && stored.owner != owner && stored.until > now;
    let is_dead = may_be_dead && {
        let holds_its_name = instance_names::is_held(conn, stored.owner).await.map_err(db_fault(context))?;
        dead_owners.is_dead(stored.owner, holds_its_name, Instant::now())
    };
    let stored = if is_dead { StoredLease { until: Timestamp::UNIX_EPOCH, ..stored } } else { stored };
    let stored = Some(stored).filter(|stored| stored.fence > 0);
    let Some(fence) = granted_fence(stored, held, owner, (now, until)) else { return Ok(None) };
    let update = "UPDATE lease SET owner = $2, fence = $3, until = $4 WHERE name = $1";
    execute(conn, update, &[&name, &owner, &fence, &micros(until)]).await.map_err(db_fault(context))?;
    Ok(Some(Lease { owner: owner.to_owned(), fence }))
}

pub(super) async fn release(conn: &Connection, name: &str, owner: &str) -> Result<(), StoreFault> {
    let update = "UPDATE lease SET until = 0 WHERE name = $1 AND owner = $2";
    execute(conn, update, &[&name, &owner]).await.map(drop).map_err(db_fault("releasing a lease"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_without_name_counts_as_dead_after_two_seconds_unless_it_returns() {
        let origin = Instant::now();
        let at = |millis| origin + Duration::from_millis(millis);
        let owners = DeadOwners::new(String::new());
        assert!(!owners.is_dead("order-1", false, at(0)));
        assert!(!owners.is_dead("order-1", false, at(1_999)));
        assert!(!owners.is_dead("order-2", false, at(2_000)), "another one");
        assert!(!owners.is_dead("order-1", true, at(2_000)), "it had only lost a connection");
        assert!(!owners.is_dead("order-1", false, at(2_100)));
        assert!(owners.is_dead("order-1", false, at(4_100)));
    }
}
