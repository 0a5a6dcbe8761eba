//! Random walks of a breaker beside a naive model that keeps every call. They agree on every query.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use saga_core::breaker::{Breaker, BreakerPolicy, Permit, State, Verdict, Window};

use super::{at, view};

/// Walks move by quarters of a second, so that they often hit boundaries exactly.
const QUARTER: Duration = Duration::from_millis(250);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn breaker_agrees_with_naive_model(policy in policies(), steps in walks()) {
        let mut world = SideBySide::new(policy);
        for step in steps {
            world.take(&step);
            prop_assert_eq!(world.seen(), world.expected(), "after {:?} at {:?}", step, world.now);
        }
    }
}

/// Walks that reach no transition would agree on everything.
#[test]
fn walks_reach_every_transition() {
    let mut runner = TestRunner::deterministic();
    let mut reached = BTreeSet::new();
    for _ in 0..300 {
        let (policy, steps) = (policies(), walks()).new_tree(&mut runner).expect("a walk").current();
        let mut world = SideBySide::new(policy);
        for step in steps {
            world.take(&step);
            let transitions = view(&world.breaker, world.now).transitions;
            reached.extend(
                transitions
                    .last()
                    .map(|it| format!("{:?} to {:?}, reset: {}", it.from, it.to, it.why == "reset")),
            );
        }
    }
    // Closed to open, open to half-open, and from there both ways; from all five to the three that an operator can
    // request.
    assert_eq!(reached.len(), 4 + 5 * 3, "{reached:#?}");
}

#[derive(Debug, Clone)]
enum Step {
    /// A call that ends as it begins.
    Call(End),
    Begin,
    /// One of the calls in flight ends, however old it is.
    End(Index, End),
    Wait(Duration),
    ForceOpen,
    ForceClosed,
    Reset,
}

#[derive(Debug, Clone, Copy)]
struct End {
    verdict: Verdict,
    is_slow: bool,
}

fn policies() -> impl Strategy<Value = BreakerPolicy> {
    let percent = || prop_oneof![Just(50), Just(100), 1..=100_u8];
    let window = prop_oneof![
        (1..=8_u32).prop_map(Window::Calls),
        (1..=6_u64).prop_map(|seconds| Window::Time(at(seconds))),
    ];
    (percent(), percent(), window, 1..=8_u32, 2..16_u32, 1..=4_u32).prop_map(
        |(failure_rate, slow_rate, window, minimum_calls, open_quarters, half_open_calls)| BreakerPolicy {
            failure_rate,
            slow_rate,
            slow_after: at(1),
            window,
            minimum_calls,
            open_for: QUARTER * open_quarters,
            half_open_calls,
        },
    )
}

fn walks() -> impl Strategy<Value = Vec<Step>> {
    let end = || {
        let verdict = prop_oneof![
            4 => Just(Verdict::Success),
            3 => Just(Verdict::Failure),
            1 => Just(Verdict::Ignored),
        ];
        (verdict, prop::bool::weighted(0.3)).prop_map(|(verdict, is_slow)| End { verdict, is_slow })
    };
    let step = prop_oneof![
        30 => end().prop_map(Step::Call),
        10 => Just(Step::Begin),
        10 => (any::<Index>(), end()).prop_map(|(index, end)| Step::End(index, end)),
        14 => (0..10_u32).prop_map(|quarters| Step::Wait(QUARTER * quarters)),
        1 => Just(Step::ForceOpen),
        1 => Just(Step::ForceClosed),
        3 => Just(Step::Reset),
    ];
    prop::collection::vec(step, 1..200)
}

/// The breaker and its model.
struct SideBySide {
    breaker: Breaker,
    naive: Naive,
    now: Duration,
    /// Calls in flight, with the era in which the model admitted them.
    begun: Vec<(Permit, usize)>,
    /// True if each admitted the newest call.
    admitted: (bool, bool),
}

/// All queries of a breaker.
#[derive(Debug, PartialEq)]
struct Seen {
    admitted: bool,
    state: State,
    rejects_until: Option<Option<Duration>>,
    ramp: Option<u32>,
    counts: [u64; 3],
    rates: [Option<u8>; 2],
    rejected: u64,
}

