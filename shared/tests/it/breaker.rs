//! The circuit breaker: against a naive one that remembers every call, and by example.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use shared::resilience::{Breaker, BreakerPolicy, Guard, GuardView, Pass, Permit, State, Verdict, Window};
use tokio::time::timeout;

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(10);
/// Walks go by quarters of a second, so that they often stop exactly where something ends.
const QUARTER: Duration = Duration::from_millis(250);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn it_does_what_one_that_remembers_every_call_does(policy in policies(), steps in walks()) {
        let mut world = World::new(policy);
        for step in steps {
            world.take(&step);
            prop_assert_eq!(world.seen(), world.expected(), "after {:?} at {:?}", step, world.now);
        }
    }
}

/// The test of the test: walks that never get anywhere would agree on everything.
#[test]
fn the_walks_reach_every_change_of_state() {
    let mut runner = TestRunner::deterministic();
    let mut reached = BTreeSet::new();
    for _ in 0..300 {
        let (policy, steps) = (policies(), walks()).new_tree(&mut runner).expect("a walk").current();
        let mut world = World::new(policy);
        for step in steps {
            world.take(&step);
            let transitions = world.breaker.snapshot(world.now).transitions;
            reached.extend(
                transitions
                    .last()
                    .map(|it| format!("{:?} to {:?}, reset: {}", it.from, it.to, it.why == "reset")),
            );
        }
    }
    // Closed to open, open to half-open and from there both ways; and from all five to the three that
    // somebody can ask for.
    assert_eq!(reached.len(), 4 + 5 * 3, "{reached:#?}");
}

#[test]
fn business_refusals_count_as_nothing() {
    let mut breaker = Breaker::new(BreakerPolicy::default());
    calls(&mut breaker, Verdict::Failure, 4, 0);
    calls(&mut breaker, Verdict::Ignored, 100, 0);
    assert_eq!((breaker.state(at(0)), breaker.snapshot(at(0)).calls), (State::Closed, 4));
    calls(&mut breaker, Verdict::Failure, 1, 0);
    assert_eq!(breaker.state(at(0)), State::Open);
    calls(&mut breaker, Verdict::Ignored, 100, 10);
    assert_eq!((breaker.state(at(10)), breaker.snapshot(at(10)).calls), (State::HalfOpen, 0));
}

#[test]
fn a_rate_counts_from_the_minimum_of_calls_on() {
    let mut breaker = Breaker::new(BreakerPolicy::default());
    calls(&mut breaker, Verdict::Failure, 4, 0);
    assert_eq!((breaker.state(at(0)), breaker.snapshot(at(0)).failure_rate), (State::Closed, None));
    calls(&mut breaker, Verdict::Success, 1, 0);
    assert_eq!(
        breaker.state(at(0)),
        State::Open,
        "four of five failed: whose call is the fifth does not matter"
    );
}

#[test]
fn half_open_decides_by_rate_not_by_the_first_failure() {
    for (failures, state) in [(1, State::Closed), (2, State::Open)] {
        let mut breaker = opened();
        calls(&mut breaker, Verdict::Failure, failures, 10);
        assert_eq!(breaker.state(at(10)), State::HalfOpen, "{failures} of 3 probes say nothing yet");
        calls(&mut breaker, Verdict::Success, 3 - failures, 10);
        assert_eq!(breaker.state(at(10)), state, "{failures} of 3 probes failed");
    }
}

#[test]
fn half_open_admits_no_more_than_its_probes() {
    let mut breaker = opened();
    let mut probes: Vec<Permit> = (0..5).filter_map(|_| breaker.acquire(at(10))).collect();
    assert_eq!((probes.len(), breaker.snapshot(at(10)).refused), (3, 2));
    breaker.record(probes.remove(0), Verdict::Ignored, at(0), at(10));
    assert!(breaker.acquire(at(10)).is_some(), "the place of an ignored probe is free again");
    assert!(breaker.acquire(at(10)).is_none());
}

