//! Shell: the engine: everything is an input, inputs go in batches, a batch is one transaction.
//!
//! [`Engine`] is the handle that HTTP, consumers, timers and tasks share; [`run`] is the one loop behind it.

mod batching;

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
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

pub use self::batching::{Loop, run};
use super::clock::SharedClock;
use super::handover::Handover;
use super::observer::SharedObserver;
use super::task_runner::TaskRunner;
use super::tracer::{self, OpenSpan, Tracer};
use crate::store::{ReplicaSignal, Store};

/// From this many watched rows on, those that nobody waits for any more are looked for.
const SWEPT_FROM: usize = 1024;

/// What is done with an outcome once it is durable. Dropped unused when it did not become so.
/// It must not wait for anything: the engine would wait with it.
type OnSettled<S> = Box<dyn FnOnce(Outcome<S>) + Send>;

/// An input with what its outcome is for.
pub struct Pending<S: Service> {
    input: Input<S>,
    seen: Seen,
    on_settled: OnSettled<S>,
}

/// When an input was handed in, and its span.
#[derive(Clone, Copy)]
struct Seen {
    at: Instant,
    begun: Option<OpenSpan>,
}

/// The handle. Cheap to clone.
pub struct Engine<S: Service> {
    inner: Arc<Inner<S>>,
}

impl<S: Service> Clone for Engine<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

struct Inner<S: Service> {
    inputs: mpsc::Sender<Pending<S>>,
    /// Wakes the loop when what waits fills a batch.
    full: Notify,
    /// So many that wait do, beside the one that the loop has taken.
    full_at: usize,
    watched: Mutex<HashMap<RowKey, Vec<oneshot::Sender<()>>>>,
    relay: Arc<Handover>,
    timers: Arc<Notify>,
    /// When the timers look again without being woken, in microseconds; the end of time while they look.
    timers_look_at: AtomicI64,
    tasks: TaskRunner,
    store: Arc<dyn Store>,
    clock: SharedClock,
    tracer: Tracer,
}

impl<S: Service> Inner<S> {
    fn waiting(&self) -> usize {
        self.inputs.max_capacity() - self.inputs.capacity()
    }
}

/// The engine is gone, or its store failed: nothing happened, try again.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the service cannot store anything right now")]
pub struct Unavailable;

/// The engine's bounds.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Inputs in one transaction.
    pub max_batch: usize,
    /// Inputs that may wait; a sender beyond that waits too.
    pub queue: usize,
    /// Two batches begin at most so far apart while anything waits; after a rest one begins at once, and a full one too.
    pub max_batch_delay: Duration,
}

/// What the loop works with, beside the inputs.
pub struct Parts<S: Service> {
    /// The service, which says how each input is reacted to.
    pub service: Arc<S>,
    /// Where each batch is stored as one transaction.
    pub store: Arc<dyn Store>,
    /// What every decision needs to know of the settings.
    pub rules: DecisionConfig,
    /// The engine's bounds.
    pub bounds: Bounds,
    /// The time of day.
    pub clock: SharedClock,
    /// Hears of every outcome and every commit, for metrics.
    pub observer: SharedObserver,
    /// What takes up the tasks.
    pub tasks: TaskRunner,
    /// Where spans go.
    pub tracer: Tracer,
}

impl<S: Service> Engine<S> {
    /// A handle and its loop, to be spawned with [`run`].
    pub fn new(parts: Parts<S>) -> (Self, Loop<S>) {
        let (inputs, waiting) = mpsc::channel(parts.bounds.queue);
        let (watched, tasks) = (Mutex::default(), parts.tasks.clone());
        let timers_look_at = AtomicI64::new(i64::MAX);
        // Room for due tasks is made where they are admitted.
        let (relay, timers) = (Arc::default(), tasks.admission().timers().clone());
        let (store, clock, tracer) = (parts.store.clone(), parts.clock.clone(), parts.tracer.clone());
        let Bounds { max_batch, queue, .. } = parts.bounds;
        let (full, full_at) = (Notify::new(), max_batch.saturating_sub(1).min(queue));
        let inner = Inner {
            inputs,
            full,
            full_at,
            watched,
            relay,
            timers,
            timers_look_at,
            tasks,
            store,
            clock,
            tracer,
        };
        let engine = Self { inner: Arc::new(inner) };
        let looping = Loop::new(parts, waiting, engine.clone());
        (engine, looping)
    }

