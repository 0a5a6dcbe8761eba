//! Pure: whether a step may take a message now, and a task make its call; what a failure means; what an outage is.
//!
//! One [`Admission`] stands in each process: a breaker for each step, one for what tasks call, and the account of
//! the tasks that wait and are under way. Time is an argument: `at` counts from an arbitrary origin of a clock
//! that does not go back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;

use crate::breaker::{Breaker, BreakerPolicy, OutageDetector, Permit, State, Transition, Verdict};
use crate::retry::FailureKind;
use crate::service::Step;

/// What bounds the tasks of one process.
#[derive(Debug, Clone, Copy)]
pub struct TaskBounds {
    /// Tasks waiting and under way, from which on no message is taken that may bring another.
    pub backlog: usize,
    /// Calls under way at once: the bulkhead.
    pub concurrency: usize,
}

/// Whether a message may be taken that may end in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// There is room for its task, which is kept until [`Admission::give_slot_back`].
    Granted,
    /// There will be, when a task ends.
    Full,
    /// What would be called is away: nothing is to be pulled.
    Shut,
}

/// How one call of a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// It was answered.
    Answered,
    /// It was refused for good: somebody was there to say no.
    Refused,
    /// It was not answered, or with a fault.
    Failed,
}

impl CallEnd {
    /// The name in metrics and traces.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// What stands before the steps and the tasks of one process.
#[derive(Debug)]
pub struct Admission {
    breakers: BTreeMap<String, Breaker>,
    /// What tasks call.
    dependency: String,
    bounds: TaskBounds,
    /// Tasks waiting and under way, each with its newest claim.
    held: BTreeMap<Uuid, i64>,
    /// Those among them that came due, and were not brought by a message.
    due: BTreeSet<Uuid>,
    /// Inputs that may yet bring a task.
    promised: usize,
    /// Calls under way.
    under_way: usize,
    /// Whether due tasks are left in the store for want of room: then a share of it is theirs.
    is_due_left: bool,
    /// Whether somebody is to be told when there is room for them.
    is_room_wanted: bool,
    outages: OutageDetector,
    transitions: Vec<(String, Transition)>,
    breaker_changes: u64,
    room_changes: u64,
}

impl Admission {
    /// Without breakers: all may be tried. `dependency` names what tasks call.
    #[must_use]
    pub fn new(dependency: &str, bounds: TaskBounds) -> Self {
        Self {
            breakers: BTreeMap::new(),
            dependency: dependency.to_owned(),
            bounds,
            held: BTreeMap::new(),
            due: BTreeSet::new(),
            promised: 0,
            under_way: 0,
            is_due_left: false,
            is_room_wanted: false,
            outages: OutageDetector::default(),
            transitions: Vec::new(),
            breaker_changes: 0,
            room_changes: 0,
        }
    }

    /// The same with a closed breaker of this name: a step's, or the dependency's. The policy must have passed its
    /// [check](BreakerPolicy::check).
    #[must_use]
    pub fn with_breaker(mut self, name: &str, policy: BreakerPolicy) -> Self {
        self.breakers.insert(name.to_owned(), Breaker::new(policy));
        self
    }

    /// The breakers, in the order of their names.
    #[must_use]
    pub const fn breakers(&self) -> &BTreeMap<String, Breaker> {
        &self.breakers
    }

    /// Does something with one breaker; `None` when there is none of this name.
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

    /// Grows with whatever may let somebody through a breaker, or keep him out.
    #[must_use]
    pub const fn breaker_changes(&self) -> u64 {
        self.breaker_changes
    }

    /// Grows with whatever makes room for a task or a call.
    #[must_use]
    pub const fn room_changes(&self) -> u64 {
        self.room_changes
    }

    /// The changes of state since this was last asked, each with its breaker's name.
    pub fn take_transitions(&mut self) -> Vec<(String, Transition)> {
        std::mem::take(&mut self.transitions)
    }

    /// Whether nothing of this step may be tried now, because its breaker, or that of something it needs, is open.
    #[must_use]
    pub fn is_shut(&self, step: &Step, at: Duration) -> bool {
        self.shut_until(step, at).is_some()
    }

    /// `Some` when [shut](Self::is_shut): until that time, or until somebody says otherwise.
    #[must_use]
    pub fn shut_until(&self, step: &Step, at: Duration) -> Option<Option<Duration>> {
        let refusals = self.of_step(step).filter_map(|breaker| breaker.refuses_until(at));
        // Until the last of them; one that nobody's time ends comes after all.
        refusals.reduce(|one, other| Some(one?.max(other?)))
    }

