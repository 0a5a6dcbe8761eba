//! Shell: the relay's lease: taken while the broker answers this process, and given back when it no longer does.
//!
//! Otherwise a replica that has lost the broker, and still reaches the database, would keep all others from publishing.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;
use tracing::warn;

use super::bus::Publish;
use crate::store::{Lease, RELAY_LEASE, Store, StoreFault};

/// Time without an answer of the broker after which the lease is given back. A reconnect takes less.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(2);

/// Lease of one process among those that share a database.
pub(super) struct RelayLease {
    store: Arc<dyn Store>,
    owner: String,
    duration: Duration,
    /// Current lease, and the time at which to renew it.
    current: Option<(Lease, Timestamp)>,
    /// Time since which the broker has not answered, if other processes may publish in place of this one.
    unanswered_since: Option<Instant>,
}

/// Right of a relay to publish now.
pub(super) enum LeaseState {
    Leader(Lease),
    /// Another relay holds the lease.
    Standby,
    /// The broker does not answer this process, for this reason.
    Unanswered(String),
}

impl RelayLease {
    pub(super) const fn new(store: Arc<dyn Store>, owner: String, duration: Duration) -> Self {
        Self { store, owner, duration, current: None, unanswered_since: None }
    }

    /// Fencing token of the current lease.
    pub(super) fn fence(&self) -> Option<i64> {
        self.current.as_ref().map(|(lease, _)| lease.fence)
    }

    /// Takes or renews the lease.
    pub(super) async fn take(
        &mut self,
        publish: &dyn Publish,
        now: Timestamp,
    ) -> Result<LeaseState, StoreFault> {
        // Renewed after half its duration. A round that takes longer than the other half loses it, and is fenced off.
        if let Some((lease, renew_at)) = &self.current
            && now < *renew_at
        {
            return Ok(LeaseState::Leader(lease.clone()));
        }
        if self.store.is_shared() {
            if let Err(reason) = publish.probe().await {
                return Ok(LeaseState::Unanswered(reason));
            }
            self.unanswered_since = None;
        }
        let duration = SignedDuration::try_from(self.duration).unwrap_or(SignedDuration::MAX);
        let (until, renew_at) = (after(now, duration), after(now, duration / 2));
        let held = self.current.as_ref().map(|(lease, _)| lease);
        let lease = self.store.acquire_lease(RELAY_LEASE, held, &self.owner, now, until).await?;
        self.current = lease.clone().map(|lease| (lease, renew_at));
        Ok(lease.map_or(LeaseState::Standby, LeaseState::Leader))
    }

    /// Records that the broker has accepted messages.
    pub(super) const fn record_published(&mut self) {
        self.unanswered_since = None;
    }

    /// Records that the broker has not answered since `since`. Returns whether the lease is to be given back.
    pub(super) fn record_unanswered(&mut self, since: Instant) -> bool {
        let since = *self.unanswered_since.get_or_insert(since);
        self.current.is_some() && since.elapsed() >= GIVE_BACK_AFTER
    }

    /// Gives the lease back, so that another process need not wait until it lapses.
    pub(super) async fn give_back(&mut self) -> Result<(), StoreFault> {
        self.store.release_lease(RELAY_LEASE, &self.owner).await?;
        warn!("the broker does not answer this replica, it gives the relay's lease back to the others");
        self.current = None;
        Ok(())
    }

    /// Forgets a lease that another process has taken.
    pub(super) fn forget(&mut self) {
        self.current = None;
    }

    /// True if other processes may publish in place of this one.
    pub(super) fn is_shared(&self) -> bool {
        self.store.is_shared()
    }
}

fn after(now: Timestamp, duration: SignedDuration) -> Timestamp {
    now.checked_add(duration).unwrap_or(Timestamp::MAX)
}
