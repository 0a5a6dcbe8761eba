//! Random walks of an admission beside its naive model. They agree on every query, and no waiting caller is
//! forgotten.
//!
//! Both use the same breakers, which have a model of their own.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use saga_core::admission::{Admission, CallResult, Slot, TaskBounds};
use saga_core::breaker::{Breaker, BreakerPolicy, Permit, State, Verdict, Window};
use saga_core::retry::FailureKind;
use saga_core::service::Step;
use uuid::Uuid;

use super::naive::{Naive, Seen};

const BANK: &str = "bank";
/// Four kinds: own breaker; own breaker and the bank's; the bank's alone; none.
static STEPS: [Step; 4] = [
    Step::new("own", &[]),
    Step::new("charging", &[]).needing(&[BANK]),
    Step::new("bare", &[]).needing(&[BANK]),
    Step::new("free", &[]),
];
const GUARDED: [&str; 3] = ["own", "charging", BANK];
const QUARTER: Duration = Duration::from_millis(250);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn admission_agrees_with_naive_model(bounds in bounds(), walk in walk()) {
        let mut world = World::new(bounds);
        for act in walk {
            let before = world.open();
            let (was, expected) = world.take(&act);
            prop_assert_eq!(was, expected, "{:?} at {:?}", act, world.now);
            prop_assert_eq!(world.seen(), world.naive.seen(&STEPS, world.now), "after {:?} at {:?}", act, world.now);
            world.assert_waiters_are_woken(&before, &act);
        }
    }
}

#[test]
fn failure_counts_only_while_dependency_answers_others() {
    let policy = BreakerPolicy { minimum_calls: 4, ..BreakerPolicy::default() };
    let bounds = TaskBounds { backlog: 8, concurrency: 8 };
    let mut admission = Admission::new(BANK, bounds).with_breaker(BANK, policy);
    let call = |admission: &mut Admission, task: u128, end, second| {
        let at = Duration::from_secs(second);
        let permit = admission.acquire_call(at).expect("it is closed");
        admission.end_call(Uuid::from_u128(task), permit, end, Duration::ZERO, at)
    };
    let it = &mut admission;
    assert_eq!(call(it, 1, CallResult::Failed, 1), FailureKind::Outage, "nobody was answered yet");
    assert_eq!(call(it, 2, CallResult::Answered, 2), FailureKind::Permanent);
    assert_eq!(call(it, 1, CallResult::Failed, 3), FailureKind::Transient, "others were");
    assert_eq!(call(it, 2, CallResult::Rejected, 4), FailureKind::Permanent);
    assert_eq!(call(it, 1, CallResult::Failed, 5), FailureKind::Outage, "now its breaker is open");
    it.on_breaker(BANK, |breaker| breaker.reset(Duration::from_secs(6)));
    call(it, 2, CallResult::Answered, 6);
    it.forget(Uuid::from_u128(1));
    assert_eq!(call(it, 1, CallResult::Failed, 7), FailureKind::Outage, "it begins anew");
}

#[derive(Debug, Clone)]
enum Act {
    TryStep(usize),
    EndStep(Index, Verdict, bool),
    Call,
    EndCall(Index, Option<CallResult>, u128, bool),
    ReturnCall(Index),
    TakeSlot,
    /// With the task that the message created, if any.
    GiveBack(Option<u128>),
    TakeDue(u128),
    Look(bool),
    Release(u128),
    Forget(u128),
    Turn(usize, State),
    Wait(u32),
}

fn bounds() -> impl Strategy<Value = TaskBounds> {
    (1..9_usize, 1..5_usize).prop_map(|(backlog, concurrency)| TaskBounds { backlog, concurrency })
}

fn walk() -> impl Strategy<Value = Vec<Act>> {
    let verdict = prop_oneof![Just(Verdict::Success), Just(Verdict::Failure), Just(Verdict::Ignored)];
    let end = prop_oneof![3 => Just(CallResult::Answered), 1 => Just(CallResult::Rejected), 3 => Just(CallResult::Failed)];
    let end = prop::option::weighted(0.8, end);
    let task = 0..10_u128;
    let states = prop_oneof![Just(State::ForcedOpen), Just(State::ForcedClosed), Just(State::Closed)];
    let act = prop_oneof![
        6 => (0..STEPS.len()).prop_map(Act::TryStep),
        5 => (any::<Index>(), verdict, any::<bool>()).prop_map(|(at, end, slow)| Act::EndStep(at, end, slow)),
        8 => Just(Act::Call),
        8 => (any::<Index>(), end, task.clone(), prop::bool::weighted(0.1))
            .prop_map(|(at, end, task, slow)| Act::EndCall(at, end, task, slow)),
        1 => any::<Index>().prop_map(Act::ReturnCall),
        8 => Just(Act::TakeSlot),
        6 => prop::option::weighted(0.8, task.clone()).prop_map(Act::GiveBack),
        4 => task.clone().prop_map(Act::TakeDue),
        4 => any::<bool>().prop_map(Act::Look),
        6 => task.clone().prop_map(Act::Release),
        1 => task.prop_map(Act::Forget),
        2 => (0..GUARDED.len(), states).prop_map(|(which, state)| Act::Turn(which, state)),
        4 => (0..6_u32).prop_map(Act::Wait),
    ];
    prop::collection::vec(act, 1..120)
}

