//! Shell: what stands before a step: its breaker, those of what it needs, and faults made on purpose.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::select_all;

use crate::engine::Outcome;
use crate::faults::{FaultKind, Faults};
use crate::resilience::{BreakerPolicy, Guard, Pass};
use crate::retry::{FailedTry, Severity};
use crate::service::{Service, Step};

/// All breakers of a service, by name. Cheap to clone.
#[derive(Clone, Default)]
pub struct Breakers(Arc<BTreeMap<String, Guard>>);

impl Breakers {
    /// One of each name, all closed.
    #[must_use]
    pub fn new(names: &[&str], policy_of: impl Fn(&str) -> BreakerPolicy) -> Self {
        let guard = |name: &&str| ((*name).to_owned(), Guard::new(name, policy_of(name)));
        Self(Arc::new(names.iter().map(guard).collect()))
    }

    /// The same and one more.
    #[must_use]
    pub fn with(self, guard: Guard) -> Self {
        let mut all = Arc::unwrap_or_clone(self.0);
        all.insert(guard.name().to_owned(), guard);
        Self(Arc::new(all))
    }

    /// The one of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Guard> {
        self.0.get(name)
    }

    /// All of them, in the order of their names.
    pub fn all(&self) -> impl Iterator<Item = &Guard> {
        self.0.values()
    }

    /// What stands before a step. One for each step: those who share it share what it remembers.
    #[must_use]
    pub fn gate(&self, step: &'static Step, faults: &Faults) -> Gate {
        let find = |name: &str| self.get(name).cloned();
        let needs = step.needs.iter().filter_map(|name| find(name)).collect();
        let (guard, faults) = (find(step.name), faults.clone());
        Gate(Arc::new(Inner { step, guard, needs, faults, interrupted: AtomicBool::new(false) }))
    }
}

/// What stands before a step. Clones are the same gate.
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

struct Inner {
    step: &'static Step,
    guard: Option<Guard>,
    needs: Vec<Guard>,
    faults: Faults,
    /// Whether deliveries were left alone because of the gate, or because nothing could be stored.
    interrupted: AtomicBool,
}

/// Leave for one try. Dropped before the try it is given back.
#[must_use]
pub struct Leave {
    pass: Option<Pass>,
    gate: Gate,
    is_under_way: bool,
}

/// What faults made on purpose do to one try.
#[derive(Debug, Default)]
pub struct Mischief {
    /// Why it fails, whatever the reaction would be.
    pub trouble: Option<FailedTry>,
    /// How long it takes, beside what it takes anyway.
    pub delay: Option<Duration>,
}

impl Gate {
    /// The step.
    #[must_use]
    pub fn step(&self) -> &'static Step {
        self.0.step
    }

    /// Faults made on purpose.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// Whether nothing may be tried now, because a breaker is open or a fault says so.
    #[must_use]
    pub fn is_shut(&self) -> bool {
        self.guards().any(Guard::is_open) || self.0.faults.pauses(self.0.step.name)
    }

    /// Resolves when something may be tried.
    pub async fn opens(&self) {
        while self.is_shut() {
            self.0.faults.goes_on(self.0.step.name).await;
            for guard in self.guards() {
                guard.admits().await;
            }
        }
    }

    /// Resolves when nothing may be tried any more.
    pub async fn shuts(&self) {
        loop {
            let changed = self.changed();
            if self.is_shut() {
                return;
            }
            changed.await;
        }
    }

    /// Resolves at the next change of anything that may shut or open it.
    fn changed(&self) -> impl Future + Send + '_ {
        let changes = self.guards().map(|guard| guard.changed().boxed());
        select_all(changes.chain([self.0.faults.changed().boxed()]))
    }

    /// How many messages to ask for at once, while a breaker is not wholly closed again.
    #[must_use]
    pub fn ramp(&self) -> Option<usize> {
        self.guards().filter_map(Guard::ramp).min().map(|ramp| ramp as usize)
    }

    /// Waits for leave for one try; `None` when the gate is shut.
    pub async fn enter(&self) -> Option<Leave> {
        loop {
            if let Some(leave) = self.leave() {
                return Some(leave);
            }
            // Half-open, and all probes are under way. Armed before looking once more.
            let changed = self.changed();
            if self.is_shut() {
                return None;
            }
            if let Some(leave) = self.leave() {
                return Some(leave);
            }
            changed.await;
        }
    }

    /// Leave for one try; `None`: not now.
    #[must_use]
    pub fn leave(&self) -> Option<Leave> {
        if self.is_shut() {
            return None;
        }
        let pass = match &self.0.guard {
            Some(guard) => Some(guard.acquire()?),
            None => None,
        };
        Some(Leave { pass, gate: self.clone(), is_under_way: false })
    }

    /// Remembers that deliveries were left alone, through no fault of theirs.
    pub fn interrupt(&self) {
        self.0.interrupted.store(true, Ordering::Release);
    }

    /// Whether deliveries were left alone in this life of the process, through no fault of theirs.
    #[must_use]
    pub fn was_interrupted(&self) -> bool {
        self.0.interrupted.load(Ordering::Acquire)
    }

    fn guards(&self) -> impl Iterator<Item = &Guard> {
        self.0.guard.iter().chain(&self.0.needs)
    }
}

impl Leave {
    /// Begins the try. Answers what faults made on purpose do to it; a transient one counts against the step's
    /// breaker.
    pub fn begin(&mut self) -> Mischief {
        self.is_under_way = true;
        let Inner { step, guard, faults, .. } = &*self.gate.0;
        let strikes = |kind| faults.strikes(kind, step.name);
        let delay = strikes(FaultKind::Delay);
        let trouble = if strikes(FaultKind::FailPermanently).is_some() {
            Some(FailedTry::new(Severity::Permanent, "injected: this can never work"))
        } else if strikes(FaultKind::FailTransiently).is_some() {
            self.pass.take().into_iter().for_each(Pass::fail);
            let severity = guard.as_ref().map_or(Severity::Transient, |guard| guard.state().severity());
            Some(FailedTry::new(severity, "injected: not now"))
        } else {
            None
        };
        Mischief { trouble, delay }
    }

    /// Tells the breaker how the try ended.
    pub fn ended<S: Service>(mut self, outcome: &Outcome<S>) {
        self.is_under_way = false;
        self.pass.take().into_iter().for_each(|pass| pass.record(outcome.verdict()));
    }
}

impl Drop for Leave {
    /// A try under way that ends untold was cut off: nothing could be stored.
    fn drop(&mut self) {
        if self.is_under_way {
            self.gate.interrupt();
            self.pass.take().into_iter().for_each(Pass::fail);
        } else {
            self.pass.take().into_iter().for_each(Pass::ignore);
        }
    }
}
