//! Shell: what operators have the machinery do otherwise: breakers that they turn, faults that they inject. It is one
//! document in the database, so that it holds for every process that shares that, and for those that start later.
//!
//! A fault that has an end of its own, or of which the process dies, is for the processes that are there when it is
//! injected, each of which counts its occasions by itself: one that starts anew is rid of it. Once it has come to its end
//! at one process, the next change of faults there ends it for all.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;
use tracing::{error, warn};

use super::admission::{BreakerAction, BreakerView, SharedAdmission};
use super::faults::{ActiveFault, FaultRefusal, Faults, NewFault};
use crate::store::{Store, StoreFault, StoredOverrides};

/// Between two looks at what others may have changed, when none of them was heard.
const LOOKS_EVERY: Duration = Duration::from_secs(5);

/// The document. What is turned and injected later has a higher revision.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Document {
    breakers: BTreeMap<String, Turned>,
    faults: Vec<Injected>,
    /// The highest number that a fault ever had.
    last_fault: u64,
}

/// What was last done with a breaker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Turned {
    action: BreakerAction,
    revision: i64,
}

/// A fault that nobody has ended.
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
            error!("what operators override cannot be read, nothing is overridden: {unreadable}");
            Self::default()
        })
    }
}

/// What operators override, as one process has it. Clones are the same.
#[derive(Clone)]
pub struct Overrides(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    admission: SharedAdmission,
    /// The revision that this process goes by.
    taken: Mutex<i64>,
    heard: Notify,
}

impl Overrides {
    /// Has a process that starts go by what stands in its database.
    pub(super) fn begin(
        store: Arc<dyn Store>,
        admission: SharedAdmission,
        StoredOverrides { revision, text }: &StoredOverrides,
    ) -> Self {
        let (taken, heard) = (Mutex::new(*revision), Notify::new());
        let overrides = Self(Arc::new(Inner { store, admission, taken, heard }));
        let Document { breakers, faults, .. } = Document::of(text);
        for (name, Turned { action, .. }) in breakers {
            match action {
                BreakerAction::Open | BreakerAction::Closed => overrides.turn_here(&name, action),
                // It works by itself, and has seen nothing yet.
                BreakerAction::Reset => {}
            }
        }
        let lasting = faults.into_iter().filter(|injected| overrides.faults().lasts(&injected.fault));
        lasting.for_each(|injected| overrides.begin_here(injected));
        overrides
    }

    /// Does something with a breaker, in every process; `None` when there is none of this name.
    ///
    /// # Errors
    /// When the store fails. Then it is not known whether it is done.
    pub async fn turn(&self, name: &str, action: BreakerAction) -> Result<Option<BreakerView>, StoreFault> {
        let view = || self.0.admission.breakers().into_iter().find(|view| view.name == name);
        if view().is_none() {
            return Ok(None);
        }
        let turn = |document: &mut Document, revision| {
            document.breakers.insert(name.to_owned(), Turned { action, revision });
        };
        self.change(turn).await?;
        Ok(view())
    }

    /// Injects a fault into every process.
    ///
    /// # Errors
    /// As [`Overrides::turn`]; and within that, why not.
    pub async fn inject(&self, new: NewFault) -> Result<Result<ActiveFault, FaultRefusal>, StoreFault> {
        if let Err(refusal) = self.faults().check(&new) {
            return Ok(Err(refusal));
        }
        let inject = |document: &mut Document, revision| {
            self.forget_what_is_over(document);
            document.last_fault += 1;
            let (id, fault) = (document.last_fault, new.clone());
            document.faults.push(Injected { id, revision, fault });
            id
        };
        let id = self.change(inject).await?;
        Ok(Ok(ActiveFault::of(id, new)))
    }

