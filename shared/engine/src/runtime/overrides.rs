//! Shell: overrides by operators: forced breakers and injected faults.
//!
//! They are one document in the database, so that they apply to every process that shares it, now and after a restart. A
//! fault that ends by itself, or kills the process, applies only to the processes that run when it is injected. Each counts
//! for itself. When such a fault has ended in one process, the next change of faults there ends it for all.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;
use tracing::{error, warn};

use super::admission::{BreakerAction, BreakerView, SharedAdmission};
use super::injected_faults::{ActiveFault, FaultRejection, InjectedFaults, NewFault};
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
    #[serde(flatten)]
    fault: NewFault,
}

impl Document {
    fn of(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|unreadable| {
            error!("overrides by operators cannot be read and are ignored: {unreadable}");
            Self::default()
        })
    }
}

/// Overrides as applied by one process. Clones share one state.
#[derive(Clone)]
pub struct Overrides(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    admission: SharedAdmission,
    /// Revision that this process has applied.
    applied: Mutex<i64>,
    notified: Notify,
}

impl Overrides {
    /// Applies the document of the database in a process that starts.
    pub(super) fn begin(
        store: Arc<dyn Store>,
        admission: SharedAdmission,
        StoredOverrides { revision, text }: &StoredOverrides,
    ) -> Self {
        let (applied, notified) = (Mutex::new(*revision), Notify::new());
        let overrides = Self(Arc::new(Inner { store, admission, applied, notified }));
        let Document { breakers, faults, .. } = Document::of(text);
        for (name, ForcedBreaker { action, .. }) in breakers {
            match action {
                BreakerAction::Open | BreakerAction::Closed => overrides.force_here(&name, action),
                // A new breaker is in this state anyway.
                BreakerAction::Reset => {}
            }
        }
        let lasting = faults.into_iter().filter(|injected| overrides.faults().is_lasting(&injected.fault));
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
        self.change(force).await?;
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
        let inject = |document: &mut Document, revision| {
            self.remove_ended(document);
            document.last_fault += 1;
            let (id, fault) = (document.last_fault, new.clone());
            document.faults.push(Injected { id, revision, fault });
            id
        };
        let id = self.change(inject).await?;
        Ok(Ok(ActiveFault::of(id, new)))
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
        self.change(remove).await
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
        self.change(clear).await
    }

    /// Makes [`run`] read the document, which another process may have changed.
    pub(super) fn refresh(&self) {
        self.0.notified.notify_one();
    }

    fn faults(&self) -> &InjectedFaults {
        self.0.admission.faults()
    }

    /// Changes the newest document, and applies it to this process at once.
    async fn change<T>(&self, mut change: impl FnMut(&mut Document, i64) -> T) -> Result<T, StoreFault> {
        let mut applied = self.0.applied.lock().await;
        loop {
            let overridden = self.0.store.overrides().await?;
            let before = self.apply(&overridden, &mut applied);
            let (mut document, revision) = (before.clone(), overridden.revision + 1);
            let answer = change(&mut document, revision);
            if document == before {
                return Ok(answer);
            }
            let text = serde_json::to_string(&document).map_err(|error| StoreFault::Rejected {
                context: "writing overrides by operators",
                source: error.into(),
            })?;
            if self.0.store.replace_overrides(overridden.revision, text.clone()).await? {
                self.apply(&StoredOverrides { revision, text }, &mut applied);
                return Ok(answer);
            }
        }
    }

    /// Applies what is new in a document to this process.
    fn apply(&self, StoredOverrides { revision, text }: &StoredOverrides, applied: &mut i64) -> Document {
        let document = Document::of(text);
        let before = std::mem::replace(applied, *revision);
        if before == *revision {
            return document;
        }
        for (name, forced) in document.breakers.iter().filter(|(_, forced)| forced.revision > before) {
            self.force_here(name, forced.action);
        }
        let new = document.faults.iter().filter(|injected| injected.revision > before);
        new.cloned().for_each(|injected| self.inject_here(injected));
        let stays = |id| id > document.last_fault || document.faults.iter().any(|injected| injected.id == id);
        self.faults().retain(|fault| stays(fault.id));
        document
    }

    fn force_here(&self, name: &str, action: BreakerAction) {
        // A breaker that this build does not have belongs to another one.
        let _ = self.0.admission.set_breaker(name, action);
    }

    fn inject_here(&self, Injected { id, fault, .. }: Injected) {
        match self.faults().check(&fault) {
            Ok(()) => drop(self.faults().begin(Some(id), fault)),
            Err(FaultRejection::Disabled) => {}
            Err(FaultRejection::Invalid(member, reason)) => {
                warn!(
                    kind = fault.kind,
                    "fault injected by another process is invalid here and ignored: {member} {reason}"
                );
            }
        }
    }

    /// Removes faults that have ended in this process.
    fn remove_ended(&self, document: &mut Document) {
        let faults = self.faults();
        document.faults.retain(|injected| faults.is_lasting(&injected.fault) || faults.has(injected.id));
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
