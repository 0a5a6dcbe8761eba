//! Shell: the engine: every input joins a batch, and each batch is one transaction.
//!
//! [`Engine`] is the handle that HTTP, consumers, timers and task runner share. [`run`] is the only loop behind it.

mod batch_loop;
mod trials;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use saga_core::decision::DecisionConfig;
use saga_core::input::{CommandOutcome, Input, Outcome, RequestKey};
use saga_core::row::RowKey;
use saga_core::service::Service;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

pub use self::batch_loop::{BatchLoop, run};
use super::clock::SharedClock;
use super::observer::SharedObserver;
use super::relay_queue::RelayQueue;
use super::task_queue::TaskQueue;
use super::tracer::{self, OpenSpan, Tracer};
use crate::store::{ReplicaSignal, Store};

/// Number of watched rows from which abandoned watchers are removed.
const SWEPT_FROM: usize = 1024;

/// Callback for a durable outcome. Dropped without a call if the input was not stored.
/// Must not block: the engine runs it between two batches.
type OnOutcome<S> = Box<dyn FnOnce(Outcome<S>) + Send>;

/// A submitted input and the callback for its outcome.
pub struct PendingInput<S: Service> {
    input: Input<S>,
    submission: Submission,
    on_outcome: OnOutcome<S>,
}

/// Time of a submitted input, and its place in a trace.
#[derive(Clone, Copy)]
struct Submission {
    at: Instant,
    span: Option<OpenSpan>,
    /// Correlation id that the caller of the HTTP request sent.
    correlation_id: Option<Uuid>,
}

/// Handle of the engine. Clones share one queue.
pub struct Engine<S: Service> {
    inner: Arc<Inner<S>>,
}

impl<S: Service> Clone for Engine<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

struct Inner<S: Service> {
    inputs: mpsc::Sender<PendingInput<S>>,
    /// Wakes the loop when the queue holds a full batch.
    full: Notify,
    /// Queue length that makes a full batch, together with the input that the loop has already taken.
    full_at: usize,
    watched: Mutex<HashMap<RowKey, Vec<oneshot::Sender<()>>>>,
    relay: Arc<RelayQueue>,
    timers: Arc<Notify>,
    /// Time of the timers' next scan in microseconds; `i64::MAX` while they scan.
    timers_wake_at: AtomicI64,
    tasks: TaskQueue,
    store: Arc<dyn Store>,
    clock: SharedClock,
    tracer: Tracer,
}

impl<S: Service> Inner<S> {
    fn queued(&self) -> usize {
        self.inputs.max_capacity() - self.inputs.capacity()
    }
}

/// Error of an input that was not stored, as the engine stops or its store failed. Nothing happened; a retry is safe.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the service cannot store anything right now")]
pub struct Unavailable;

/// Batching of the engine, and its timers (section `engine`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSettings {
    /// Maximum number of inputs in one transaction.
    pub max_batch: usize,
    /// Capacity of the queue of inputs that wait for a transaction.
    pub queue: usize,
    /// Maximum batching delay. Grows with commit latency up to this limit; an idle engine commits at once, and so does a
    /// full batch.
    #[serde(with = "humantime_serde")]
    pub max_batch_delay: Duration,
    /// Maximum time between two polls for due rows and retries.
    #[serde(with = "humantime_serde")]
    pub timer_poll: Duration,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            max_batch: 256,
            queue: 4096,
            max_batch_delay: Duration::from_millis(20),
            timer_poll: Duration::from_secs(1),
        }
    }
}

/// Dependencies and settings of the engine.
pub struct Parts<S: Service> {
    /// The service, which decides on each input.
    pub service: Arc<S>,
    /// Database of the service: each batch is one transaction in it.
    pub store: Arc<dyn Store>,
    /// Settings that decisions depend on, such as retry policies.
    pub decision: DecisionConfig,
    /// Limits of batches and of the queue.
    pub settings: EngineSettings,
    /// Clock whose time each decision sees.
    pub clock: SharedClock,
    /// Observer of outcomes and commits, for metrics.
    pub observer: SharedObserver,
    /// Queue to the task runner, for the tasks of committed batches.
    pub tasks: TaskQueue,
    /// Tracer that records a span for each input.
    pub tracer: Tracer,
}

impl<S: Service> Engine<S> {
    /// Creates a handle and its loop. The caller spawns the loop with [`run`].
    pub fn new(parts: Parts<S>) -> (Self, BatchLoop<S>) {
        let (inputs, waiting) = mpsc::channel(parts.settings.queue);
        let (watched, tasks) = (Mutex::default(), parts.tasks.clone());
        let timers_wake_at = AtomicI64::new(i64::MAX);
        // The admission wakes the timers too: it knows when there is room for due tasks.
        let (relay, timers) = (Arc::default(), tasks.admission().timers().clone());
        let (store, clock, tracer) = (parts.store.clone(), parts.clock.clone(), parts.tracer.clone());
        let EngineSettings { max_batch, queue, .. } = parts.settings;
        let (full, full_at) = (Notify::new(), max_batch.saturating_sub(1).min(queue));
        let inner = Inner {
            inputs,
            full,
            full_at,
            watched,
            relay,
            timers,
            timers_wake_at,
            tasks,
            store,
            clock,
            tracer,
        };
        let engine = Self { inner: Arc::new(inner) };
        let batch_loop = BatchLoop::new(parts, waiting, engine.clone());
        (engine, batch_loop)
    }

