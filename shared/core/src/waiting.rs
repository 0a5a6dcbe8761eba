//! Pure: what the store keeps until its time comes: calls to make, and messages to try again; and when that is.

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::dead_letter::Delivery;
use crate::trace::TraceContext;

/// Clocks of replicas that share a database may differ by this much and still believe each other's short waits.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_secs(10);

/// Whether a wait that is to end at `until`, of a sort that never lasts longer than `longest`, is over at `now`.
///
/// It is over too when it ends later than any can ([`latest_end`]): whoever began it had a clock that was ahead, and
/// to believe it would be to wait until that time comes. To end it early is safe: claims and leases are fenced, and
/// an early retry is a retry.
#[must_use]
pub fn is_over(until: Timestamp, now: Timestamp, longest: SignedDuration) -> bool {
    until <= now || until > latest_end(now, longest)
}

/// When a wait ends at the latest that never lasts longer than `longest` and was begun by `now`: allowing for clocks
/// that differ by its own length.
#[must_use]
pub fn latest_end(now: Timestamp, longest: SignedDuration) -> Timestamp {
    let leeway = longest.max(CLOCKS_DIFFER);
    now.checked_add(longest.saturating_add(leeway)).unwrap_or(Timestamp::MAX)
}

/// A call to make, and who last set about making it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Derived id; the `Idempotency-Key` of the call.
    pub id: Uuid,
    /// What kind of call.
    pub kind: String,
    /// Correlation id of the input that asked for the call: the saga's.
    pub correlation_id: Uuid,
    /// What the call needs, as JSON.
    pub payload: String,
    /// Tries that failed.
    pub attempts: u32,
    /// Grows with each claim, from 0 for a task that nobody ever claimed: a lapsed owner's failure has no effect.
    pub claim: i64,
    /// When it was written.
    pub created_at: Timestamp,
    /// The dead letter that is being replayed.
    pub dead_letter: Option<Uuid>,
    /// Where whatever asked for the call stands in its trace.
    pub trace: Option<TraceContext>,
}

/// A message that will be tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// Name of the step that failed, and is to try again.
    pub step: String,
    /// The id under which the step knows the message: its own, unless an operator has edited it since.
    pub message_id: Uuid,
    /// The envelope's bytes as they will be tried: as they came, or as an operator edited them.
    pub payload: Bytes,
    /// Tries that failed.
    pub attempts: u32,
    /// When to try again.
    pub next_attempt: Timestamp,
    /// When the first try failed.
    pub first_failed_at: Timestamp,
    /// What went wrong last.
    pub last_error: String,
    /// Where the broker had it.
    pub delivery: Option<Delivery>,
    /// The dead letter that is being replayed.
    pub dead_letter: Option<Uuid>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_over_at_its_end_and_when_no_clock_that_is_right_can_have_begun_it() {
        let now = Timestamp::constant(1_800_000_000, 0);
        let (minute, hour) = (SignedDuration::from_mins(1), SignedDuration::from_hours(1));
        for (ahead, over) in [
            (-hour, true),
            (SignedDuration::ZERO, true),
            (SignedDuration::from_micros(1), false),
            (minute, false),
            (minute * 2, false),
            (minute * 2 + SignedDuration::from_micros(1), true),
            (hour, true),
        ] {
            assert_eq!(is_over(now + ahead, now, minute), over, "ends in {ahead:?}");
        }
        let short = SignedDuration::from_millis(200);
        assert!(!is_over(now + short + CLOCKS_DIFFER, now, short), "a replica that is ahead is believed");
        assert!(is_over(now + short * 2 + CLOCKS_DIFFER, now, short));
        assert!(!is_over(Timestamp::MAX, now, SignedDuration::MAX), "without a bound every wait is believed");
    }
}