#[test]
fn slow_calls_open_it_though_they_succeed() {
    let policy = BreakerPolicy { slow_rate: 60, slow_after: at(1), ..BreakerPolicy::default() };
    let mut breaker = Breaker::new(policy);
    for (took, state) in [
        (Duration::ZERO, State::Closed),
        (at(1), State::Closed),
        (at(1) + Duration::from_nanos(1), State::Closed),
        (at(2), State::Closed),
        (at(3), State::Open),
    ] {
        let permit = breaker.acquire(at(5)).expect("admitted");
        breaker.record(permit, Verdict::Success, took, at(5));
        assert_eq!(breaker.state(at(5)), state, "after one that took {took:?}");
    }
    let opening = breaker.snapshot(at(5)).transitions.pop().expect("it opened");
    assert_eq!(opening.why, "3 of 5 calls took longer than 1s");
}

#[test]
fn results_from_before_the_opening_do_not_count_as_probes() {
    let mut breaker = Breaker::new(BreakerPolicy::default());
    let late: Vec<Permit> = (0..10).filter_map(|_| breaker.acquire(at(0))).collect();
    calls(&mut breaker, Verdict::Failure, 5, 0);
    let _probe = breaker.acquire(at(10)).expect("a probe");
    for permit in late {
        breaker.record(permit, Verdict::Failure, at(11), at(11));
    }
    assert_eq!((breaker.state(at(11)), breaker.snapshot(at(11)).calls), (State::HalfOpen, 0));
}

#[test]
fn the_window_slides() {
    let mut breaker = Breaker::new(BreakerPolicy { failure_rate: 40, ..BreakerPolicy::default() });
    calls(&mut breaker, Verdict::Success, 10, 0);
    calls(&mut breaker, Verdict::Failure, 3, 0);
    calls(&mut breaker, Verdict::Success, 10, 0);
    assert_eq!(
        breaker.snapshot(at(0)).failure_rate,
        Some(0),
        "ten calls later, three failures are forgotten"
    );
    calls(&mut breaker, Verdict::Failure, 4, 0);
    assert_eq!(breaker.state(at(0)), State::Open, "four of the last ten failed, though 7 of 27 in all");

    let policy = BreakerPolicy { window: Window::Time(at(3)), minimum_calls: 4, ..BreakerPolicy::default() };
    let mut breaker = Breaker::new(policy);
    calls(&mut breaker, Verdict::Failure, 3, 0);
    assert_eq!(breaker.snapshot(at(2)).calls, 3);
    assert_eq!(breaker.snapshot(at(3)).calls, 0, "the third second is past");
    calls(&mut breaker, Verdict::Failure, 3, 3);
    assert_eq!((breaker.state(at(3)), breaker.snapshot(at(3)).failures), (State::Closed, 3));
    calls(&mut breaker, Verdict::Success, 1, 5);
    assert_eq!(breaker.state(at(5)), State::Open);
}

#[test]
fn forced_states_end_only_when_somebody_says_so() {
    let mut breaker = Breaker::new(BreakerPolicy::default());
    breaker.force_closed(at(0));
    calls(&mut breaker, Verdict::Failure, 100, 0);
    assert_eq!((breaker.state(at(0)), breaker.snapshot(at(0)).calls), (State::ForcedClosed, 0));
    breaker.force_open(at(0));
    assert!(breaker.acquire(at(1_000_000)).is_none());
    assert_eq!(breaker.refuses_until(at(1_000_000)), Some(None));
    breaker.reset(at(0));
    assert_eq!((breaker.state(at(0)), breaker.ramp()), (State::Closed, None));
}

#[test]
fn after_an_opening_each_success_allows_one_more_in_flight() {
    let mut breaker = opened();
    assert_eq!(breaker.ramp(), Some(3));
    calls(&mut breaker, Verdict::Success, 3, 10);
    assert_eq!((breaker.state(at(10)), breaker.ramp()), (State::Closed, Some(3)));
    calls(&mut breaker, Verdict::Success, 10, 10);
    calls(&mut breaker, Verdict::Failure, 1, 10);
    calls(&mut breaker, Verdict::Ignored, 1, 10);
    assert_eq!(breaker.ramp(), Some(13));
    calls(&mut breaker, Verdict::Success, 1010, 10);
    assert_eq!(breaker.ramp(), Some(1023));
    calls(&mut breaker, Verdict::Success, 1, 10);
    assert_eq!(breaker.ramp(), None);
}

