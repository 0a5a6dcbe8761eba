//! Pure: tasks and retries that wait in the store, and the end of their waits.

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::dead_letter::DeliveryInfo;
use crate::trace::TraceContext;

/// Maximum difference between the clocks of two processes. Short waits stored by one replica are believed by the others
/// within it.
pub(crate) const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_secs(10);

/// True if a wait until `until` is over at `now`. `longest` is the longest wait of its kind.
///
/// A wait that ends later than any can ([`latest_end`]) counts as over: it was stored by a process whose clock was
/// ahead. Ending it early is safe: claims and leases are fenced, and an early retry is a retry.
#[must_use]
pub fn is_over(until: Timestamp, now: Timestamp, longest: SignedDuration) -> bool {
    until <= now || until > latest_end(now, longest)
}

/// Latest end of a wait of at most `longest` that began by `now`. Allows for clocks that differ by the same length.
#[must_use]
pub fn latest_end(now: Timestamp, longest: SignedDuration) -> Timestamp {
    let leeway = longest.max(CLOCKS_DIFFER);
    now.checked_add(longest.saturating_add(leeway)).unwrap_or(Timestamp::MAX)
}

/// Task: a call to make after the commit, with its current claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Derived id, also the `Idempotency-Key` of the call.
    pub id: Uuid,
    /// Kind of call, by which a task handler recognizes it.
    pub kind: String,
    /// Saga of the input that created the task.
    pub correlation_id: Uuid,
    /// Parameters of the call, JSON.
    pub payload: String,
    /// Number of attempts that have failed so far.
    pub attempts: u32,
    /// Fencing token: grows with each claim, from 0 before the first. A failure under an older claim has no effect.
    pub claim: i64,
    /// Time at which it was created.
    pub created_at: Timestamp,
    /// Dead letter that is being replayed.
    pub dead_letter: Option<Uuid>,
    /// Trace context of the input that created the task.
    pub trace: Option<TraceContext>,
}

/// Message that will be tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// Name of the step that tries again.
    pub step: String,
    /// Id in the inbox. Differs from the message's own id once an operator has edited the message.
    pub message_id: Uuid,
    /// Serialized envelope, as received or as edited.
    pub payload: Bytes,
    /// Number of attempts that have failed so far.
    pub attempts: u32,
    /// Time of the next attempt.
    pub next_attempt: Timestamp,
    /// Time of the first failed attempt.
    pub first_failed_at: Timestamp,
    /// Error of the last attempt, in one line.
    pub last_error: String,
    /// Broker metadata of the message.
    pub delivery: Option<DeliveryInfo>,
    /// Dead letter that is being replayed.
    pub dead_letter: Option<Uuid>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_is_over_at_its_end_or_when_it_ends_later_than_possible() {
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
