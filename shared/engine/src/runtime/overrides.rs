//! Shell: overrides by operators: forced breakers and injected faults.
//!
//! They are one document in the database, so that they apply to every process that shares it, now and after a restart. A
//! fault that ends by itself, or kills the process, applies only to the processes that run when it is injected. Each counts
//! for itself. When such a fault has ended in one process, the next change of faults there ends it for all.
//!
//! The document also has the record of crashes of each instance.
//!
//! A document that cannot be read leaves the last good one in force. Only an operator replaces it, with that and the change.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use saga_core::fault::FaultKind;
use saga_core::retry::error_chain;
use saga_core::run_record::RunRecord;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, Notify};
use tokio::time::{sleep, timeout};
use tracing::{error, warn};
use uuid::Uuid;

use super::admission::{BreakerAction, BreakerView, SharedAdmission};
use super::clock::{Clock as _, SystemClock};
use super::injected_faults::{ActiveFault, FaultRejection, InjectedFaults, NewFault, abort};
use crate::store::{Store, StoreFault, StoredOverrides};

/// Interval at which the document is read again, should a notification be lost.
const REFRESH_EVERY: Duration = Duration::from_secs(5);

/// Stored document. Later changes have higher revisions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Document {
    breakers: BTreeMap<String, ForcedBreaker>,
    faults: Vec<Injected>,
    /// Highest fault id so far.
    last_fault: u64,
    /// Record of each instance that has not stopped in order.
    runs: BTreeMap<String, RunRecord>,
}

/// Last action on a breaker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct ForcedBreaker {
    action: BreakerAction,
    revision: i64,
}

/// Fault that no operator has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Injected {
    id: u64,
    revision: i64,
    /// Message that a crash strikes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<Uuid>,
    /// Time at which it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    #[serde(flatten)]
    fault: NewFault,
}

impl Injected {
    /// Time until it ends; `None` if it does not end by time.
    fn remaining(&self) -> Option<Duration> {
        let until = self.until?.duration_since(SystemClock.now());
        Some(until.try_into().unwrap_or_default())
    }

    fn is_expired(&self) -> bool {
        self.remaining().is_some_and(|remaining| remaining.is_zero())
    }

    fn active(&self) -> ActiveFault {
        let Self { id, message, until, ref fault, .. } = *self;
        ActiveFault { message, until, ..ActiveFault::of(id, fault.clone()) }
    }
}

impl Document {
    fn of(text: &str) -> Result<Self, String> {
        serde_json::from_str(text)
            .map_err(|unreadable| format!("overrides by operators cannot be read: {unreadable}"))
    }

    fn text(&self) -> Result<String, StoreFault> {
        serde_json::to_string(self).map_err(|error| StoreFault::Rejected {
            context: "writing overrides by operators",
            source: error.into(),
        })
    }
}

/// Overrides as applied by one process. Clones share one state.
#[derive(Clone)]
pub struct Overrides(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    admission: SharedAdmission,
    applied: Mutex<Applied>,
    /// Problem of the newest document, if it cannot be read.
    unreadable: parking_lot::Mutex<Option<String>>,
    notified: Notify,
    /// Name of this instance.
    owner: String,
    /// Record of this instance; `None` if its start was not recorded.
    run: parking_lot::Mutex<Option<RunRecord>>,
}

/// Newest readable document, as applied in this process.
struct Applied {
    revision: i64,
    document: Document,
}

/// Author of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Author {
    /// Replaces a document that cannot be read.
    Operator,
    /// Leaves it to an operator.
    Process,
}

/// Records the start of an instance, and returns the stored overrides. A store that can be read but not written keeps no
/// service from starting; neither do overrides that cannot be read.
///
/// # Errors
/// If the overrides cannot be read.
pub async fn record_start(
    store: &dyn Store,
    owner: &str,
    now: Timestamp,
) -> Result<StoredOverrides, StoreFault> {
    loop {
        let stored = store.overrides().await?;
        let mut document = match Document::of(&stored.text) {
            Ok(document) => document,
            Err(unreadable) => {
                warn!("start not recorded, a crash is not counted: {unreadable}");
                return Ok(stored);
            }
        };
        let before = document.runs.remove(owner);
        // An instance that is lost with its name never stops in order.
        document.runs.retain(|_, record| record.is_recent(now));
        let record = before.map_or_else(|| RunRecord::new(now), |crashed| crashed.after_crash(now));
        document.runs.insert(owner.to_owned(), record);
        let text = document.text()?;
        match store.replace_overrides(stored.revision, text.clone()).await {
            Ok(true) => return Ok(StoredOverrides { revision: stored.revision + 1, text }),
            Ok(false) => {}
            Err(fault) => {
                warn!("start not recorded, a crash is not counted: {}", error_chain(&fault));
                return Ok(stored);
            }
        }
    }
}

