//! Pure: the circuit breaker.
//!
//! Follows resilience4j's `CircuitBreaker`, with two deliberate differences:
//!
//! - A result counts only in the state in which its call was admitted. In resilience4j a call that began before the
//!   opening counts as a probe.
//! - Probes are judged when all of them are recorded. In resilience4j `minimum_calls` are enough, if that is less.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::policy::BreakerPolicy;
use super::window::{Sliding, Tally};
use crate::retry::FailureKind;

/// Maximum number of transitions that a breaker remembers.
const REMEMBERED: usize = 20;
/// Calls in flight at which a slow start ends: more than a step pulls at once.
const RAMP_END: u32 = 1024;

/// Result of a call for its breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Answer in time or late, without a fault.
    Success,
    /// No answer, or a fault.
    Failure,
    /// Answer that says nothing about the health of the dependency.
    Ignored,
}

/// State of a circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = BreakerState))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum State {
    /// Admits all calls and watches them.
    Closed,
    /// Rejects all calls for a while.
    Open,
    /// Admits a few calls as probes.
    HalfOpen,
    /// Rejects all calls until an operator changes it.
    ForcedOpen,
    /// Admits all calls until an operator changes it.
    ForcedClosed,
}

impl State {
    /// Kind of a failure that has just been recorded. Unless the breaker is closed, the dependency is unavailable
    /// and no attempt is consumed.
    #[must_use]
    pub const fn failure_kind(self) -> FailureKind {
        match self {
            Self::Closed | Self::ForcedClosed => FailureKind::Transient,
            Self::Open | Self::HalfOpen | Self::ForcedOpen => FailureKind::Outage,
        }
    }
}

/// Permit for one call. Must be returned to [`Breaker::record`]: a probe that is not recorded keeps its slot.
#[derive(Debug)]
#[must_use]
pub struct Permit {
    generation: u64,
}

/// Transition of a breaker between two states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// Time since the origin of the breaker's clock.
    pub at: Duration,
    /// State that the breaker left.
    pub from: State,
    /// State that the breaker entered.
    pub to: State,
    /// Cause, in a few words.
    pub why: String,
}

/// Calls recorded since the process started, by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RecordedCalls))]
pub struct Recorded {
    /// Calls that the dependency answered without a fault.
    pub successes: u64,
    /// Calls that were not answered, or with a fault.
    pub failures: u64,
    /// Calls that say nothing about the dependency.
    pub ignored: u64,
}

#[derive(Debug, Clone)]
enum Phase {
    Closed(Sliding),
    Open { until: Duration },
    HalfOpen { free: u32, seen: Tally },
    ForcedOpen,
    ForcedClosed,
}

/// Circuit breaker. Times count from any origin of a monotonic clock.
#[derive(Debug)]
pub struct Breaker {
    policy: BreakerPolicy,
    phase: Phase,
    ramp: Option<u32>,
    /// Calls rejected since the process started.
    pub(super) rejected: u64,
    pub(super) recorded: Recorded,
    pub(super) transitions: VecDeque<Transition>,
    /// Kept apart, since older transitions are forgotten.
    pub(super) not_closed_since: Option<Duration>,
    /// Number of transitions since the process started.
    generation: u64,
    /// Number of probe slots that became free again.
    freed: u64,
}

impl Breaker {
    /// Creates a closed breaker. The policy must have passed its [check](BreakerPolicy::check).
    #[must_use]
    pub fn new(policy: BreakerPolicy) -> Self {
        Self {
            phase: Phase::Closed(Sliding::new(policy.window)),
            policy,
            ramp: None,
            rejected: 0,
            recorded: Recorded::default(),
            transitions: VecDeque::new(),
            not_closed_since: None,
            generation: 0,
            freed: 0,
        }
    }

