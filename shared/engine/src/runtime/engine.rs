//! Shell: the engine: everything is an input, inputs go in batches, a batch is one transaction.
//!
//! [`Engine`] is the handle that HTTP, consumers, timers and tasks share. [`run`] is the one loop behind it:
//! take what has gathered, decide it in memory, commit, and only then acknowledge, answer and wake.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use jiff::Timestamp;
use parking_lot::Mutex;
use saga_core::decision::{self, Rules};
use saga_core::input::{CommandOutcome, DueOutcome, Input, InputKind, MessageOutcome, Outcome, RequestKey};
use saga_core::retry::{FailedTry, FailureKind, error_chain};
use saga_core::row::RowKey;
use saga_core::service::Service;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use tracing::{debug, error};
use uuid::Uuid;

use super::clock::SharedClock;
use super::gathering::Gathering;
use super::handover::Handover;
use super::log_line;
use super::observer::{InputSettled, SharedObserver};
use super::settlement::Settlement;
use super::spans::Spans;
use super::task_runner::{IsNew, TaskRunner};
use super::tracer::{self, OpenSpan, Tracer};
use crate::store::{Store, StoreFault};

/// Pause after the store failed: a full disk does not get better by asking faster.
const STORE_FAULT_PAUSE: Duration = Duration::from_millis(500);

/// Others run so often without handing anything in before a batch is what has come: some microseconds.
const QUIET_LOOKS: u32 = 20;

/// Runs of a batch whose rows were changed by somebody else meanwhile.
const CONFLICT_RUNS: usize = 3;

/// From this many watched rows on, those that nobody waits for any more are looked for.
const SWEPT_FROM: usize = 1024;

/// What is done with an outcome once it is durable. Dropped unused when it did not become so.
/// It must not wait for anything: the engine would wait with it.
type OnSettled<S> = Box<dyn FnOnce(Outcome<S>) + Send>;

/// Those who wait for the outcomes of a batch, in its order.
type Waiters<S> = std::vec::IntoIter<(Seen, OnSettled<S>)>;

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
    pub batch_max: usize,
    /// Inputs that may wait; a sender beyond that waits too.
    pub queue: usize,
    /// Two batches begin at most so far apart while anything waits; after a rest one begins at once, and a full one too.
    pub gather: Duration,
}

/// What the loop works with, beside the inputs.
pub struct Parts<S: Service> {
    /// The service, which says how each input is reacted to.
    pub service: Arc<S>,
    /// Where each batch is stored as one transaction.
    pub store: Arc<dyn Store>,
    /// What every decision needs to know of the settings.
    pub rules: Rules,
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

/// The loop's end of the handle.
pub struct Loop<S: Service> {
    parts: Parts<S>,
    waiting: mpsc::Receiver<Pending<S>>,
    engine: Engine<S>,
    /// Whether so much comes that the log tells only of what went wrong.
    is_busy: bool,
}

impl<S: Service> Engine<S> {
    /// A handle and its loop, to be spawned with [`run`].
    pub fn new(parts: Parts<S>) -> (Self, Loop<S>) {
        let (inputs, waiting) = mpsc::channel(parts.bounds.queue);
        let (watched, tasks) = (Mutex::default(), parts.tasks.clone());
        let timers_look_at = AtomicI64::new(i64::MAX);
        // Room for due tasks is made where they are admitted.
        let (relay, timers) = (Arc::default(), tasks.admission().timers().clone());
        let (clock, tracer) = (parts.clock.clone(), parts.tracer.clone());
        let Bounds { batch_max, queue, .. } = parts.bounds;
        let (full, full_at) = (Notify::new(), batch_max.saturating_sub(1).min(queue));
        let inner =
            Inner { inputs, full, full_at, watched, relay, timers, timers_look_at, tasks, clock, tracer };
        let engine = Self { inner: Arc::new(inner) };
        let looping = Loop { parts, waiting, engine: engine.clone(), is_busy: false };
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
        let input = input.traced(begun.map(|begun| begun.context));
        let seen = Seen { at: Instant::now(), begun };
        let pending = Pending { input, seen, on_settled: Box::new(on_settled) };
        inputs.send(pending).await.map_err(|_| Unavailable)?;
        if self.inner.waiting() >= self.inner.full_at {
            self.inner.full.notify_one();
        }
        Ok(())
    }

