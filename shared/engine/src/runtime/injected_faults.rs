//! Shell: injected faults of one process, for demonstrations and tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use saga_core::fault::FaultKind;
pub use saga_core::fault::{ActiveFault, FaultsView, NewFault};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tracing::{info, warn};
use uuid::Uuid;

/// Maximum number of active faults, far more than a person can oversee.
const MAX_ACTIVE: usize = 100;
const MAX_DELAY_MS: u64 = 600_000;
const MAX_NEXT: u32 = 1_000_000;
const MAX_SECONDS: u32 = 86_400;

/// Settings of fault injection (section `faults`).
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultSettings {
    /// True if faults may be injected.
    pub enabled: bool,
    /// Seed of the random numbers, so that a run can be repeated.
    pub seed: u64,
}

/// Reason why a fault cannot be injected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultRejection {
    /// The setting `faults.enabled` is false.
    Disabled,
    /// This member of [`NewFault`] is invalid, for this reason.
    Invalid(&'static str, String),
}

/// Aborts the process, as a power cut would.
pub(super) fn abort(kind: FaultKind) -> ! {
    // The log would not be written before the abort.
    eprintln!("aborted by an injected fault: {}", kind.name);
    std::process::abort();
}

/// Injected faults of one process. Clones share one state. Without an active fault, a check reads one flag.
#[derive(Clone)]
pub struct InjectedFaults(Arc<Inner>);

struct Inner {
    settings: FaultSettings,
    kinds: &'static [FaultKind],
    steps: Vec<&'static str>,
    any: AtomicBool,
    active: Mutex<Active>,
    changed: Notify,
}

struct Active {
    seed: u64,
    chance: fastrand::Rng,
    last_id: u64,
    faults: Vec<ActiveFault>,
}

impl InjectedFaults {
    /// Creates a set without faults, for a service with these kinds of faults and steps.
    #[must_use]
    pub fn new(settings: FaultSettings, kinds: &'static [FaultKind], steps: Vec<&'static str>) -> Self {
        let seed = settings.seed;
        let active = Active { seed, chance: fastrand::Rng::with_seed(seed), last_id: 0, faults: vec![] };
        Self(Arc::new(Inner {
            settings,
            kinds,
            steps,
            any: AtomicBool::new(false),
            active: Mutex::new(active),
            changed: Notify::new(),
        }))
    }

    /// Injects a fault into this process only, until it ends.
    ///
    /// # Errors
    /// If the fault is invalid or injection is disabled. Then nothing has changed.
    pub fn inject(&self, new: NewFault) -> Result<ActiveFault, FaultRejection> {
        self.check(&new)?;
        let seed = new.seed;
        Ok(self.begin(seed, |id| ActiveFault::of(id, new)))
    }

    /// Checks whether a fault can be injected.
    ///
    /// # Errors
    /// If the fault is invalid or injection is disabled.
    pub(super) fn check(&self, new: &NewFault) -> Result<(), FaultRejection> {
        if !self.0.settings.enabled {
            return Err(FaultRejection::Disabled);
        }
        let active = self.lock().faults.len();
        self.check_members(new, active)
    }

    /// Activates a checked fault, which is made of the next free id, with new random numbers if there is a seed.
    pub(super) fn begin(&self, seed: Option<u64>, fault: impl FnOnce(u64) -> ActiveFault) -> ActiveFault {
        let mut active = self.lock();
        if let Some(seed) = seed {
            active.seed = seed;
            active.chance = fastrand::Rng::with_seed(seed);
        }
        let fault = fault(active.last_id + 1);
        active.last_id = active.last_id.max(fault.id);
        warn!(kind = fault.kind, step = fault.step, "fault injected");
        active.faults.push(fault.clone());
        self.0.any.store(true, Ordering::Release);
        drop(active);
        self.0.changed.notify_waiters();
        fault
    }

    fn check_members(&self, new: &NewFault, active: usize) -> Result<(), FaultRejection> {
        let (step, kinds) = (new.step.as_deref(), self.0.kinds);
        let Some(kind) = kinds.iter().find(|kind| kind.name == new.kind) else {
            let names: Vec<_> = kinds.iter().map(|kind| kind.name).collect();
            let why = format!("is no fault of this service; its faults are {}", names.join(", "));
            return Err(FaultRejection::Invalid("kind", why));
        };
        if let Some(step) = step.filter(|step| !self.0.steps.contains(step)) {
            let steps = self.0.steps.join(", ");
            let why = format!("{step} is no step of this service; steps are {steps}");
            return Err(FaultRejection::Invalid("step", why));
        }
        let rules = [
            (step.is_none() || kind.takes_step, "step", "does not apply to this kind"),
            (
                new.probability.is_none_or(|percent| (1..=100).contains(&percent)),
                "probability",
                "must be 1 to 100",
            ),
            (new.next.is_none_or(|next| (1..=MAX_NEXT).contains(&next)), "next", "must be 1 to 1000000"),
            (
                new.for_seconds.is_none_or(|seconds| (1..=MAX_SECONDS).contains(&seconds)),
                "for_seconds",
                "must be 1 to 86400",
            ),
            (
                new.delay_ms.is_some() == kind.needs_delay,
                "delay_ms",
                if kind.needs_delay { "is required by this kind" } else { "does not apply to this kind" },
            ),
            (
                new.delay_ms.is_none_or(|delay| (1..=MAX_DELAY_MS).contains(&delay)),
                "delay_ms",
                "must be 1 to 600000",
            ),
            (active < MAX_ACTIVE, "kind", "too many faults are active; clear some first"),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            Some((_, member, why)) => Err(FaultRejection::Invalid(member, why.to_owned())),
            None => Ok(()),
        }
    }