#[test]
fn it_remembers_its_last_twenty_changes() {
    let mut breaker = Breaker::new(BreakerPolicy::default());
    calls(&mut breaker, Verdict::Failure, 5, 7);
    let opening = breaker.snapshot(at(7)).transitions.pop().expect("it opened");
    assert_eq!((opening.at, opening.from, opening.to), (at(7), State::Closed, State::Open));
    assert_eq!(opening.why, "5 of 5 calls failed");
    (8..50).for_each(|second| breaker.reset(at(second)));
    let transitions = breaker.snapshot(at(50)).transitions;
    assert_eq!((transitions.len(), transitions[0].at, transitions[19].at), (20, at(30), at(49)));
}

#[test]
fn a_policy_is_read_as_people_write_it() {
    let read = |text: &str| {
        let source = config::File::from_str(text, config::FileFormat::Toml);
        config::Config::builder().add_source(source).build()?.try_deserialize::<BreakerPolicy>()
    };
    assert_eq!(read("").expect("nothing to say"), BreakerPolicy::default());
    let policy = read("failure_rate = 20\nopen_for = \"1m\"\nwindow = { time = \"30s\" }").expect("a policy");
    assert_eq!((policy.failure_rate, policy.open_for), (20, Duration::from_mins(1)));
    assert_eq!(policy.window, Window::Time(at(30)));
    assert_eq!(read("window.calls = 7").expect("a policy").window, Window::Calls(7));
    assert!(read("faliure_rate = 20").expect_err("a typing error").to_string().contains("faliure_rate"));
}

#[test]
fn an_impossible_policy_is_refused_by_name() {
    let good = BreakerPolicy::default();
    assert_eq!(good.check(), Ok(()));
    for (policy, sentence) in [
        (BreakerPolicy { failure_rate: 0, ..good.clone() }, "failure_rate must be 1 to 100"),
        (BreakerPolicy { failure_rate: 101, ..good.clone() }, "failure_rate must be 1 to 100"),
        (BreakerPolicy { slow_rate: 0, ..good.clone() }, "slow_rate must be 1 to 100"),
        (BreakerPolicy { slow_after: at(0), ..good.clone() }, "slow_after must be longer than 0s"),
        (BreakerPolicy { minimum_calls: 0, ..good.clone() }, "minimum_calls must be at least 1"),
        (BreakerPolicy { open_for: at(0), ..good.clone() }, "open_for must be 1ms to 24h"),
        (BreakerPolicy { half_open_calls: 0, ..good.clone() }, "half_open_calls must be 1 to 1000"),
        (BreakerPolicy { window: Window::Calls(0), ..good.clone() }, "window.calls must be 1 to 10000"),
        (BreakerPolicy { window: Window::Calls(10_001), ..good.clone() }, "window.calls must be 1 to 10000"),
        (
            BreakerPolicy { window: Window::Time(Duration::from_millis(1500)), ..good.clone() },
            "window.time must be 1s to 1h, in whole seconds",
        ),
        (
            BreakerPolicy { window: Window::Time(at(3601)), ..good.clone() },
            "window.time must be 1s to 1h, in whole seconds",
        ),
    ] {
        assert_eq!(policy.check(), Err(sentence.to_owned()));
    }
}

#[test]
fn a_pass_that_is_dropped_counts_as_a_failure() {
    let guard = Guard::new("bank", BreakerPolicy { minimum_calls: 2, ..BreakerPolicy::default() });
    guard.acquire().expect("admitted").succeed();
    assert!(!guard.is_open());
    drop(guard.acquire().expect("admitted"));
    assert_eq!((guard.is_open(), guard.state()), (true, State::Open));
    let view = guard.view();
    assert_eq!(view.transitions[0].why, "1 of 2 calls failed");
    assert_eq!((view.name.as_str(), view.state), ("bank", State::Open));
}

