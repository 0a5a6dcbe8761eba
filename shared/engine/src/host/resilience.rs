//! Shell: what single steps and dependencies may have of their own: breakers, retries, calls.

use std::time::Duration;

use saga_core::breaker::{BreakerPolicy, Window};
use saga_core::retry::RetryPolicy;
use serde::{Deserialize, Serialize};

/// What one step or one dependency has of its own; what it leaves out it has like the others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Resilience {
    /// What its breaker has other than [`Settings::breaker`](super::settings::Settings::breaker).
    pub breaker: BreakerOverride,
    /// What its retries have other than [`Settings::retry`](super::settings::Settings::retry); of a dependency, than [`TaskSettings::retry`](super::settings::TaskSettings::retry).
    pub retry: RetryOverride,
    /// Calls at once; of a dependency.
    pub concurrency: Option<usize>,
    /// How long one call may take; of a dependency.
    #[serde(with = "humantime_serde")]
    pub timeout: Option<Duration>,
}

/// A [`BreakerPolicy`] in part.
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

/// A [`RetryPolicy`] in part.
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
    /// Why it cannot be, beginning with the member: of a step or a dependency whose breaker is otherwise like
    /// `breaker`, and where claims on tasks last for `lease`.
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
