//! Pure: one service in memory, for given/when/then: what its database would hold, carried from batch to batch.
//!
//! It stands in for the store alone; every decision is the real engine's ([`saga_core::decision::decide`]).
//! Each batch is decided twice and must come out the same, each row must be the fold of its events, and no
//! message or task id may ever be used again. The inbox is off unless a test turns it on: the domain must be
//! correct without.

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

use super::kept::{Kept, told};
use super::then::Then;

/// When everything happens, unless a test moves [`ServiceUnderTest::now`].
pub const NOON: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// Tries of a message or call before it is given up.
pub const ATTEMPTS: u32 = 3;

/// Something to react to; can be said again, in another batch.
#[derive(Debug)]
pub enum Stimulus<S: Service> {
    /// Somebody asks for something, through HTTP.
    Command {
        /// The input's id.
        id: Uuid,
        /// Correlation id of the input: the saga's, where there is one.
        saga: Uuid,
        /// What is asked for.
        command: S::Command,
        /// Makes it answerable more than once with the same answer.
        key: Option<RequestKey>,
    },
    /// A fact, for the step that hears it. The same fact is the same message.
    Fact(S::Fact),
    /// The same, said by this service: where several say such a fact.
    FactOf(String, S::Fact),
    /// What an operator asks of the engine.
    Operator(DeadLetterMessage),
    /// A message that failed before.
    Retry(Retry),
    /// The outcome of one try of a task.
    Called(Task, Result<Value, FailedAttempt>),
    /// A row's due time.
    Due(RowKey, Timestamp),
}

/// A service with its database.
pub struct ServiceUnderTest<S: Service> {
    /// When the next batch is decided: [`NOON`], until a test moves it.
    pub now: Timestamp,
    /// Whether inbox marks are looked at.
    pub use_inbox: bool,
    /// What its database holds after the batches so far.
    pub kept: Kept,
    service: S,
    asked: u128,
}

impl<S: Service<Command: Clone>> ServiceUnderTest<S> {
    /// The service, with an empty database.
    #[must_use]
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
    pub fn hears(&mut self, fact: impl Into<S::Fact>) -> Then<S> {
        self.takes(Stimulus::Fact(fact.into()))
    }

    /// When a step hears a fact of this service, where several say such a fact.
    #[track_caller]
    pub fn hears_from(&mut self, producer: &str, fact: impl Into<S::Fact>) -> Then<S> {
        self.takes(Stimulus::FactOf(producer.to_owned(), fact.into()))
    }

    /// When an operator asks something of the engine.
    #[track_caller]
    pub fn is_operated(&mut self, message: DeadLetterMessage) -> Then<S> {
        self.takes(Stimulus::Operator(message))
    }

    /// When the outside answers a task.
    #[track_caller]
    pub fn is_answered(&mut self, task: &Task, answer: Value) -> Then<S> {
        self.takes(Stimulus::Called(task.clone(), Ok(answer)))
    }

    /// When the call of a task is about to be made, and asked about.
    #[track_caller]
    pub fn is_about_to_call(&mut self, task: &Task) -> Then<S> {
        let current = self.kept.tasks.get(&task.id).unwrap_or(task).clone();
        let unknown = FailedAttempt::new(FailureKind::NeverAttempted, "nobody wants it any more");
        self.takes(Stimulus::Called(current, Err(unknown)))
    }

    /// When one try of a task gets no clear answer.
    #[track_caller]
    pub fn gets_no_answer(&mut self, task: &Task, reason: &str) -> Then<S> {
        let current = self.kept.tasks.get(&task.id).unwrap_or(task).clone();
        self.takes(Stimulus::Called(current, Err(FailedAttempt::new(FailureKind::Transient, reason))))
    }

