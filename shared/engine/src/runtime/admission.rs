//! Shell: the admission that the loops of one process share: with a clock, a log, those who wait, and injected
//! faults. What is admitted is decided by [`saga_core::admission`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use saga_core::admission::{Admission, CallResult, Slot};
use saga_core::breaker::{Breaker, Permit, State, Transition, Verdict};
use saga_core::fault::FaultKind;
use saga_core::input::Outcome;
use saga_core::retry::{FailedAttempt, FailureKind};
use saga_core::service::{Service, Step};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};
use uuid::Uuid;

use super::clock::Clock;
use super::faults::Faults;
pub use saga_core::breaker::{BreakerAction, BreakerView, TransitionView};

/// The admission of one process. Clones are the same one.
#[derive(Clone)]
pub struct SharedAdmission(Arc<Inner>);

struct Inner {
    admission: Mutex<Admission>,
    breakers: Notify,
    room: Notify,
    timers: Arc<Notify>,
    faults: Faults,
    instance: String,
    origin: Instant,
    /// The origin's time of day. Kept, so that a transition is seen at the same time whenever one looks.
    born: Timestamp,
}

impl SharedAdmission {
    /// Shares `admission` within a process of this name; its clock begins now.
    #[must_use]
    pub fn new(admission: Admission, faults: Faults, instance: &str, clock: &dyn Clock) -> Self {
        Self(Arc::new(Inner {
            admission: Mutex::new(admission),
            breakers: Notify::new(),
            room: Notify::new(),
            timers: Arc::default(),
            faults,
            instance: instance.to_owned(),
            origin: Instant::now(),
            born: clock.now(),
        }))
    }

    /// What stands before one step. One for each step: those who share it share what it remembers.
    #[must_use]
    pub fn of_step(&self, step: &'static Step) -> StepAdmission {
        StepAdmission { shared: self.clone(), step, memory: Arc::default() }
    }

    /// The faults injected into this process; a pause shuts a step as an open breaker does.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// Does something with a breaker of this process, on an operator's behalf; `None` when there is none of this name.
    #[must_use]
    pub fn turn_breaker(&self, name: &str, action: BreakerAction) -> Option<BreakerView> {
        let turn = |breaker: &mut Breaker, at| match action {
            BreakerAction::Open => breaker.force_open(at),
            BreakerAction::Closed => breaker.force_closed(at),
            BreakerAction::Reset => breaker.reset(at),
        };
        self.with(|admission, at| admission.on_breaker(name, |breaker| turn(breaker, at)))?;
        self.breakers().into_iter().find(|view| view.name == name)
    }

    /// What there is to see of every breaker, in the order of their names.
    #[must_use]
    pub fn breakers(&self) -> Vec<BreakerView> {
        let wall = |at: Duration| self.0.born.saturating_add(at).unwrap_or(Timestamp::MAX);
        self.with(|admission, at| {
            let instance = &self.0.instance;
            let view =
                |(name, breaker): (&String, &Breaker)| BreakerView::of(instance, name, breaker, at, wall);
            admission.breakers().iter().map(view).collect()
        })
    }

    /// Tasks waiting and under way.
    #[must_use]
    pub fn tasks_held(&self) -> usize {
        self.with(|admission, _| admission.held())
    }

    /// How many tasks more may be taken up now.
    #[must_use]
    pub(super) fn task_room(&self) -> usize {
        self.with(|admission, at| admission.room(at))
    }

    /// Whether new tasks may be taken up by the process that writes them.
    #[must_use]
    pub(super) fn can_hold(&self) -> bool {
        self.with(|admission, _| admission.has_task_room())
    }

    /// Wakes whoever looks for due tasks.
    #[must_use]
    pub(super) fn timers(&self) -> &Arc<Notify> {
        &self.0.timers
    }

    pub(super) fn looked_for_due(&self, is_any_left: bool) -> bool {
        self.with(|admission, at| admission.record_due_scan(is_any_left, at))
    }

