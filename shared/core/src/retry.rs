//! Pure: kinds of failures, and the backoff before the next attempt.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Failed attempt of a message or task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedAttempt {
    /// Error chain, outermost error first.
    pub chain: Vec<String>,
    /// Kind of failure, which decides about the next attempt.
    pub kind: FailureKind,
    /// Time in which the dependency asked not to be called again. At most [`MAX_RETRY_AFTER`] of it counts.
    pub retry_after: Option<Duration>,
}

/// Upper bound of the time in which a dependency may ask not to be called. It is asked again by then.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Kind of failure of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Failure that may pass: retried while attempts are left.
    Transient,
    /// Outage of a dependency: retried without consuming an attempt.
    Outage,
    /// Failure that no retry can repair.
    Permanent,
    /// Task that is no longer necessary and was never attempted: its call had no effect.
    NeverAttempted,
    /// Task that is no longer necessary and was attempted before: its call may have had an effect.
    NoLongerNeeded,
}

impl FailedAttempt {
    /// Creates a failure with a chain of one error.
    #[must_use]
    pub fn new(kind: FailureKind, reason: impl Into<String>) -> Self {
        Self { chain: vec![reason.into()], kind, retry_after: None }
    }

    /// Delay before the next attempt: the backoff, after the time in which the dependency asked not to be called.
    #[must_use]
    pub fn delay_after(&self, backoff: Duration) -> Duration {
        self.retry_after.unwrap_or_default().min(MAX_RETRY_AFTER).saturating_add(backoff)
    }

    /// Error chain in one line.
    #[must_use]
    pub fn reason(&self) -> String {
        self.chain.join(": ")
    }
}

/// Exponential backoff with full jitter, bounded in attempts and in delay.
///
/// Formula: "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015), variant *full jitter*:
/// `random_between(0, min(cap, base · 2^attempt))`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryPolicy {
    /// Maximum number of attempts, including the first.
    pub max_attempts: u32,
    /// Upper bound of the first delay.
    #[serde(with = "humantime_serde")]
    pub base: Duration,
    /// Upper bound of every delay.
    #[serde(with = "humantime_serde")]
    pub cap: Duration,
}

impl RetryPolicy {
    /// Returns the number of attempts including this failure, and the delay before the next; no delay if none
    /// follows.
    ///
    /// `attempts` excludes this failure.
    #[must_use]
    pub fn after(&self, kind: FailureKind, attempts: u32, jitter: u32) -> (u32, Option<Duration>) {
        let counted = attempts.saturating_add(1);
        match kind {
            FailureKind::Transient => (counted, self.delay_after(counted, jitter)),
            FailureKind::Permanent => (counted, None),
            FailureKind::NeverAttempted | FailureKind::NoLongerNeeded => (attempts, None),
            // Not counted, and there is always a next attempt. The delay is that of the attempt that would be counted.
            FailureKind::Outage => (attempts, Some(self.jittered(counted.min(self.max_attempts), jitter))),
        }
    }

    /// Delay after `attempts` failed attempts; `None` if none are left. `jitter` is random over the whole range of
    /// `u32`.
    #[must_use]
    pub fn delay_after(&self, attempts: u32, jitter: u32) -> Option<Duration> {
        (attempts < self.max_attempts).then(|| self.jittered(attempts, jitter))
    }

    fn jittered(&self, attempts: u32, jitter: u32) -> Duration {
        let doublings = attempts.saturating_sub(1).min(31);
        let ceiling = self.base.saturating_mul(1 << doublings).min(self.cap);
        let micros = u64::try_from(ceiling.as_micros()).unwrap_or(u64::MAX);
        // Fixed point: jitter / 2^32 of the ceiling, without floats.
        let micros = (u128::from(micros) * u128::from(jitter)) >> 32;
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

/// Formats an error with its sources in one line, outermost first.
#[must_use]
pub fn error_chain(error: &dyn std::error::Error) -> String {
    error_links(error).join(": ")
}

/// Lists an error and its sources, outermost first.
#[must_use]
pub fn error_links(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect()
}

/// Extracts the message of a panic.
#[must_use]
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn delay_stays_below_ceiling_and_ends_with_attempts(
            attempts in 1_u32..50, max_attempts in 1_u32..50, jitter: u32,
        ) {
            let policy = RetryPolicy {
                max_attempts,
                base: Duration::from_millis(100),
                cap: Duration::from_secs(5),
            };
            match policy.delay_after(attempts, jitter) {
                None => prop_assert!(attempts >= max_attempts),
                Some(delay) => {
                    prop_assert!(attempts < max_attempts);
                    prop_assert!(delay <= policy.cap);
                    prop_assert!(delay <= policy.base * 2_u32.saturating_pow(attempts - 1));
                }
            }
        }
    }

    #[test]
    fn outage_consumes_no_attempts() {
        let policy =
            RetryPolicy { max_attempts: 3, base: Duration::from_secs(1), cap: Duration::from_mins(1) };
        let (attempts, delay) = policy.after(FailureKind::Outage, 2, u32::MAX);
        assert_eq!(attempts, 2);
        assert!(delay.is_some());
        assert_eq!(policy.after(FailureKind::Transient, 2, 0), (3, None));
        assert_eq!(policy.after(FailureKind::Permanent, 0, 0), (1, None));
        assert_eq!(
            policy.after(FailureKind::NoLongerNeeded, 2, 0),
            (2, None),
            "what was not tried counts as no try"
        );
    }

    #[test]
    fn jitter_uses_the_whole_range() {
        let policy =
            RetryPolicy { max_attempts: 9, base: Duration::from_secs(1), cap: Duration::from_mins(1) };
        assert_eq!(policy.delay_after(1, 0), Some(Duration::ZERO));
        assert!(policy.delay_after(3, u32::MAX) > Some(Duration::from_millis(3_999)));
    }
}
