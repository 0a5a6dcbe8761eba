//! Shell: the loop behind the engine: takes a batch, decides it in memory, commits it, and only then answers.
//!
//! One batch goes through [`run`], `process_batch` (halves a batch that cannot be stored), `transact` (repeats it after a
//! conflict), `transact_once` (reads, decides, writes) and `complete` (answers, wakes relay, tasks and timers).

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use parking_lot::Mutex;
use saga_core::decision;
use saga_core::input::{CommandOutcome, DueOutcome, Input, InputKind, MessageOutcome, Outcome};
use saga_core::retry::{FailedAttempt, FailureKind, error_chain};
use saga_core::service::Service;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, error, info};

use super::trials::{FailedMessage, Treatment, Trials};
use super::{Engine, EngineSettings, Inner, OnOutcome, Parts, PendingInput, Submission};
use crate::runtime::after_commit::AfterCommit;
use crate::runtime::batch_delay::BatchDelay;
use crate::runtime::batch_spans::BatchSpans;
use crate::runtime::error_throttle::ErrorThrottle;
use crate::runtime::log_line;
use crate::runtime::log_throttle::LogThrottle;
use crate::runtime::observer::ProcessedInput;
use crate::runtime::overrides::Overrides;
use crate::runtime::task_queue::IsNew;
use crate::store::StoreFault;

/// Pause after the store failed. A full disk does not recover faster by more attempts.
const STORE_FAULT_PAUSE: Duration = Duration::from_millis(500);

/// Yields to other tasks without a new input after which a batch is complete: some microseconds.
const QUIET_YIELDS: u32 = 20;

/// Maximum attempts at a batch whose rows another process keeps changing.
const CONFLICT_ATTEMPTS: usize = 3;

/// Submissions of a batch whose outcomes are still awaited, in its order.
type Waiters<S> = std::vec::IntoIter<(Submission, OnOutcome<S>)>;

/// Receiving end of an [`Engine`].
pub struct BatchLoop<S: Service> {
    parts: Parts<S>,
    waiting: mpsc::Receiver<PendingInput<S>>,
    engine: Engine<S>,
    /// Throttle for the log of a store that fails.
    errors: ErrorThrottle,
    trials: Trials,
    /// True if the input rate is so high that only failures are logged at `info` or above.
    is_busy: bool,
}

/// Processes batches until the task is dropped.
pub async fn run<S: Service>(mut batch_loop: BatchLoop<S>) {
    let EngineSettings { max_batch, max_batch_delay, .. } = batch_loop.parts.settings;
    let mut batch = Vec::with_capacity(max_batch);
    let (mut batch_delay, mut log_throttle) = (BatchDelay::new(max_batch_delay), LogThrottle::default());
    let origin = Instant::now();
    loop {
        // Never closed, because the loop has a handle of its own.
        let Some(first) = batch_loop.waiting.recv().await else { return };
        batch.push(first);
        batch_loop.wait_until_full(origin + batch_delay.next()).await;
        let turn = batch_loop.parts.store.wait_for_turn().await;
        batch_loop.gather(&mut batch).await;
        batch_delay.started(origin.elapsed());
        log_throttle.record(batch.len(), origin.elapsed());
        batch_loop.is_busy = log_throttle.is_active();
        let (inputs, waiters): (Vec<_>, Vec<_>) =
            batch.drain(..).map(|pending| (pending.input, (pending.submission, pending.on_outcome))).unzip();
        batch_loop.process_batch(Arc::new(inputs), waiters.into_iter()).await;
        drop(turn);
        batch_delay.ended(origin.elapsed());
    }
}

impl<S: Service> BatchLoop<S> {
    pub(super) fn new(parts: Parts<S>, waiting: mpsc::Receiver<PendingInput<S>>, engine: Engine<S>) -> Self {
        let (errors, trials, is_busy) = (ErrorThrottle::default(), Trials::default(), false);
        Self { parts, waiting, engine, errors, trials, is_busy }
    }

    /// Records trials of messages that may have killed earlier processes, and makes injected crashes.
    #[must_use]
    pub fn with_trials(self, overrides: Overrides) -> Self {
        Self { trials: Trials::new(overrides), ..self }
    }