    /// Ends a fault in every process. `false` when there is none of this number.
    ///
    /// # Errors
    /// As [`Overrides::turn`].
    pub async fn remove(&self, id: u64) -> Result<bool, StoreFault> {
        let remove = |document: &mut Document, _| {
            let before = document.faults.len();
            document.faults.retain(|injected| injected.id != id);
            let is_gone = document.faults.len() < before;
            self.forget_what_is_over(document);
            is_gone
        };
        self.change(remove).await
    }

    /// Ends all faults in every process. Answers how many were active in this one.
    ///
    /// # Errors
    /// As [`Overrides::turn`].
    pub async fn clear(&self) -> Result<usize, StoreFault> {
        let clear = |document: &mut Document, _| {
            document.faults.clear();
            self.faults().view().faults.len()
        };
        self.change(clear).await
    }

    /// Others have changed something, perhaps.
    pub(super) fn look_again(&self) {
        self.0.heard.notify_one();
    }

    fn faults(&self) -> &Faults {
        self.0.admission.faults()
    }

    /// Changes the document, on what anybody else has left of it; this process goes by it at once.
    async fn change<T>(&self, mut change: impl FnMut(&mut Document, i64) -> T) -> Result<T, StoreFault> {
        let mut taken = self.0.taken.lock().await;
        loop {
            let overridden = self.0.store.overrides().await?;
            let before = self.take_over(&overridden, &mut taken);
            let (mut document, revision) = (before.clone(), overridden.revision + 1);
            let answer = change(&mut document, revision);
            if document == before {
                return Ok(answer);
            }
            let text = serde_json::to_string(&document).map_err(|error| StoreFault::Rejected {
                context: "writing what operators override",
                source: error.into(),
            })?;
            if self.0.store.replace_overrides(overridden.revision, text.clone()).await? {
                self.take_over(&StoredOverrides { revision, text }, &mut taken);
                return Ok(answer);
            }
        }
    }

    /// Has this process go by what is new in a document.
    fn take_over(&self, StoredOverrides { revision, text }: &StoredOverrides, taken: &mut i64) -> Document {
        let document = Document::of(text);
        let before = std::mem::replace(taken, *revision);
        if before == *revision {
            return document;
        }
        for (name, turned) in document.breakers.iter().filter(|(_, turned)| turned.revision > before) {
            self.turn_here(name, turned.action);
        }
        let new = document.faults.iter().filter(|injected| injected.revision > before);
        new.cloned().for_each(|injected| self.begin_here(injected));
        let stays = |id| id > document.last_fault || document.faults.iter().any(|injected| injected.id == id);
        self.faults().retain(|fault| stays(fault.id));
        document
    }

    fn turn_here(&self, name: &str, action: BreakerAction) {
        // A breaker that this build does not have is another's.
        let _ = self.0.admission.turn_breaker(name, action);
    }

    fn begin_here(&self, Injected { id, fault, .. }: Injected) {
        match self.faults().check(&fault) {
            Ok(()) => drop(self.faults().begin(Some(id), fault)),
            Err(FaultRefusal::Disabled) => {}
            Err(FaultRefusal::Impossible(member, why)) => {
                warn!(kind = fault.kind, "an injected fault cannot be made here: {member} {why}");
            }
        }
    }

    /// What has come to its end here is over.
    fn forget_what_is_over(&self, document: &mut Document) {
        let faults = self.faults();
        document.faults.retain(|injected| faults.lasts(&injected.fault) || faults.has(injected.id));
    }
}

/// Takes over what others change, until dropped.
pub(super) async fn run(overrides: Overrides) {
    let Inner { store, taken, heard, .. } = overrides.0.as_ref();
    if !store.is_shared() {
        return pending().await;
    }
    loop {
        let _ = timeout(LOOKS_EVERY, heard.notified()).await;
        let mut taken = taken.lock().await;
        // A database that is away tells of itself, and is asked again.
        if let Ok(overridden) = store.overrides().await {
            overrides.take_over(&overridden, &mut taken);
        }
    }
}
