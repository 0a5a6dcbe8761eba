//! Shell: injected faults, for demonstrations and tests: what is active, and whether it strikes now.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use saga_core::fault::FaultKind;
pub use saga_core::fault::{ActiveFault, FaultsView, NewFault};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tracing::{info, warn};

/// Faults active at once; far more than anybody can keep in mind.
const MOST_ACTIVE: usize = 100;
/// The longest that one occasion may be delayed: ten minutes.
const LONGEST_DELAY_MS: u64 = 600_000;
/// Most occasions that one fault is for.
const MOST_OCCASIONS: u32 = 1_000_000;

/// Whether faults may be made, and how chance decides about them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultSettings {
    /// Whether anybody may inject any.
    pub enabled: bool,
    /// Start of the random numbers, so that a run can be repeated.
    pub seed: u64,
}

/// Why a fault cannot be injected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultRefusal {
    /// `faults.enabled` is false.
    Disabled,
    /// This member of [`NewFault`] makes no sense, for this reason.
    Impossible(&'static str, String),
}

/// The faults of one process. Cheap to clone; costs one look at a flag while none is active.
#[derive(Clone)]
pub struct Faults(Arc<Inner>);

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

impl Faults {
    /// None active. Of `kinds` only, and of these steps.
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

    /// Injects a fault into this process alone, until it ends.
    ///
    /// # Errors
    /// Why not; then nothing changed.
    pub fn inject(&self, new: NewFault) -> Result<ActiveFault, FaultRefusal> {
        self.check(&new)?;
        Ok(self.begin(None, new))
    }

    /// Whether it can be injected.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check(&self, new: &NewFault) -> Result<(), FaultRefusal> {
        if !self.0.settings.enabled {
            return Err(FaultRefusal::Disabled);
        }
        let active = self.lock().faults.len();
        self.check_members(new, active)
    }

    /// Makes a fault, which was checked, under this number, or the next.
    pub(super) fn begin(&self, id: Option<u64>, new: NewFault) -> ActiveFault {
        let mut active = self.lock();
        if let Some(seed) = new.seed {
            active.seed = seed;
            active.chance = fastrand::Rng::with_seed(seed);
        }
        let id = id.unwrap_or(active.last_id + 1);
        active.last_id = active.last_id.max(id);
        let fault = ActiveFault::of(id, new);
        warn!(kind = fault.kind, step = fault.step, "fault injected");
        active.faults.push(fault.clone());
        self.0.any.store(true, Ordering::Release);
        drop(active);
        self.0.changed.notify_waiters();
        fault
    }

    fn check_members(&self, new: &NewFault, active: usize) -> Result<(), FaultRefusal> {
        let (step, kinds) = (new.step.as_deref(), self.0.kinds);
        let Some(kind) = kinds.iter().find(|kind| kind.name == new.kind) else {
            let names: Vec<_> = kinds.iter().map(|kind| kind.name).collect();
            let why = format!("is not one that this service can be told: {}", names.join(", "));
            return Err(FaultRefusal::Impossible("kind", why));
        };
        if let Some(step) = step.filter(|step| !self.0.steps.contains(step)) {
            let steps = self.0.steps.join(", ");
            let why = format!("{step} is no step of this service; steps are {steps}");
            return Err(FaultRefusal::Impossible("step", why));
        }
        let rules = [
            (step.is_none() || kind.takes_step, "step", "does not go with this kind"),
            (
                new.probability.is_none_or(|percent| (1..=100).contains(&percent)),
                "probability",
                "must be 1 to 100",
            ),
            (
                new.next.is_none_or(|next| (1..=MOST_OCCASIONS).contains(&next)),
                "next",
                "must be 1 to 1000000",
            ),
            (
                new.delay_ms.is_some() == kind.needs_delay,
                "delay_ms",
                if kind.needs_delay { "is needed by this kind" } else { "does not go with this kind" },
            ),
            (
                new.delay_ms.is_none_or(|delay| (1..=LONGEST_DELAY_MS).contains(&delay)),
                "delay_ms",
                "must be 1 to 600000",
            ),
            (active < MOST_ACTIVE, "kind", "too many faults are active: clear some first"),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            Some((_, member, why)) => Err(FaultRefusal::Impossible(member, why.to_owned())),
            None => Ok(()),
        }
    }

    /// Ends one. `false` when there is none of this number.
    #[must_use]
    pub fn remove(&self, id: u64) -> bool {
        self.retain(|fault| fault.id != id) > 0
    }

    /// Ends all. Answers how many.
    pub fn clear(&self) -> usize {
        self.retain(|_| false)
    }

    /// Whether this one is active.
    pub(super) fn has(&self, id: u64) -> bool {
        self.lock().faults.iter().any(|fault| fault.id == id)
    }

    /// Whether a fault holds for whoever starts later too: it has no end of its own, and nobody dies of it.
    pub(super) fn lasts(&self, new: &NewFault) -> bool {
        let is_deadly = |kind: &FaultKind| kind.name == new.kind && kind.is_deadly;
        new.next.is_none() && !self.0.kinds.iter().any(is_deadly)
    }

    /// Ends those that are not to be kept. Answers how many.
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

    /// What is active.
    #[must_use]
    pub fn view(&self) -> FaultsView {
        let active = self.lock();
        FaultsView { enabled: self.0.settings.enabled, seed: active.seed, faults: active.faults.clone() }
    }

    /// Whether any is active.
    #[must_use]
    pub fn are_any(&self) -> bool {
        self.0.any.load(Ordering::Acquire)
    }

    /// Whether a fault of this kind strikes on this occasion, and for how long.
    #[must_use]
    pub fn strikes(&self, kind: FaultKind, step: &str) -> Option<Duration> {
        if !self.are_any() {
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

    /// Whether this step pulls nothing.
    #[must_use]
    pub fn pauses(&self, step: &str) -> bool {
        let is_paused = |fault: &ActiveFault| {
            fault.kind == FaultKind::PAUSE.name && fault.step.as_deref().is_none_or(|only| only == step)
        };
        self.are_any() && self.lock().faults.iter().any(is_paused)
    }

    /// Resolves when faults were injected or cleared after this call.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + '_ {
        self.0.changed.notified()
    }

    /// Dies here, as by a power cut, when a fault says so.
    pub fn crash(&self, kind: FaultKind) {
        if self.strikes(kind, "").is_some() {
            // Not to the log, which would not come to writing it.
            eprintln!("dying on purpose: {}", kind.name);
            std::process::abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Active> {
        self.0.active.lock()
    }
}
