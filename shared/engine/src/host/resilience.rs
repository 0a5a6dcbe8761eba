//! Shell: overrides of breakers, retries and call limits for single steps and dependencies.

use std::time::Duration;

use saga_core::breaker::{BreakerPolicy, Window};
use saga_core::retry::RetryPolicy;
use serde::{Deserialize, Serialize};

/// Overrides for one step or dependency. Unset members keep the common value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Resilience {
    /// Overrides of [`Settings::breaker`](super::settings::Settings::breaker).
    pub breaker: BreakerOverride,
    /// Overrides of [`Settings::retry`](super::settings::Settings::retry), or of
    /// [`TaskSettings::retry`](super::settings::TaskSettings::retry) for a dependency.
    pub retry: RetryOverride,
    /// Maximum number of concurrent calls to a dependency.
    pub concurrency: Option<usize>,
    /// Time-out of one call to a dependency.
    #[serde(with = "humantime_serde")]
    pub timeout: Option<Duration>,
}

/// Partial [`BreakerPolicy`] that overrides the common one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "each member is documented at the policy")]
pub struct BreakerOverride {
    pub failure_rate: Option<u8>,
    pub slow_rate: Option<u8>,
    #[serde(with = "humantime_serde")]
    pub slow_after: Option<Duration>,
    pub window: Option<Window>,
    pub minimum_calls: Option<u32>,
    #[serde(with = "humantime_serde")]
    pub open_for: Option<Duration>,
    pub half_open_calls: Option<u32>,
}

/// Partial [`RetryPolicy`] that overrides the common one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "each member is documented at the policy")]
pub struct RetryOverride {
    pub max_attempts: Option<u32>,
    #[serde(with = "humantime_serde")]
    pub base: Option<Duration>,
    #[serde(with = "humantime_serde")]
    pub cap: Option<Duration>,
}

impl BreakerOverride {
    pub(super) fn over(&self, policy: &BreakerPolicy) -> BreakerPolicy {
        BreakerPolicy {
            failure_rate: self.failure_rate.unwrap_or(policy.failure_rate),
            slow_rate: self.slow_rate.unwrap_or(policy.slow_rate),
            slow_after: self.slow_after.unwrap_or(policy.slow_after),
            window: self.window.unwrap_or(policy.window),
            minimum_calls: self.minimum_calls.unwrap_or(policy.minimum_calls),
            open_for: self.open_for.unwrap_or(policy.open_for),
            half_open_calls: self.half_open_calls.unwrap_or(policy.half_open_calls),
        }
    }
}

impl RetryOverride {
    pub(super) fn over(&self, policy: RetryPolicy) -> RetryPolicy {
        RetryPolicy {
            max_attempts: self.max_attempts.unwrap_or(policy.max_attempts),
            base: self.base.unwrap_or(policy.base),
            cap: self.cap.unwrap_or(policy.cap),
        }
    }
}

impl Resilience {
    /// Returns the reason for which the overrides are impossible, starting with the member. `breaker` is the common
    /// policy, `lease` that of claimed tasks.
    pub(super) fn check(
        &self,
        is_step: bool,
        breaker: &BreakerPolicy,
        lease: Duration,
    ) -> Result<(), String> {
        self.breaker.over(breaker).check().map_err(|why| format!(".breaker.{why}"))?;
        let rules = [
            (self.retry.max_attempts != Some(0), ".retry.max_attempts must be at least 1"),
            (
                !is_step || (self.concurrency.is_none() && self.timeout.is_none()),
                ": concurrency and timeout are of dependencies, and this is a step",
            ),
            (self.concurrency != Some(0), ".concurrency must be at least 1"),
            (
                self.timeout.is_none_or(|timeout| !timeout.is_zero() && timeout < lease),
                ".timeout must be longer than 0s and shorter than task.lease",
            ),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            Some((_, why)) => Err(why.to_owned()),
            None => Ok(()),
        }
    }
}
