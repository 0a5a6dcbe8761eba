//! Naive model of admission: lists, recomputed each time.

use std::collections::BTreeMap;
use std::time::Duration;

use saga_core::admission::{CallResult, Slot, TaskBounds};
use saga_core::breaker::{Breaker, Permit, State, Verdict};
use saga_core::retry::FailureKind;
use saga_core::service::Step;
use uuid::Uuid;

/// Naive model of admission.
pub struct Naive {
    bounds: TaskBounds,
    /// Breakers of the steps by name. The dependency's is [`Self::bank`].
    pub breakers: BTreeMap<&'static str, Breaker>,
    bank: &'static str,
    in_flight: usize,
    pub reserved: usize,
    /// Claim of each task, and true if it came due.
    open_tasks: BTreeMap<Uuid, (i64, bool)>,
    pub is_due_left: bool,
    is_scan_requested: bool,
    answered: Vec<Duration>,
    pub failed: BTreeMap<Uuid, Duration>,
}

impl Naive {
    pub fn new(bounds: TaskBounds, bank: &'static str, breakers: BTreeMap<&'static str, Breaker>) -> Self {
        Self {
            bounds,
            breakers,
            bank,
            in_flight: 0,
            reserved: 0,
            open_tasks: BTreeMap::new(),
            is_due_left: false,
            is_scan_requested: true,
            answered: vec![],
            failed: BTreeMap::new(),
        }
    }

    pub fn breaker(&mut self, name: &str) -> &mut Breaker {
        self.breakers.get_mut(name).expect("a guarded one")
    }

    fn of_step(&self, step: &Step) -> Vec<&Breaker> {
        let names = [step.name].into_iter().chain(step.needs.iter().copied());
        names.filter_map(|name| self.breakers.get(name)).collect()
    }

    pub fn blocked_until(&self, step: &Step, at: Duration) -> Option<Option<Duration>> {
        let mut all: Vec<_> = self.of_step(step).iter().filter_map(|it| it.rejects_until(at)).collect();
        // `None` is without end, later than all times.
        all.sort_by_key(|until| until.unwrap_or(Duration::MAX));
        all.pop()
    }

    pub fn acquire_step(&mut self, step: &Step, at: Duration) -> Option<Option<Permit>> {
        match (self.blocked_until(step, at), self.breakers.get_mut(step.name)) {
            (Some(_), _) => None,
            (None, None) => Some(None),
            (None, Some(own)) => own.acquire(at).map(Some),
        }
    }

    fn ramp_of_bank(&self) -> usize {
        self.breakers[self.bank].ramp().map_or(usize::MAX, |ramp| ramp as usize)
    }

    pub fn calls_fit(&self) -> bool {
        self.in_flight < self.bounds.concurrency && self.in_flight < self.ramp_of_bank()
    }

    pub fn acquire_call(&mut self, at: Duration) -> Option<Option<Permit>> {
        let permit = self.calls_fit().then(|| self.breaker(self.bank).acquire(at))??;
        self.in_flight += 1;
        Some(Some(permit))
    }

    pub fn end_without_result(
        &mut self,
        permit: Option<Permit>,
        verdict: Verdict,
        took: Duration,
        at: Duration,
    ) {
        self.in_flight -= 1;
        let permit = permit.expect("the bank has a breaker");
        self.breaker(self.bank).record(permit, verdict, took, at);
    }

    pub fn end_call(
        &mut self,
        task: Uuid,
        permit: Option<Permit>,
        end: CallResult,
        took: Duration,
        at: Duration,
    ) -> FailureKind {
        let verdict = match end {
            CallResult::Answered => Verdict::Success,
            CallResult::Rejected => Verdict::Ignored,
            CallResult::Failed => Verdict::Failure,
        };
        self.end_without_result(permit, verdict, took, at);
        if end != CallResult::Failed {
            self.answered.push(at);
            return FailureKind::Permanent;
        }
        let before = self.failed.insert(task, at);
        let is_there = before.is_some_and(|before| self.answered.iter().any(|answered| *answered > before));
        match self.breakers[self.bank].state(at) {
            State::Closed | State::ForcedClosed if is_there => FailureKind::Transient,
            State::Closed | State::ForcedClosed => FailureKind::Outage,
            State::Open | State::HalfOpen | State::ForcedOpen => FailureKind::Outage,
        }
    }