    /// Resolves at the next change of the row. Arm it before looking at the row, or a change between the two
    /// is missed.
    pub fn changed(&self, key: RowKey) -> impl Future<Output = ()> + Send + use<S> {
        let (changed, wait) = oneshot::channel();
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

/// Runs batches until the last handle is gone.
pub async fn run<S: Service>(mut looping: Loop<S>) {
    let Bounds { batch_max, gather, .. } = looping.parts.bounds;
    let (mut gathered, mut gathering) = (Vec::with_capacity(batch_max), Gathering::new(gather));
    let origin = Instant::now();
    loop {
        // The loop's own handle keeps the channel open; the service ends it by dropping the task.
        let Some(first) = looping.waiting.recv().await else { return };
        gathered.push(first);
        looping.wait_for_more(origin + gathering.next()).await;
        looping.gather(&mut gathered).await;
        gathering.begins(gathered.len(), origin.elapsed());
        looping.is_busy = gathering.is_busy();
        let (inputs, settled): (Vec<_>, Vec<_>) =
            gathered.drain(..).map(|pending| (pending.input, (pending.seen, pending.on_settled))).unzip();
        looping.store(Arc::new(inputs), settled.into_iter()).await;
        gathering.ended(origin.elapsed());
    }
}

impl<S: Service> Loop<S> {
    /// Waits until the next batch may begin, which is at once after a pause, or until it is full.
    async fn wait_for_more(&self, until: Instant) {
        let Inner { full, full_at, .. } = self.engine.inner.as_ref();
        let is_full = || self.engine.waiting() >= *full_at;
        while !is_full() && Instant::now() < until {
            tokio::select! {
                biased;
                // Woken for a batch before this one, perhaps.
                () = full.notified() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    /// Takes what is there, and what is about to be: of messages that arrive together the first wakes the loop, while the
    /// others are still being handed in.
    async fn gather(&mut self, gathered: &mut Vec<Pending<S>>) {
        let mut quiet = 0;
        while quiet < QUIET_LOOKS {
            let room = self.parts.bounds.batch_max.saturating_sub(gathered.len());
            if room == 0 {
                return;
            }
            let more = self.waiting.recv_many(gathered, room).now_or_never().unwrap_or(0);
            quiet = if more == 0 { quiet + 1 } else { 0 };
            tokio::task::yield_now().await;
        }
    }

    /// Commits a batch and settles it. One that cannot be stored as a whole is halved until it is known which inputs
    /// are to blame: they fail alone.
    async fn store(&self, inputs: Arc<Vec<Input<S>>>, mut settled: Waiters<S>) {
        // The first part is on top, so that what came first is decided first.
        let mut parts: Vec<Range<usize>> = std::iter::once(0..inputs.len()).collect();
        while let Some(part) = parts.pop() {
            match self.commit(&inputs, part.clone()).await {
                Ok(settlement) => self.settle(&inputs[part], &mut settled, settlement),
                Err(fault) if fault.is_of_the_batch() && part.len() > 1 => {
                    let middle = part.start + part.len() / 2;
                    parts.extend([middle..part.end, part.start..middle]);
                }
                Err(fault) => {
                    error!(inputs = part.len(), "batch not stored: {}", error_chain(&fault));
                    self.parts.observer.batch_not_stored();
                    if fault.is_of_the_batch() {
                        self.fail(&inputs[part.start], &mut settled, &fault).await;
                    } else {
                        // Nothing of the rest would be stored either.
                        drop(settled);
                        return tokio::time::sleep(STORE_FAULT_PAUSE).await;
                    }
                }
            }
        }
    }

    /// Lets the one input fail that the store does not take: the next in `settled` is told.
    async fn fail(&self, input: &Input<S>, settled: &mut Waiters<S>, fault: &StoreFault) {
        let reason = format!("cannot be stored: {}", error_chain(fault));
        let outcome = match &input.kind {
            InputKind::Command { .. } => Outcome::Command(CommandOutcome::Faulted(reason)),
            InputKind::Due { .. } => Outcome::Due(DueOutcome::Faulted(reason)),
            // Tried again after a while, and parked in the end.
            InputKind::Message(delivered) => {
                let again =
                    Arc::new(vec![input.again(delivered, FailedTry::new(FailureKind::Transient, reason))]);
                match self.commit(&again, 0..1).await {
                    Ok(settlement) => return self.settle(&again, settled, settlement),
                    Err(fault) => {
                        error!("its failure not stored either: {}", error_chain(&fault));
                        drop(settled.next());
                        return;
                    }
                }
            }
            // Its task stays open: when the lease has lapsed, the call is repeated under the same key.
            InputKind::Called { .. } => {
                drop(settled.next());
                return;
            }
        };
        let settlement = Settlement::of_nothing(outcome);
        self.settle(std::slice::from_ref(input), settled, settlement);
    }

    /// Commits a part of a batch as one transaction. When somebody else has changed its rows meanwhile, it is run
    /// again from its reads.
    async fn commit(
        &self,
        inputs: &Arc<Vec<Input<S>>>,
        part: Range<usize>,
    ) -> Result<Settlement<S>, StoreFault> {
        let mut runs = 1;
        loop {
            match self.run_once(inputs, part.clone()).await {
                Err(StoreFault::Conflict(key)) if runs < CONFLICT_RUNS => {
                    debug!(kind = key.kind, id = key.id, "changed by somebody else, the batch is run again");
                    runs += 1;
                }
                answer => return answer,
            }
        }
    }

    async fn run_once(
        &self,
        inputs: &Arc<Vec<Input<S>>>,
        part: Range<usize>,
    ) -> Result<Settlement<S>, StoreFault> {
        let Parts { service, store, rules, clock, observer, .. } = &self.parts;
        let (reads, count) = (decision::reads(service.as_ref(), &inputs[part.clone()]), part.len());
        let slot = Arc::new(Mutex::new(None));
        let can_hold = self.parts.tasks.admission().can_hold();
        let decide = {
            let (service, inputs, rules) = (service.clone(), inputs.clone(), rules.clone());
            let (clock, slot) = (clock.clone(), slot.clone());
            Box::new(move |loaded| {
                let inputs = &inputs[part.clone()];
                let (mut writes, outcomes) =
                    decision::decide(service.as_ref(), inputs, loaded, &rules, clock.now());
                if !can_hold {
                    writes.leave_tasks();
                }
                *slot.lock() = Some(Settlement::of(inputs, &mut writes, outcomes));
                writes
            })
        };
        let began = Instant::now();
        let promises = store.transact(reads, decide).await?;
        let took = began.elapsed();
        observer.batch_committed(count, took);
        let settlement = slot.lock().take().ok_or(StoreFault::Closed)?;
        Ok(Settlement { took, promises, ..settlement })
    }

    /// Settles these inputs, which are the next in `settled`.
    fn settle(&self, inputs: &[Input<S>], settled: &mut Waiters<S>, settlement: Settlement<S>) {
        // The relay first: everybody downstream waits for it, while answers wait for nobody.
        if settlement.promised > 0 {
            self.engine.inner.relay.give(settlement.promises);
            self.parts.observer.promised(settlement.promised);
        }
        self.engine.inner.tasks.start(settlement.tasks, IsNew::Yes);
        if let Some(due) = settlement.next_due {
            self.engine.wake_timers_for(due);
        }
        self.engine.tell_watchers(&settlement.changed);
        let spans = Spans::of_a_batch(&self.parts.tracer, inputs, settlement.promising, settlement.took);
        let mut measured = settlement.measured.iter().peekable();
        let mut changes = settlement.changes.as_slice();
        for ((input, outcome), (seen, on_settled)) in inputs.iter().zip(settlement.outcomes).zip(settled) {
            let (trace, took) = (input.trace, seen.at.elapsed());
            let (source, name) = (input.source(), outcome.name());
            // Whether a call is still wanted is asked again and again while it waits: that is nothing done.
            if !outcome.is_still_wanted() {
                self.parts.observer.input_settled(&InputSettled { source, outcome: name, took, trace });
            }
            while let Some((_, measurement)) = measured.next_if(|(by, _)| *by == input.id) {
                self.parts.observer.measured(measurement, trace);
            }
            if input.is_foreign() && matches!(outcome, Outcome::Message(MessageOutcome::Dead(_))) {
                self.parts.observer.foreign_parked(source);
            }
            let changes = log_line::changes_of(input.id, &mut changes);
            log_line::say(input, &outcome, changes, self.is_busy);
            spans.end(input, &outcome, seen.begun, took);
            on_settled(outcome);
        }
    }
}