    /// Ends a fault. False if there is none with this id.
    #[must_use]
    pub fn remove(&self, id: u64) -> bool {
        self.retain(|fault| fault.id != id) > 0
    }

    /// Ends all faults, and returns their number.
    pub fn clear(&self) -> usize {
        self.retain(|_| false)
    }

    /// True if the fault with this id is active.
    pub(super) fn has(&self, id: u64) -> bool {
        self.lock().faults.iter().any(|fault| fault.id == id)
    }

    /// True if a fault also applies to processes that start later: it does not end by itself, and kills no process.
    pub(super) fn is_lasting(&self, new: &NewFault) -> bool {
        let is_deadly = |kind: &FaultKind| kind.name == new.kind && kind.is_deadly;
        // A crash counts its strikes in the database.
        new.kind == FaultKind::CRASH.name || new.next.is_none() && !self.0.kinds.iter().any(is_deadly)
    }

    /// Ends all faults for which `keep` is false, and returns their number.
    pub(super) fn retain(&self, keep: impl FnMut(&ActiveFault) -> bool) -> usize {
        let mut active = self.lock();
        let before = active.faults.len();
        active.faults.retain(keep);
        let gone = before - active.faults.len();
        self.0.any.store(!active.faults.is_empty(), Ordering::Release);
        drop(active);
        if gone > 0 {
            info!(faults = gone, "faults cleared");
            self.0.changed.notify_waiters();
        }
        gone
    }

    /// Lists the active faults, for operators.
    #[must_use]
    pub fn view(&self) -> FaultsView {
        let active = self.lock();
        FaultsView { enabled: self.0.settings.enabled, seed: active.seed, faults: active.faults.clone() }
    }

    /// True if any fault is active.
    #[must_use]
    pub fn is_any_active(&self) -> bool {
        self.0.any.load(Ordering::Acquire)
    }

    /// Decides whether a fault of this kind applies now, and counts it. Returns its delay, zero for most kinds.
    #[must_use]
    pub fn trigger(&self, kind: FaultKind, step: &str) -> Option<Duration> {
        if !self.is_any_active() {
            return None;
        }
        let mut active = self.lock();
        let Active { chance, faults, .. } = &mut *active;
        let fault = faults
            .iter_mut()
            .filter(|fault| fault.kind == kind.name && fault.step.as_deref().is_none_or(|only| only == step))
            .find(|fault| chance.u8(0..100) < fault.probability)?;
        fault.hits += 1;
        fault.next = fault.next.map(|next| next.saturating_sub(1));
        let delay = Duration::from_millis(fault.delay_ms.unwrap_or(0));
        faults.retain(|fault| fault.next != Some(0));
        self.0.any.store(!faults.is_empty(), Ordering::Release);
        Some(delay)
    }

    /// Id of a fault that ends the process before it commits this message.
    pub(super) fn crashing(&self, step: &str, message: Uuid) -> Option<u64> {
        if !self.is_any_active() {
            return None;
        }
        let mut active = self.lock();
        let Active { chance, faults, .. } = &mut *active;
        let strikes = |fault: &ActiveFault| {
            fault.kind == FaultKind::CRASH.name
                && fault.step.as_deref().is_none_or(|only| only == step)
                && fault.message.is_none_or(|only| only == message)
        };
        let mut strikes = faults.iter().filter(|fault| strikes(fault));
        strikes.find(|fault| chance.u8(0..100) < fault.probability).map(|fault| fault.id)
    }

    /// True if a fault pauses this step.
    #[must_use]
    pub fn pauses(&self, step: &str) -> bool {
        let is_paused = |fault: &ActiveFault| {
            fault.kind == FaultKind::PAUSE.name && fault.step.as_deref().is_none_or(|only| only == step)
        };
        self.is_any_active() && self.lock().faults.iter().any(is_paused)
    }

    /// Resolves at the next injection or removal after this call.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + '_ {
        self.0.changed.notified()
    }

    /// Aborts the process, as a power cut would, if a fault of this kind applies.
    pub fn crash(&self, kind: FaultKind) {
        if self.trigger(kind, "").is_some() {
            abort(kind);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Active> {
        self.0.active.lock()
    }
}
