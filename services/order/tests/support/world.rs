//! Pure: one service in memory, for given/when/then: what its database would hold, carried from batch to batch.
//!
//! It stands in for the store alone; every decision is the real engine's ([`shared::engine::batch::decide`]).
//! Each batch is decided twice and must come out the same, each row must be the fold of its events, and no
//! message or task id may ever be used again. The inbox is off unless a test turns it on: the domain must be
//! correct without. The tests of all services share this file.

pub mod message;
pub mod then;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use shared::contract::{DeadLettered, Fact, FactType};
use shared::decider::Decider;
use shared::engine::{Input, Outcome, RequestKey, Rules, batch};
use shared::envelope::{Envelope, Message};
use shared::retry::{FailedTry, RetryPolicy, Severity};
use shared::row::{Projected, RowKey, StoredRow};
use shared::service::Service;
use shared::store::{
    EventWrite, KeyedAnswer, Known, LetterStatus, Loaded, OutboxWrite, Reads, Retry, StoredLetter, Task,
    Writes,
};
use uuid::Uuid;

use self::message::{envelope, step_that_hears};
use self::then::Then;

/// When everything happens, unless a test moves [`World::now`].
pub const NOON: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// Tries of a message or call before it is given up.
pub const ATTEMPTS: u32 = 3;

/// Something to react to; can be said again, in another batch.
#[derive(Debug, Clone)]
pub enum Stimulus<C> {
    /// A wish through HTTP.
    Command { id: Uuid, saga: Uuid, command: C, key: Option<RequestKey> },
    /// A fact, for the step that hears it. The same fact is the same message.
    Fact(Fact),
    /// A message that failed before.
    Retry(Retry),
    /// The outcome of one try of a task.
    Called(Task, Result<Value, FailedTry>),
    /// A row's due time.
    Due(RowKey, Timestamp),
}

