//! Pure: a service in memory, for given/when/then tests.
//!
//! Only the store is replaced; every decision is the engine's ([`saga_core::decision::decide`]). Each batch is decided twice,
//! with the same result. Each row is the fold of its events. No message or task id is used twice. The inbox is off unless a
//! test turns it on, as the domain must be correct without it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use saga_core::dead_letter::DeadLetterMessage;
use saga_core::decider::Decider;
use saga_core::decision::{self, DecisionConfig, Loaded};
use saga_core::ids;
use saga_core::input::{Input, Outcome, RequestKey};
use saga_core::message::{Envelope, Message, MessageType};
use saga_core::retry::{FailedAttempt, FailureKind, RetryPolicy};
use saga_core::row::{PastEvent, RowKey};
use saga_core::service::{Service, Step, steps_of};
use saga_core::waiting::{Retry, Task};
use serde_json::Value;
use uuid::Uuid;

use super::in_memory_store::{InMemoryStore, facts_of};
use super::then::Then;

/// Time of all batches, unless a test changes [`ServiceUnderTest::now`].
pub const NOON: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// Maximum attempts of a message or task.
pub const ATTEMPTS: u32 = 3;

/// Input of a test. Clones repeat it in another batch.
#[derive(Debug)]
pub enum Stimulus<S: Service> {
    /// Command, as one that arrives through HTTP.
    Command {
        /// Id of the input, unique in the test.
        id: Uuid,
        /// Correlation id: of the saga, if there is one.
        saga: Uuid,
        /// Command that the service executes.
        command: S::Command,
        /// Idempotency key with the fingerprint of the request.
        key: Option<RequestKey>,
    },
    /// Fact for the step that consumes it. Equal facts are the same message.
    Fact(S::Fact),
    /// Fact of this producer, for a type that several publish, and the time at which it did.
    FactOf(String, S::Fact, Timestamp),
    /// Operator command to the engine.
    Operator(DeadLetterMessage),
    /// Retry of a message that failed before.
    Retry(Retry),
    /// Result of one attempt at a task.
    Called(Task, Result<Value, FailedAttempt>),
    /// Due time of a row.
    Due(RowKey, Timestamp),
}

/// Service with its in-memory store.
pub struct ServiceUnderTest<S: Service> {
    /// Time of the next batch, at first [`NOON`].
    pub now: Timestamp,
    /// True if the inbox is on.
    pub use_inbox: bool,
    /// Time of the last accepted loss of data.
    pub lost_before: Option<Timestamp>,
    /// Content of the store after the batches so far.
    pub store: InMemoryStore,
    service: S,
    command_count: u128,
}

impl<S: Service<Command: Clone>> ServiceUnderTest<S> {
    /// Creates a service with an empty store.
    #[must_use]
    pub fn of(service: S) -> Self {
        Self {
            now: NOON,
            use_inbox: false,
            lost_before: None,
            store: InMemoryStore::default(),
            service,
            command_count: 0,
        }
    }

    /// Executes a command, with a new saga.
    #[track_caller]
    pub fn executes(&mut self, command: S::Command) -> Then<S> {
        self.command_count += 1;
        let id = Uuid::from_u128(0xC0_0000 + self.command_count);
        self.takes(Stimulus::Command { id, saga: id, command, key: None })
    }

    /// Delivers a fact to the step that consumes it.
    #[track_caller]
    pub fn receives(&mut self, fact: impl Into<S::Fact>) -> Then<S> {
        self.takes(Stimulus::Fact(fact.into()))
    }

    /// Delivers a fact of this producer.
    #[track_caller]
    pub fn receives_from(&mut self, producer: &str, fact: impl Into<S::Fact>) -> Then<S> {
        self.takes(Stimulus::FactOf(producer.to_owned(), fact.into(), self.now))
    }

    /// Delivers an operator command to the engine.
    #[track_caller]
    pub fn receives_operator_command(&mut self, message: DeadLetterMessage) -> Then<S> {
        self.takes(Stimulus::Operator(message))
    }

    /// Submits the result of a task.
    #[track_caller]
    pub fn gets_result(&mut self, task: &Task, answer: Value) -> Then<S> {
        self.takes(Stimulus::Called(task.clone(), Ok(answer)))
    }

    /// Checks whether a task is still needed, as before its call.
    #[track_caller]
    pub fn checks_task(&mut self, task: &Task) -> Then<S> {
        let current = self.store.tasks.get(&task.id).unwrap_or(task).clone();
        let unknown = FailedAttempt::new(FailureKind::NeverAttempted, "nobody wants it any more");
        self.takes(Stimulus::Called(current, Err(unknown)))
    }

    /// Submits a transient failure of a task.
    #[track_caller]
    pub fn call_fails(&mut self, task: &Task, reason: &str) -> Then<S> {
        let current = self.store.tasks.get(&task.id).unwrap_or(task).clone();
        self.takes(Stimulus::Called(current, Err(FailedAttempt::new(FailureKind::Transient, reason))))
    }