    /// Counter of changes that may admit a waiting caller: transitions and returned probes.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.generation + self.freed
    }

    /// Number of transitions since the process started.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Newest transition of the breaker, if any.
    #[must_use]
    pub fn last_transition(&self) -> Option<&Transition> {
        self.transitions.back()
    }

    /// Policy by which the breaker opens and closes.
    #[must_use]
    pub const fn policy(&self) -> &BreakerPolicy {
        &self.policy
    }

    /// Requests a permit for a call that begins now; `None` if the call is rejected.
    pub fn acquire(&mut self, at: Duration) -> Option<Permit> {
        if self.is_due(at) {
            let probes = Phase::HalfOpen { free: self.policy.half_open_calls, seen: Tally::default() };
            self.enter(probes, at, format!("its {:?} have passed", self.policy.open_for));
        }
        let is_admitted = match &mut self.phase {
            Phase::Closed(_) | Phase::ForcedClosed => true,
            Phase::Open { .. } | Phase::ForcedOpen | Phase::HalfOpen { free: 0, .. } => false,
            Phase::HalfOpen { free, .. } => {
                *free -= 1;
                true
            }
        };
        self.rejected += u64::from(!is_admitted);
        is_admitted.then_some(Permit { generation: self.generation })
    }

    /// Records a call that ended now, after `took`. A call admitted in an earlier state is ignored.
    pub fn record(&mut self, permit: Permit, verdict: Verdict, took: Duration, at: Duration) {
        match verdict {
            Verdict::Success => self.recorded.successes += 1,
            Verdict::Failure => self.recorded.failures += 1,
            Verdict::Ignored => self.recorded.ignored += 1,
        }
        if permit.generation != self.generation {
            return;
        }
        let slow = u64::from(took > self.policy.slow_after);
        match verdict {
            Verdict::Success => self.count(Tally { calls: 1, failures: 0, slow }, at),
            Verdict::Failure => self.count(Tally { calls: 1, failures: 1, slow }, at),
            Verdict::Ignored => self.hand_back(),
        }
    }

    /// State at this time. An open breaker whose time has passed is half-open.
    #[must_use]
    pub fn state(&self, at: Duration) -> State {
        if self.is_due(at) { State::HalfOpen } else { self.phase.state() }
    }

    /// `Some` if the breaker rejects calls because it is open: until that time, or without end while it is forced
    /// open.
    #[must_use]
    pub fn rejects_until(&self, at: Duration) -> Option<Option<Duration>> {
        match &self.phase {
            Phase::Open { until } => (at < *until).then_some(Some(*until)),
            Phase::ForcedOpen => Some(None),
            Phase::Closed(_) | Phase::HalfOpen { .. } | Phase::ForcedClosed => None,
        }
    }

    /// Opens the breaker until another action.
    pub fn force_open(&mut self, at: Duration) {
        self.ramp = Some(self.policy.half_open_calls);
        self.enter(Phase::ForcedOpen, at, "forced open".to_owned());
    }

    /// Closes the breaker until another action.
    pub fn force_closed(&mut self, at: Duration) {
        self.ramp = None;
        self.enter(Phase::ForcedClosed, at, "forced closed".to_owned());
    }

    /// Closes the breaker, with an empty window.
    pub fn reset(&mut self, at: Duration) {
        self.ramp = None;
        self.enter(Phase::Closed(Sliding::new(self.policy.window)), at, "reset".to_owned());
    }

    /// Slow start after an opening: maximum number of calls in flight; `None` without a limit.
    ///
    /// Starts at the number of probes and grows by one with each success after the closing. Ends at 1024, or when
    /// the breaker is reset or forced closed.
    #[must_use]
    pub const fn ramp(&self) -> Option<u32> {
        self.ramp
    }

    /// Counts of the window, or of the recorded probes, and the minimum from which on their rates count.
    pub(super) fn tally(&self, at: Duration) -> (Tally, u64) {
        match &self.phase {
            Phase::Closed(window) => (window.tally(at), self.policy.minimum()),
            Phase::HalfOpen { seen, .. } => (*seen, self.policy.half_open_calls.into()),
            Phase::Open { .. } | Phase::ForcedOpen | Phase::ForcedClosed => (Tally::default(), 1),
        }
    }

    /// True if the open time has passed.
    fn is_due(&self, at: Duration) -> bool {
        matches!(self.phase, Phase::Open { until } if until <= at)
    }

    fn count(&mut self, call: Tally, at: Duration) {
        match &mut self.phase {
            Phase::Closed(window) => {
                let seen = window.record(call, at);
                if call.failures == 0 {
                    self.ramp = self.ramp.map(|ramp| ramp + 1).filter(|ramp| *ramp < RAMP_END);
                }
                if seen.calls >= self.policy.minimum()
                    && let Some(why) = self.policy.objection(seen)
                {
                    self.open(at, why);
                }
            }
            Phase::HalfOpen { seen, .. } => {
                *seen += call;
                let seen = *seen;
                if seen.calls >= u64::from(self.policy.half_open_calls) {
                    self.judge(seen, at);
                }
            }
            Phase::Open { .. } | Phase::ForcedOpen | Phase::ForcedClosed => {}
        }
    }

    fn judge(&mut self, seen: Tally, at: Duration) {
        match self.policy.objection(seen) {
            Some(why) => self.open(at, why),
            None => {
                let why = format!("{} of {} probes succeeded", seen.calls - seen.failures, seen.calls);
                self.enter(Phase::Closed(Sliding::new(self.policy.window)), at, why);
            }
        }
    }

    fn open(&mut self, at: Duration, why: String) {
        self.ramp = Some(self.policy.half_open_calls);
        self.enter(Phase::Open { until: at.saturating_add(self.policy.open_for) }, at, why);
    }

    fn hand_back(&mut self) {
        if let Phase::HalfOpen { free, .. } = &mut self.phase {
            *free += 1;
            self.freed += 1;
        }
    }

    fn enter(&mut self, phase: Phase, at: Duration, why: String) {
        if self.transitions.len() == REMEMBERED {
            self.transitions.pop_front();
        }
        let (from, to) = (self.phase.state(), phase.state());
        self.transitions.push_back(Transition { at, from, to, why });
        self.not_closed_since = match to {
            State::Open | State::HalfOpen => self.not_closed_since.or(Some(at)),
            State::Closed | State::ForcedOpen | State::ForcedClosed => None,
        };
        self.phase = phase;
        self.generation += 1;
    }
}

impl Phase {
    const fn state(&self) -> State {
        match self {
            Self::Closed(_) => State::Closed,
            Self::Open { .. } => State::Open,
            Self::HalfOpen { .. } => State::HalfOpen,
            Self::ForcedOpen => State::ForcedOpen,
            Self::ForcedClosed => State::ForcedClosed,
        }
    }
}