    pub(super) fn hold(&self, task: Uuid, claim: i64, came_due: bool) -> bool {
        self.with(|admission, _| admission.hold(task, claim, came_due))
    }

    pub(super) fn release(&self, task: Uuid) -> (Option<i64>, bool) {
        self.with(|admission, _| admission.release(task))
    }

    pub(super) fn forget(&self, task: Uuid) {
        self.with(|admission, _| admission.forget(task));
    }

    /// Waits until one more call may begin.
    pub async fn permit_call(&self) -> CallPermit {
        loop {
            // Armed before looking: a change after the look finds the wake-up already waiting.
            let changed = self.room_changed();
            let (permit, shut, began) = self.with(|admission, at| {
                let permit = admission.acquire_call(at);
                (permit, admission.calls_blocked_until(at), at)
            });
            if let Some(permit) = permit {
                return CallPermit { shared: self.clone(), permit, began, is_under_way: true };
            }
            self.wait(changed, shut.flatten()).await;
        }
    }

    /// Waits for room for the task that one message may bring; `None` when what it would call is away.
    async fn task_slot(&self) -> Option<TaskSlot> {
        loop {
            let changed = self.room_changed();
            match self.with(|admission, at| admission.reserve_slot(at)) {
                Slot::Reserved => return Some(TaskSlot { shared: self.clone() }),
                Slot::Blocked => return None,
                Slot::Full => changed.await,
            }
        }
    }

    /// Resolves when a breaker or an injected fault changes after this call. Time that passes is no change: a
    /// breaker becomes half-open with the first call afterwards.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + '_ {
        either(self.0.breakers.notified(), self.0.faults.changed())
    }

    /// Resolves when a breaker changes after this call, or there may be more room for tasks and calls.
    fn room_changed(&self) -> impl Future<Output = ()> + Send + '_ {
        either(self.0.breakers.notified(), self.0.room.notified())
    }

    async fn wait(&self, changed: impl Future<Output = ()>, until: Option<Duration>) {
        match until {
            Some(until) => {
                let _ = timeout_at(self.0.origin + until, changed).await;
            }
            None => changed.await,
        }
    }

    /// Does something now, and tells of the change it made, if it made one.
    fn with<T>(&self, act: impl FnOnce(&mut Admission, Duration) -> T) -> T {
        let mut admission = self.0.admission.lock();
        let changes = |admission: &Admission| (admission.breaker_changes(), admission.room_changes());
        let before = changes(&admission);
        // The clock is read under the lock, so that the admission's time does not go back.
        let done = act(&mut admission, self.0.origin.elapsed());
        let after = changes(&admission);
        let transitions = if after.0 == before.0 { vec![] } else { admission.take_transitions() };
        drop(admission);
        transitions.iter().for_each(|(breaker, transition)| log(breaker, transition));
        if after.0 != before.0 {
            self.0.breakers.notify_waiters();
        }
        if after.1 != before.1 {
            self.0.room.notify_waiters();
        }
        done
    }
}

async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = one => {}
        () = other => {}
    }
}

fn log(breaker: &str, Transition { from, to, why, .. }: &Transition) {
    match to {
        State::Open | State::ForcedOpen => warn!(breaker, ?from, ?to, "the breaker opens: {why}"),
        State::HalfOpen => info!(breaker, ?from, ?to, "the breaker lets probes through: {why}"),
        State::Closed | State::ForcedClosed => info!(breaker, ?from, ?to, "the breaker closes: {why}"),
    }
}

/// What stands before a step. Clones are the same one.
#[derive(Clone)]
pub struct StepAdmission {
    shared: SharedAdmission,
    step: &'static Step,
    memory: Arc<Memory>,
}

