//! Pure: permits for messages and task calls, limits of tasks in flight, and the difference between a failed call
//! and an outage.
//!
//! Each process has one [`Admission`]: a breaker for each step, one for the dependency of its tasks, and the tasks
//! that it holds. Time is an argument: `at` counts from any origin of a monotonic clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;

use crate::breaker::{Breaker, BreakerPolicy, OutageDetector, Permit, State, Transition, Verdict};
use crate::retry::FailureKind;
use crate::service::Step;

/// Limits of the tasks of one process.
#[derive(Debug, Clone, Copy)]
pub struct TaskBounds {
    /// Maximum number of tasks, waiting and in flight, up to which messages that may create a task are consumed.
    pub backlog: usize,
    /// Calls in flight at once: the bulkhead.
    pub concurrency: usize,
}

/// Result of reserving room for the task that a message may create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// Slot is reserved until [`Admission::return_slot`].
    Reserved,
    /// No room until a task ends.
    Full,
    /// The breaker of the dependency is open: pull no messages.
    Blocked,
}

/// Result of one call of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallResult {
    /// Answer of the dependency, whatever it says.
    Answered,
    /// Final rejection by the dependency, which is therefore available.
    Rejected,
    /// No answer, or a fault.
    Failed,
}

impl CallResult {
    /// Name in metrics and traces.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
        }
    }
}

/// Permits of the steps and tasks of one process.
#[derive(Debug)]
pub struct Admission {
    breakers: BTreeMap<String, Breaker>,
    /// Name of the dependency that tasks call.
    dependency: String,
    bounds: TaskBounds,
    /// Tasks waiting and in flight, each with its newest claim.
    open_tasks: BTreeMap<Uuid, i64>,
    /// Tasks among them that came due, rather than being created by a message.
    due: BTreeSet<Uuid>,
    /// Slots reserved for inputs that may still create a task.
    reserved: usize,
    /// Number of calls in flight now.
    in_flight: usize,
    /// True if due tasks were left in the store for lack of room. A share of the room is theirs then.
    is_due_left: bool,
    /// True if the caller must scan again for due tasks once there is room.
    is_scan_wanted: bool,
    outages: OutageDetector,
    /// Time before which the dependency asked not to be called.
    paused_until: Duration,
    transitions: Vec<(String, Transition)>,
    breaker_changes: u64,
    room_changes: u64,
}

impl Admission {
    /// Creates permits without breakers, which admit everything. `dependency` names what tasks call.
    #[must_use]
    pub fn new(dependency: &str, bounds: TaskBounds) -> Self {
        Self {
            breakers: BTreeMap::new(),
            dependency: dependency.to_owned(),
            bounds,
            open_tasks: BTreeMap::new(),
            due: BTreeSet::new(),
            reserved: 0,
            in_flight: 0,
            is_due_left: false,
            is_scan_wanted: false,
            outages: OutageDetector::default(),
            paused_until: Duration::ZERO,
            transitions: Vec::new(),
            breaker_changes: 0,
            room_changes: 0,
        }
    }

    /// Adds a closed breaker of a step or of the dependency. The policy must have passed its
    /// [check](BreakerPolicy::check).
    #[must_use]
    pub fn with_breaker(mut self, name: &str, policy: BreakerPolicy) -> Self {
        self.breakers.insert(name.to_owned(), Breaker::new(policy));
        self
    }

    /// Breakers of the process, by name.
    #[must_use]
    pub const fn breakers(&self) -> &BTreeMap<String, Breaker> {
        &self.breakers
    }

    /// Changes one breaker; `None` if there is none of this name.
    pub fn on_breaker<T>(&mut self, name: &str, act: impl FnOnce(&mut Breaker) -> T) -> Option<T> {
        let breaker = self.breakers.get_mut(name)?;
        let (changes, generation) = (breaker.changes(), breaker.generation());
        let done = act(breaker);
        self.breaker_changes += breaker.changes() - changes;
        if breaker.generation() != generation {
            self.transitions.extend(breaker.last_transition().map(|last| (name.to_owned(), last.clone())));
        }
        Some(done)
    }

    /// Counter of changes that may open or close the way through a breaker.
    #[must_use]
    pub const fn breaker_changes(&self) -> u64 {
        self.breaker_changes
    }

    /// Counter of changes that may make room for a task or a call.
    #[must_use]
    pub const fn room_changes(&self) -> u64 {
        self.room_changes
    }

    /// Takes the state changes since the last call, each with the name of its breaker.
    pub fn take_transitions(&mut self) -> Vec<(String, Transition)> {
        std::mem::take(&mut self.transitions)
    }

    /// True if the step may try nothing now: its breaker, or that of one of its dependencies, is open.
    #[must_use]
    pub fn is_blocked(&self, step: &Step, at: Duration) -> bool {
        self.blocked_until(step, at).is_some()
    }

