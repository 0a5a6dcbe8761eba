//! Shell: a service on its real engine, store and relay, batch by batch, and the cost of each batch.
//!
//! There are no batching delays, timers or broker: the script decides what is in a batch. All work until the
//! batch is settled counts as the service's own, since nothing else runs meanwhile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use budget::Cost;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use saga_core::admission::{Admission, TaskBounds};
use saga_core::dead_letter::{DeliveryInfo, PACK_HEADER};
use saga_core::decision::DecisionConfig;
use saga_core::fault::FaultKind;
use saga_core::input::{Input, Outcome};
use saga_core::retry::RetryPolicy;
use saga_core::service::{Service, steps_of};
use saga_core::waiting::Task;
use saga_engine::runtime::admission::SharedAdmission;
use saga_engine::runtime::bus::{Durable, Publish};
use saga_engine::runtime::clock::Clock;
use saga_engine::runtime::engine::{self, Engine, EngineSettings, Parts};
use saga_engine::runtime::injected_faults::{FaultSettings, InjectedFaults};
use saga_engine::runtime::observer::Observer;
use saga_engine::runtime::relay::{Relay, RelaySettings, Round};
use saga_engine::runtime::task_queue::{QueuedTask, TaskQueue};
use saga_engine::runtime::task_runner::NO_DEPENDENCY;
use saga_engine::runtime::tracer::Tracer;
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{OutboxEntry, PublishOutcome};
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, unconstrained};

use crate::allocations::{self, uncounted};
use crate::database::{self, DatabaseTrace, Usage};

/// Start of the scripted clock, which advances by a millisecond per batch.
pub const NOON: Timestamp = Timestamp::constant(1_767_268_800, 0);
/// Limit of open tasks; higher than the number there ever is.
const TASKS: usize = 1 << 20;
/// Time limit for work that no caller waits for.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct ScriptedClock(AtomicI64);