    /// When the outside says that a task can never work.
    #[track_caller]
    pub fn is_refused_for_good(&mut self, task: &Task, reason: &str) -> Then<S> {
        let current = self.kept.tasks.get(&task.id).unwrap_or(task).clone();
        self.takes(Stimulus::Called(current, Err(FailedAttempt::new(FailureKind::Permanent, reason))))
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
    pub fn takes(&mut self, stimulus: Stimulus<S>) -> Then<S> {
        let kept = &self.kept;
        let (events, outbox, called, dead) =
            (kept.events.len(), kept.outbox.len(), kept.called.len(), kept.dead.len());
        let outcome = self.takes_batch(&[stimulus]).pop().expect("every input has an outcome");
        let kept = &self.kept;
        Then {
            outcome,
            events: kept.events[events..].iter().map(|event| event.2).collect(),
            facts: told::<S>(&kept.outbox[outbox..]),
            tasks: kept.called[called..].to_vec(),
            dead: kept.dead[dead..].to_vec(),
        }
    }

    /// One batch, as the engine runs it.
    #[track_caller]
    pub fn takes_batch(&mut self, stimuli: &[Stimulus<S>]) -> Vec<Outcome<S>> {
        let inputs: Vec<_> = stimuli.iter().map(Stimulus::input).collect();
        let mut reads = decision::reads(&self.service, &inputs);
        let mut loaded = self.kept.load(&reads);
        let rules = rules(self.use_inbox);
        let decide = |loaded| decision::decide(&self.service, &inputs, loaded, &rules, self.now);
        let mut also_read = BTreeSet::new();
        let (first, _) = loop {
            let (writes, outcomes) = decide(loaded.clone());
            if writes.to_read.is_empty() {
                break (writes, outcomes);
            }
            also_read.extend(writes.to_read);
            reads.rows.extend(also_read.iter().cloned());
            loaded = Loaded { also_read: also_read.clone(), ..self.kept.load(&reads) };
        };
        let (writes, outcomes) = decide(loaded);
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

    /// The history of a row, all of it from [`NOON`].
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn history<D: Decider>(&self, id: impl ToString) -> Vec<PastEvent<D::Event>> {
        let key = RowKey::of::<D>(id);
        let is_published = |version: i64| {
            self.kept.outbox.iter().any(|promise| promise.tells == Some((key.clone(), version)))
        };
        let of_row = self.kept.events.iter().filter(|event| event.0 == key);
        let recorded = of_row.map(|(_, version, _, data, _)| PastEvent {
            event: serde_json::from_str(data).expect("a stored event can be read"),
            at: NOON,
            is_published: is_published(*version),
        });
        recorded.collect()
    }

    /// When a row wants to be looked at again.
    pub fn due<D: Decider>(&self, id: impl ToString) -> Option<Timestamp> {
        self.kept.rows.get(&RowKey::of::<D>(id)).and_then(|(_, projected)| projected.due)
    }

    /// Every fact ever told; announcements about dead letters not counted.
    #[must_use]
    pub fn told(&self) -> Vec<S::Fact> {
        told::<S>(&self.kept.outbox)
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
    stimuli: &[Stimulus<S>],
    size: usize,
    use_inbox: bool,
) {
    let run = |size: usize| {
        let mut world = ServiceUnderTest { use_inbox, ..ServiceUnderTest::of(service()) };
        let outcomes: Vec<_> = stimuli.chunks(size).flat_map(|chunk| world.takes_batch(chunk)).collect();
        let mut kept = world.kept;
        // A task that is over before the batch that wrote it has ended was never there to be called.
        let Kept { called, tasks, .. } = &mut kept;
        called.retain(|task| tasks.contains_key(&task.id));
        (kept, outcomes.iter().map(Outcome::name).collect::<Vec<_>>())
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
            Self::FactOf(producer, fact) => Self::FactOf(producer.clone(), fact.clone()),
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
            Self::Fact(fact) => heard(None, &fact),
            Self::FactOf(producer, fact) => heard(Some(&producer), &fact),
            Self::Operator(message) => heard(None, &message),
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

/// A fact as the message that reaches the one step that hears it.
#[track_caller]
fn heard<S: Service>(producer: Option<&str>, fact: &impl Message) -> Input<S> {
    let message_type = fact.message_type();
    let (step, producer) = steps_of::<S>()
        .into_iter()
        .flat_map(|step| step.consumes.iter().map(move |heard| (step, heard)))
        .filter(|(_, heard)| heard.types.contains(&message_type))
        .find(|(_, heard)| producer.is_none_or(|producer| heard.producer == producer))
        .map(|(step, heard)| (step, heard.producer))
        .expect("some step hears this fact");
    Input::message(step, envelope(producer, fact).into(), Uuid::nil(), 0)
}

/// The bytes of a message in which `producer` says `fact`. Its id follows from what it says.
#[must_use]
pub fn envelope(producer: &str, fact: &impl Message) -> Vec<u8> {
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
        occurred_at: NOON,
        data,
    };
    serde_json::to_vec(&envelope).expect("every envelope has a JSON form")
}

/// Names of the types of fact that some step of a service hears; what the engine itself hears not counted.
#[must_use]
pub fn facts_heard<S: Service>() -> BTreeSet<&'static str> {
    let heard = S::steps().iter().flat_map(|step: &Step| step.consumes).flat_map(|heard| heard.types);
    heard.map(|message_type| message_type.name).collect()
}

fn rules(use_inbox: bool) -> DecisionConfig {
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
        use_inbox,
    }
}