    /// `Some` if the step is [blocked](Self::is_blocked): until that time, or without end while a breaker is forced
    /// open.
    #[must_use]
    pub fn blocked_until(&self, step: &Step, at: Duration) -> Option<Option<Duration>> {
        let ends = self.of_step(step).filter_map(|breaker| breaker.rejects_until(at));
        // The latest of them; a forced breaker has no end.
        ends.reduce(|one, other| Some(one?.max(other?)))
    }

    /// Maximum number of messages of a step to pull at once, while one of its breakers recovers.
    #[must_use]
    pub fn ramp(&self, step: &Step) -> Option<usize> {
        self.of_step(step).filter_map(Breaker::ramp).min().map(|ramp| ramp as usize)
    }

    /// Requests a permit for one message of a step.
    ///
    /// `None` if the step is blocked; `Some(None)` if it has no breaker that needs the result.
    pub fn acquire_step(&mut self, step: &Step, at: Duration) -> Option<Option<Permit>> {
        if self.is_blocked(step, at) {
            return None;
        }
        match self.on_breaker(step.name, |breaker| breaker.acquire(at)) {
            Some(permit) => permit.map(Some),
            None => Some(None),
        }
    }

    /// Records an attempt of a step that ended now, after `took`.
    pub fn end_step(&mut self, step: &Step, permit: Permit, verdict: Verdict, took: Duration, at: Duration) {
        self.on_breaker(step.name, |breaker| breaker.record(permit, verdict, took, at));
    }

    /// Kind of a failure of the step that has just been recorded.
    #[must_use]
    pub fn failure_kind_of(&self, step: &Step, at: Duration) -> FailureKind {
        self.state(step.name, at).failure_kind()
    }

    /// Reserves room for the task that one message may create.
    ///
    /// Under constant load messages would take all room that becomes free, and due tasks would wait in the store
    /// for ever. While some do, a share of the room is reserved for them.
    pub fn reserve_slot(&mut self, at: Duration) -> Slot {
        let theirs = if self.is_due_left { self.share() } else { 0 };
        let from_messages = self.reserved + self.open_tasks.len() - self.due.len();
        if self.is_dependency_open(at) {
            Slot::Blocked
        } else if self.room(at) > 0 && from_messages + theirs < self.task_limit() {
            self.reserved += 1;
            Slot::Reserved
        } else {
            Slot::Full
        }
    }

    /// Returns the slot of a message that is processed. Its task, if it created one, is held by now.
    ///
    /// True if there is room for due tasks that were left in the store.
    pub fn return_slot(&mut self) -> bool {
        self.reserved = self.reserved.saturating_sub(1);
        self.room_changes += 1;
        self.has_room_for_due()
    }

    /// Number of tasks that can be taken now.
    #[must_use]
    pub fn room(&self, at: Duration) -> usize {
        if self.is_dependency_open(at) {
            return 0;
        }
        self.task_limit().saturating_sub(self.open_tasks.len() + self.reserved)
    }

    /// Records a scan for due tasks, some of which may have been left in the store for lack of room.
    ///
    /// True if some were left and there is room by now. If there is none, [`Admission::release`] and
    /// [`Admission::return_slot`] report when there is.
    pub fn record_due_scan(&mut self, is_any_left: bool, at: Duration) -> bool {
        let is_room = self.room(at) > 0 && self.has_ample_room();
        self.is_scan_wanted = is_any_left && !is_room;
        // Their share is free again.
        self.room_changes += u64::from(self.is_due_left && !is_any_left);
        self.is_due_left = is_any_left;
        is_any_left && is_room
    }

    /// Takes a task that this process has claimed, because it came due or a message created it.
    ///
    /// False if the process holds it already, because its lease expired meanwhile: it goes on under the newer
    /// claim.
    pub fn hold(&mut self, task: Uuid, claim: i64, is_due: bool) -> bool {
        let is_new = self.open_tasks.insert(task, claim).is_none();
        if is_new && is_due {
            self.due.insert(task);
        }
        is_new
    }

    /// True if the process may take the tasks that it creates. Otherwise they stay in the store, so that an outage
    /// does not fill the memory.
    #[must_use]
    pub fn has_task_room(&self) -> bool {
        self.open_tasks.len() < self.bounds.backlog
    }

    /// Number of tasks waiting and in flight.
    #[must_use]
    pub fn open_tasks(&self) -> usize {
        self.open_tasks.len()
    }