impl ScriptedClock {
    pub fn advance(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Clock for ScriptedClock {
    fn now(&self) -> Timestamp {
        NOON + SignedDuration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// Messages that one service published in one batch.
pub struct PublishedBatch {
    pub producer: &'static str,
    pub entries: Vec<OutboxEntry>,
}

/// A service, with the cost counted so far.
pub struct Site<S: Service> {
    pub store: Arc<SqliteStore>,
    path: PathBuf,
    trace: &'static DatabaseTrace,
    clock: Arc<ScriptedClock>,
    engine: Engine<S>,
    batch_loop: JoinHandle<()>,
    relay: Relay,
    tasks: mpsc::UnboundedReceiver<QueuedTask>,
    progress: Arc<Progress>,
    /// Number of batches that each of its durables has consumed.
    consumed: u64,
    cost: Cost,
    began: Usage,
}

impl<S: Service> Site<S> {
    /// Creates the service with an empty database in this folder.
    pub fn new(service: S, folder: &Path, clock: Arc<ScriptedClock>) -> Self {
        let path = folder.join(format!("{}.db", S::NAME));
        let (store, trace) = database::traced(&path, || SqliteStore::open(&path, S::rows()));
        let store = Arc::new(store.expect("a new database"));
        let steps = steps_of::<S>().into_iter().map(|step| step.name).collect();
        let faults = InjectedFaults::new(FaultSettings::default(), &FaultKind::OF_A_SERVICE, steps);
        let limits = TaskBounds { backlog: TASKS, concurrency: TASKS };
        let admission =
            SharedAdmission::new(Admission::new(NO_DEPENDENCY, limits), faults, S::NAME, clock.as_ref());
        let (runner, tasks) = TaskQueue::new(admission);
        let progress = Arc::new(Progress::default());
        let (engine, batch_loop) = Engine::new(Parts {
            service: Arc::new(service),
            store: store.clone(),
            decision: decision_config(),
            settings: EngineSettings { max_batch_delay: Duration::ZERO, ..EngineSettings::default() },
            clock: clock.clone(),
            observer: progress.clone(),
            tasks: runner,
            tracer: Tracer::off(),
        });
        let batch_loop = tokio::spawn(engine::run(batch_loop));
        let relay = Relay::new(store.clone(), S::NAME.to_owned(), RelaySettings::default());
        let relay = relay.with_queue(engine.relay_queue());
        let (consumed, cost, began) = (0, Cost::default(), Usage::default());
        Self { store, path, trace, clock, engine, batch_loop, relay, tasks, progress, consumed, cost, began }
    }

    pub fn begin(&mut self) {
        database::empty_log(&self.path);
        self.cost = Cost::default();
        self.began = self.trace.usage(&self.path);
    }

    /// Stops the service and returns the cost counted since [`Self::begin`].
    pub fn end(self) -> Cost {
        self.batch_loop.abort();
        let (before, now) = (&self.began, self.trace.usage(&self.path));
        let statements = now
            .statements
            .iter()
            .map(|(name, count)| (name.clone(), count - before.statements.get(name).copied().unwrap_or(0)));
        let statements: BTreeMap<_, _> = statements.filter(|(_, count)| *count > 0).collect();
        let pages = database::pages_written(&self.path, before.log_bytes);
        assert_eq!(budget::sum(&pages), now.pages - before.pages, "SQLite counts what is in its log");
        Cost {
            transactions: statements["COMMIT"],
            statements,
            pages,
            log_bytes: now.log_bytes - before.log_bytes,
            database_bytes: now.database_bytes - before.database_bytes,
            ..self.cost
        }
    }

    /// Runs inputs as one batch and returns their outcomes.
    pub async fn run_batch(&mut self, make: impl FnOnce() -> Vec<Input<S>>) -> Vec<Outcome<S>> {
        self.clock.advance();
        let (before, batches) = (allocations::total(), self.progress.batches.load(Ordering::SeqCst));
        let inputs = make();
        let count = inputs.len();
        let (outcomes, all_done) =
            uncounted(|| (Arc::new(Mutex::new(Vec::with_capacity(count))), Arc::new(Notify::new())));
        let sources = uncounted(|| inputs.iter().map(|input| input.source().to_owned()).collect::<Vec<_>>());
        let submission = async {
            for input in inputs {
                let (outcomes, all_done) = (outcomes.clone(), all_done.clone());
                let on_outcome = move |outcome| {
                    let mut outcomes = outcomes.lock();
                    outcomes.push(outcome);
                    if outcomes.len() == count {
                        all_done.notify_one();
                    }
                };
                self.engine.submit(input, on_outcome).await.expect("the store works");
            }
        };
        // The engine starts to run when all inputs are in its queue.
        unconstrained(submission).await;
        tokio::time::timeout(TIMEOUT, all_done.notified()).await.expect("a batch is settled");
        uncounted(|| {
            self.allocated_since(before);
            assert_eq!(self.progress.batches.load(Ordering::SeqCst), batches + 1, "they are one batch");
            sources.into_iter().for_each(|source| *self.cost.inputs.entry(source).or_default() += 1);
            std::mem::take(&mut *outcomes.lock())
        })
    }

    /// Consumes a batch of messages and publishes what follows.
    pub async fn consume(&mut self, published: &PublishedBatch) -> Option<PublishedBatch> {
        let durables = Durable::all(S::NAME, &steps_of::<S>());
        let durables =
            durables.into_iter().filter(|durable| durable.subscription.producer == published.producer);
        let durables: Vec<_> = durables
            .map(|durable| {
                (durable.step, durable.subscription.stream(), durable.subscription.subjects(S::NAME))
            })
            .collect();
        let is_consumed =
            |entry: &OutboxEntry| durables.iter().any(|(_, _, subjects)| subjects.contains(&entry.subject));
        if !published.entries.iter().any(is_consumed) {
            return None;
        }
        let consumed = self.consumed;
        let outcomes = self.run_batch(|| {
            let mut inputs = Vec::new();
            for (index, entry) in (1..).zip(&published.entries) {
                for (step, stream, _) in
                    durables.iter().filter(|(_, _, subjects)| subjects.contains(&entry.subject))
                {
                    let headers =
                        vec![(PACK_HEADER.to_owned(), format!("{index}/{}", published.entries.len()))];
                    let (stream, subject, sequence) = (stream.clone(), entry.subject.clone(), consumed);
                    let delivery = DeliveryInfo { stream, sequence, subject, headers };
                    inputs.push(Input::from_broker(step, entry.payload.clone(), delivery, 0));
                }
            }
            inputs
        });
        for outcome in outcomes.await {
            assert_eq!(outcome.name(), "done", "{} of {}", S::NAME, published.entries[0].subject);
        }
        self.consumed += 1;
        self.publish().await
    }

    /// Publishes all outbox entries at once.
    pub async fn publish(&mut self) -> Option<PublishedBatch> {
        let before = allocations::total();
        let (recorder, commits, published) =
            (Recorder::default(), self.trace.commits(), self.progress.published());
        let round = self.relay.round(&recorder, self.progress.as_ref(), self.clock.now()).await;
        let count = match round.expect("the store works") {
            Round::Published(count) => count,
            Round::Idle => {
                self.allocated_since(before);
                return None;
            }
            Round::Delayed(why) => panic!("{} publishes nothing: {why}", S::NAME),
            Round::Standby => panic!("somebody else publishes for {}", S::NAME),
        };
        // No caller waits for the settlement, so the relay attaches it to another commit if one comes soon.
        // None does here.
        let settling = async {
            while self.trace.commits() == commits || self.progress.published() < published + count {
                tokio::time::sleep(Duration::from_millis(1)).await;
                if self.trace.commits() > commits {
                    let again = self.relay.round(&recorder, self.progress.as_ref(), self.clock.now()).await;
                    assert_eq!(again.expect("the store works"), Round::Idle);
                }
            }
        };
        tokio::time::timeout(TIMEOUT, settling).await.expect("what was published is settled");
        self.allocated_since(before);
        let entries = std::mem::take(&mut *recorder.0.lock());
        for entry in &entries {
            *self.cost.messages.entry(entry.subject.clone()).or_default() += 1;
            self.cost.message_bytes += entry.payload.len() as u64;
        }
        Some(PublishedBatch { producer: S::NAME, entries })
    }

    /// Tasks that the service wants to run.
    pub fn tasks(&mut self) -> Vec<Task> {
        std::iter::from_fn(|| self.tasks.try_recv().ok()).map(|waiting| waiting.task).collect()
    }

    fn allocated_since(&mut self, (allocations, bytes): (u64, u64)) {
        let (now, bytes_now) = allocations::total();
        self.cost.allocations += now - allocations;
        self.cost.allocated_bytes += bytes_now - bytes;
    }
}

/// Counts what the loops report.
#[derive(Default)]
struct Progress {
    batches: AtomicUsize,
    published: AtomicUsize,
}

impl Progress {
    fn published(&self) -> usize {
        self.published.load(Ordering::SeqCst)
    }
}

impl Observer for Progress {
    fn batch_committed(&self, _: usize, _: Duration) {
        self.batches.fetch_add(1, Ordering::SeqCst);
    }

    fn published(&self, messages: usize, _: usize, _: Duration) {
        self.published.fetch_add(messages, Ordering::SeqCst);
    }
}

/// A broker that accepts everything.
#[derive(Default)]
struct Recorder(Mutex<Vec<OutboxEntry>>);

impl Publish for Recorder {
    fn publish<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, PublishOutcome> {
        let done = entries.iter().map(|entry| entry.seq).collect();
        uncounted(|| self.0.lock().extend_from_slice(entries));
        Box::pin(std::future::ready(PublishOutcome { done, ..PublishOutcome::default() }))
    }
}

fn decision_config() -> DecisionConfig {
    let retry = RetryPolicy { max_attempts: 1, base: Duration::ZERO, cap: Duration::ZERO };
    DecisionConfig {
        retry,
        step_retry: BTreeMap::new(),
        task_retry: retry,
        owner: "budget".to_owned(),
        task_lease: SignedDuration::from_secs(30),
        keep_failed: false,
        lost_before: None,
        use_inbox: true,
    }
}
