//! Shell: the admission that the loops of one process share: breakers, permits, limits of tasks, and injected faults.
//!
//! [`saga_core::admission`] decides what is admitted. This module adds a clock, a log and those who wait. [`StepAdmission`]
//! stands before the messages of a step, [`CallPermit`] before the calls of tasks.

mod call;
mod step;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use saga_core::admission::{Admission, Slot};
use saga_core::breaker::{Breaker, State, Transition};
pub use saga_core::breaker::{BreakerAction, BreakerView, TransitionView};
use saga_core::service::Step;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};
use uuid::Uuid;

pub use self::call::{CallPermit, TaskSlot};
pub(super) use self::step::InFlightGuard;
pub use self::step::{FaultEffect, StepAdmission, StepPermit};
use super::clock::Clock;
use super::injected_faults::InjectedFaults;

/// Admission of one process. Clones share one state.
#[derive(Clone)]
pub struct SharedAdmission(Arc<Inner>);

struct Inner {
    admission: Mutex<Admission>,
    breakers: Notify,
    room: Notify,
    timers: Arc<Notify>,
    faults: InjectedFaults,
    instance: String,
    origin: Instant,
    /// Wall-clock time of `origin`. Stored, so that a transition shows the same time whenever it is read.
    started_at: Timestamp,
}

impl SharedAdmission {
    /// Shares `admission` within the process called `instance`. Its clock starts now.
    #[must_use]
    pub fn new(admission: Admission, faults: InjectedFaults, instance: &str, clock: &dyn Clock) -> Self {
        Self(Arc::new(Inner {
            admission: Mutex::new(admission),
            breakers: Notify::new(),
            room: Notify::new(),
            timers: Arc::default(),
            faults,
            instance: instance.to_owned(),
            origin: Instant::now(),
            started_at: clock.now(),
        }))
    }

    /// Creates the admission of one step. Call it once for each step: its clones share counters.
    #[must_use]
    pub fn for_step(&self, step: &'static Step) -> StepAdmission {
        StepAdmission::new(self.clone(), step)
    }

    /// Faults injected into this process. A pause blocks a step as an open breaker does.
    #[must_use]
    pub fn faults(&self) -> &InjectedFaults {
        &self.0.faults
    }

    /// Applies an operator's action to a breaker of this process. `None` if there is no breaker of this name.
    #[must_use]
    pub fn set_breaker(&self, name: &str, action: BreakerAction) -> Option<BreakerView> {
        let set = |breaker: &mut Breaker, at| match action {
            BreakerAction::Open => breaker.force_open(at),
            BreakerAction::Closed => breaker.force_closed(at),
            BreakerAction::Reset => breaker.reset(at),
        };
        self.with(|admission, at| admission.on_breaker(name, |breaker| set(breaker, at)))?;
        self.breakers().into_iter().find(|view| view.name == name)
    }

    /// Lists all breakers by name, for operators.
    #[must_use]
    pub fn breakers(&self) -> Vec<BreakerView> {
        let wall_clock = |at: Duration| self.0.started_at.saturating_add(at).unwrap_or(Timestamp::MAX);
        self.with(|admission, at| {
            let instance = &self.0.instance;
            let view = |(name, breaker): (&String, &Breaker)| {
                BreakerView::of(instance, name, breaker, at, wall_clock)
            };
            admission.breakers().iter().map(view).collect()
        })
    }

    /// Number of tasks that are queued or called by this process.
    #[must_use]
    pub fn open_tasks(&self) -> usize {
        self.with(|admission, _| admission.open_tasks())
    }

    /// Number of further tasks that may be taken up now.
    #[must_use]
    pub(super) fn task_room(&self) -> usize {
        self.with(|admission, at| admission.room(at))
    }

    /// True if the process that writes new tasks may take them up itself.
    #[must_use]
    pub(super) fn has_task_room(&self) -> bool {
        self.with(|admission, _| admission.has_task_room())
    }

    /// Notified when the timers should scan for due tasks.
    #[must_use]
    pub(super) fn timers(&self) -> &Arc<Notify> {
        &self.0.timers
    }

    pub(super) fn record_due_scan(&self, is_any_left: bool) -> bool {
        self.with(|admission, at| admission.record_due_scan(is_any_left, at))
    }

    pub(super) fn hold(&self, task: Uuid, claim: i64, is_due: bool) -> bool {
        self.with(|admission, _| admission.hold(task, claim, is_due))
    }

    pub(super) fn release(&self, task: Uuid) -> (Option<i64>, bool) {
        self.with(|admission, _| admission.release(task))
    }

    pub(super) fn forget(&self, task: Uuid) {
        self.with(|admission, _| admission.forget(task));
    }

    /// Waits for a permit for one call.
    pub async fn acquire_call(&self) -> CallPermit {
        loop {
            // Armed before the attempt: a change after it finds the wake-up waiting.
            let changed = self.room_changed();
            let (permit, blocked_until, began) = self.with(|admission, at| {
                let permit = admission.acquire_call(at);
                (permit, admission.calls_blocked_until(at), at)
            });
            if let Some(permit) = permit {
                return CallPermit::new(self.clone(), permit, began);
            }
            self.wait(changed, blocked_until.flatten()).await;
        }
    }

    /// Waits for room for the task that one message may create. `None` if the breaker of its dependency is open.
    async fn task_slot(&self) -> Option<TaskSlot> {
        loop {
            let changed = self.room_changed();
            match self.with(|admission, at| admission.reserve_slot(at)) {
                Slot::Reserved => return Some(TaskSlot::new(self.clone())),
                Slot::Blocked => return None,
                Slot::Full => changed.await,
            }
        }
    }

    /// Resolves at the next change of a breaker or an injected fault. The passing of time is no change: a breaker
    /// becomes half-open at the first call after its wait.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + '_ {
        either(self.0.breakers.notified(), self.0.faults.changed())
    }

    /// Resolves when a breaker changes, or there may be more room for tasks and calls.
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

    /// Runs `act` under the lock, then logs transitions and wakes those who wait for the change.
    fn with<T>(&self, act: impl FnOnce(&mut Admission, Duration) -> T) -> T {
        let mut admission = self.0.admission.lock();
        let changes = |admission: &Admission| (admission.breaker_changes(), admission.room_changes());
        let before = changes(&admission);
        // The clock is read under the lock, so that the admission's time never goes back.
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
        State::Open | State::ForcedOpen => warn!(breaker, ?from, ?to, "breaker opened: {why}"),
        State::HalfOpen => info!(breaker, ?from, ?to, "breaker half-open, probes are let through: {why}"),
        State::Closed | State::ForcedClosed => info!(breaker, ?from, ?to, "breaker closed: {why}"),
    }
}