    /// How many messages of a step may be asked for at once, while one of its breakers is not wholly closed again.
    #[must_use]
    pub fn ramp(&self, step: &Step) -> Option<usize> {
        self.of_step(step).filter_map(Breaker::ramp).min().map(|ramp| ramp as usize)
    }

    /// Whether one message of a step may be tried now. `None`: not now; `Some(None)`: yes, and no breaker of its own
    /// wants to hear how it ends.
    pub fn permit_step(&mut self, step: &Step, at: Duration) -> Option<Option<Permit>> {
        if self.is_shut(step, at) {
            return None;
        }
        match self.on_breaker(step.name, |breaker| breaker.acquire(at)) {
            Some(permit) => permit.map(Some),
            None => Some(None),
        }
    }

    /// Takes note of a try of a step that ended now, after it `took` so long.
    pub fn end_step(&mut self, step: &Step, permit: Permit, verdict: Verdict, took: Duration, at: Duration) {
        self.on_breaker(step.name, |breaker| breaker.record(permit, verdict, took, at));
    }

    /// What follows from a failure of a step that has just been recorded.
    #[must_use]
    pub fn step_failure(&self, step: &Step, at: Duration) -> FailureKind {
        self.state(step.name, at).failure_kind()
    }

    /// Whether there is room for the task that one message may bring. Room that is granted is kept.
    ///
    /// Messages come first to each place that is freed: under a load that does not end, tasks that came due would
    /// wait in the store for ever. While some do, a share of the places is theirs.
    pub fn take_slot(&mut self, at: Duration) -> Room {
        let theirs = if self.is_due_left { self.share() } else { 0 };
        let brought = self.promised + self.held.len() - self.due.len();
        if self.is_dependency_open(at) {
            Room::Shut
        } else if self.room(at) > 0 && brought + theirs < self.task_limit() {
            self.promised += 1;
            Room::Granted
        } else {
            Room::Full
        }
    }

    /// The message is settled: the task that it brought, if it brought one, is held by now. `true` when there is room
    /// for due tasks that were left for want of it.
    pub fn give_slot_back(&mut self) -> bool {
        self.promised = self.promised.saturating_sub(1);
        self.room_changes += 1;
        self.has_room_for_due()
    }

    /// How many tasks more may be taken up now.
    #[must_use]
    pub fn room(&self, at: Duration) -> usize {
        if self.is_dependency_open(at) {
            return 0;
        }
        self.task_limit().saturating_sub(self.held.len() + self.promised)
    }

    /// Somebody has looked for due tasks, and may have left some in the store for want of room. `true` when some were
    /// left and there is room by now; when there is none, [`Admission::release`] and [`Admission::give_slot_back`] tell when
    /// there is again.
    pub fn looked_for_due(&mut self, is_any_left: bool, at: Duration) -> bool {
        let is_room = self.room(at) > 0 && self.has_much_room();
        self.is_room_wanted = is_any_left && !is_room;
        // What was theirs is everybody's again.
        self.room_changes += u64::from(self.is_due_left && !is_any_left);
        self.is_due_left = is_any_left;
        is_any_left && is_room
    }

    /// Takes up a task that this process has claimed, because it came due or because a message brought it. `false`
    /// when it is held already, because its lease lapsed meanwhile: then it goes on under the newer claim.
    pub fn hold(&mut self, task: Uuid, claim: i64, came_due: bool) -> bool {
        let is_new = self.held.insert(task, claim).is_none();
        if is_new && came_due {
            self.due.insert(task);
        }
        is_new
    }

    /// Whether new tasks may be taken up by the process that writes them. Otherwise they wait in the store, so that
    /// memory does not grow with what is away.
    #[must_use]
    pub fn can_hold(&self) -> bool {
        self.held.len() < self.bounds.backlog
    }

    /// Tasks waiting and under way.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether one more call may begin now.
    pub fn permit_call(&mut self, at: Duration) -> Option<Option<Permit>> {
        let ramp = self.dependency().and_then(Breaker::ramp).map_or(usize::MAX, |ramp| ramp as usize);
        if self.under_way >= self.bounds.concurrency.min(ramp) {
            return None;
        }
        let dependency = self.dependency.clone();
        let permit = match self.on_breaker(&dependency, |breaker| breaker.acquire(at)) {
            Some(permit) => Some(permit?),
            None => None,
        };
        self.under_way += 1;
        Some(permit)
    }

