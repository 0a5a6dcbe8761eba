//! Shell: one service in the simulation: its store, its relay, and what a crash makes it forget.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use shared::contract::FactType;
use shared::engine::batch;
use shared::engine::{Input, Outcome, Rules};
use shared::metrics::Metrics;
use shared::relay::{Relay, RelaySettings, Round};
use shared::retry::RetryPolicy;
use shared::service::{Heard, Refusal, Service};
use shared::store::sqlite::SqliteStore;
use shared::store::{Due, Reads, Store, StoreFault, Task, Writes};
use shared::unit::Unit;

/// Changes how a service reacts, to plant a fault; `None` lets it react as it does.
pub type Tamper<S> = fn(
    &Heard<'_, <S as Service>::Command>,
    &mut Unit<'_>,
) -> Option<Result<<S as Service>::Reply, Refusal<<S as Service>::Rejection>>>;

/// A service that may have been tampered with.
pub struct Tampered<S: Service> {
    /// The service.
    pub inner: S,
    /// The fault.
    pub tamper: Option<Tamper<S>>,
}

impl<S: Service> Service for Tampered<S> {
    const NAME: &'static str = S::NAME;
    type Command = S::Command;
    type Reply = S::Reply;
    type Rejection = S::Rejection;

    fn rows() -> Vec<shared::row::RowKind> {
        S::rows()
    }

    fn steps() -> &'static [shared::service::Step] {
        S::steps()
    }

    fn reads(&self, heard: &Heard<'_, S::Command>) -> Vec<shared::row::RowKey> {
        self.inner.reads(heard)
    }

    fn react(
        &self,
        heard: &Heard<'_, S::Command>,
        unit: &mut Unit<'_>,
    ) -> Result<S::Reply, Refusal<S::Rejection>> {
        let tampered = self.tamper.and_then(|tamper| tamper(heard, unit));
        tampered.unwrap_or_else(|| self.inner.react(heard, unit))
    }
}

/// A service with its database.
pub struct Node<S: Service> {
    service: Arc<Tampered<S>>,
    /// Its database, which crashes do not touch.
    pub store: Arc<SqliteStore>,
    rules: Rules,
    relay: Relay,
    metrics: Metrics,
    /// Tasks this life has claimed; a crash forgets them.
    pub tasks: Vec<Task>,
    recover: bool,
}

/// How long a claim lasts in the simulation.
const LEASE: SignedDuration = SignedDuration::from_secs(30);

impl<S: Service> Node<S> {
    /// A node with an empty database.
    ///
    /// # Panics
    /// When SQLite cannot open a database in memory.
    #[must_use]
    pub fn new(service: S, tamper: Option<Tamper<S>>, use_inbox: bool) -> Self {
        let store = match SqliteStore::in_memory(S::rows()) {
            Ok(store) => Arc::new(store),
            Err(fault) => panic!("no database in memory: {fault}"),
        };
        let retry =
            RetryPolicy { max_attempts: 6, base: Duration::from_secs(1), cap: Duration::from_secs(20) };
        let task_retry =
            RetryPolicy { max_attempts: 3, base: Duration::from_secs(1), cap: Duration::from_secs(5) };
        let rules = Rules { retry, task_retry, owner: S::NAME.to_owned(), task_lease: LEASE, use_inbox };
        Self {
            service: Arc::new(Tampered { inner: service, tamper }),
            relay: Self::relay_of(&store),
            store,
            rules,
            metrics: Metrics::default(),
            tasks: Vec::new(),
            recover: false,
        }
    }

    fn relay_of(store: &Arc<SqliteStore>) -> Relay {
        Relay::new(store.clone(), S::NAME.to_owned(), RelaySettings::default())
    }