impl Overrides {
    /// Applies the document of the database in a process that starts.
    pub(super) fn begin(
        store: Arc<dyn Store>,
        admission: SharedAdmission,
        StoredOverrides { revision, text }: &StoredOverrides,
        owner: &str,
    ) -> Self {
        // Whatever is readable next is new then.
        let (revision, document, problem) = match Document::of(text) {
            Ok(document) => (*revision, document, None),
            Err(unreadable) => (0, Document::default(), Some(unreadable)),
        };
        let Document { breakers, faults, mut runs, .. } = document.clone();
        let overrides = Self(Arc::new(Inner {
            store,
            admission,
            applied: Mutex::new(Applied { revision, document }),
            unreadable: parking_lot::Mutex::default(),
            notified: Notify::new(),
            owner: owner.to_owned(),
            run: parking_lot::Mutex::new(runs.remove(owner)),
        }));
        overrides.report(problem);
        for (name, ForcedBreaker { action, .. }) in breakers {
            match action {
                BreakerAction::Open | BreakerAction::Closed => overrides.force_here(&name, action),
                // A new breaker is in this state anyway.
                BreakerAction::Reset => {}
            }
        }
        let lasting = faults.iter().filter(|injected| overrides.is_lasting(injected));
        lasting.for_each(|injected| overrides.inject_here(injected));
        overrides
    }

    /// Applies an action to a breaker in every process. `None` if there is no breaker of this name.
    ///
    /// # Errors
    /// If the store fails. Then the action may or may not have been applied.
    pub async fn set_breaker(
        &self,
        name: &str,
        action: BreakerAction,
    ) -> Result<Option<BreakerView>, StoreFault> {
        let view = || self.0.admission.breakers().into_iter().find(|view| view.name == name);
        if view().is_none() {
            return Ok(None);
        }
        let force = |document: &mut Document, revision| {
            document.breakers.insert(name.to_owned(), ForcedBreaker { action, revision });
        };
        self.change(Author::Operator, force).await?;
        Ok(view())
    }

    /// Injects a fault into every process.
    ///
    /// # Errors
    /// The outer result as for [`Overrides::set_breaker`]; the inner one if the fault is invalid.
    pub async fn inject(&self, new: NewFault) -> Result<Result<ActiveFault, FaultRejection>, StoreFault> {
        if let Err(rejection) = self.faults().check(&new) {
            return Ok(Err(rejection));
        }
        let until =
            new.for_seconds.map(|seconds| SystemClock.now() + SignedDuration::from_secs(seconds.into()));
        let inject = |document: &mut Document, revision| {
            self.remove_ended(document);
            document.last_fault += 1;
            let (id, fault) = (document.last_fault, new.clone());
            let injected = Injected { id, revision, message: None, until, fault };
            let active = injected.active();
            document.faults.push(injected);
            active
        };
        Ok(Ok(self.change(Author::Operator, inject).await?))
    }

    /// Ends a fault in every process. False if there is none with this id.
    ///
    /// # Errors
    /// As [`Overrides::set_breaker`].
    pub async fn remove(&self, id: u64) -> Result<bool, StoreFault> {
        let remove = |document: &mut Document, _| {
            let before = document.faults.len();
            document.faults.retain(|injected| injected.id != id);
            let is_gone = document.faults.len() < before;
            self.remove_ended(document);
            is_gone
        };
        self.change(Author::Operator, remove).await
    }

    /// Ends all faults in every process. Returns how many were active in this one.
    ///
    /// # Errors
    /// As [`Overrides::set_breaker`].
    pub async fn clear(&self) -> Result<usize, StoreFault> {
        let clear = |document: &mut Document, _| {
            document.faults.clear();
            self.faults().view().faults.len()
        };
        self.change(Author::Operator, clear).await
    }

    /// Records an orderly stop.
    ///
    /// # Errors
    /// If the store fails. The next start then counts a crash.
    pub async fn record_stop(&self) -> Result<(), StoreFault> {
        if self.0.run.lock().take().is_none() {
            return Ok(());
        }
        self.change(Author::Process, |document, _| drop(document.runs.remove(&self.0.owner))).await
    }

    /// Describes a series of crashes of this instance that a person should know of.
    #[must_use]
    pub fn crash_loop(&self, now: Timestamp) -> Option<String> {
        self.0.run.lock().as_ref().and_then(|record| record.crash_loop(now))
    }

    /// Describes overrides that cannot be read. The last good ones stay in force.
    #[must_use]
    pub fn unreadable(&self) -> Option<String> {
        self.0.unreadable.lock().clone()
    }

    /// Record of crashes of this instance, while messages that an earlier process may have died of are processed in trials.
    pub(super) fn record_in_trials(&self, now: Timestamp) -> Option<RunRecord> {
        self.0.run.lock().as_ref().filter(|record| record.requires_trials(now)).cloned()
    }

    /// Stores a changed record of this instance.
    pub(super) async fn change_run(&self, change: impl FnOnce(&mut RunRecord)) -> Result<(), StoreFault> {
        let Some(mut record) = self.0.run.lock().clone() else { return Ok(()) };
        change(&mut record);
        let (owner, changed) = (self.0.owner.clone(), record.clone());
        let insert = |document: &mut Document, _| drop(document.runs.insert(owner.clone(), changed.clone()));
        self.change(Author::Process, insert).await?;
        *self.0.run.lock() = Some(record);
        Ok(())
    }

