//! Admission of steps and calls: clocks, waiters, lost permits.

use std::time::{Duration, Instant};

use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use saga_core::admission::{Admission, CallResult, TaskBounds};
use saga_core::breaker::{BreakerPolicy, State};
use saga_core::fault::FaultKind;
use saga_core::input::{MessageOutcome, Outcome};
use saga_core::retry::FailureKind::{Outage, Transient};
use saga_core::service::Service as _;
use saga_engine::runtime::admission::{
    BreakerAction, BreakerView, CallPermit, SharedAdmission, StepAdmission, StepPermit,
};
use saga_engine::runtime::clock::SystemClock;
use saga_engine::runtime::injected_faults::InjectedFaults;
use uuid::Uuid;

use crate::support::{Depot, FILLING, LISTENING, Nothing, SUPPLIER, fault, fault_of, faults, in_time};

#[tokio::test]
async fn dropped_permit_counts_as_failure() {
    let admission = calling(BreakerPolicy { minimum_calls: 2, ..BreakerPolicy::default() });
    answered(in_time("a permit", admission.acquire_call()).await);
    assert_eq!(view(&admission, SUPPLIER).state, State::Closed);
    drop(in_time("a permit", admission.acquire_call()).await);
    let seen = view(&admission, SUPPLIER);
    assert_eq!(seen.transitions[0].why, "1 of 2 calls failed");
    assert_eq!((seen.name.as_str(), seen.state), (SUPPLIER, State::Open));
}

#[tokio::test]
async fn permit_measures_duration_of_call() {
    let slow_after = Duration::from_nanos(1);
    let admission = calling(BreakerPolicy { slow_after, minimum_calls: 1, ..BreakerPolicy::default() });
    let permit = in_time("a permit", admission.acquire_call()).await;
    let began = Instant::now();
    while began.elapsed() < Duration::from_micros(1) {}
    answered(permit);
    assert_eq!(view(&admission, SUPPLIER).transitions[0].why, "1 of 1 calls took longer than 1ns");
}

#[tokio::test]
async fn waiters_wake_after_open_time() {
    let open_for = Duration::from_millis(30);
    let admission = calling(BreakerPolicy { open_for, minimum_calls: 1, ..BreakerPolicy::default() });
    let step = admission.for_step(FILLING);
    in_time("a closed one holds nobody up", step.until_unblocked()).await;
    let before = Instant::now();
    drop(in_time("a permit", admission.acquire_call()).await);
    let calling = async {
        let permit = in_time("a permit", admission.acquire_call()).await;
        assert!(before.elapsed() >= open_for);
        permit
    };
    let (probe, ()) = tokio::join!(calling, in_time("it opens", step.until_unblocked()));
    assert!(before.elapsed() >= open_for && !step.is_blocked());
    assert_eq!(view(&admission, SUPPLIER).state, State::HalfOpen);
    let probes = std::iter::from_fn(|| admission.acquire_call().now_or_never()).chain([probe]);
    let probes: Vec<_> = probes.collect();
    assert_eq!(probes.len(), 3);
    probes.into_iter().for_each(answered);
    assert_eq!((view(&admission, SUPPLIER).state, step.ramp()), (State::Closed, Some(3)));
}

#[tokio::test]
async fn waiters_wake_on_operator_override() {
    let admission = calling(BreakerPolicy::default());
    let step = admission.for_step(FILLING);
    for release in [BreakerAction::Reset, BreakerAction::Closed] {
        change_breaker(&admission, SUPPLIER, BreakerAction::Open);
        assert_eq!(
            (view(&admission, SUPPLIER).state, view(&admission, SUPPLIER).open_until),
            (State::ForcedOpen, None)
        );
        let call = async { answered(in_time("a permit", admission.acquire_call()).await) };
        let waiting = async { tokio::join!(in_time("it opens", step.until_unblocked()), call) };
        let released = async { change_breaker(&admission, SUPPLIER, release) };
        tokio::join!(biased; waiting, released);
        assert!(!step.is_blocked(), "it waited for the release");
    }
}

#[tokio::test]
async fn change_between_arming_and_waiting_wakes_waiter() {
    let admission = calling(BreakerPolicy::default());
    let changed = admission.changed();
    change_breaker(&admission, SUPPLIER, BreakerAction::Open);
    in_time("woken", changed).await;
}

