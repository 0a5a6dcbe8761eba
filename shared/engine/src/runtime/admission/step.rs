//! Shell: admission of the messages of one step: permits, counters and the effect of injected faults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use saga_core::breaker::{Permit, Verdict};
use saga_core::fault::FaultKind;
use saga_core::input::Outcome;
use saga_core::retry::{FailedAttempt, FailureKind};
use saga_core::service::{Service, Step};

use super::{SharedAdmission, TaskSlot};
use crate::runtime::bus::BusError;
use crate::runtime::injected_faults::InjectedFaults;

/// Admission of one step. Clones share one state.
#[derive(Clone)]
pub struct StepAdmission {
    shared: SharedAdmission,
    step: &'static Step,
    counters: Arc<Counters>,
}

/// Counters of a step since the start of the process.
#[derive(Default)]
struct Counters {
    /// True if deliveries were left alone, as the step was blocked or the store failed.
    interrupted: AtomicBool,
    /// Messages processed, with any outcome.
    processed: AtomicU64,
    /// Messages whose outcome could not be stored.
    unstored: AtomicU64,
    /// Messages delivered and not finished.
    in_flight: AtomicU64,
    /// Durable consumers that cannot be used, with the broker's reason.
    unusable: Mutex<BTreeMap<String, BusError>>,
}

impl StepAdmission {
    pub(super) fn new(shared: SharedAdmission, step: &'static Step) -> Self {
        Self { shared, step, counters: Arc::default() }
    }

    /// Step that this admission guards.
    #[must_use]
    pub const fn step(&self) -> &'static Step {
        self.step
    }

    /// Injected faults of the whole process, as [`SharedAdmission::faults`].
    #[must_use]
    pub fn faults(&self) -> &InjectedFaults {
        self.shared.faults()
    }

    /// True if a breaker or an injected fault blocks the step.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.is_paused() || self.shared.with(|admission, at| admission.is_blocked(self.step, at))
    }

    /// True if an injected fault pauses the step.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.faults().pauses(self.step.name)
    }

    /// Resolves when the step is not blocked.
    pub async fn until_unblocked(&self) {
        loop {
            let changed = self.shared.changed();
            let blocked_until = self.shared.with(|admission, at| admission.blocked_until(self.step, at));
            match blocked_until {
                None if !self.faults().pauses(self.step.name) => return,
                None => changed.await,
                Some(until) => self.shared.wait(changed, until).await,
            }
        }
    }

    /// Resolves when the step is blocked.
    pub async fn until_blocked(&self) {
        loop {
            let changed = self.shared.changed();
            if self.is_blocked() {
                return;
            }
            changed.await;
        }
    }

    /// Maximum number of messages to request at once after a breaker was open. It grows with each success; `None` when all
    /// breakers have recovered.
    #[must_use]
    pub fn ramp(&self) -> Option<usize> {
        self.shared.with(|admission, _| admission.ramp(self.step))
    }

    /// Waits for a permit for one message, with room for the task that it may create. `None` if the step is blocked.
    pub async fn acquire(&self) -> Option<StepPermit> {
        let slot = match self.step.needs {
            [] => None,
            _ => Some(self.shared.task_slot().await?),
        };
        loop {
            // A half-open breaker may have all its probes in flight. Armed before the attempt.
            let changed = self.shared.changed();
            if let Some(mut permit) = self.try_acquire() {
                permit.slot = slot;
                return Some(permit);
            }
            if self.is_blocked() {
                return None;
            }
            changed.await;
        }
    }

    /// Takes a permit for one attempt, if there is one now.
    #[must_use]
    pub fn try_acquire(&self) -> Option<StepPermit> {
        if self.faults().pauses(self.step.name) {
            return None;
        }
        let (permit, began) = self.shared.with(|admission, at| (admission.acquire_step(self.step, at), at));
        let (of, is_begun, slot) = (self.clone(), false, None);
        permit.map(|permit| StepPermit { of, permit, began, is_begun, slot })
    }

    /// Records that deliveries were left alone, which is not their fault.
    pub fn interrupt(&self) {
        self.counters.interrupted.store(true, Ordering::Release);
    }

    /// True if deliveries were left alone since the start of the process.
    #[must_use]
    pub fn was_interrupted(&self) -> bool {
        self.counters.interrupted.load(Ordering::Acquire)
    }

    /// Counts a delivery as in flight until the guard is dropped.
    pub(in crate::runtime) fn track_delivery(&self) -> InFlightGuard {
        self.counters.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlightGuard(self.counters.clone())
    }

    /// Number of deliveries in flight.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.counters.in_flight.load(Ordering::Relaxed)
    }

    /// Number of messages since the start of the process whose outcome could not be stored.
    #[must_use]
    pub fn unstored(&self) -> u64 {
        self.counters.unstored.load(Ordering::Relaxed)
    }

    /// Records that a durable consumer cannot be used, with the broker's reason; `None` once it can.
    pub(in crate::runtime) fn record_consumer(&self, durable: &str, problem: Option<BusError>) {
        let mut unusable = self.counters.unusable.lock();
        match problem {
            Some(problem) => drop(unusable.insert(durable.to_owned(), problem)),
            None => drop(unusable.remove(durable)),
        }
    }

    /// Describes durable consumers that cannot be used.
    #[must_use]
    pub fn unusable_consumers(&self) -> Option<String> {
        let unusable = self.counters.unusable.lock();
        let texts: Vec<_> =
            unusable.iter().map(|(durable, problem)| format!("{durable}: {problem}")).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// Number of messages processed since the start of the process, with any outcome.
    #[must_use]
    pub fn processed(&self) -> u64 {
        self.counters.processed.load(Ordering::Relaxed)
    }
}