    /// Requests a permit for one more call.
    pub fn acquire_call(&mut self, at: Duration) -> Option<Option<Permit>> {
        let ramp = self.dependency().and_then(Breaker::ramp).map_or(usize::MAX, |ramp| ramp as usize);
        if self.in_flight >= self.bounds.concurrency.min(ramp) || at < self.paused_until {
            return None;
        }
        let dependency = self.dependency.clone();
        let permit = match self.on_breaker(&dependency, |breaker| breaker.acquire(at)) {
            Some(permit) => Some(permit?),
            None => None,
        };
        self.in_flight += 1;
        Some(permit)
    }

    /// Admits no call before `until`, as the dependency asked. Calls in flight are not affected.
    pub fn pause_calls(&mut self, until: Duration) {
        self.paused_until = self.paused_until.max(until);
    }

    /// `Some` if the breaker of the dependency is open or the dependency asked for a pause: until that time, or without
    /// end while the breaker is forced open.
    #[must_use]
    pub fn calls_blocked_until(&self, at: Duration) -> Option<Option<Duration>> {
        let open = self.dependency().and_then(|breaker| breaker.rejects_until(at));
        let paused = (at < self.paused_until).then_some(self.paused_until);
        match (open, paused) {
            (Some(open), Some(paused)) => Some(open.map(|open| open.max(paused))),
            (Some(open), None) => Some(open),
            (None, paused) => paused.map(Some),
        }
    }

    /// Records a call of `task` that ended now, after `took`. Returns the kind of a failure.
    ///
    /// A failure consumes an attempt only if the dependency answers others.
    pub fn end_call(
        &mut self,
        task: Uuid,
        permit: Option<Permit>,
        end: CallResult,
        took: Duration,
        at: Duration,
    ) -> FailureKind {
        let (verdict, is_there) = match end {
            CallResult::Answered => (Verdict::Success, true),
            CallResult::Rejected => (Verdict::Ignored, true),
            CallResult::Failed => (Verdict::Failure, false),
        };
        if is_there {
            self.outages.answered(at);
        }
        self.end_call_with(permit, verdict, took, at);
        if is_there {
            return FailureKind::Permanent;
        }
        match self.outages.failed(task, at) {
            true => self.state(&self.dependency, at).failure_kind(),
            false => FailureKind::Outage,
        }
    }

    /// Records a call that was cut off, with an unknown result.
    pub fn abort_call(&mut self, permit: Option<Permit>, took: Duration, at: Duration) {
        self.end_call_with(permit, Verdict::Failure, took, at);
    }

    /// Returns the permit of a call that was not made.
    pub fn return_call(&mut self, permit: Option<Permit>, at: Duration) {
        self.end_call_with(permit, Verdict::Ignored, Duration::ZERO, at);
    }

    fn end_call_with(&mut self, permit: Option<Permit>, verdict: Verdict, took: Duration, at: Duration) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.room_changes += 1;
        if let Some(permit) = permit {
            let dependency = self.dependency.clone();
            self.on_breaker(&dependency, |breaker| breaker.record(permit, verdict, took, at));
        }
    }

    /// Releases a task before its outcome is stored. From then on the timers may take it again.
    ///
    /// Returns its newest claim, and true if the caller must scan for due tasks.
    pub fn release(&mut self, task: Uuid) -> (Option<i64>, bool) {
        let claim = self.open_tasks.remove(&task);
        self.due.remove(&task);
        self.room_changes += 1;
        (claim, self.has_room_for_due())
    }

    /// Forgets the failures of a task that is not tried again.
    pub fn forget(&mut self, task: Uuid) {
        self.outages.forget(task);
    }

    fn of_step<'a>(&'a self, step: &'a Step) -> impl Iterator<Item = &'a Breaker> {
        [step.name].into_iter().chain(step.needs.iter().copied()).filter_map(|name| self.breakers.get(name))
    }

    fn dependency(&self) -> Option<&Breaker> {
        self.breakers.get(&self.dependency)
    }

    fn is_dependency_open(&self, at: Duration) -> bool {
        self.calls_blocked_until(at).is_some()
    }

    /// Limit of tasks. Grows with each answer of a dependency that recovers.
    fn task_limit(&self) -> usize {
        let ramp = self.dependency().and_then(Breaker::ramp);
        ramp.map_or(self.bounds.backlog, |ramp| self.bounds.backlog.min(ramp as usize))
    }

    /// Share of the room for due tasks while some are left in the store.
    fn share(&self) -> usize {
        (self.task_limit() / 4).max(1)
    }

    fn has_room_for_due(&mut self) -> bool {
        self.has_ample_room() && std::mem::take(&mut self.is_scan_wanted)
    }

    /// True if there is enough room for another scan. A scan is a transaction, so it must not follow each task.
    fn has_ample_room(&self) -> bool {
        self.open_tasks.len() + self.reserved + self.share().div_ceil(2) <= self.task_limit()
    }

    fn state(&self, name: &str, at: Duration) -> State {
        self.breakers.get(name).map_or(State::Closed, |breaker| breaker.state(at))
    }
}