    /// Executes a command and waits until its outcome is durable.
    ///
    /// # Errors
    /// [`Unavailable`] if the store failed or the service is stopping. Then nothing happened.
    pub async fn execute(
        &self,
        correlation_id: Uuid,
        command: S::Command,
        key: Option<RequestKey>,
    ) -> Result<CommandOutcome<S>, Unavailable> {
        let input = Input::command(Uuid::now_v7(), correlation_id, command, key);
        self.process(input).await?.of_command().ok_or(Unavailable)
    }

    /// Submits an input and waits until its outcome is durable.
    ///
    /// # Errors
    /// As [`Engine::execute`].
    pub async fn process(&self, input: Input<S>) -> Result<Outcome<S>, Unavailable> {
        let (answer, outcome) = oneshot::channel();
        self.submit(input, |outcome| {
            let _ = answer.send(outcome);
        })
        .await?;
        outcome.await.map_err(|_| Unavailable)
    }

    /// Queues an input. `on_outcome` runs once the outcome is durable, and is dropped if the input is not stored.
    ///
    /// An input without a trace continues the trace of the HTTP request that is being answered, if there is one.
    ///
    /// # Errors
    /// As [`Engine::execute`].
    pub async fn submit(
        &self,
        input: Input<S>,
        on_outcome: impl FnOnce(Outcome<S>) + Send + 'static,
    ) -> Result<(), Unavailable> {
        let Inner { tracer, inputs, .. } = self.inner.as_ref();
        let parent = input.trace.or_else(|| tracer::context_of_request(tracer, input.correlation_id));
        let span = tracer.begin(parent, input.correlation_id);
        let input = input.with_trace(span.map(|span| span.context));
        let correlation_id = tracer::caller_correlation_id();
        let submission = Submission { at: Instant::now(), span, correlation_id };
        let pending = PendingInput { input, submission, on_outcome: Box::new(on_outcome) };
        inputs.send(pending).await.map_err(|_| Unavailable)?;
        if self.inner.queued() >= self.inner.full_at {
            self.inner.full.notify_one();
        }
        Ok(())
    }

    /// Resolves at the next change of a row. Call it before reading the row: a change between the two is missed
    /// otherwise. Changes by other processes may be missed all the same, so read again after a while.
    pub fn changed(&self, key: RowKey) -> impl Future<Output = ()> + Send + use<S> {
        let (changed, wait) = oneshot::channel();
        let waits = self.inner.store.watch_kind(key.kind);
        let mut watched = self.inner.watched.lock();
        // Removes abandoned watchers: those of this row now, all others whenever the map has doubled.
        if watched.len() >= SWEPT_FROM && watched.len().is_power_of_two() {
            watched.retain(|_, watchers| watchers.iter().any(|watcher| !watcher.is_closed()));
        }
        let watchers = watched.entry(key).or_default();
        watchers.retain(|watcher| !watcher.is_closed());
        watchers.push(changed);
        async move {
            let _ = wait.await;
            drop(waits);
        }
    }

    /// Number of inputs in the queue.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.inner.queued()
    }

    /// Current time of the clock that decisions use.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// Queue of committed outbox entries, from which the relay publishes.
    #[must_use]
    pub fn relay_queue(&self) -> Arc<RelayQueue> {
        self.inner.relay.clone()
    }

    /// Notified when something may come due before the timers' next scan.
    #[must_use]
    pub fn timer_wake(&self) -> Arc<Notify> {
        self.inner.timers.clone()
    }

    /// Marks the start of a scan by the timers. Until it ends, each due time that is written wakes them.
    pub(super) fn timers_scan(&self) {
        self.inner.timers_wake_at.store(i64::MAX, Ordering::SeqCst);
    }

    /// Marks the end of a scan. What comes due after `pause` need not wake the timers.
    pub(super) fn timers_sleep(&self, pause: Duration) {
        let at = self.now().checked_add(pause).unwrap_or(Timestamp::MAX);
        self.inner.timers_wake_at.store(at.as_microsecond(), Ordering::SeqCst);
    }

    fn wake_timers_for(&self, due: Timestamp) {
        if due.as_microsecond() < self.inner.timers_wake_at.load(Ordering::SeqCst) {
            self.inner.timers.notify_one();
        }
    }

    /// Tracer that records a span for each input.
    #[must_use]
    pub fn tracer(&self) -> &Tracer {
        &self.inner.tracer
    }

    /// Queue to the task runner.
    #[must_use]
    pub fn tasks(&self) -> &TaskQueue {
        &self.inner.tasks
    }

    /// Wakes those who wait for what another process has committed.
    pub(super) fn on_notification(&self, notification: ReplicaSignal) {
        match notification {
            ReplicaSignal::EntriesStored => self.inner.relay.request_tail(),
            ReplicaSignal::Due(due) => self.wake_timers_for(due),
            ReplicaSignal::RowsChanged(rows) => self.notify_watchers(&rows),
            // Handled by `Overrides`.
            ReplicaSignal::OverridesChanged => {}
            ReplicaSignal::Missed => {
                self.inner.relay.request_scan();
                self.inner.timers.notify_one();
                let watched = std::mem::take(&mut *self.inner.watched.lock());
                for watcher in watched.into_values().flatten() {
                    let _ = watcher.send(());
                }
            }
        }
    }

    fn notify_watchers(&self, changed: &[RowKey]) {
        let mut watched = self.inner.watched.lock();
        if watched.is_empty() {
            return;
        }
        for key in changed {
            for watcher in watched.remove(key).unwrap_or_default() {
                let _ = watcher.send(());
            }
        }
    }
}
