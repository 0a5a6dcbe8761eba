//! Shell: one service in the simulation: its store, its relay, its breakers, and what a crash makes it forget.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use shared::engine::batch;
use shared::engine::{Input, Outcome, Rules};
use shared::metrics::Metrics;
use shared::relay::{Relay, RelaySettings, Round};
use shared::retry::RetryPolicy;
use shared::service::{Service, Step};
use shared::store::sqlite::SqliteStore;
use shared::store::{
    Due, Known, LetterStatus, Loaded, Look, Reads, Retry, Store, StoreFault, StoredLetter, Task, Writes,
};
use uuid::Uuid;

use crate::breakers::Breakers;
use crate::journal::Note;
use crate::sabotage::Sabotage;
use crate::tampered::{Tamper, Tampered};
use crate::weather::Weather;

/// A service with its database.
pub struct Node<S: Service> {
    service: Arc<Tampered<S>>,
    /// Its database, which crashes do not touch.
    pub store: Arc<SqliteStore>,
    rules: Rules,
    relay: Relay,
    metrics: Metrics,
    sabotage: Sabotage,
    /// Its breakers; a crash makes them forget.
    pub breakers: Breakers,
    /// Tasks this life has claimed; a crash forgets them.
    pub tasks: Vec<Task>,
    /// Retries that are not in the database, because that fault was planted.
    in_memory: Vec<Retry>,
    /// What the steps have forgotten of letters that were given up, because that fault was planted.
    forgotten: Vec<(&'static str, Uuid)>,
    /// When this life began, until it has looked for what an earlier one left.
    born: Option<Timestamp>,
    /// What became of every message, in the order of the commits. Nothing forgets it.
    pub journal: Vec<Note>,
}

/// How long a claim lasts in the simulation.
const LEASE: SignedDuration = SignedDuration::from_secs(30);
/// Things taken up in one look, of each sort.
const LIMIT: usize = 100;

impl<S: Service> Node<S> {
    /// A node with an empty database.
    ///
    /// # Panics
    /// When SQLite cannot open a database in memory.
    #[must_use]
    pub fn new(service: S, tamper: Option<Tamper<S>>, sabotage: Sabotage, weather: &Weather) -> Self {
        let store = match SqliteStore::in_memory(S::rows()) {
            Ok(store) => Arc::new(store),
            Err(fault) => panic!("no database in memory: {fault}"),
        };
        let retry =
            RetryPolicy { max_attempts: 6, base: Duration::from_secs(1), cap: Duration::from_secs(20) };
        let max_attempts = weather.task_attempts;
        let task_retry =
            RetryPolicy { max_attempts, base: Duration::from_secs(1), cap: Duration::from_secs(5) };
        let rules = Rules {
            retry,
            step_retry: BTreeMap::new(),
            task_retry,
            owner: S::NAME.to_owned(),
            task_lease: LEASE,
            // An inbox fault needs inboxes.
            use_inbox: weather.has_inbox || sabotage == Sabotage::InboxBeforeWork,
        };
        Self {
            service: Arc::new(Tampered { inner: service, tamper }),
            relay: Self::relay_of(&store),
            store,
            rules,
            metrics: Metrics::default(),
            sabotage,
            breakers: Breakers::of(S::steps()),
            tasks: Vec::new(),
            in_memory: Vec::new(),
            forgotten: Vec::new(),
            born: None,
            journal: Vec::new(),
        }
    }

    fn relay_of(store: &Arc<SqliteStore>) -> Relay {
        Relay::new(store.clone(), S::NAME.to_owned(), RelaySettings::default())
    }

    /// The step of this name.
    #[must_use]
    pub fn step(name: &str) -> Option<&'static Step> {
        S::steps().iter().find(|step| step.name == name)
    }