impl SideBySide {
    fn new(policy: BreakerPolicy) -> Self {
        assert_eq!(policy.check(), Ok(()));
        let (breaker, naive) = (Breaker::new(policy.clone()), Naive::new(policy));
        Self { breaker, naive, now: Duration::ZERO, begun: Vec::new(), admitted: (true, true) }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Call(end) => {
                let begun = self.begun.len();
                self.begin();
                if self.begun.len() > begun {
                    self.end(begun, *end);
                }
            }
            Step::Begin => self.begin(),
            Step::End(which, end) if !self.begun.is_empty() => self.end(which.index(self.begun.len()), *end),
            Step::End(..) => {}
            Step::Wait(time) => self.now += *time,
            Step::ForceOpen => self.breaker.force_open(self.now),
            Step::ForceClosed => self.breaker.force_closed(self.now),
            Step::Reset => self.breaker.reset(self.now),
        }
        self.naive.time_passes(self.now);
        match step {
            Step::ForceOpen => self.naive.enter(State::ForcedOpen, self.now),
            Step::ForceClosed => self.naive.enter(State::ForcedClosed, self.now),
            Step::Reset => self.naive.enter(State::Closed, self.now),
            Step::Call(_) | Step::Begin | Step::End(..) | Step::Wait(_) => {}
        }
    }

    fn begin(&mut self) {
        let permit = self.breaker.acquire(self.now);
        let era = self.naive.acquire();
        self.admitted = (permit.is_some(), era.is_some());
        self.begun.extend(permit.zip(era));
    }

    fn end(&mut self, which: usize, end: End) {
        let (permit, era) = self.begun.swap_remove(which);
        // Exactly at the limit is not slow.
        let took = at(1) + Duration::from_nanos(u64::from(end.is_slow));
        self.breaker.record(permit, end.verdict, took, self.now);
        self.naive.record(era, end, self.now);
    }

    fn seen(&self) -> Seen {
        let view = view(&self.breaker, self.now);
        Seen {
            admitted: self.admitted.0,
            state: view.state,
            rejects_until: self.breaker.rejects_until(self.now),
            ramp: self.breaker.ramp(),
            counts: [view.calls, view.failures, view.slow],
            rates: [view.failure_rate, view.slow_rate],
            rejected: view.rejected,
        }
    }

    fn expected(&self) -> Seen {
        self.naive.seen(self.admitted.1, self.now)
    }
}

/// Naive model of a breaker: keeps every call and recomputes everything.
struct Naive {
    policy: BreakerPolicy,
    state: State,
    /// Number of states so far. A call belongs to the one that admitted it.
    era: usize,
    /// Start of this state.
    since: Duration,
    /// True if the state before was half-open.
    is_recovering: bool,
    /// Era of each admitted call that was not ignored.
    admitted: Vec<usize>,
    calls: Vec<Call>,
    rejected: u64,
}

struct Call {
    era: usize,
    second: u64,
    is_failure: bool,
    is_slow: bool,
}

impl Naive {
    fn new(policy: BreakerPolicy) -> Self {
        Self {
            policy,
            state: State::Closed,
            era: 0,
            since: Duration::ZERO,
            is_recovering: false,
            admitted: Vec::new(),
            calls: Vec::new(),
            rejected: 0,
        }
    }

    fn enter(&mut self, state: State, now: Duration) {
        (self.state, self.since, self.era, self.is_recovering) = (state, now, self.era + 1, false);
    }

    fn time_passes(&mut self, now: Duration) {
        if self.state == State::Open && now - self.since >= self.policy.open_for {
            self.enter(State::HalfOpen, now);
        }
    }

    fn acquire(&mut self) -> Option<usize> {
        let probes = self.admitted.iter().filter(|era| **era == self.era).count();
        let is_admitted = match self.state {
            State::Closed | State::ForcedClosed => true,
            State::Open | State::ForcedOpen => false,
            State::HalfOpen => probes < self.policy.half_open_calls as usize,
        };
        if !is_admitted {
            self.rejected += 1;
            return None;
        }
        self.admitted.push(self.era);
        Some(self.era)
    }

