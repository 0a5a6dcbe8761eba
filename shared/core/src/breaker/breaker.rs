//! Pure: the circuit breaker: when to stop calling what does not answer, and how to begin again.
//!
//! The semantics are those of resilience4j's `CircuitBreaker`, but for two deliberate differences. A result
//! counts only in the state that its call was admitted in: one that began before the opening says nothing
//! about the half-open probes (there it counts as a probe). And the probes are judged when all of them are
//! recorded (there already after `minimum_calls`, when that is less).

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::policy::BreakerPolicy;
use super::window::{Sliding, Tally};
use crate::retry::FailureKind;

/// Transitions that a breaker remembers.
const REMEMBERED: usize = 20;
/// Calls in flight from which on a slow start is over: more than a step takes from the broker at once.
const RAMP_END: u32 = 1024;

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was answered.
    Success,
    /// It was not, or with a fault.
    Failure,
    /// Its answer says nothing about the health of the other side.
    Ignored,
}

/// What a breaker does with calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = BreakerState))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum State {
    /// Admits all and watches them.
    Closed,
    /// Refuses all for a while.
    Open,
    /// Admits a few as probes.
    HalfOpen,
    /// Refuses all until somebody says otherwise.
    ForcedOpen,
    /// Admits all until somebody says otherwise.
    ForcedClosed,
}

impl State {
    /// What follows from a failure that has just been recorded: while the breaker is not closed the other side is
    /// away, and nobody's attempts are consumed.
    #[must_use]
    pub const fn failure_kind(self) -> FailureKind {
        match self {
            Self::Closed | Self::ForcedClosed => FailureKind::Transient,
            Self::Open | Self::HalfOpen | Self::ForcedOpen => FailureKind::Outage,
        }
    }
}

/// Leave to make one call. Hand it back to [`Breaker::record`]: a probe that is not recorded keeps its place.
#[derive(Debug)]
#[must_use]
pub struct Permit {
    generation: u64,
}

/// A change of state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// When, since the origin of the breaker's clock.
    pub at: Duration,
    /// What the breaker did with calls until then.
    pub from: State,
    /// What it does with calls from then on.
    pub to: State,
    /// What caused it, in a few words.
    pub why: String,
}

/// Calls recorded since the beginning, by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RecordedCalls))]
pub struct Recorded {
    /// Those that were answered.
    pub successes: u64,
    /// Those that were not.
    pub failures: u64,
    /// Those that say nothing of the other side.
    pub ignored: u64,
}

/// What there is to see of a breaker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// What it does with calls now.
    pub state: State,
    /// Calls in the window, or probes recorded.
    pub calls: u64,
    /// Those that failed.
    pub failures: u64,
    /// Those that were slow.
    pub slow: u64,
    /// Percent, rounded down; `None` while too few calls are recorded to tell.
    pub failure_rate: Option<u8>,
    /// Percent, rounded down; `None` while too few calls are recorded to tell.
    pub slow_rate: Option<u8>,
    /// Calls refused since the beginning.
    pub refused: u64,
    /// Calls recorded since the beginning, those included that counted as nothing.
    pub recorded: Recorded,
    /// Since when it has not been closed, probes that failed included; `None` while it is, and while it is forced.
    pub not_closed_since: Option<Duration>,
    /// The last twenty changes of state, oldest first.
    pub transitions: Vec<Transition>,
}

#[derive(Debug, Clone)]
enum Phase {
    Closed(Sliding),
    Open { until: Duration },
    HalfOpen { free: u32, seen: Tally },
    ForcedOpen,
    ForcedClosed,
}

/// A circuit breaker. Times are since an arbitrary origin of a clock that does not go back.
#[derive(Debug)]
pub struct Breaker {
    policy: BreakerPolicy,
    phase: Phase,
    ramp: Option<u32>,
    refused: u64,
    recorded: Recorded,
    transitions: VecDeque<Transition>,
    /// The transitions that are remembered may be fewer than there were since.
    not_closed_since: Option<Duration>,
    /// Transitions so far.
    generation: u64,
    /// Probes so far whose place became free again.
    freed: u64,
}