#[tokio::test]
async fn waiter_wakes_when_probe_returns_permit() {
    let open_for = Duration::from_millis(1);
    let policy = BreakerPolicy { open_for, minimum_calls: 1, half_open_calls: 1, ..BreakerPolicy::default() };
    let admission = admission_of(policy, faults(false, vec![]));
    let step = admission.for_step(LISTENING);
    let mut unstored = step.try_acquire().expect("it is closed");
    let _ = unstored.begin();
    drop(unstored);
    in_time("it opens", step.until_unblocked()).await;
    let probe = step.try_acquire().expect("a probe");
    let mut waiting = std::pin::pin!(step.acquire());
    assert!(futures::poll!(&mut waiting).is_pending(), "it is half-open, and there is no other");
    drop(probe);
    assert!(in_time("a permit", waiting).await.is_some());
}

#[tokio::test]
async fn breaker_view_shows_times_of_day() {
    let admission = calling(BreakerPolicy { minimum_calls: 1, ..BreakerPolicy::default() });
    let before = Timestamp::now();
    drop(in_time("a permit", admission.acquire_call()).await);
    let seen = view(&admission, SUPPLIER);
    assert_eq!(view(&admission, SUPPLIER), seen, "nothing moves while nothing happens");
    let tolerated = SignedDuration::from_secs(5);
    let opened_at = seen.transitions[0].at;
    assert!(opened_at.duration_since(before).abs() < tolerated, "{opened_at}");
    let until = seen.open_until.expect("open for a while");
    assert_eq!(until.duration_since(opened_at), SignedDuration::from_secs(10));
    let text = serde_json::to_string(&seen).expect("JSON");
    assert!(text.contains(r#""state":"OPEN""#) && text.contains(r#""window":{"calls":10}"#), "{text}");
    assert_eq!(serde_json::from_str::<BreakerView>(&text).expect("the view again"), seen);
}

#[tokio::test]
async fn step_is_blocked_by_breaker_dependency_and_pause() {
    let (admission, faults) = stepping(BreakerPolicy::default());
    let steps = [FILLING, LISTENING].map(|step| admission.for_step(step));
    let shut = || steps.each_ref().map(StepAdmission::is_blocked);
    assert_eq!(shut(), [false, false]);
    change_breaker(&admission, SUPPLIER, BreakerAction::Open);
    assert_eq!(shut(), [true, false], "only one of them needs the supplier");
    assert!(steps[0].try_acquire().is_none());
    change_breaker(&admission, SUPPLIER, BreakerAction::Reset);
    change_breaker(&admission, LISTENING.name, BreakerAction::Open);
    assert_eq!(shut(), [false, true]);
    change_breaker(&admission, LISTENING.name, BreakerAction::Closed);
    assert_eq!(shut(), [false, false]);
    faults.inject(fault_of(FILLING, FaultKind::PAUSE)).expect("faults are on");
    assert_eq!(shut(), [true, false]);
    faults.inject(fault(FaultKind::PAUSE)).expect("faults are on");
    assert_eq!(shut(), [true, true]);
    assert_eq!(faults.clear(), 2);
    assert_eq!(shut(), [false, false]);
}

/// The wait ends with the last cause.
#[tokio::test]
async fn step_unblocks_when_every_cause_is_gone() {
    let (admission, faults) = stepping(BreakerPolicy::default());
    let step = admission.for_step(FILLING);
    change_breaker(&admission, SUPPLIER, BreakerAction::Open);
    change_breaker(&admission, FILLING.name, BreakerAction::Open);
    faults.inject(fault(FaultKind::PAUSE)).expect("faults are on");
    let mut opens = std::pin::pin!(step.until_unblocked());
    assert!(futures::poll!(&mut opens).is_pending());
    change_breaker(&admission, FILLING.name, BreakerAction::Reset);
    assert!(futures::poll!(&mut opens).is_pending());
    faults.clear();
    assert!(futures::poll!(&mut opens).is_pending());
    change_breaker(&admission, SUPPLIER, BreakerAction::Closed);
    in_time("the step opens", opens).await;
}

#[tokio::test]
async fn waiter_wakes_at_end_of_pause() {
    let (admission, faults) = stepping(BreakerPolicy::default());
    let paused = faults.inject(fault_of(FILLING, FaultKind::PAUSE)).expect("faults are on");
    in_time("the other step goes on", admission.for_step(LISTENING).until_unblocked()).await;
    let step = admission.for_step(FILLING);
    let mut continues = std::pin::pin!(step.until_unblocked());
    assert!(futures::poll!(&mut continues).is_pending());
    faults.inject(fault(FaultKind::PUBLISH_TWICE)).expect("faults are on");
    assert!(futures::poll!(&mut continues).is_pending(), "another fault is no end of this one");
    assert!(faults.remove(paused.id));
    in_time("it goes on", continues).await;
}

/// A half-open breaker admits few probes, and one more after each success.
#[tokio::test]
async fn half_open_step_admits_probes_and_ramps_up() {
    let (admission, _) = stepping(flapping());
    let step = admission.for_step(FILLING);
    assert_eq!(step.ramp(), None);
    while let Some(mut permit) = step.try_acquire() {
        let _ = permit.begin();
    }
    assert!(step.is_blocked() && step.try_acquire().is_none());
    in_time("its time has passed", step.until_unblocked()).await;
    let probes: Vec<_> = std::iter::from_fn(|| step.try_acquire()).collect();
    assert_eq!((probes.len(), step.ramp()), (3, Some(3)));
    assert!(!step.is_blocked(), "it is not open");
    probes.into_iter().for_each(|probe| ended(probe, MessageOutcome::Done));
    assert_eq!(view(&admission, FILLING.name).state, State::Closed);
    for more in 1..=10 {
        ended(step.try_acquire().expect("it is closed"), MessageOutcome::Done);
        assert_eq!(step.ramp(), Some(3 + more));
    }
    // What one message is guilty of says nothing of the step.
    let (dead, retried) = (MessageOutcome::Dead("x".to_owned()), MessageOutcome::Retried("x".to_owned()));
    for outcome in [dead, retried, MessageOutcome::Duplicate] {
        ended(step.try_acquire().expect("it is closed"), outcome);
    }
    assert_eq!((step.ramp(), view(&admission, FILLING.name).failures), (Some(13), 0));
}

/// Guarantee 7: an outage consumes no attempts.
#[tokio::test]
async fn failing_step_opens_breaker_and_consumes_no_attempts() {
    let (admission, faults) = stepping(flapping());
    faults.inject(fault(FaultKind::FAIL_TRANSIENTLY)).expect("faults are on");
    let step = admission.for_step(FILLING);
    let mut kinds = Vec::new();
    while let Some(mut permit) = step.try_acquire() {
        let failure = permit.begin().failure.expect("it always strikes");
        kinds.push(failure.kind);
        ended(permit, MessageOutcome::Retried(failure.reason()));
    }
    assert_eq!(kinds, [Transient, Transient, Transient, Transient, Outage], "the fifth opens it");
    in_time("its time has passed", step.until_unblocked()).await;
    let mut probe = step.try_acquire().expect("a probe");
    assert_eq!(probe.begin().failure.map(|failure| failure.kind), Some(Outage));
}

/// Policy that opens after five failures, briefly, with three probes.
fn flapping() -> BreakerPolicy {
    BreakerPolicy { open_for: Duration::from_millis(20), ..BreakerPolicy::default() }
}

/// Admission with a breaker of calls alone.
fn calling(policy: BreakerPolicy) -> SharedAdmission {
    shared(Admission::new(SUPPLIER, BOUNDS).with_breaker(SUPPLIER, policy), faults(false, vec![]))
}

/// Admission with breakers of steps and calls, and faults.
fn stepping(policy: BreakerPolicy) -> (SharedAdmission, InjectedFaults) {
    let faults = faults(true, Depot::steps().iter().map(|step| step.name).collect());
    (admission_of(policy, faults.clone()), faults)
}

fn admission_of(policy: BreakerPolicy, faults: InjectedFaults) -> SharedAdmission {
    let names = Depot::steps().iter().map(|step| step.name).chain([SUPPLIER]);
    let with = |admission: Admission, name| admission.with_breaker(name, policy.clone());
    shared(names.fold(Admission::new(SUPPLIER, BOUNDS), with), faults)
}

fn shared(admission: Admission, faults: InjectedFaults) -> SharedAdmission {
    SharedAdmission::new(admission, faults, "depot", &SystemClock)
}

const BOUNDS: TaskBounds = TaskBounds { backlog: 100, concurrency: 8 };

fn change_breaker(admission: &SharedAdmission, name: &str, action: BreakerAction) {
    admission.set_breaker(name, action).expect("it has this breaker");
}

fn view(admission: &SharedAdmission, name: &str) -> BreakerView {
    admission.breakers().into_iter().find(|view| view.name == name).expect("it has this breaker")
}

fn answered(permit: CallPermit) {
    permit.end(Uuid::nil(), CallResult::Answered);
}

fn ended(permit: StepPermit, outcome: MessageOutcome<Nothing>) {
    permit.complete::<Depot>(&Outcome::Message(outcome));
}
