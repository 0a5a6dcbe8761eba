//! The circuit breaker by example, and beside a naive model that keeps every call.

mod walks;

use std::time::Duration;

use jiff::Timestamp;
use saga_core::breaker::{Breaker, BreakerPolicy, BreakerView, Permit, State, Verdict, Window};

#[test]
fn ignored_results_count_as_nothing() {
    let mut breaker = Breaker::new(BreakerPolicy::default());
    calls(&mut breaker, Verdict::Failure, 4, 0);
    calls(&mut breaker, Verdict::Ignored, 100, 0);
    assert_eq!((breaker.state(at(0)), view(&breaker, at(0)).calls), (State::Closed, 4));
    calls(&mut breaker, Verdict::Failure, 1, 0);
    assert_eq!(breaker.state(at(0)), State::Open);
    calls(&mut breaker, Verdict::Ignored, 100, 10);
    assert_eq!((breaker.state(at(10)), view(&breaker, at(10)).calls), (State::HalfOpen, 0));
}

#[test]
fn rates_count_from_minimum_calls_on() {
    let mut breaker = Breaker::new(BreakerPolicy::default());
    calls(&mut breaker, Verdict::Failure, 4, 0);
    assert_eq!((breaker.state(at(0)), view(&breaker, at(0)).failure_rate), (State::Closed, None));
    calls(&mut breaker, Verdict::Success, 1, 0);
    assert_eq!(
        breaker.state(at(0)),
        State::Open,
        "four of five failed: whose call is the fifth does not matter"
    );
}

#[test]
fn half_open_decides_by_rate() {
    for (failures, state) in [(1, State::Closed), (2, State::Open)] {
        let mut breaker = opened();
        calls(&mut breaker, Verdict::Failure, failures, 10);
        assert_eq!(breaker.state(at(10)), State::HalfOpen, "{failures} of 3 probes say nothing yet");
        calls(&mut breaker, Verdict::Success, 3 - failures, 10);
        assert_eq!(breaker.state(at(10)), state, "{failures} of 3 probes failed");
    }
}

/// Waiting callers look again whenever a counter has grown.
#[test]
fn transitions_and_returned_probes_are_changes() {
    let mut breaker = opened();
    let mut seen = vec![(breaker.generation(), breaker.changes())];
    let probe = breaker.acquire(at(10)).expect("its time has passed");
    seen.push((breaker.generation(), breaker.changes()));
    breaker.record(probe, Verdict::Ignored, Duration::ZERO, at(10));
    seen.push((breaker.generation(), breaker.changes()));
    calls(&mut breaker, Verdict::Success, 2, 10);
    seen.push((breaker.generation(), breaker.changes()));
    breaker.force_open(at(11));
    seen.push((breaker.generation(), breaker.changes()));
    assert_eq!(seen, [(1, 1), (2, 2), (2, 3), (2, 3), (3, 4)]);
    assert_eq!(breaker.last_transition().map(|last| last.to), Some(State::ForcedOpen));
}

#[test]
fn half_open_admits_only_its_probes() {
    let mut breaker = opened();
    let mut probes: Vec<Permit> = (0..5).filter_map(|_| breaker.acquire(at(10))).collect();
    assert_eq!((probes.len(), view(&breaker, at(10)).rejected), (3, 2));
    breaker.record(probes.remove(0), Verdict::Ignored, at(0), at(10));
    assert!(breaker.acquire(at(10)).is_some(), "the place of an ignored probe is free again");
    assert!(breaker.acquire(at(10)).is_none());
}

#[test]
fn slow_successes_open_breaker() {
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
    let opening = view(&breaker, at(5)).transitions.pop().expect("it opened");
    assert_eq!(opening.why, "3 of 5 calls took longer than 1s");
}

#[test]
fn results_from_before_opening_are_no_probes() {
    let mut breaker = Breaker::new(BreakerPolicy::default());
    let late: Vec<Permit> = (0..10).filter_map(|_| breaker.acquire(at(0))).collect();
    calls(&mut breaker, Verdict::Failure, 5, 0);
    let _probe = breaker.acquire(at(10)).expect("a probe");
    for permit in late {
        breaker.record(permit, Verdict::Failure, at(11), at(11));
    }
    assert_eq!((breaker.state(at(11)), view(&breaker, at(11)).calls), (State::HalfOpen, 0));
}