    /// `Some` when no call may begin because the dependency's breaker is open: until that time, or until somebody
    /// says otherwise.
    #[must_use]
    pub fn calls_shut_until(&self, at: Duration) -> Option<Option<Duration>> {
        self.dependency().and_then(|breaker| breaker.refuses_until(at))
    }

    /// Takes note of a call of `task` that ended now, after it `took` so long. Answers what a failure means: it
    /// consumes an attempt only when the dependency is there for others.
    pub fn end_call(
        &mut self,
        task: Uuid,
        permit: Option<Permit>,
        end: CallEnd,
        took: Duration,
        at: Duration,
    ) -> FailureKind {
        self.under_way = self.under_way.saturating_sub(1);
        self.room_changes += 1;
        let (verdict, is_there) = match end {
            CallEnd::Answered => (Verdict::Success, true),
            CallEnd::Refused => (Verdict::Ignored, true),
            CallEnd::Failed => (Verdict::Failure, false),
        };
        if is_there {
            self.outages.answered(at);
        }
        if let Some(permit) = permit {
            let dependency = self.dependency.clone();
            self.on_breaker(&dependency, |breaker| breaker.record(permit, verdict, took, at));
        }
        if is_there {
            return FailureKind::Permanent;
        }
        match self.outages.failed(task, at) {
            true => self.state(&self.dependency, at).failure_kind(),
            false => FailureKind::Outage,
        }
    }

    /// A call was cut off: nobody knows how it ended.
    pub fn lose_call(&mut self, permit: Option<Permit>, took: Duration, at: Duration) {
        self.end_untold(permit, Verdict::Failure, took, at);
    }

    /// A call was not made after all.
    pub fn return_call(&mut self, permit: Option<Permit>, at: Duration) {
        self.end_untold(permit, Verdict::Ignored, Duration::ZERO, at);
    }

    fn end_untold(&mut self, permit: Option<Permit>, verdict: Verdict, took: Duration, at: Duration) {
        self.under_way = self.under_way.saturating_sub(1);
        self.room_changes += 1;
        if let Some(permit) = permit {
            let dependency = self.dependency.clone();
            self.on_breaker(&dependency, |breaker| breaker.record(permit, verdict, took, at));
        }
    }

    /// Lets a task go whose outcome is about to be stored: from then on the timers may bring it again. Answers its
    /// newest claim, and whether to look for tasks that were left in the store.
    pub fn release(&mut self, task: Uuid) -> (Option<i64>, bool) {
        let claim = self.held.remove(&task);
        self.due.remove(&task);
        self.room_changes += 1;
        (claim, self.has_room_for_due())
    }

    /// A task is not tried again: what is remembered of its failures is forgotten.
    pub fn forget(&mut self, task: Uuid) {
        self.outages.settled(task);
    }

    fn of_step<'a>(&'a self, step: &'a Step) -> impl Iterator<Item = &'a Breaker> {
        [step.name].into_iter().chain(step.needs.iter().copied()).filter_map(|name| self.breakers.get(name))
    }

    fn dependency(&self) -> Option<&Breaker> {
        self.breakers.get(&self.dependency)
    }

    fn is_dependency_open(&self, at: Duration) -> bool {
        self.calls_shut_until(at).is_some()
    }

    /// A dependency that has just come back gets a few tasks first, and with each answer more.
    fn task_limit(&self) -> usize {
        let ramp = self.dependency().and_then(Breaker::ramp);
        ramp.map_or(self.bounds.backlog, |ramp| self.bounds.backlog.min(ramp as usize))
    }

    /// The places that are kept for due tasks while some are left in the store.
    fn share(&self) -> usize {
        (self.task_limit() / 4).max(1)
    }

    fn has_room_for_due(&mut self) -> bool {
        self.has_much_room() && std::mem::take(&mut self.is_room_wanted)
    }

    /// Enough to look for tasks that were left: not for each, as a look is a transaction.
    fn has_much_room(&self) -> bool {
        self.held.len() + self.promised + self.share().div_ceil(2) <= self.task_limit()
    }

    fn state(&self, name: &str, at: Duration) -> State {
        self.breakers.get(name).map_or(State::Closed, |breaker| breaker.state(at))
    }
}