    fn limit(&self) -> usize {
        self.bounds.backlog.min(self.ramp_of_bank())
    }

    fn taken(&self) -> usize {
        self.open_tasks.len() + self.reserved
    }

    /// A quarter of the slots, at least one.
    fn share(&self) -> usize {
        if self.limit() < 8 { 1 } else { self.limit() / 4 }
    }

    fn is_blocked(&self, at: Duration) -> bool {
        self.breakers[self.bank].rejects_until(at).is_some()
    }

    pub fn room(&self, at: Duration) -> usize {
        (0..self.limit()).filter(|place| *place >= self.taken() && !self.is_blocked(at)).count()
    }

    /// True if one more message fits beside the share of due tasks.
    pub fn messages_fit(&self, at: Duration) -> bool {
        let from_messages = self.open_tasks.values().filter(|(_, is_due)| !is_due).count() + self.reserved;
        let kept = if self.is_due_left { self.share() } else { 0 };
        self.room(at) > 0 && from_messages + kept < self.limit()
    }

    pub fn reserve_slot(&mut self, at: Duration) -> Slot {
        match (self.is_blocked(at), self.messages_fit(at)) {
            (true, _) => Slot::Blocked,
            (false, false) => Slot::Full,
            (false, true) => {
                self.reserved += 1;
                Slot::Reserved
            }
        }
    }

    fn has_ample_room(&self) -> bool {
        self.taken() + self.share().div_ceil(2) <= self.limit()
    }

    pub fn record_due_scan(&mut self, is_left: bool, at: Duration) -> bool {
        self.is_due_left = is_left;
        let is_room = self.has_ample_room() && self.room(at) > 0;
        self.is_scan_requested = !is_left || is_room;
        is_left && is_room
    }

    pub fn hold(&mut self, task: Option<Uuid>, claim: i64, is_due: bool) -> bool {
        let Some(task) = task else { return false };
        let before = self.open_tasks.get(&task).copied();
        self.open_tasks.insert(task, (claim, before.map_or(is_due, |(_, is_due)| is_due)));
        before.is_none()
    }

    pub fn release(&mut self, task: Uuid) -> (Option<i64>, bool) {
        let claim = self.open_tasks.remove(&task).map(|(claim, _)| claim);
        (claim, self.starts_scan())
    }

    pub fn return_slot(&mut self) -> bool {
        self.reserved -= 1;
        self.starts_scan()
    }

    fn starts_scan(&mut self) -> bool {
        let starts_scan = !self.is_scan_requested && self.has_ample_room();
        self.is_scan_requested |= starts_scan;
        starts_scan
    }

    pub fn seen(&self, steps: &[Step], at: Duration) -> Seen {
        let ramps = |step| self.of_step(step).into_iter().filter_map(Breaker::ramp).min();
        let failure = |step: &Step| match self.breakers.get(step.name).map(|breaker| breaker.state(at)) {
            None | Some(State::Closed | State::ForcedClosed) => FailureKind::Transient,
            Some(State::Open | State::HalfOpen | State::ForcedOpen) => FailureKind::Outage,
        };
        Seen {
            shut: steps.iter().map(|step| self.blocked_until(step, at)).collect(),
            ramps: steps.iter().map(|step| ramps(step).map(|ramp| ramp as usize)).collect(),
            states: self.breakers.values().map(|breaker| breaker.state(at)).collect(),
            failures: steps.iter().map(failure).collect(),
            calls_shut: self.breakers[self.bank].rejects_until(at),
            room: self.room(at),
            open_tasks: self.open_tasks.len(),
            has_task_room: self.open_tasks.len() < self.bounds.backlog,
        }
    }
}

/// All queries of an admission.
#[derive(Debug, PartialEq)]
pub struct Seen {
    pub shut: Vec<Option<Option<Duration>>>,
    pub ramps: Vec<Option<usize>>,
    pub states: Vec<State>,
    pub failures: Vec<FailureKind>,
    pub calls_shut: Option<Option<Duration>>,
    pub room: usize,
    pub open_tasks: usize,
    pub has_task_room: bool,
}