/// What the database would hold.
#[derive(Debug, Default, PartialEq)]
pub struct Kept {
    /// Rows, each with its version.
    pub rows: BTreeMap<RowKey, (i64, Projected)>,
    /// (row, version, name, JSON, cause) of every event.
    pub events: Vec<(RowKey, i64, &'static str, String, Uuid)>,
    /// Every message.
    pub outbox: Vec<Promise>,
    /// Messages handled.
    pub inbox: BTreeSet<(&'static str, Uuid)>,
    /// Messages that wait for another try.
    pub retries: BTreeMap<(String, Uuid), Retry>,
    /// Open tasks.
    pub tasks: BTreeMap<Uuid, Task>,
    /// Every task that was ever noted, in order.
    pub noted: Vec<Task>,
    /// Dead letters, each as often as it was parked.
    pub dead: Vec<DeadLettered>,
    /// Dead letters as they are now.
    pub letters: BTreeMap<Uuid, StoredLetter>,
    /// Answered idempotency keys.
    pub keys: BTreeMap<String, KeyedAnswer>,
}

/// A message that is promised.
#[derive(Debug, PartialEq)]
pub struct Promise {
    /// Its envelope's bytes.
    pub payload: Vec<u8>,
    /// The envelope.
    pub message: Message,
    /// (row, version) of the event it tells.
    pub tells: Option<(RowKey, i64)>,
}

/// A service with its database.
pub struct World<S: Service> {
    /// The time.
    pub now: Timestamp,
    /// Whether inbox marks are looked at.
    pub use_inbox: bool,
    /// The database.
    pub kept: Kept,
    service: S,
    asked: u128,
}

impl<S: Service<Command: Clone>> World<S> {
    pub fn of(service: S) -> Self {
        Self { now: NOON, use_inbox: false, kept: Kept::default(), service, asked: 0 }
    }

    /// When somebody asks for something.
    #[track_caller]
    pub fn is_asked(&mut self, command: S::Command) -> Then<S> {
        self.asked += 1;
        let id = Uuid::from_u128(0xC0_0000 + self.asked);
        self.takes(Stimulus::Command { id, saga: id, command, key: None })
    }

    /// When a step hears a fact.
    #[track_caller]
    pub fn hears(&mut self, fact: Fact) -> Then<S> {
        self.takes(Stimulus::Fact(fact))
    }

    /// When the outside answers a task.
    #[track_caller]
    pub fn is_answered(&mut self, task: &Task, answer: Value) -> Then<S> {
        self.takes(Stimulus::Called(task.clone(), Ok(answer)))
    }

    /// When one try of a task gets no clear answer.
    #[track_caller]
    pub fn gets_no_answer(&mut self, task: &Task, reason: &str) -> Then<S> {
        let current = self.kept.tasks.get(&task.id).unwrap_or(task).clone();
        self.takes(Stimulus::Called(current, Err(FailedTry::new(Severity::Transient, reason))))
    }

    /// When the outside says that a task can never work.
    #[track_caller]
    pub fn is_refused_for_good(&mut self, task: &Task, reason: &str) -> Then<S> {
        let current = self.kept.tasks.get(&task.id).unwrap_or(task).clone();
        self.takes(Stimulus::Called(current, Err(FailedTry::new(Severity::Permanent, reason))))
    }

    /// When no try of a task ever gets a clear answer. Answers what the last one did.
    #[track_caller]
    pub fn gives_up(&mut self, task: &Task, reason: &str) -> Then<S> {
        for _ in 1..ATTEMPTS {
            self.gets_no_answer(task, reason).comes_out("retried");
        }
        self.gets_no_answer(task, reason)
    }

    /// When the due time of a row comes.
    #[track_caller]
    pub fn is_due<D: Decider>(&mut self, id: impl ToString, at: Timestamp) -> Then<S> {
        self.takes(Stimulus::Due(RowKey::of::<D>(id), at))
    }

    /// When everything that waits is tried again.
    #[track_caller]
    pub fn retries(&mut self) -> Vec<Outcome<S>> {
        let waiting: Vec<_> = self.kept.retries.values().cloned().map(Stimulus::Retry).collect();
        self.takes_batch(&waiting)
    }

    /// A batch of one.
    #[track_caller]
    pub fn takes(&mut self, stimulus: Stimulus<S::Command>) -> Then<S> {
        let kept = &self.kept;
        let (events, outbox, noted, dead) =
            (kept.events.len(), kept.outbox.len(), kept.noted.len(), kept.dead.len());
        let outcome = self.takes_batch(&[stimulus]).pop().expect("every input has an outcome");
        let kept = &self.kept;
        Then {
            outcome,
            events: kept.events[events..].iter().map(|event| event.2).collect(),
            facts: told(&kept.outbox[outbox..]),
            tasks: kept.noted[noted..].to_vec(),
            dead: kept.dead[dead..].to_vec(),
        }
    }

    /// One batch, as the engine runs it.
    #[track_caller]
    pub fn takes_batch(&mut self, stimuli: &[Stimulus<S::Command>]) -> Vec<Outcome<S>> {
        let inputs: Vec<_> = stimuli.iter().map(Stimulus::input).collect();
        let loaded = self.kept.load(&batch::reads(&self.service, &inputs));
        let rules = rules(self.use_inbox);
        let (first, _) = batch::decide(&self.service, &inputs, loaded.clone(), &rules, self.now);
        let (writes, outcomes) = batch::decide(&self.service, &inputs, loaded, &rules, self.now);
        assert_eq!(
            format!("{first:?}"),
            format!("{writes:?}"),
            "a batch that is run again comes out the same"
        );
        self.kept.apply::<S>(writes);
        outcomes
    }

    /// The state of a row; the default when it is not there.
    #[track_caller]
    pub fn row<D: Decider>(&self, id: impl ToString) -> D {
        match self.kept.rows.get(&RowKey::of::<D>(id)) {
            Some((_, projected)) => {
                serde_json::from_str(&projected.state).expect("a stored state can be read")
            }
            None => D::default(),
        }
    }

    /// When a row wants to be looked at again.
    pub fn due<D: Decider>(&self, id: impl ToString) -> Option<Timestamp> {
        self.kept.rows.get(&RowKey::of::<D>(id)).and_then(|(_, projected)| projected.due)
    }

    /// Every fact ever told; announcements about dead letters not counted.
    pub fn told(&self) -> Vec<Fact> {
        told(&self.kept.outbox)
    }

    /// The one open task.
    #[track_caller]
    pub fn open_task(&self) -> Task {
        let mut open = self.kept.tasks.values();
        let (task, other) = (open.next().expect("a task is open"), open.next());
        assert_eq!(other, None, "one task is open");
        task.clone()
    }
}

/// Runs the same inputs one by one and in batches of `size`: nothing that is kept may differ.
#[track_caller]
pub fn batches_do_what_single_inputs_do<S: Service<Command: Clone>>(
    service: fn() -> S,
    stimuli: &[Stimulus<S::Command>],
    size: usize,
    use_inbox: bool,
) {
    let run = |size: usize| {
        let mut world = World { use_inbox, ..World::of(service()) };
        let outcomes: Vec<_> = stimuli.chunks(size).flat_map(|chunk| world.takes_batch(chunk)).collect();
        (world.kept, outcomes.iter().map(Outcome::name).collect::<Vec<_>>())
    };
    assert_eq!(run(1), run(size), "batches of 1 and of {size}");
}

impl<C: Clone> Stimulus<C> {
    fn input<S: Service<Command = C>>(&self) -> Input<S> {
        match self.clone() {
            Self::Command { id, saga, command, key } => Input::command(id, saga, command, key),
            Self::Fact(fact) => {
                Input::message(step_that_hears::<S>(&fact), envelope(&fact).into(), Uuid::nil(), 0)
            }
            Self::Retry(retry) => {
                let step =
                    S::steps().iter().find(|step| step.name == retry.step).expect("the step is declared");
                Input::retried(step, retry, 0)
            }
            Self::Called(task, answer) => Input::called(task, answer, 0),
            Self::Due(key, at) => Input::due(key, at),
        }
    }
}

impl Kept {
    /// Answers what is asked for, and nothing else.
    fn load(&self, reads: &Reads) -> Loaded {
        let row = |key: &RowKey| {
            let (version, projected) = self.rows.get(key)?;
            Some((key.clone(), StoredRow { version: *version, state: projected.state.clone() }))
        };
        let known = |place: &(&'static str, Uuid)| {
            let is_parked = || {
                self.letters.values().any(|stored| (stored.letter.step.as_str(), stored.known_as) == *place)
            };
            let known = match () {
                () if self.inbox.contains(place) => Known::Handled,
                () if self.retries.contains_key(&(place.0.to_owned(), place.1)) => Known::Waiting,
                () if is_parked() => Known::Parked,
                () => return None,
            };
            Some((*place, known))
        };
        Loaded {
            rows: reads.rows.iter().filter_map(row).collect(),
            inbox: reads.inbox.iter().filter_map(known).collect(),
            tasks: reads.tasks.iter().filter_map(|id| Some((*id, self.tasks.get(id)?.claim))).collect(),
            keys: reads
                .keys
                .iter()
                .filter_map(|key| Some((key.clone(), self.keys.get(key)?.clone())))
                .collect(),
            letters: reads
                .letters
                .iter()
                .filter_map(|id| Some((*id, self.letters.get(id)?.clone())))
                .collect(),
        }
    }

    fn apply<S: Service>(&mut self, writes: Writes) {
        for entry in &writes.outbox {
            let promise = Promise::of::<S>(entry, &writes.events);
            let is_new = self.outbox.iter().all(|before| before.message.id != promise.message.id);
            assert!(is_new, "{} is told under a used id", entry.subject);
            self.outbox.push(promise);
        }
        for event in writes.events {
            self.events.push((event.key, event.version, event.name, event.data, event.causation_id));
        }
        for row in writes.rows {
            let before = self.rows.get(&row.key).map_or(0, |(version, _)| *version);
            assert_eq!(before, row.read_version, "{:?} is guarded by the version it was read at", row.key);
            self.check_fold::<S>(&row.key, row.version, &row.projected);
            self.rows.insert(row.key, (row.version, row.projected));
        }
        for task in writes.tasks {
            assert!(
                self.noted.iter().all(|noted| noted.id != task.id),
                "{} is noted under a used id",
                task.kind
            );
            self.noted.push(task.clone());
            self.tasks.insert(task.id, task);
        }
        for retry in writes.task_retries {
            let task = self.tasks.get_mut(&retry.id).expect("a task that is tried again is open");
            task.attempts = retry.attempts;
        }
        for id in writes.tasks_done {
            self.tasks.remove(&id);
        }
        for retry in writes.retries {
            self.retries.insert((retry.step.clone(), retry.message_id), retry);
        }
        for (step, id) in writes.retries_done {
            self.retries.remove(&(step.to_owned(), id));
        }
        self.inbox.extend(writes.inbox);
        for letter in writes.dead_letters {
            self.dead.push(letter.clone());
            let (status, known_as) = (LetterStatus::Pending, letter.message_id);
            let stored = StoredLetter { status, revision: 0, known_as, letter };
            let before = self.letters.insert(stored.letter.id, stored);
            assert_eq!(before, None, "a new dead letter is new");
        }
        for stored in writes.letters {
            let before = self.letters.insert(stored.letter.id, stored.clone());
            let before = before.expect("a changed dead letter was there");
            if before.letter.replays < stored.letter.replays {
                self.dead.push(stored.letter);
            }
        }
        for task in writes.tasks_again {
            self.tasks.entry(task.id).or_insert(task);
        }
        self.keys.extend(writes.keys);
    }

    /// Each row is the fold of its events, and its version counts them.
    fn check_fold<S: Service>(&self, key: &RowKey, version: i64, projected: &Projected) {
        let kind = S::rows().into_iter().find(|kind| kind.name == key.kind).expect("the kind is declared");
        assert_eq!(kind.fields.len(), projected.fields.len(), "{key:?} has a value for each field");
        let history = self.events.iter().filter(|event| event.0 == *key);
        let versions: Vec<i64> = history.clone().map(|event| event.1).collect();
        assert_eq!(versions, (1..=version).collect::<Vec<_>>(), "{key:?} counts its events");
        let folded = (kind.fold)(&key.id, &mut history.map(|event| event.3.clone()));
        assert_eq!(
            &folded.expect("a stored event can be read"),
            projected,
            "{key:?} is the fold of its events"
        );
    }
}

impl Promise {
    fn of<S: Service>(entry: &OutboxWrite, events: &[EventWrite]) -> Self {
        let envelope = Envelope::from_bytes(&entry.payload).expect("what is told is an envelope");
        let message = envelope.open().expect("what is told can be read");
        assert_eq!(
            (entry.id, S::NAME),
            (message.id, message.producer.as_str()),
            "who speaks, under which id"
        );
        assert_eq!(entry.subject, message.fact.subject(S::NAME), "the subject says what it is");
        let tells = entry.event.map(|index| (events[index].key.clone(), events[index].version));
        Self { payload: entry.payload.to_vec(), message, tells }
    }
}

fn told(outbox: &[Promise]) -> Vec<Fact> {
    let facts = outbox.iter().map(|promise| &promise.message.fact);
    let announcements = [FactType::DeadLettered, FactType::DeadLetterResolved];
    facts.filter(|fact| !announcements.contains(&fact.fact_type())).cloned().collect()
}

fn rules(use_inbox: bool) -> Rules {
    let retry =
        RetryPolicy { max_attempts: ATTEMPTS, base: Duration::from_secs(1), cap: Duration::from_secs(10) };
    let (owner, task_lease) = ("test".to_owned(), SignedDuration::from_secs(30));
    Rules { retry, step_retry: BTreeMap::new(), task_retry: retry, owner, task_lease, use_inbox }
}