#[test]
fn a_pass_measures_its_call() {
    let policy =
        BreakerPolicy { slow_after: Duration::from_nanos(1), minimum_calls: 1, ..BreakerPolicy::default() };
    let guard = Guard::new("bank", policy);
    let pass = guard.acquire().expect("admitted");
    let began = Instant::now();
    while began.elapsed() < Duration::from_micros(1) {}
    pass.succeed();
    assert_eq!(guard.view().transitions[0].why, "1 of 1 calls took longer than 1ns");
}

#[tokio::test]
async fn waiters_are_woken_when_the_open_time_passes() {
    let open_for = Duration::from_millis(30);
    let guard = Guard::new("bank", BreakerPolicy { open_for, minimum_calls: 1, ..BreakerPolicy::default() });
    timeout(LIMIT, guard.admits()).await.expect("a closed one holds nobody up");
    let before = Instant::now();
    guard.acquire().expect("admitted").fail();
    let waiting = async {
        timeout(LIMIT, guard.admits()).await.expect("woken");
        before.elapsed()
    };
    let (one, other) = tokio::join!(waiting, timeout(LIMIT, guard.admits()));
    assert!(one >= open_for && other.is_ok());
    assert_eq!((guard.is_open(), guard.state()), (false, State::HalfOpen));
    let probes: Vec<_> = (0..4).filter_map(|_| guard.acquire()).collect();
    assert_eq!(probes.len(), 3);
    probes.into_iter().for_each(Pass::succeed);
    assert_eq!((guard.state(), guard.ramp()), (State::Closed, Some(3)));
}

#[tokio::test]
async fn waiters_are_woken_when_somebody_says_otherwise() {
    let guard = Guard::new("bank", BreakerPolicy::default());
    for release in [Guard::reset, Guard::force_closed] {
        guard.force_open();
        assert_eq!((guard.is_open(), guard.view().open_until), (true, None));
        let waiting = async {
            timeout(LIMIT, guard.admits()).await.expect("woken");
            guard.is_open()
        };
        let (is_open, ()) = tokio::join!(biased; waiting, async { release(&guard) });
        assert!(!is_open, "it waited for the release");
    }
}

#[tokio::test]
async fn a_change_between_arming_and_waiting_is_not_missed() {
    let guard = Guard::new("bank", BreakerPolicy::default());
    let changed = guard.changed();
    guard.force_open();
    timeout(LIMIT, changed).await.expect("woken");
}

#[tokio::test]
async fn who_found_no_place_hears_when_a_probe_gives_its_place_back() {
    let open_for = Duration::from_millis(1);
    let policy = BreakerPolicy { open_for, minimum_calls: 1, half_open_calls: 1, ..BreakerPolicy::default() };
    let guard = Guard::new("bank", policy);
    guard.acquire().expect("admitted").fail();
    timeout(LIMIT, guard.admits()).await.expect("woken");
    let probe = guard.acquire().expect("a probe");
    let changed = guard.changed();
    assert!(guard.acquire().is_none());
    probe.ignore();
    timeout(LIMIT, changed).await.expect("woken");
    assert!(guard.acquire().is_some());
}