/// What is remembered of a step for as long as the process lives.
#[derive(Default)]
struct Memory {
    /// Whether deliveries were left alone because of what stands here, or because nothing could be stored.
    interrupted: AtomicBool,
    /// Messages settled, whatever became of them.
    settled: AtomicU64,
    /// Messages tried in vain, as nothing could be stored.
    cut_off: AtomicU64,
    /// Messages that were delivered and are in somebody's hands here.
    held: AtomicU64,
}

impl StepAdmission {
    /// The step that this stands before.
    #[must_use]
    pub const fn step(&self) -> &'static Step {
        self.step
    }

    /// As [`SharedAdmission::faults`]: those of the whole process, not of the step alone.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        self.shared.faults()
    }

    /// Whether nothing may be tried now, because a breaker is open or a fault says so.
    #[must_use]
    pub fn is_shut(&self) -> bool {
        self.is_paused() || self.shared.with(|admission, at| admission.is_blocked(self.step, at))
    }

    /// Whether an injected fault says that nothing may be tried.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.faults().pauses(self.step.name)
    }

    /// Resolves when something may be tried.
    pub async fn opens(&self) {
        loop {
            let changed = self.shared.changed();
            let shut = self.shared.with(|admission, at| admission.blocked_until(self.step, at));
            match shut {
                None if !self.faults().pauses(self.step.name) => return,
                None => changed.await,
                Some(until) => self.shared.wait(changed, until).await,
            }
        }
    }

    /// Resolves when nothing may be tried any more.
    pub async fn shuts(&self) {
        loop {
            let changed = self.shared.changed();
            if self.is_shut() {
                return;
            }
            changed.await;
        }
    }

    /// How many messages to ask for at once, while a breaker is not wholly closed again.
    #[must_use]
    pub fn ramp(&self) -> Option<usize> {
        self.shared.with(|admission, _| admission.ramp(self.step))
    }

    /// Waits for a permit for one message, with room for the task that it may bring; `None` when nothing may be
    /// tried now.
    pub async fn enter(&self) -> Option<StepPermit> {
        let slot = match self.step.needs {
            [] => None,
            _ => Some(self.shared.task_slot().await?),
        };
        loop {
            // Half-open, all probes may be under way. Armed before looking.
            let changed = self.shared.changed();
            if let Some(mut permit) = self.permit() {
                permit.slot = slot;
                return Some(permit);
            }
            if self.is_shut() {
                return None;
            }
            changed.await;
        }
    }

    /// A permit for one try; `None`: not now.
    #[must_use]
    pub fn permit(&self) -> Option<StepPermit> {
        if self.faults().pauses(self.step.name) {
            return None;
        }
        let (permit, began) = self.shared.with(|admission, at| (admission.acquire_step(self.step, at), at));
        let (of, is_under_way, slot) = (self.clone(), false, None);
        permit.map(|permit| StepPermit { of, permit, began, is_under_way, slot })
    }

    /// Remembers that deliveries were left alone, through no fault of theirs.
    pub fn interrupt(&self) {
        self.memory.interrupted.store(true, Ordering::Release);
    }

    /// Whether deliveries were left alone in this life of the process, through no fault of theirs.
    #[must_use]
    pub fn was_interrupted(&self) -> bool {
        self.memory.interrupted.load(Ordering::Acquire)
    }

    /// Counts a delivery as held until the answer is dropped.
    pub(super) fn hold(&self) -> HeldHere {
        self.memory.held.fetch_add(1, Ordering::Relaxed);
        HeldHere(self.memory.clone())
    }

    /// How many deliveries are held now.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.memory.held.load(Ordering::Relaxed)
    }

    /// How many messages were tried in vain in this life of the process, as nothing could be stored.
    #[must_use]
    pub fn cut_off(&self) -> u64 {
        self.memory.cut_off.load(Ordering::Relaxed)
    }

    /// How many messages were settled in this life of the process: handled, put off or parked.
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.memory.settled.load(Ordering::Relaxed)
    }
}

/// One delivery that is held.
#[must_use]
pub(super) struct HeldHere(Arc<Memory>);