    /// Ends the process if a fault strikes this message before its commit. The strike is counted first, so that it counts
    /// after the restart too.
    pub(super) async fn crash_on(&self, step: &str, message: Uuid) {
        let Some(id) = self.faults().crashing(step, message) else { return };
        let strike = |document: &mut Document, _| {
            if let Some(struck) = document.faults.iter_mut().find(|injected| injected.id == id) {
                struck.message = Some(message);
                struck.fault.next = struck.fault.next.map(|next| next.saturating_sub(1));
            }
            document.faults.retain(|injected| injected.fault.next != Some(0));
        };
        match self.change(Author::Process, strike).await {
            Ok(()) => abort(FaultKind::CRASH),
            Err(fault) => warn!("injected crash not counted, and so not made: {}", error_chain(&fault)),
        }
    }

    /// Makes [`run`] read the document, which another process may have changed.
    pub(super) fn refresh(&self) {
        self.0.notified.notify_one();
    }

    fn faults(&self) -> &InjectedFaults {
        self.0.admission.faults()
    }

    /// Changes the newest document, or the last good one, and applies it to this process at once.
    async fn change<T>(
        &self,
        author: Author,
        mut change: impl FnMut(&mut Document, i64) -> T,
    ) -> Result<T, StoreFault> {
        let mut applied = self.0.applied.lock().await;
        loop {
            let overridden = self.0.store.overrides().await?;
            self.apply(&overridden, &mut applied);
            let unreadable = self.unreadable();
            if author == Author::Process
                && let Some(problem) = unreadable
            {
                return Err(StoreFault::Rejected { context: "recording a change", source: problem.into() });
            }
            let (mut document, revision) = (applied.document.clone(), overridden.revision + 1);
            let answer = change(&mut document, revision);
            if unreadable.is_none() && document == applied.document {
                return Ok(answer);
            }
            let text = document.text()?;
            if self.0.store.replace_overrides(overridden.revision, text.clone()).await? {
                self.apply(&StoredOverrides { revision, text }, &mut applied);
                return Ok(answer);
            }
        }
    }

    /// Applies what is new in a document to this process, if it can be read.
    fn apply(&self, StoredOverrides { revision, text }: &StoredOverrides, applied: &mut Applied) {
        let document = match Document::of(text) {
            Ok(document) => document,
            Err(unreadable) => return self.report(Some(unreadable)),
        };
        self.report(None);
        let before = std::mem::replace(&mut applied.revision, *revision);
        if before == *revision {
            return;
        }
        for (name, forced) in document.breakers.iter().filter(|(_, forced)| forced.revision > before) {
            self.force_here(name, forced.action);
        }
        let new = document.faults.iter().filter(|injected| injected.revision > before);
        new.for_each(|injected| self.inject_here(injected));
        let stays = |id| id > document.last_fault || document.faults.iter().any(|injected| injected.id == id);
        self.faults().retain(|fault| stays(fault.id));
        applied.document = document;
    }

    /// Records whether the newest document can be read. Logs each new problem once.
    fn report(&self, problem: Option<String>) {
        let mut unreadable = self.0.unreadable.lock();
        if let Some(problem) = problem.as_ref().filter(|_| *unreadable != problem) {
            error!("{problem}; the last good ones stay in force until an operator changes one");
        }
        *unreadable = problem;
    }

    fn force_here(&self, name: &str, action: BreakerAction) {
        // A breaker that this build does not have belongs to another one.
        let _ = self.0.admission.set_breaker(name, action);
    }

    fn inject_here(&self, injected: &Injected) {
        let fault = &injected.fault;
        match self.faults().check(fault) {
            Ok(()) => {
                self.faults().begin(fault.seed, |_| injected.active());
                if let Some(remaining) = injected.remaining() {
                    let (faults, id) = (self.faults().clone(), injected.id);
                    tokio::spawn(async move {
                        sleep(remaining).await;
                        let _ = faults.remove(id);
                    });
                }
            }
            Err(FaultRejection::Disabled) => {}
            Err(FaultRejection::Invalid(member, reason)) => {
                warn!(
                    kind = fault.kind,
                    "fault injected by another process is invalid here and ignored: {member} {reason}"
                );
            }
        }
    }

    /// True if a fault also applies to processes that start now.
    fn is_lasting(&self, injected: &Injected) -> bool {
        self.faults().is_lasting(&injected.fault) && !injected.is_expired()
    }

    /// Removes faults that have ended in this process.
    fn remove_ended(&self, document: &mut Document) {
        document.faults.retain(|injected| self.is_lasting(injected) || self.faults().has(injected.id));
    }
}

/// Applies changes by other processes until dropped.
pub(super) async fn run(overrides: Overrides) {
    let Inner { store, applied, notified, .. } = overrides.0.as_ref();
    if !store.is_shared() {
        return pending().await;
    }
    loop {
        let _ = timeout(REFRESH_EVERY, notified.notified()).await;
        let mut applied = applied.lock().await;
        // A database that fails is reported elsewhere, and read again.
        if let Ok(overridden) = store.overrides().await {
            overrides.apply(&overridden, &mut applied);
        }
    }
}
