//! Shell: leases on PostgreSQL. The lease of a dead replica is free early: a replica that no longer holds its name is dead.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::pool::Connection;
use super::{PostgresStore, instance_names};
use crate::store::backend::{Backend as _, Urgency};
use crate::store::encoding::micros;
use crate::store::leases::{StoredLease, granted_fence};
use crate::store::roles::Leases;
use crate::store::sql::Sql as _;
use crate::store::sql_error::{SqlError, db_fault};
use crate::store::{Answer, Lease, RELAY_LEASE};

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

impl Leases for PostgresStore {
    fn acquire_lease<'a>(
        &'a self,
        name: &'static str,
        held: Option<&'a Lease>,
        owner: &'a str,
        now: Timestamp,
        until: Timestamp,
    ) -> Answer<'a, Option<Lease>> {
        let args = (self.database.clone(), name, held.cloned(), owner.to_owned(), (now, until));
        let acquiring = self.write(Urgency::Immediate, args, |conn, (database, name, held, owner, times)| {
            Box::pin(async move {
                let acquired = acquire(conn, name, held.as_ref(), owner, *times, &database.dead_owners);
                acquired.await.map_err(db_fault("acquiring a lease"))
            })
        });
        // Counted from before the request, so that the leadership never outlasts the lease.
        let span = Duration::try_from(until.duration_since(now)).unwrap_or_default();
        let ends = Instant::now() + span;
        Box::pin(async move {
            let acquired = acquiring.await;
            if name == RELAY_LEASE {
                match acquired {
                    Ok(Some(_)) => self.database.leadership.hold_until(ends),
                    // A replica that cannot renew the lease could not store its work either.
                    Ok(None) | Err(_) => self.database.leadership.end(),
                }
            }
            acquired
        })
    }

    fn release_lease<'a>(&'a self, name: &'static str, owner: &'a str) -> Answer<'a, ()> {
        if name == RELAY_LEASE {
            self.database.leadership.end();
        }
        self.write(Urgency::Immediate, (name, owner.to_owned()), |conn, (name, owner)| {
            Box::pin(async move {
                let update = "UPDATE lease SET until = 0 WHERE name = $1 AND owner = $2";
                conn.execute(update, &[name, owner]).await.map(drop).map_err(db_fault("releasing a lease"))
            })
        })
    }
}

/// Acquires or renews a lease, also that of a replica that has died.
async fn acquire(
    conn: &Connection,
    name: &str,
    held: Option<&Lease>,
    owner: &str,
    (now, until): (Timestamp, Timestamp),
    dead_owners: &DeadOwners,
) -> Result<Option<Lease>, SqlError> {
    // Inserts the row to lock, for the first owner.
    let first = "INSERT INTO lease (name, owner, fence, until) VALUES ($1, '', 0, 0) ON CONFLICT DO NOTHING";
    conn.execute(first, &[&name]).await?;
    let current = "SELECT owner, fence, until FROM lease WHERE name = $1 FOR UPDATE";
    let (stored_owner, fence, stored_until): (String, i64, Timestamp) =
        conn.query_one(current, &[&name], |row| Ok((row.get(0)?, row.get(1)?, row.time(2)?))).await?;
    let may_be_dead = dead_owners.are_names(owner) && stored_owner != owner && stored_until > now;
    let is_dead = may_be_dead && {
        let holds_its_name = instance_names::is_held(conn, &stored_owner).await?;
        dead_owners.is_dead(&stored_owner, holds_its_name, Instant::now())
    };
    let until_or_death = if is_dead { Timestamp::UNIX_EPOCH } else { stored_until };
    let stored = StoredLease { owner: &stored_owner, fence, until: until_or_death };
    let stored = Some(stored).filter(|stored| stored.fence > 0);
    let Some(fence) = granted_fence(stored, held, owner, (now, until)) else { return Ok(None) };
    let update = "UPDATE lease SET owner = $2, fence = $3, until = $4 WHERE name = $1";
    conn.execute(update, &[&name, &owner, &fence, &micros(until)]).await?;
    Ok(Some(Lease { owner: owner.to_owned(), fence }))
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