    /// Names of its steps.
    #[must_use]
    pub fn steps() -> Vec<&'static str> {
        S::steps().iter().map(|step| step.name).collect()
    }

    /// (step, subject) of everything it hears.
    #[must_use]
    pub fn subscriptions() -> Vec<(&'static str, String)> {
        let heard = |step: &'static Step| {
            step.hears
                .iter()
                .flat_map(|subscription| subscription.subjects(S::NAME))
                .map(|subject| (step.name, subject))
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
        let notes: Vec<_> = inputs.iter().map(Note::of).collect();
        let (service, rules) = (self.service.clone(), self.rules.clone());
        let reads = batch::reads(service.as_ref(), &inputs);
        let committed = self
            .transact(reads, move |loaded| batch::decide(service.as_ref(), &inputs, loaded, &rules, now))?;
        for (note, outcome) in notes.into_iter().zip(&committed.outcomes) {
            self.journal.extend(note.map(|note| Note { outcome: outcome.name(), ..note }));
        }
        if self.sabotage == Sabotage::RetryInMemory {
            for (step, id) in &committed.writes.retries_done {
                self.in_memory.retain(|retry| (retry.step.as_str(), retry.message_id) != (*step, *id));
            }
            for new in &committed.writes.retries {
                self.in_memory.retain(|old| (&old.step, old.message_id) != (&new.step, new.message_id));
                self.in_memory.push(new.clone());
            }
        }
        if self.sabotage == Sabotage::DiscardForgets {
            let all = committed.writes.letters.iter();
            let discarded = all.filter(|stored| stored.status == LetterStatus::Discarded);
            let place =
                |stored: &StoredLetter| Some((Self::step(&stored.letter.step)?.name, stored.known_as));
            self.forgotten.extend(discarded.filter_map(place));
        }
        self.take_up(committed.writes.tasks.clone());
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
        decide: impl Fn(Loaded) -> (Writes, Vec<Outcome<Tampered<S>>>) + Send + 'static,
    ) -> Result<Committed<S>, StoreFault> {
        let slot = Arc::new(Mutex::new(None));
        let filled = slot.clone();
        let (sabotage, in_memory, forgotten) =
            (self.sabotage, self.in_memory.clone(), self.forgotten.clone());
        let decide = Box::new(move |mut loaded: Loaded| {
            for retry in &in_memory {
                let step = Self::step(&retry.step).map(|step| (step.name, retry.message_id));
                loaded.inbox.extend(step.map(|place| (place, Known::Waiting)));
            }
            loaded.inbox.retain(|place, known| *known != Known::Parked || !forgotten.contains(place));
            let (mut writes, outcomes) = decide(loaded);
            sabotage.spoil_writes(&mut writes, S::steps());
            let committed = Committed { outcomes, writes: writes.clone() };
            *filled.lock().unwrap_or_else(PoisonError::into_inner) = Some(committed);
            if sabotage == Sabotage::RetryInMemory {
                writes.retries.clear();
            }
            writes
        });
        ready(self.store.transact(reads, decide))?;
        slot.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(StoreFault::Closed)
    }

    /// What the steps know of these messages.
    ///
    /// # Panics
    /// When the store fails.
    #[must_use]
    pub fn known(&self, places: &[(&'static str, Uuid)]) -> BTreeMap<(&'static str, Uuid), Known> {
        let reads = Reads { inbox: places.iter().copied().collect(), ..Reads::default() };
        let slot = Arc::new(Mutex::new(BTreeMap::new()));
        let filled = slot.clone();
        let look = Box::new(move |loaded: Loaded| {
            *filled.lock().unwrap_or_else(PoisonError::into_inner) = loaded.inbox;
            Writes::default()
        });
        if let Err(fault) = ready(self.store.transact(reads, look)) {
            panic!("the store cannot say what it knows: {fault}");
        }
        slot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One round of the real relay.
    pub fn relay_round(&mut self, publish: &dyn shared::bus::Publish, now: Timestamp) -> Round {
        match ready(self.relay.round(publish, &self.metrics, now)) {
            Ok(round) => round,
            Err(fault) => panic!("the relay's store failed: {fault}"),
        }
    }

    /// Whether something is still to be published, tried again, called, or comes due.
    #[must_use]
    pub fn owes(&self) -> bool {
        let (tasks_die, no_deadline) =
            (Sabotage::TasksDieWithTheProcess, self.sabotage == Sabotage::NoDeadline);
        let stats = ready(self.store.stats()).map_or(1, |stats| {
            let tasks = if self.sabotage == tasks_die { 0 } else { stats.tasks };
            stats.outbox_pending + stats.retries + tasks
        });
        stats > 0 || !self.in_memory.is_empty() || (!no_deadline && self.has_due_rows())
    }

    /// Whether a row will come due, or has.
    fn has_due_rows(&self) -> bool {
        self.overdue(Timestamp::MAX).is_some()
    }

    /// A row that should have come due by then, and did not.
    #[must_use]
    pub fn overdue(&self, now: Timestamp) -> Option<String> {
        let owner = "nobody".to_owned();
        let look = Look { now, limit: 1, tasks: 0, paused: vec![], owner, until: now, recover: false };
        let due = ready(self.store.due(look)).ok()?;
        due.rows.first().map(|(key, _)| key.id.clone())
    }

    /// What is due; the tasks among it are taken up. What waits behind an open breaker stays where it is.
    pub fn due(&mut self, now: Timestamp) -> Due {
        if let Some(born) = self.born.take() {
            self.look(born, 0, true);
        }
        self.look(now, LIMIT, false)
    }

    fn look(&mut self, now: Timestamp, limit: usize, recover: bool) -> Due {
        let at = clock(now);
        let shut = S::steps().iter().filter(|step| self.breakers.is_shut(step, at));
        let paused: Vec<_> = shut.map(|step| step.name.to_owned()).collect();
        let (owner, until) = (S::NAME.to_owned(), now.checked_add(LEASE).unwrap_or(Timestamp::MAX));
        let look = Look { now, limit, tasks: self.room(at), paused: paused.clone(), owner, until, recover };
        match ready(self.store.due(look)) {
            Ok(mut due) => {
                self.take_up(std::mem::take(&mut due.tasks));
                let is_due = |retry: &&Retry| retry.next_attempt <= now && !paused.contains(&retry.step);
                due.retries.extend(self.in_memory.iter().filter(is_due).cloned());
                due
            }
            Err(fault) => panic!("the timers' store failed: {fault}"),
        }
    }

    /// Tasks that may be taken up now.
    #[must_use]
    pub fn room(&self, at: Duration) -> usize {
        if S::steps().iter().flat_map(|step| step.needs).any(|name| self.breakers.is_open(name, at)) {
            return 0;
        }
        let ramps = S::steps().iter().flat_map(|step| step.needs).filter_map(|name| self.breakers.ramp(name));
        ramps.min().unwrap_or(LIMIT).saturating_sub(self.tasks.len())
    }

    /// A task that it holds already goes on under the newer claim.
    fn take_up(&mut self, tasks: Vec<Task>) {
        for task in tasks {
            match self.tasks.iter_mut().find(|held| held.id == task.id) {
                Some(held) => *held = task,
                None => self.tasks.push(task),
            }
        }
    }

    /// Dies and starts again: only the database remains.
    pub fn crash(&mut self, now: Timestamp) {
        self.tasks.clear();
        self.in_memory.clear();
        self.breakers.forget();
        self.relay = Self::relay_of(&self.store);
        self.born = Some(now);
    }
}

/// A batch that is durable.
pub struct Committed<S: Service> {
    /// One per input.
    pub outcomes: Vec<Outcome<Tampered<S>>>,
    /// What was written.
    pub writes: Writes,
}

/// The time as breakers see it.
#[must_use]
pub fn clock(now: Timestamp) -> Duration {
    Duration::from_micros(u64::try_from(now.as_microsecond()).unwrap_or(0))
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