    /// Waits until `until`, the earliest start of the next batch, or until the batch is full.
    async fn wait_until_full(&self, until: Instant) {
        let Inner { full, full_at, .. } = self.engine.inner.as_ref();
        let is_full = || self.engine.queued() >= *full_at;
        while !is_full() && Instant::now() < until {
            tokio::select! {
                biased;
                // May be a leftover of the batch before, so the condition is checked again.
                () = full.notified() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    /// Takes what is queued and what is about to be. Of messages that arrive together, the first wakes the loop while
    /// the others are still being submitted.
    async fn gather(&mut self, batch: &mut Vec<PendingInput<S>>) {
        let mut quiet = 0;
        while quiet < QUIET_YIELDS {
            let room = self.parts.settings.max_batch.saturating_sub(batch.len());
            if room == 0 {
                return;
            }
            let more = self.waiting.recv_many(batch, room).now_or_never().unwrap_or(0);
            quiet = if more == 0 { quiet + 1 } else { 0 };
            tokio::task::yield_now().await;
        }
    }

    /// Stores a batch and completes it. A batch that the store rejects is halved until the inputs to blame are found:
    /// those fail alone.
    async fn process_batch(&mut self, inputs: Arc<Vec<Input<S>>>, mut waiters: Waiters<S>) {
        // The first part is on top, so that what came first is decided first.
        let mut parts = self.trials.split(&inputs, self.parts.clock.now());
        while let Some(part) = parts.pop() {
            let treatment = self.trials.begin(&inputs[part.clone()], self.parts.clock.now()).await;
            if let Treatment::Fail { step, message, failure } = treatment {
                let failed = self.fail_message(&inputs[part.start], &mut waiters, failure).await;
                self.trials.end_deadly(step, message, failed).await;
                continue;
            }
            match self.transact(&inputs, part.clone()).await {
                Ok(after_commit) => {
                    if self.errors.recovered() {
                        info!("store available again, batches are stored");
                    }
                    self.complete(&inputs[part], &mut waiters, after_commit);
                    self.trials.end(treatment).await;
                }
                Err(fault) if fault.is_caused_by_batch() && part.len() > 1 => {
                    let middle = part.start + part.len() / 2;
                    parts.extend([middle..part.end, part.start..middle]);
                }
                Err(fault) => {
                    let logged = match fault.is_caused_by_batch() {
                        true => Some(error_chain(&fault)),
                        false => self.errors.failed(&fault),
                    };
                    if let Some(what) = logged {
                        error!(inputs = part.len(), "batch not stored, its inputs will be retried: {what}");
                    }
                    self.parts.observer.batch_not_stored();
                    if fault.is_caused_by_batch() {
                        self.fail_input(&inputs[part.start], &mut waiters, &fault).await;
                    } else {
                        // The store would reject the rest as well.
                        drop(waiters);
                        return tokio::time::sleep(STORE_FAULT_PAUSE).await;
                    }
                }
            }
        }
    }

    /// Fails the one input that the store rejects, and completes the next waiter with that outcome.
    async fn fail_input(&self, input: &Input<S>, waiters: &mut Waiters<S>, fault: &StoreFault) {
        let reason = format!("cannot be stored: {}", error_chain(fault));
        let outcome = match &input.kind {
            InputKind::Command { .. } => Outcome::Command(CommandOutcome::Faulted(reason)),
            InputKind::Due { .. } => Outcome::Due(DueOutcome::Faulted(reason)),
            // Retried after a delay, and dead-lettered in the end.
            InputKind::Message(_) => {
                let failure = FailedAttempt::new(FailureKind::Transient, reason);
                self.fail_message(input, waiters, failure).await;
                return;
            }
            // The task stays open: once its lease has expired, the call is repeated under the same key.
            InputKind::TaskResult { .. } => {
                drop(waiters.next());
                return;
            }
        };
        let after_commit = AfterCommit::unchanged(outcome);
        self.complete(std::slice::from_ref(input), waiters, after_commit);
    }

    /// Stores the failure of one message, and completes the next waiter with that outcome.
    async fn fail_message(
        &self,
        input: &Input<S>,
        waiters: &mut Waiters<S>,
        failure: FailedAttempt,
    ) -> FailedMessage {
        let InputKind::Message(delivered) = &input.kind else {
            drop(waiters.next());
            return FailedMessage::NotStored;
        };
        let again = Arc::new(vec![input.with_failure(delivered, failure)]);
        match self.transact(&again, 0..1).await {
            Ok(after_commit) => {
                let failed = FailedMessage::of(&after_commit.outcomes);
                self.complete(&again, waiters, after_commit);
                failed
            }
            Err(fault) => {
                error!(message_id = %input.id, "failure of a message not stored, it will be redelivered: {}", error_chain(&fault));
                drop(waiters.next());
                FailedMessage::NotStored
            }
        }
    }

    /// Runs a part of a batch as one transaction. After a conflict with another process it starts again from the reads.
    async fn transact(
        &self,
        inputs: &Arc<Vec<Input<S>>>,
        part: Range<usize>,
    ) -> Result<AfterCommit<S>, StoreFault> {
        let mut attempt = 1;
        loop {
            match self.transact_once(inputs, part.clone()).await {
                Err(StoreFault::Conflict(key)) if attempt < CONFLICT_ATTEMPTS => {
                    debug!(
                        kind = key.kind,
                        id = key.id,
                        "row changed by another process, batch starts again"
                    );
                    attempt += 1;
                }
                answer => return answer,
            }
        }
    }

    /// Reads, decides and writes a part of a batch.
    async fn transact_once(
        &self,
        inputs: &Arc<Vec<Input<S>>>,
        part: Range<usize>,
    ) -> Result<AfterCommit<S>, StoreFault> {
        let Parts { service, store, decision: config, clock, observer, .. } = &self.parts;
        let (reads, count) = (decision::reads(service.as_ref(), &inputs[part.clone()]), part.len());
        let slot = Arc::new(Mutex::new(None));
        let has_task_room = self.parts.tasks.admission().has_task_room();
        let decide = {
            let (service, inputs, config) = (service.clone(), inputs.clone(), config.clone());
            let (clock, slot) = (clock.clone(), slot.clone());
            Box::new(move |loaded| {
                let inputs = &inputs[part.clone()];
                let (mut writes, outcomes) =
                    decision::decide(service.as_ref(), inputs, loaded, &config, clock.now());
                if !has_task_room {
                    writes.release_claims();
                }
                *slot.lock() = Some(AfterCommit::of(inputs, &mut writes, outcomes));
                writes
            })
        };
        let began = Instant::now();
        let outbox = store.transact(reads, decide).await?;
        let took = began.elapsed();
        observer.batch_committed(count, took);
        let after_commit = slot.lock().take().ok_or(StoreFault::Closed)?;
        Ok(AfterCommit { took, outbox, ..after_commit })
    }

    /// Completes inputs that are durable: hands their outbox entries, tasks and due times on, and answers the waiters.
    fn complete(&self, inputs: &[Input<S>], waiters: &mut Waiters<S>, mut after_commit: AfterCommit<S>) {
        let spans = BatchSpans::new(&self.parts.tracer, &mut after_commit, inputs.len());
        // The relay comes first: everybody downstream waits for it.
        if after_commit.outbox_count > 0 {
            self.engine.inner.relay.push(after_commit.outbox);
            self.parts.observer.outbox_written(after_commit.outbox_count);
        }
        self.engine.inner.tasks.start(after_commit.tasks, IsNew::Yes);
        if let Some(due) = after_commit.next_due {
            self.engine.wake_timers_for(due);
        }
        self.engine.notify_watchers(&after_commit.changed);
        let mut measured = after_commit.measured.iter().peekable();
        let mut changes = after_commit.changes.as_slice();
        for ((input, outcome), (submission, on_outcome)) in
            inputs.iter().zip(after_commit.outcomes).zip(waiters)
        {
            let (trace, took) = (input.trace, submission.at.elapsed());
            let (source, name) = (input.source(), outcome.name());
            // A queued task asks again and again whether it is still needed: nothing is done by that.
            if !outcome.is_task_needed() {
                self.parts.observer.input_processed(&ProcessedInput { source, outcome: name, took, trace });
            }
            while let Some((_, measurement)) = measured.next_if(|(by, _)| *by == input.id) {
                self.parts.observer.measured(measurement, trace);
            }
            if input.is_foreign() && matches!(outcome, Outcome::Message(MessageOutcome::Dead(_))) {
                self.parts.observer.foreign_dead_lettered(source);
            }
            let changes = log_line::changes_of(input.id, &mut changes);
            log_line::log(input, &outcome, changes, self.is_busy);
            spans.end(input, &outcome, (submission.span, submission.correlation_id), took);
            on_outcome(outcome);
        }
    }
}