    /// Submits a permanent failure of a task.
    #[track_caller]
    pub fn call_fails_finally(&mut self, task: &Task, reason: &str) -> Then<S> {
        let current = self.store.tasks.get(&task.id).unwrap_or(task).clone();
        self.takes(Stimulus::Called(current, Err(FailedAttempt::new(FailureKind::Permanent, reason))))
    }

    /// Submits transient failures until the attempts of a task are exhausted. Returns the effect of the last one.
    #[track_caller]
    pub fn gives_up(&mut self, task: &Task, reason: &str) -> Then<S> {
        for _ in 1..ATTEMPTS {
            self.call_fails(task, reason).has_outcome("retried");
        }
        self.call_fails(task, reason)
    }

    /// Submits the due time of a row.
    #[track_caller]
    pub fn is_due<D: Decider>(&mut self, id: impl ToString, at: Timestamp) -> Then<S> {
        self.takes(Stimulus::Due(RowKey::of::<D>(id), at))
    }

    /// Retries all waiting messages in one batch.
    #[track_caller]
    pub fn retries(&mut self) -> Vec<Outcome<S>> {
        let waiting: Vec<_> = self.store.retries.values().cloned().map(Stimulus::Retry).collect();
        self.takes_batch(&waiting)
    }

    /// Processes a batch of one input.
    #[track_caller]
    pub fn takes(&mut self, stimulus: Stimulus<S>) -> Then<S> {
        let store = &self.store;
        let (events, outbox, called, dead) =
            (store.events.len(), store.outbox.len(), store.called.len(), store.dead.len());
        let outcome = self.takes_batch(&[stimulus]).pop().expect("every input has an outcome");
        let store = &self.store;
        Then {
            outcome,
            events: store.events[events..].iter().map(|event| event.2).collect(),
            facts: facts_of::<S>(&store.outbox[outbox..]),
            tasks: store.called[called..].to_vec(),
            dead: store.dead[dead..].to_vec(),
        }
    }

    /// Processes a batch as the engine does.
    #[track_caller]
    pub fn takes_batch(&mut self, stimuli: &[Stimulus<S>]) -> Vec<Outcome<S>> {
        let inputs: Vec<_> = stimuli.iter().map(Stimulus::input).collect();
        let mut reads = decision::reads(&self.service, &inputs);
        let mut loaded = self.store.load(&reads);
        let config = DecisionConfig { lost_before: self.lost_before, ..decision_config(self.use_inbox) };
        let decide = |loaded| decision::decide(&self.service, &inputs, loaded, &config, self.now);
        let mut also_read = BTreeSet::new();
        let (first, _) = loop {
            let (writes, outcomes) = decide(loaded.clone());
            if writes.to_read.is_empty() {
                break (writes, outcomes);
            }
            also_read.extend(writes.to_read);
            reads.rows.extend(also_read.iter().cloned());
            loaded = Loaded { also_read: also_read.clone(), ..self.store.load(&reads) };
        };
        let (writes, outcomes) = decide(loaded);
        assert_eq!(format!("{first:?}"), format!("{writes:?}"), "a repeated batch has the same result");
        self.store.apply::<S>(writes);
        outcomes
    }

    /// State of a row; the default if there is none.
    #[track_caller]
    pub fn row<D: Decider>(&self, id: impl ToString) -> D {
        match self.store.rows.get(&RowKey::of::<D>(id)) {
            Some((_, projected)) => {
                serde_json::from_str(&projected.state).expect("a stored state can be read")
            }
            None => D::default(),
        }
    }

    /// History of a row. All events have the time [`NOON`].
    ///
    /// # Panics
    /// If an event cannot be read.
    pub fn history<D: Decider>(&self, id: impl ToString) -> Vec<PastEvent<D::Event>> {
        let key = RowKey::of::<D>(id);
        let is_published = |version: i64| {
            self.store.outbox.iter().any(|message| message.event == Some((key.clone(), version)))
        };
        let of_row = self.store.events.iter().filter(|event| event.0 == key);
        let recorded = of_row.map(|(_, version, _, data, _)| PastEvent {
            event: serde_json::from_str(data).expect("a stored event can be read"),
            at: NOON,
            is_published: is_published(*version),
        });
        recorded.collect()
    }

    /// Due time of a row.
    pub fn due<D: Decider>(&self, id: impl ToString) -> Option<Timestamp> {
        self.store.rows.get(&RowKey::of::<D>(id)).and_then(|(_, projected)| projected.due)
    }

    /// All published facts, without announcements of dead letters.
    #[must_use]
    pub fn published(&self) -> Vec<S::Fact> {
        facts_of::<S>(&self.store.outbox)
    }

    /// Returns the only open task.
    #[track_caller]
    pub fn open_task(&self) -> Task {
        let mut open = self.store.tasks.values();
        let (task, other) = (open.next().expect("a task is open"), open.next());
        assert_eq!(other, None, "one task is open");
        task.clone()
    }
}