/// The admission and its model.
struct World {
    admission: Admission,
    naive: Naive,
    now: Duration,
    tries: Vec<[(usize, Permit); 2]>,
    calls: Vec<[Option<Permit>; 2]>,
    transitions: usize,
    claims: i64,
}

/// Results of one action.
#[derive(Debug, PartialEq)]
enum Answer {
    Nothing,
    Flag(bool),
    Flags(bool, bool),
    Kind(FailureKind),
    Slot(Slot),
    Released(Option<i64>, bool),
}

impl World {
    fn new(bounds: TaskBounds) -> Self {
        let with = |admission: Admission, name: &&str| admission.with_breaker(name, policy());
        Self {
            admission: GUARDED.iter().fold(Admission::new(BANK, bounds), with),
            naive: Naive::new(bounds, BANK, GUARDED.map(|name| (name, Breaker::new(policy()))).into()),
            now: Duration::ZERO,
            tries: vec![],
            calls: vec![],
            transitions: 0,
            claims: 0,
        }
    }

    /// Applies one action to both and returns their results.
    fn take(&mut self, act: &Act) -> (Answer, Answer) {
        let (it, naive, now) = (&mut self.admission, &mut self.naive, self.now);
        let task = |number: &u128| Uuid::from_u128(*number);
        match act {
            Act::TryStep(which) => {
                let step = &STEPS[*which];
                let (one, other) = (it.acquire_step(step, now), naive.acquire_step(step, now));
                let answers = (one.is_some(), other.is_some());
                if let (Some(Some(one)), Some(Some(other))) = (one, other) {
                    self.tries.push([(*which, one), (*which, other)]);
                }
                return (Answer::Flag(answers.0), Answer::Flag(answers.1));
            }
            Act::EndStep(at, verdict, is_slow) if !self.tries.is_empty() => {
                let [(which, one), (_, other)] = self.tries.swap_remove(at.index(self.tries.len()));
                it.end_step(&STEPS[which], one, *verdict, took(*is_slow), now);
                naive.breaker(STEPS[which].name).record(other, *verdict, took(*is_slow), now);
            }
            Act::Call => {
                let (one, other) = (it.acquire_call(now), naive.acquire_call(now));
                let answers = (one.is_some(), other.is_some());
                self.calls.extend(one.zip(other).map(|(one, other)| [one, other]));
                return (Answer::Flag(answers.0), Answer::Flag(answers.1));
            }
            Act::EndCall(at, end, number, is_slow) if !self.calls.is_empty() => {
                let [one, other] = self.calls.swap_remove(at.index(self.calls.len()));
                let took = took(*is_slow);
                let Some(end) = end else {
                    it.abort_call(one, took, now);
                    naive.end_without_result(other, Verdict::Failure, took, now);
                    return (Answer::Nothing, Answer::Nothing);
                };
                let kind = it.end_call(task(number), one, *end, took, now);
                return (
                    Answer::Kind(kind),
                    Answer::Kind(naive.end_call(task(number), other, *end, took, now)),
                );
            }
            Act::ReturnCall(at) if !self.calls.is_empty() => {
                let [one, other] = self.calls.swap_remove(at.index(self.calls.len()));
                it.return_call(one, now);
                naive.end_without_result(other, Verdict::Ignored, Duration::ZERO, now);
            }
            Act::EndStep(..) | Act::EndCall(..) | Act::ReturnCall(_) => {}
            Act::TakeSlot => {
                return (Answer::Slot(it.reserve_slot(now)), Answer::Slot(naive.reserve_slot(now)));
            }
            Act::GiveBack(from_messages) if naive.reserved > 0 => {
                self.claims += 1;
                let from_messages = from_messages.as_ref().map(task);
                let hold = |task| it.hold(task, self.claims, false);
                let is_new = from_messages.is_some_and(hold);
                let was_new = naive.hold(from_messages, self.claims, false);
                let scans = (it.return_slot(), naive.return_slot());
                return (Answer::Flags(is_new, scans.0), Answer::Flags(was_new, scans.1));
            }
            Act::TakeDue(number) if naive.room(now) > 0 => {
                self.claims += 1;
                let is_new = it.hold(task(number), self.claims, true);
                return (
                    Answer::Flag(is_new),
                    Answer::Flag(naive.hold(Some(task(number)), self.claims, true)),
                );
            }
            Act::GiveBack(_) | Act::TakeDue(_) => {}
            Act::Look(is_left) => {
                let answers = (it.record_due_scan(*is_left, now), naive.record_due_scan(*is_left, now));
                return (Answer::Flag(answers.0), Answer::Flag(answers.1));
            }
            Act::Release(number) => {
                let (one, other) = (it.release(task(number)), naive.release(task(number)));
                return (Answer::Released(one.0, one.1), Answer::Released(other.0, other.1));
            }
            Act::Forget(number) => {
                it.forget(task(number));
                naive.failed.remove(&task(number));
            }
            Act::Turn(which, state) => {
                let done = it.on_breaker(GUARDED[*which], |breaker| change_breaker(breaker, *state, now));
                change_breaker(naive.breaker(GUARDED[*which]), *state, now);
                return (Answer::Flag(done.is_some()), Answer::Flag(true));
            }
            Act::Wait(quarters) => self.now += QUARTER * *quarters,
        }
        (Answer::Nothing, Answer::Nothing)
    }

