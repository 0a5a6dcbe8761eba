//! Shell: leases, and who gets one, whatever store keeps it.

use jiff::Timestamp;
use saga_core::waiting::is_over;

/// The lease of whoever publishes.
pub const RELAY: &str = "relay";

/// Permission to do alone, until a time, what one process does for all that share a database, under a fencing token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it.
    pub owner: String,
    /// Grows with each taking: a settlement under an older one has no effect.
    pub fence: i64,
}

/// How a lease was left by whoever took it last.
pub(super) struct Taken<'a> {
    pub(super) owner: &'a str,
    pub(super) fence: i64,
    pub(super) until: Timestamp,
}

/// The fence under which `owner`, who knows of the one that it has `held`, has it from `now` until `until`; `None` while it is
/// somebody else's. Nobody has taken it before without `taken`.
pub(super) fn fence_of(
    taken: Option<Taken<'_>>,
    held: Option<&Lease>,
    owner: &str,
    (now, until): (Timestamp, Timestamp),
) -> Option<i64> {
    let Some(taken) = taken else { return Some(1) };
    if held.is_some_and(|held| held.fence == taken.fence) {
        // A renewal keeps its fence; after a lapse that somebody used, the fences differ.
        return Some(taken.fence);
    }
    // An earlier life of the same owner is over: nobody else has its name.
    let is_free = taken.owner == owner || is_over(taken.until, now, until.duration_since(now));
    is_free.then_some(taken.fence + 1)
}
