//! Pure: the breakers of one process: the real ones, with the world's time, and what was seen of them.

use std::collections::BTreeMap;
use std::time::Duration;

use shared::resilience::{Answers, Breaker, BreakerPolicy, Permit, State, Verdict};
use shared::retry::Severity;
use shared::service::Step;

/// What was seen of all breakers of a service, through all its lives.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// Faults that struck what they stand before.
    pub faults: u64,
    /// Failures they were told of.
    pub failures: u64,
    /// Openings.
    pub opened: u64,
    /// Closings after an opening.
    pub closed: u64,
    /// Probes let through.
    pub probes: u64,
}

/// The breakers of one process.
#[derive(Debug)]
pub struct Breakers {
    all: BTreeMap<&'static str, Breaker>,
    /// Who was answered by what is called.
    pub answers: Answers,
    /// What was seen.
    pub seen: Seen,
}

impl Breakers {
    /// One before each step, and one before each thing outside that a step needs. All closed.
    #[must_use]
    pub fn of(steps: &'static [Step]) -> Self {
        let names = steps.iter().flat_map(|step| [step.name].into_iter().chain(step.needs.iter().copied()));
        let all = names.map(|name| (name, Breaker::new(BreakerPolicy::default()))).collect();
        Self { all, answers: Answers::default(), seen: Seen::default() }
    }

    /// A process that starts anew remembers nothing of what failed before.
    pub fn forget(&mut self) {
        self.answers = Answers::default();
        self.all.values_mut().for_each(|breaker| *breaker = Breaker::new(BreakerPolicy::default()));
    }

    /// Whether one of those before a step is open: then nothing is pulled.
    #[must_use]
    pub fn is_shut(&self, step: &Step, at: Duration) -> bool {
        [step.name].iter().chain(step.needs).any(|name| self.is_open(name, at))
    }

    /// Whether it is open.
    #[must_use]
    pub fn is_open(&self, name: &str, at: Duration) -> bool {
        self.all.get(name).is_some_and(|breaker| breaker.refuses_until(at).is_some())
    }

    /// Whether one of them is open.
    #[must_use]
    pub fn is_any_open(&self, at: Duration) -> bool {
        self.all.values().any(|breaker| breaker.refuses_until(at).is_some())
    }

    /// How many calls may be under way at once, after an opening.
    #[must_use]
    pub fn ramp(&self, name: &str) -> Option<usize> {
        self.all.get(name).and_then(Breaker::ramp).map(|ramp| ramp as usize)
    }

    /// Leave for one try; `None`: not now.
    pub fn acquire(&mut self, name: &str, at: Duration) -> Option<Permit> {
        let breaker = self.all.get_mut(name)?;
        let permit = breaker.acquire(at);
        self.seen.probes += u64::from(permit.is_some() && breaker.state(at) == State::HalfOpen);
        permit
    }

    /// Tells one how a try ended.
    pub fn record(&mut self, name: &str, permit: Permit, verdict: Verdict, at: Duration) {
        let Some(breaker) = self.all.get_mut(name) else { return };
        let before = breaker.state(at);
        breaker.record(permit, verdict, Duration::ZERO, at);
        let after = breaker.state(at);
        self.seen.failures += u64::from(verdict == Verdict::Failure);
        self.seen.opened += u64::from(before != State::Open && after == State::Open);
        self.seen.closed += u64::from(before == State::HalfOpen && after == State::Closed);
    }

    /// What follows from a failure that was just recorded.
    #[must_use]
    pub fn severity(&self, name: &str, at: Duration) -> Severity {
        self.all.get(name).map_or(Severity::Transient, |breaker| breaker.state(at).severity())
    }
}
