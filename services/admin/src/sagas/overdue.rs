//! Pure: when a saga is overdue.

use jiff::SignedDuration;

/// Time after its deadline at which a saga is overdue. Work in flight completes sooner.
pub const GRACE: SignedDuration = SignedDuration::from_secs(30);