    /// Names of its steps.
    #[must_use]
    pub fn steps() -> Vec<&'static str> {
        S::steps().iter().map(|step| step.name).collect()
    }

    /// (step, subject) of everything it hears.
    #[must_use]
    pub fn subscriptions() -> Vec<(&'static str, String)> {
        let heard = |step: &'static shared::service::Step| {
            step.hears.iter().flat_map(move |subscription| {
                let subject = |fact: &FactType| (step.name, fact.subject(subscription.producer));
                subscription.facts.iter().map(subject)
            })
        };
        S::steps().iter().flat_map(heard).collect()
    }

    /// Commits a batch, as the engine does, and takes up its tasks.
    ///
    /// # Errors
    /// When the store refuses it; then nothing happened.
    pub fn commit(
        &mut self,
        inputs: Vec<Input<Tampered<S>>>,
        now: Timestamp,
    ) -> Result<Committed<S>, StoreFault> {
        let (service, rules) = (self.service.clone(), self.rules.clone());
        let reads = batch::reads(service.as_ref(), &inputs);
        let committed = self
            .transact(reads, move |loaded| batch::decide(service.as_ref(), &inputs, loaded, &rules, now))?;
        self.tasks.extend(committed.writes.tasks.iter().cloned());
        Ok(committed)
    }

    /// What a batch would write, without committing it.
    pub fn decide_only(&self, inputs: Vec<Input<Tampered<S>>>, now: Timestamp) -> Writes {
        let (service, rules) = (self.service.clone(), self.rules.clone());
        let reads = batch::reads(service.as_ref(), &inputs);
        let decided = Arc::new(Mutex::new(Writes::default()));
        let kept = decided.clone();
        let decide = Box::new(move |loaded| {
            let (writes, _) = batch::decide(service.as_ref(), &inputs, loaded, &rules, now);
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = writes;
            Writes::default()
        });
        let _ = ready(self.store.transact(reads, decide));
        decided.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn transact(
        &self,
        reads: Reads,
        decide: impl Fn(shared::store::Loaded) -> (Writes, Vec<Outcome<Tampered<S>>>) + Send + 'static,
    ) -> Result<Committed<S>, StoreFault> {
        let slot = Arc::new(Mutex::new(None));
        let filled = slot.clone();
        let decide = Box::new(move |loaded| {
            let (writes, outcomes) = decide(loaded);
            let committed = Committed { outcomes, writes: writes.clone() };
            *filled.lock().unwrap_or_else(PoisonError::into_inner) = Some(committed);
            writes
        });
        ready(self.store.transact(reads, decide))?;
        slot.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(StoreFault::Closed)
    }

    /// One round of the real relay.
    pub fn relay_round(&mut self, publish: &dyn shared::bus::Publish, now: Timestamp) -> Round {
        match ready(self.relay.round(publish, &self.metrics, now)) {
            Ok(round) => round,
            Err(fault) => panic!("the relay's store failed: {fault}"),
        }
    }

    /// Whether something waits to be published.
    #[must_use]
    pub fn owes_facts(&self) -> bool {
        ready(self.store.stats()).map_or(true, |stats| stats.outbox_pending > 0)
    }

    /// What is due; the tasks among it are taken up.
    pub fn due(&mut self, now: Timestamp) -> Due {
        let until = now.checked_add(LEASE).unwrap_or(Timestamp::MAX);
        let recover = std::mem::take(&mut self.recover);
        match ready(self.store.due(now, 100, S::NAME, until, recover)) {
            Ok(mut due) => {
                self.tasks.append(&mut due.tasks);
                due
            }
            Err(fault) => panic!("the timers' store failed: {fault}"),
        }
    }

    /// Dies and starts again: only the database remains.
    pub fn crash(&mut self) {
        self.tasks.clear();
        self.relay = Self::relay_of(&self.store);
        self.recover = true;
    }
}

/// A batch that is durable.
pub struct Committed<S: Service> {
    /// One per input.
    pub outcomes: Vec<Outcome<Tampered<S>>>,
    /// What was written.
    pub writes: Writes,
}

/// The answer of a store in memory, which is always there at once.
///
/// # Panics
/// When it is not.
pub fn ready<T>(answer: impl Future<Output = T>) -> T {
    match answer.now_or_never() {
        Some(answer) => answer,
        None => panic!("a store in memory made somebody wait"),
    }
}