    fn record(&mut self, era: usize, End { verdict, is_slow }: End, now: Duration) {
        let is_failure = match verdict {
            Verdict::Success => false,
            Verdict::Failure => true,
            Verdict::Ignored => {
                let admission = self.admitted.iter().position(|it| *it == era).expect("it was admitted");
                self.admitted.swap_remove(admission);
                return;
            }
        };
        self.calls.push(Call { era, second: now.as_secs(), is_failure, is_slow });
        let Some([failure_rate, slow_rate]) = self.rates(now).filter(|_| era == self.era) else { return };
        let is_bad = failure_rate.is_at_least(self.policy.failure_rate)
            || slow_rate.is_at_least(self.policy.slow_rate);
        match (self.state, is_bad) {
            (State::Closed | State::HalfOpen, true) => self.enter(State::Open, now),
            (State::HalfOpen, false) => {
                self.enter(State::Closed, now);
                self.is_recovering = true;
            }
            (State::Closed, false) | (State::Open | State::ForcedOpen | State::ForcedClosed, _) => {}
        }
    }

    fn window(&self, now: Duration) -> Vec<&Call> {
        let all: Vec<_> = self.calls.iter().filter(|call| call.era == self.era).collect();
        match (self.state, self.policy.window) {
            (State::Closed, Window::Calls(size)) => all.into_iter().rev().take(size as usize).collect(),
            (State::Closed, Window::Time(time)) => {
                all.into_iter().filter(|call| now.as_secs() - call.second < time.as_secs()).collect()
            }
            (State::HalfOpen, _) => all,
            (State::Open | State::ForcedOpen | State::ForcedClosed, _) => Vec::new(),
        }
    }

    fn rates(&self, now: Duration) -> Option<[Rate; 2]> {
        let minimum = match (self.state, self.policy.window) {
            (State::HalfOpen, _) => self.policy.half_open_calls,
            (State::Closed, Window::Calls(size)) if size < self.policy.minimum_calls => size,
            (State::Closed | State::Open | State::ForcedOpen | State::ForcedClosed, _) => {
                self.policy.minimum_calls
            }
        };
        let [calls, failures, slow] = self.counts(now);
        (calls >= u64::from(minimum)).then_some([Rate(failures, calls), Rate(slow, calls)])
    }

    fn counts(&self, now: Duration) -> [u64; 3] {
        let window = self.window(now);
        let count = |what: fn(&Call) -> bool| window.iter().filter(|call| what(call)).count() as u64;
        [count(|_| true), count(|call| call.is_failure), count(|call| call.is_slow)]
    }

    fn ramp(&self) -> Option<u32> {
        let successes = self.calls.iter().filter(|call| call.era == self.era && !call.is_failure).count();
        match self.state {
            State::Closed if self.is_recovering => Some(self.policy.half_open_calls + successes as u32),
            State::Closed | State::ForcedClosed => None,
            State::Open | State::HalfOpen | State::ForcedOpen => Some(self.policy.half_open_calls),
        }
    }

    fn seen(&self, admitted: bool, now: Duration) -> Seen {
        Seen {
            admitted,
            state: self.state,
            rejects_until: match self.state {
                State::Open => Some(Some(self.since + self.policy.open_for)),
                State::ForcedOpen => Some(None),
                State::Closed | State::HalfOpen | State::ForcedClosed => None,
            },
            ramp: self.ramp(),
            counts: self.counts(now),
            rates: self.rates(now).map_or([None, None], |rates| rates.map(|rate| Some(rate.percent()))),
            rejected: self.rejected,
        }
    }
}

/// Numerator and denominator.
struct Rate(u64, u64);

impl Rate {
    /// True if the ratio reaches the percentage, rounded up.
    fn is_at_least(&self, percent: u8) -> bool {
        self.0 >= (self.1 * u64::from(percent)).div_ceil(100)
    }

    fn percent(&self) -> u8 {
        (0..=100).rev().find(|percent| self.is_at_least(*percent)).unwrap_or(0)
    }
}