/// Processes the same inputs one by one and in batches of `size`, and expects the same content of the store.
#[track_caller]
pub fn batches_do_what_single_inputs_do<S: Service<Command: Clone>>(
    service: fn() -> S,
    stimuli: &[Stimulus<S>],
    size: usize,
    use_inbox: bool,
) {
    let run = |size: usize| {
        let mut service_under_test = ServiceUnderTest { use_inbox, ..ServiceUnderTest::of(service()) };
        let outcomes: Vec<_> =
            stimuli.chunks(size).flat_map(|chunk| service_under_test.takes_batch(chunk)).collect();
        let mut store = service_under_test.store;
        // A task that ends in the batch that added it is never called.
        let InMemoryStore { called, tasks, .. } = &mut store;
        called.retain(|task| tasks.contains_key(&task.id));
        (store, outcomes.iter().map(Outcome::name).collect::<Vec<_>>())
    };
    assert_eq!(run(1), run(size), "batches of 1 and of {size}");
}

impl<S: Service<Command: Clone>> Clone for Stimulus<S> {
    fn clone(&self) -> Self {
        match self {
            Self::Command { id, saga, command, key } => {
                Self::Command { id: *id, saga: *saga, command: command.clone(), key: key.clone() }
            }
            Self::Fact(fact) => Self::Fact(fact.clone()),
            Self::FactOf(producer, fact, at) => Self::FactOf(producer.clone(), fact.clone(), *at),
            Self::Operator(message) => Self::Operator(message.clone()),
            Self::Retry(retry) => Self::Retry(retry.clone()),
            Self::Called(task, answer) => Self::Called(task.clone(), answer.clone()),
            Self::Due(key, at) => Self::Due(key.clone(), *at),
        }
    }
}

impl<S: Service<Command: Clone>> Stimulus<S> {
    fn input(&self) -> Input<S> {
        match self.clone() {
            Self::Command { id, saga, command, key } => Input::command(id, saga, command, key),
            Self::Fact(fact) => message_of(None, &fact, NOON),
            Self::FactOf(producer, fact, at) => message_of(Some(&producer), &fact, at),
            Self::Operator(message) => message_of(None, &message, NOON),
            Self::Retry(retry) => {
                let steps = steps_of::<S>();
                let step = steps.iter().find(|step| step.name == retry.step).expect("the step is declared");
                Input::retry(step, retry, 0)
            }
            Self::Called(task, answer) => Input::task_result(task, answer, 0),
            Self::Due(key, at) => Input::due(key, at),
        }
    }
}

/// Builds the message of a fact for the step that consumes it.
#[track_caller]
fn message_of<S: Service>(producer: Option<&str>, fact: &impl Message, at: Timestamp) -> Input<S> {
    let message_type = fact.message_type();
    let (step, producer) = steps_of::<S>()
        .into_iter()
        .flat_map(|step| step.consumes.iter().map(move |subscription| (step, subscription)))
        .filter(|(_, subscription)| subscription.types.contains(&message_type))
        .find(|(_, subscription)| producer.is_none_or(|producer| subscription.producer == producer))
        .map(|(step, subscription)| (step, subscription.producer))
        .expect("some step consumes this fact");
    Input::message(step, envelope_at(producer, fact, at).into(), Uuid::nil(), 0)
}

/// Encodes a message of `producer` with `fact`. Its id is derived from the content.
#[must_use]
pub fn envelope(producer: &str, fact: &impl Message) -> Vec<u8> {
    envelope_at(producer, fact, NOON)
}

fn envelope_at(producer: &str, fact: &impl Message, occurred_at: Timestamp) -> Vec<u8> {
    let data = fact.encode().expect("every fact has a JSON form");
    let MessageType { name, version, .. } = fact.message_type();
    let id = ids::derived(&["heard", name, data.get()]);
    let envelope = Envelope {
        id,
        message_type: name.to_owned(),
        version,
        producer: producer.to_owned(),
        correlation_id: fact.saga().unwrap_or(id),
        causation_id: Uuid::nil(),
        occurred_at,
        data,
    };
    serde_json::to_vec(&envelope).expect("every envelope has a JSON form")
}

/// Names of the fact types that the steps of a service consume, without those of the engine.
#[must_use]
pub fn consumed_facts<S: Service>() -> BTreeSet<&'static str> {
    let types =
        S::steps().iter().flat_map(|step: &Step| step.consumes).flat_map(|subscription| subscription.types);
    types.map(|message_type| message_type.name).collect()
}

fn decision_config(use_inbox: bool) -> DecisionConfig {
    let retry =
        RetryPolicy { max_attempts: ATTEMPTS, base: Duration::from_secs(1), cap: Duration::from_secs(10) };
    let (owner, task_lease) = ("test".to_owned(), SignedDuration::from_secs(30));
    DecisionConfig {
        retry,
        step_retry: BTreeMap::new(),
        task_retry: retry,
        owner,
        task_lease,
        keep_failed: false,
        lost_before: None,
        use_inbox,
    }
}
