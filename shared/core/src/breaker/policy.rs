//! Pure: the policy of a circuit breaker: when it opens and how it closes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::window::{Tally, Window};

/// Policy of a circuit breaker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct BreakerPolicy {
    /// Percentage of failed calls at which the breaker opens.
    pub failure_rate: u8,
    /// Percentage of slow calls at which the breaker opens.
    pub slow_rate: u8,
    /// Duration above which a call is slow, whether it failed or not.
    #[serde(with = "humantime_serde")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub slow_after: Duration,
    /// Window of the calls that the rates are computed from.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub window: Window,
    /// Minimum number of calls before rates count. A smaller window of calls lowers it to its size.
    pub minimum_calls: u32,
    /// Time for which the breaker stays open before it admits probes.
    #[serde(with = "humantime_serde")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub open_for: Duration,
    /// Number of probes, whose rates decide between open and closed.
    pub half_open_calls: u32,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self {
            failure_rate: 50,
            slow_rate: 100,
            slow_after: Duration::from_mins(1),
            window: Window::Calls(10),
            minimum_calls: 5,
            open_for: Duration::from_secs(10),
            half_open_calls: 3,
        }
    }
}

impl BreakerPolicy {
    /// Validates the policy.
    ///
    /// # Errors
    /// A sentence that names the first invalid member.
    pub fn check(&self) -> Result<(), String> {
        let open_for = Duration::from_millis(1)..=Duration::from_hours(24);
        let rules = [
            ((1..=100).contains(&self.failure_rate), "failure_rate must be 1 to 100"),
            ((1..=100).contains(&self.slow_rate), "slow_rate must be 1 to 100"),
            (!self.slow_after.is_zero(), "slow_after must be longer than 0s"),
            (self.minimum_calls > 0, "minimum_calls must be at least 1"),
            (open_for.contains(&self.open_for), "open_for must be 1ms to 24h"),
            ((1..=1000).contains(&self.half_open_calls), "half_open_calls must be 1 to 1000"),
            self.window.check(),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, sentence)) => Err((*sentence).to_owned()),
            None => Ok(()),
        }
    }

    /// Number of calls from which on the rates of a window count.
    pub(super) fn minimum(&self) -> u64 {
        match self.window {
            Window::Calls(calls) => self.minimum_calls.min(calls).into(),
            Window::Time(_) => self.minimum_calls.into(),
        }
    }

    /// Reason to open, or to stay open, after these calls.
    pub(super) fn objection(&self, Tally { calls, failures, slow }: Tally) -> Option<String> {
        let reaches = |part: u64, percent: u8| part * 100 >= calls * u64::from(percent);
        if reaches(failures, self.failure_rate) {
            Some(format!("{failures} of {calls} calls failed"))
        } else if reaches(slow, self.slow_rate) {
            Some(format!("{slow} of {calls} calls took longer than {:?}", self.slow_after))
        } else {
            None
        }
    }
}