impl Drop for HeldHere {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Leave to try one message, and its stopwatch. Dropped before the try it is given back.
#[must_use]
pub struct StepPermit {
    of: StepAdmission,
    permit: Option<Permit>,
    began: Duration,
    is_under_way: bool,
    /// Room for the task that the message may bring.
    slot: Option<TaskSlot>,
}

/// What injected faults do to one try.
#[derive(Debug, Default)]
pub struct InjectedFault {
    /// Why it fails, whatever the reaction would be.
    pub failure: Option<FailedAttempt>,
    /// How long it takes, beside what it takes anyway.
    pub delay: Option<Duration>,
}

impl StepPermit {
    /// Begins the try. Answers what injected faults do to it; a transient one counts against the step's breaker.
    pub fn begin(&mut self) -> InjectedFault {
        self.is_under_way = true;
        let step = self.of.step;
        let strikes = |kind| self.of.faults().strikes(kind, step.name);
        let delay = strikes(FaultKind::DELAY);
        let failure = if strikes(FaultKind::FAIL_PERMANENTLY).is_some() {
            Some(FailedAttempt::new(FailureKind::Permanent, "injected: this can never work"))
        } else if strikes(FaultKind::FAIL_TRANSIENTLY).is_some() {
            self.end(Verdict::Failure);
            let kind = self.of.shared.with(|admission, at| admission.failure_kind_of(step, at));
            Some(FailedAttempt::new(kind, "injected: not now"))
        } else {
            None
        };
        InjectedFault { failure, delay }
    }

    /// Tells the breaker how the try ended.
    pub fn ended<S: Service>(mut self, outcome: &Outcome<S>) {
        self.is_under_way = false;
        self.of.memory.settled.fetch_add(1, Ordering::Relaxed);
        self.end(outcome.verdict());
    }

    fn end(&mut self, verdict: Verdict) {
        if let Some(permit) = self.permit.take() {
            let (step, began) = (self.of.step, self.began);
            self.of.shared.with(|admission, at| {
                admission.end_step(step, permit, verdict, at.saturating_sub(began), at);
            });
        }
    }
}

impl Drop for StepPermit {
    /// A try under way that ends untold was cut off: nothing could be stored.
    fn drop(&mut self) {
        if self.is_under_way {
            self.of.memory.cut_off.fetch_add(1, Ordering::Relaxed);
            self.of.interrupt();
            self.end(Verdict::Failure);
        } else {
            self.end(Verdict::Ignored);
        }
    }
}

/// Room for the task that a message may bring, kept until the message is settled.
#[must_use]
pub struct TaskSlot {
    shared: SharedAdmission,
}

impl Drop for TaskSlot {
    fn drop(&mut self) {
        if self.shared.with(|admission, _| admission.return_slot()) {
            self.shared.0.timers.notify_one();
        }
    }
}

/// Leave to make one call, and its stopwatch. Dropped without an end it counts as a failure: whoever held it died
/// or was cut off.
#[must_use]
pub struct CallPermit {
    shared: SharedAdmission,
    permit: Option<Permit>,
    began: Duration,
    is_under_way: bool,
}

impl CallPermit {
    /// The call of `task` ended like this. Answers what a failure means.
    pub fn end(mut self, task: Uuid, end: CallResult) -> FailureKind {
        self.is_under_way = false;
        let (permit, began) = (self.permit.take(), self.began);
        self.shared.with(|admission, at| admission.end_call(task, permit, end, at.saturating_sub(began), at))
    }

    /// The call is not made after all.
    pub fn give_back(mut self) {
        self.is_under_way = false;
        let permit = self.permit.take();
        self.shared.with(|admission, at| admission.return_call(permit, at));
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        if self.is_under_way {
            let (permit, began) = (self.permit.take(), self.began);
            self.shared.with(|admission, at| admission.abort_call(permit, at.saturating_sub(began), at));
        }
    }
}
