//! Shell: leases with fencing tokens, and the rule by which they are granted.

use jiff::Timestamp;
use saga_core::waiting::is_over;

/// Name of the relay's lease.
pub const RELAY_LEASE: &str = "relay";

/// Time-limited, exclusive permission among the replicas of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Name of the replica that owns the lease.
    pub owner: String,
    /// Fencing token; grows with each new owner. Writes under an older one have no effect.
    pub fence: i64,
}

/// Lease as it is stored.
pub(super) struct StoredLease<'a> {
    pub(super) owner: &'a str,
    pub(super) fence: i64,
    pub(super) until: Timestamp,
}

/// Returns the fencing token under which `owner` gets the lease from `now` until `until`; `None` while another owner holds it.
///
/// `held` is the lease that `owner` believes to hold.
pub(super) fn granted_fence(
    stored: Option<StoredLease<'_>>,
    held: Option<&Lease>,
    owner: &str,
    (now, until): (Timestamp, Timestamp),
) -> Option<i64> {
    let Some(stored) = stored else { return Some(1) };
    if held.is_some_and(|held| held.fence == stored.fence) {
        // A renewal keeps its token. Had another owner used a lapse, the tokens would differ.
        return Some(stored.fence);
    }
    // The same owner without that lease: its process was restarted.
    let is_free = stored.owner == owner || is_over(stored.until, now, until.duration_since(now));
    is_free.then_some(stored.fence + 1)
}