#[test]
fn window_slides() {
    let mut breaker = Breaker::new(BreakerPolicy { failure_rate: 40, ..BreakerPolicy::default() });
    calls(&mut breaker, Verdict::Success, 10, 0);
    calls(&mut breaker, Verdict::Failure, 3, 0);
    calls(&mut breaker, Verdict::Success, 10, 0);
    assert_eq!(view(&breaker, at(0)).failure_rate, Some(0), "ten calls later, three failures are forgotten");
    calls(&mut breaker, Verdict::Failure, 4, 0);
    assert_eq!(breaker.state(at(0)), State::Open, "four of the last ten failed, though 7 of 27 in all");

    let policy = BreakerPolicy { window: Window::Time(at(3)), minimum_calls: 4, ..BreakerPolicy::default() };
    let mut breaker = Breaker::new(policy);
    calls(&mut breaker, Verdict::Failure, 3, 0);
    assert_eq!(view(&breaker, at(2)).calls, 3);
    assert_eq!(view(&breaker, at(3)).calls, 0, "the third second is past");
    calls(&mut breaker, Verdict::Failure, 3, 3);
    assert_eq!((breaker.state(at(3)), view(&breaker, at(3)).failures), (State::Closed, 3));
    calls(&mut breaker, Verdict::Success, 1, 5);
    assert_eq!(breaker.state(at(5)), State::Open);
}

#[test]
fn forced_state_lasts_until_next_action() {
    let mut breaker = Breaker::new(BreakerPolicy::default());
    breaker.force_closed(at(0));
    calls(&mut breaker, Verdict::Failure, 100, 0);
    assert_eq!((breaker.state(at(0)), view(&breaker, at(0)).calls), (State::ForcedClosed, 0));
    breaker.force_open(at(0));
    assert!(breaker.acquire(at(1_000_000)).is_none());
    assert_eq!(breaker.rejects_until(at(1_000_000)), Some(None));
    breaker.reset(at(0));
    assert_eq!((breaker.state(at(0)), breaker.ramp()), (State::Closed, None));
}

#[test]
fn slow_start_adds_one_in_flight_per_success() {
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
fn last_twenty_transitions_are_remembered() {
    let mut breaker = Breaker::new(BreakerPolicy::default());
    calls(&mut breaker, Verdict::Failure, 5, 7);
    let opening = view(&breaker, at(7)).transitions.pop().expect("it opened");
    assert_eq!((opening.at, opening.from, opening.to), (wall(at(7)), State::Closed, State::Open));
    assert_eq!(opening.why, "5 of 5 calls failed");
    (8..50).for_each(|second| breaker.reset(at(second)));
    let transitions = view(&breaker, at(50)).transitions;
    assert_eq!((transitions.len(), transitions[0].at, transitions[19].at), (20, wall(at(30)), wall(at(49))));
}

/// With a short open time the remembered transitions go back less than a minute.
#[test]
fn not_closed_since_outlasts_forgotten_transitions() {
    let mut breaker = Breaker::new(BreakerPolicy { open_for: at(1), ..BreakerPolicy::default() });
    calls(&mut breaker, Verdict::Failure, 5, 7);
    for second in 8..100 {
        calls(&mut breaker, Verdict::Failure, 3, second);
        let seen = view(&breaker, at(second));
        assert_eq!((seen.state, seen.not_closed_since), (State::Open, Some(wall(at(7)))), "after {second} s");
    }
    assert_eq!(view(&breaker, at(99)).transitions[0].at, wall(at(90)));
    calls(&mut breaker, Verdict::Success, 3, 100);
    assert_eq!(view(&breaker, at(100)).not_closed_since, None);
    breaker.force_open(at(101));
    assert_eq!(view(&breaker, at(101)).not_closed_since, None, "somebody holds it");
}

#[test]
fn invalid_policy_is_rejected_by_member_name() {
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

/// Breaker as operators see it, with a clock that starts in 1970.
fn view(breaker: &Breaker, at: Duration) -> BreakerView {
    BreakerView::of("bank-1", "bank", breaker, at, wall)
}

fn wall(at: Duration) -> Timestamp {
    Timestamp::UNIX_EPOCH + at
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Records this many fast calls at that second.
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
    assert_eq!(breaker.rejects_until(at(9)), Some(Some(at(10))));
    breaker
}