#[test]
fn operators_see_the_times_of_day() {
    let guard = Guard::new("bank", BreakerPolicy { minimum_calls: 1, ..BreakerPolicy::default() });
    let before = jiff::Timestamp::now();
    guard.acquire().expect("admitted").fail();
    let view = guard.view();
    assert_eq!(guard.view(), view, "nothing moves while nothing happens");
    let tolerated = jiff::SignedDuration::from_secs(5);
    let opened_at = view.transitions[0].at;
    assert!(opened_at.duration_since(before).abs() < tolerated, "{opened_at}");
    let until = view.open_until.expect("open for a while");
    assert_eq!(until.duration_since(opened_at), jiff::SignedDuration::from_secs(10));
    let text = serde_json::to_string(&view).expect("JSON");
    assert!(text.contains(r#""state":"OPEN""#) && text.contains(r#""window":{"calls":10}"#), "{text}");
    assert_eq!(serde_json::from_str::<GuardView>(&text).expect("the view again"), view);
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// This many quick calls, all at that second.
#[track_caller]
fn calls(breaker: &mut Breaker, verdict: Verdict, count: u64, second: u64) {
    for _ in 0..count {
        let permit = breaker.acquire(at(second)).expect("admitted");
        breaker.record(permit, verdict, Duration::ZERO, at(second));
    }
}

/// A breaker with the default policy that opened at 0 s.
fn opened() -> Breaker {
    let mut breaker = Breaker::new(BreakerPolicy::default());
    calls(&mut breaker, Verdict::Failure, 5, 0);
    assert_eq!(breaker.refuses_until(at(9)), Some(Some(at(10))));
    breaker
}

#[derive(Debug, Clone)]
enum Step {
    /// A call that ends as it begins.
    Call(End),
    Begin,
    /// One of the calls that have begun ends, however long ago that was.
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

/// The breaker and the naive one, side by side.
struct World {
    breaker: Breaker,
    naive: Naive,
    now: Duration,
    /// Calls that have begun, with the era in which the naive one admitted them.
    begun: Vec<(Permit, usize)>,
    /// Whether each admitted the newest call.
    admitted: (bool, bool),
}

/// All that can be asked of a breaker.
#[derive(Debug, PartialEq)]
struct Seen {
    admitted: bool,
    state: State,
    refuses_until: Option<Option<Duration>>,
    ramp: Option<u32>,
    counts: [u64; 3],
    rates: [Option<u8>; 2],
    refused: u64,
}

impl World {
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
        // Exactly at the limit is not slow yet.
        let took = at(1) + Duration::from_nanos(u64::from(end.is_slow));
        self.breaker.record(permit, end.verdict, took, self.now);
        self.naive.record(era, end, self.now);
    }

    fn seen(&self) -> Seen {
        let snapshot = self.breaker.snapshot(self.now);
        assert_eq!(snapshot.state, self.breaker.state(self.now));
        Seen {
            admitted: self.admitted.0,
            state: snapshot.state,
            refuses_until: self.breaker.refuses_until(self.now),
            ramp: self.breaker.ramp(),
            counts: [snapshot.calls, snapshot.failures, snapshot.slow],
            rates: [snapshot.failure_rate, snapshot.slow_rate],
            refused: snapshot.refused,
        }
    }

    fn expected(&self) -> Seen {
        self.naive.seen(self.admitted.1, self.now)
    }
}

/// A breaker that keeps every call for ever and works everything out anew each time.
struct Naive {
    policy: BreakerPolicy,
    state: State,
    /// States so far: a call belongs to the one it was admitted in.
    era: usize,
    /// When this state began.
    since: Duration,
    /// Whether it was half-open before this state.
    is_recovering: bool,
    /// The era of each call that was admitted and did not turn out to be ignored.
    admitted: Vec<usize>,
    calls: Vec<Call>,
    refused: u64,
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
            refused: 0,
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
            self.refused += 1;
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
            refuses_until: match self.state {
                State::Open => Some(Some(self.since + self.policy.open_for)),
                State::ForcedOpen => Some(None),
                State::Closed | State::HalfOpen | State::ForcedClosed => None,
            },
            ramp: self.ramp(),
            counts: self.counts(now),
            rates: self.rates(now).map_or([None, None], |rates| rates.map(|rate| Some(rate.percent()))),
            refused: self.refused,
        }
    }
}

/// So many of so many.
struct Rate(u64, u64);

impl Rate {
    /// Whether these are as many as that percentage of the whole, rounded up, is.
    fn is_at_least(&self, percent: u8) -> bool {
        self.0 >= (self.1 * u64::from(percent)).div_ceil(100)
    }

    fn percent(&self) -> u8 {
        (0..=100).rev().find(|percent| self.is_at_least(*percent)).unwrap_or(0)
    }
}