    fn seen(&mut self) -> Seen {
        let (it, now) = (&self.admission, self.now);
        for step in &STEPS {
            assert_eq!(it.is_blocked(step, now), it.blocked_until(step, now).is_some(), "{}", step.name);
        }
        let seen = Seen {
            shut: STEPS.iter().map(|step| it.blocked_until(step, now)).collect(),
            ramps: STEPS.iter().map(|step| it.ramp(step)).collect(),
            states: it.breakers().values().map(|breaker| breaker.state(now)).collect(),
            failures: STEPS.iter().map(|step| it.failure_kind_of(step, now)).collect(),
            calls_shut: it.calls_blocked_until(now),
            room: it.room(now),
            open_tasks: it.open_tasks(),
            has_task_room: it.has_task_room(),
        };
        // Each transition is reported once.
        self.transitions += self.admission.take_transitions().len();
        let generations = self.admission.breakers().values().map(Breaker::generation).sum::<u64>();
        assert_eq!(self.transitions as u64, generations);
        assert!(self.admission.take_transitions().is_empty());
        seen
    }

    /// Open ways, and the change counters of breakers and room.
    fn open(&self) -> Open {
        let breakers = self.naive.breakers.values().map(|breaker| breaker.changes()).sum::<u64>();
        let is_blocked = |step| self.naive.blocked_until(step, self.now).is_some();
        Open {
            changes: (self.admission.breaker_changes(), self.admission.room_changes()),
            breakers,
            steps: STEPS.iter().map(|step| !is_blocked(step)).collect(),
            room: self.naive.messages_fit(self.now),
            is_due_left: self.naive.is_due_left,
            calls: self.naive.calls_fit(),
        }
    }

    /// A waiting caller waits for a change. So whatever opens must count as one.
    fn assert_waiters_are_woken(&self, before: &Open, act: &Act) {
        let now = self.open();
        let (breakers, room) = (now.changes.0 - before.changes.0, now.changes.1 - before.changes.1);
        assert_eq!(breakers, now.breakers - before.breakers, "{act:?}");
        if !matches!(act, Act::Wait(_)) {
            let is_opened = now.steps.iter().zip(&before.steps).any(|(now, before)| *now && !before);
            assert!(!is_opened || breakers > 0, "{act:?}");
            let is_freed = (now.room && !before.room) || (now.calls && !before.calls);
            assert!(!is_freed || breakers > 0 || room > 0, "{act:?}");
        }
        if let Act::Look(is_left) = act {
            assert_eq!(room, u64::from(before.is_due_left && !is_left), "what was kept is everybody's again");
        }
        // A needless wake-up finds nothing.
        let takes =
            matches!(act, Act::TryStep(_) | Act::Call | Act::TakeSlot | Act::TakeDue(_) | Act::Wait(_));
        assert!(!takes || room == 0, "{act:?}");
    }
}

struct Open {
    changes: (u64, u64),
    breakers: u64,
    steps: Vec<bool>,
    room: bool,
    is_due_left: bool,
    calls: bool,
}

/// Opens and closes quickly.
fn policy() -> BreakerPolicy {
    BreakerPolicy {
        window: Window::Calls(4),
        minimum_calls: 3,
        open_for: Duration::from_secs(1),
        half_open_calls: 2,
        ..BreakerPolicy::default()
    }
}

fn took(is_slow: bool) -> Duration {
    policy().slow_after + Duration::from_nanos(u64::from(is_slow))
}

fn change_breaker(breaker: &mut Breaker, state: State, at: Duration) {
    match state {
        State::ForcedOpen => breaker.force_open(at),
        State::ForcedClosed => breaker.force_closed(at),
        State::Closed | State::Open | State::HalfOpen => breaker.reset(at),
    }
}