impl Breaker {
    /// A closed one. The policy must have passed its [check](BreakerPolicy::check).
    #[must_use]
    pub fn new(policy: BreakerPolicy) -> Self {
        Self {
            phase: Phase::Closed(Sliding::new(policy.window)),
            policy,
            ramp: None,
            refused: 0,
            recorded: Recorded::default(),
            transitions: VecDeque::new(),
            not_closed_since: None,
            generation: 0,
            freed: 0,
        }
    }

    /// Grows with everything that those who wait for a permit want to know: each transition, each probe that was
    /// handed back.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.generation + self.freed
    }

    /// Transitions so far.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The last change of state.
    #[must_use]
    pub fn last_transition(&self) -> Option<&Transition> {
        self.transitions.back()
    }

    /// How it works.
    #[must_use]
    pub const fn policy(&self) -> &BreakerPolicy {
        &self.policy
    }

    /// A permit for a call that begins now, or `None`: do not call.
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
        self.refused += u64::from(!is_admitted);
        is_admitted.then_some(Permit { generation: self.generation })
    }

    /// Takes note of a call that ended now after it `took` so long. One that was admitted in an earlier state
    /// counts as nothing.
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

    /// What it does with calls. An open one whose time has passed is half-open.
    #[must_use]
    pub fn state(&self, at: Duration) -> State {
        if self.is_due(at) { State::HalfOpen } else { self.phase.state() }
    }

    /// `Some` when it refuses because it is open: until that time, or until somebody says otherwise.
    #[must_use]
    pub fn refuses_until(&self, at: Duration) -> Option<Option<Duration>> {
        match &self.phase {
            Phase::Open { until } => (at < *until).then_some(Some(*until)),
            Phase::ForcedOpen => Some(None),
            Phase::Closed(_) | Phase::HalfOpen { .. } | Phase::ForcedClosed => None,
        }
    }

    /// Refuses everything from now on.
    pub fn force_open(&mut self, at: Duration) {
        self.ramp = Some(self.policy.half_open_calls);
        self.enter(Phase::ForcedOpen, at, "forced open".to_owned());
    }

    /// Admits everything from now on.
    pub fn force_closed(&mut self, at: Duration) {
        self.ramp = None;
        self.enter(Phase::ForcedClosed, at, "forced closed".to_owned());
    }

    /// Closed, with an empty window, as at the beginning.
    pub fn reset(&mut self, at: Duration) {
        self.ramp = None;
        self.enter(Phase::Closed(Sliding::new(self.policy.window)), at, "reset".to_owned());
    }

    /// Slow start after an opening: how many calls may be in flight at once; `None` is no limit.
    ///
    /// As many as there are probes, and from the closing on one more for each success. It ends at 1024, or when
    /// the breaker is reset or forced closed.
    #[must_use]
    pub const fn ramp(&self) -> Option<u32> {
        self.ramp
    }

    /// What there is to see of it.
    #[must_use]
    pub fn snapshot(&self, at: Duration) -> Snapshot {
        let (Tally { calls, failures, slow }, minimum) = match &self.phase {
            Phase::Closed(window) => (window.tally(at), self.policy.minimum()),
            Phase::HalfOpen { seen, .. } => (*seen, self.policy.half_open_calls.into()),
            Phase::Open { .. } | Phase::ForcedOpen | Phase::ForcedClosed => (Tally::default(), 1),
        };
        let rate = |part: u64| {
            let percent = (calls >= minimum).then(|| (part * 100).checked_div(calls))??;
            u8::try_from(percent).ok()
        };
        Snapshot {
            state: self.state(at),
            calls,
            failures,
            slow,
            failure_rate: rate(failures),
            slow_rate: rate(slow),
            refused: self.refused,
            recorded: self.recorded,
            not_closed_since: self.not_closed_since,
            transitions: self.transitions.iter().cloned().collect(),
        }
    }

    /// Whether its time of being open has passed.
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