/// Counts one delivery as in flight until dropped.
#[must_use]
pub(in crate::runtime) struct InFlightGuard(Arc<Counters>);

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Permit for one attempt at a message, which also measures it. Returned unused if it is dropped before [`begin`](Self::begin).
#[must_use]
pub struct StepPermit {
    of: StepAdmission,
    permit: Option<Permit>,
    began: Duration,
    is_begun: bool,
    /// Slot for the task that the message may create.
    slot: Option<TaskSlot>,
}

/// Effect of injected faults on one attempt.
#[derive(Debug, Default)]
pub struct FaultEffect {
    /// Failure that replaces the outcome.
    pub failure: Option<FailedAttempt>,
    /// Time to wait before the attempt.
    pub delay: Option<Duration>,
}

impl StepPermit {
    /// Begins the attempt, and returns the effect of injected faults. A transient failure counts against the breaker.
    pub fn begin(&mut self) -> FaultEffect {
        self.is_begun = true;
        let step = self.of.step;
        let trigger = |kind| self.of.faults().trigger(kind, step.name);
        let delay = trigger(FaultKind::DELAY);
        let failure = if trigger(FaultKind::FAIL_PERMANENTLY).is_some() {
            Some(FailedAttempt::new(FailureKind::Permanent, "injected: this can never work"))
        } else if trigger(FaultKind::FAIL_TRANSIENTLY).is_some() {
            self.end(Verdict::Failure);
            let kind = self.of.shared.with(|admission, at| admission.failure_kind_of(step, at));
            Some(FailedAttempt::new(kind, "injected: not now"))
        } else {
            None
        };
        FaultEffect { failure, delay }
    }

    /// Reports the outcome of the attempt to the breaker.
    pub fn complete<S: Service>(mut self, outcome: &Outcome<S>) {
        self.is_begun = false;
        self.of.counters.processed.fetch_add(1, Ordering::Relaxed);
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
    /// Counts an attempt without an outcome as a failure: its outcome could not be stored.
    fn drop(&mut self) {
        if self.is_begun {
            self.of.counters.unstored.fetch_add(1, Ordering::Relaxed);
            self.of.interrupt();
            self.end(Verdict::Failure);
        } else {
            self.end(Verdict::Ignored);
        }
    }
}