    /// Asks for a command and waits until its outcome is durable.
    ///
    /// # Errors
    /// When the store failed or the service is stopping: then nothing happened.
    pub async fn ask(
        &self,
        correlation_id: Uuid,
        command: S::Command,
        key: Option<RequestKey>,
    ) -> Result<CommandOutcome<S>, Unavailable> {
        let input = Input::command(Uuid::now_v7(), correlation_id, command, key);
        self.settle(input).await?.of_command().ok_or(Unavailable)
    }

    /// Hands an input in and waits until its outcome is durable.
    ///
    /// # Errors
    /// As [`Engine::ask`].
    pub async fn settle(&self, input: Input<S>) -> Result<Outcome<S>, Unavailable> {
        let (settled, outcome) = oneshot::channel();
        self.hand_in(input, |outcome| {
            let _ = settled.send(outcome);
        })
        .await?;
        outcome.await.map_err(|_| Unavailable)
    }

    /// Hands an input in; `on_settled` runs when its outcome is durable, and is dropped when it never will be. One that
    /// stands nowhere in a trace, and is handed in by who answers a request, stands below that answer.
    ///
    /// # Errors
    /// As [`Engine::ask`].
    pub async fn hand_in(
        &self,
        input: Input<S>,
        on_settled: impl FnOnce(Outcome<S>) + Send + 'static,
    ) -> Result<(), Unavailable> {
        let Inner { tracer, inputs, .. } = self.inner.as_ref();
        let parent = input.trace.or_else(|| tracer::of_the_request(tracer, input.correlation_id));
        let begun = tracer.begin(parent, input.correlation_id);
        let input = input.with_trace(begun.map(|begun| begun.context));
        let seen = Seen { at: Instant::now(), begun };
        let pending = Pending { input, seen, on_settled: Box::new(on_settled) };
        inputs.send(pending).await.map_err(|_| Unavailable)?;
        if self.inner.waiting() >= self.inner.full_at {
            self.inner.full.notify_one();
        }
        Ok(())
    }

    /// Resolves at the next change of the row. Arm it before looking at the row, or a change between the two
    /// is missed. One by another process may be missed all the same: look again after a while.
    pub fn changed(&self, key: RowKey) -> impl Future<Output = ()> + Send + use<S> {
        let (changed, wait) = oneshot::channel();
        let waits = self.inner.store.watch_kind(key.kind);
        let mut watched = self.inner.watched.lock();
        // Those who gave up waiting leave here: their row's at once, the others' whenever the map has doubled.
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

    /// Inputs that wait for their transaction, as far as there is room for them.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.inner.waiting()
    }

    /// The time by which everything is decided here.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// The way to the relay.
    #[must_use]
    pub fn relay(&self) -> Arc<Handover> {
        self.inner.relay.clone()
    }

    /// Wakes when something may come due earlier than was known.
    #[must_use]
    pub fn timer_wake(&self) -> Arc<Notify> {
        self.inner.timers.clone()
    }

    /// The timers are about to look: whatever comes due from now on may be missed by that look.
    pub(super) fn timers_look_now(&self) {
        self.inner.timers_look_at.store(i64::MAX, Ordering::SeqCst);
    }

    /// The timers have looked, and look again after `pause`: what comes due later needs not wake them.
    pub(super) fn timers_look_in(&self, pause: Duration) {
        let at = self.now().checked_add(pause).unwrap_or(Timestamp::MAX);
        self.inner.timers_look_at.store(at.as_microsecond(), Ordering::SeqCst);
    }

    fn wake_timers_for(&self, due: Timestamp) {
        if due.as_microsecond() < self.inner.timers_look_at.load(Ordering::SeqCst) {
            self.inner.timers.notify_one();
        }
    }

    /// Where spans go.
    #[must_use]
    pub fn tracer(&self) -> &Tracer {
        &self.inner.tracer
    }

    /// What takes up the tasks.
    #[must_use]
    pub fn tasks(&self) -> &TaskRunner {
        &self.inner.tasks
    }

    /// Wakes whoever waits for what another process has committed.
    pub(super) fn hears_of(&self, heard: ReplicaSignal) {
        match heard {
            ReplicaSignal::EntriesStored => self.inner.relay.look_behind(),
            ReplicaSignal::Due(due) => self.wake_timers_for(due),
            ReplicaSignal::RowsChanged(rows) => self.tell_watchers(&rows),
            // Nothing that goes through here.
            ReplicaSignal::OverridesChanged => {}
            ReplicaSignal::Missed => {
                self.inner.relay.look_again();
                self.inner.timers.notify_one();
                let watched = std::mem::take(&mut *self.inner.watched.lock());
                for watcher in watched.into_values().flatten() {
                    let _ = watcher.send(());
                }
            }
        }
    }

    fn tell_watchers(&self, changed: &[RowKey]) {
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
