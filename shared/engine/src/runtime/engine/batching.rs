//! Shell: the one loop behind the engine: take what has gathered, decide it in memory, commit, and only then acknowledge,
//! answer and wake.

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

use super::{Bounds, Engine, Inner, OnSettled, Parts, Pending, Seen};
use crate::runtime::gathering::Gathering;
use crate::runtime::log_line;
use crate::runtime::observer::InputSettled;
use crate::runtime::rush::Rush;
use crate::runtime::settlement::Settlement;
use crate::runtime::spans::Spans;
use crate::runtime::task_runner::IsNew;
use crate::runtime::trouble::Trouble;
use crate::store::StoreFault;

/// Pause after the store failed: a full disk does not get better by asking faster.
const STORE_FAULT_PAUSE: Duration = Duration::from_millis(500);

/// Others run so often without handing anything in before a batch is what has come: some microseconds.
const QUIET_LOOKS: u32 = 20;

/// Runs of a batch whose rows were changed by somebody else meanwhile.
const CONFLICT_RUNS: usize = 3;

/// Those who wait for the outcomes of a batch, in its order.
type Waiters<S> = std::vec::IntoIter<(Seen, OnSettled<S>)>;

/// The loop's end of the handle.
pub struct Loop<S: Service> {
    parts: Parts<S>,
    waiting: mpsc::Receiver<Pending<S>>,
    engine: Engine<S>,
    /// Nothing can be stored, whatever it is.
    trouble: Trouble,
    /// Whether so much comes that the log tells only of what went wrong.
    is_busy: bool,
}

/// Runs batches until the last handle is gone.
pub async fn run<S: Service>(mut looping: Loop<S>) {
    let Bounds { max_batch, max_batch_delay, .. } = looping.parts.bounds;
    let mut gathered = Vec::with_capacity(max_batch);
    let (mut gathering, mut rush) = (Gathering::new(max_batch_delay), Rush::default());
    let origin = Instant::now();
    loop {
        // The loop's own handle keeps the channel open; the service ends it by dropping the task.
        let Some(first) = looping.waiting.recv().await else { return };
        gathered.push(first);
        looping.wait_for_more(origin + gathering.next()).await;
        let turn = looping.parts.store.wait_for_turn().await;
        looping.gather(&mut gathered).await;
        gathering.begins(origin.elapsed());
        rush.came(gathered.len(), origin.elapsed());
        looping.is_busy = rush.is_on();
        let (inputs, settled): (Vec<_>, Vec<_>) =
            gathered.drain(..).map(|pending| (pending.input, (pending.seen, pending.on_settled))).unzip();
        looping.store(Arc::new(inputs), settled.into_iter()).await;
        drop(turn);
        gathering.ended(origin.elapsed());
    }
}

impl<S: Service> Loop<S> {
    pub(super) fn new(parts: Parts<S>, waiting: mpsc::Receiver<Pending<S>>, engine: Engine<S>) -> Self {
        Self { parts, waiting, engine, trouble: Trouble::default(), is_busy: false }
    }

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
            let room = self.parts.bounds.max_batch.saturating_sub(gathered.len());
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
    async fn store(&mut self, inputs: Arc<Vec<Input<S>>>, mut settled: Waiters<S>) {
        // The first part is on top, so that what came first is decided first.
        let mut parts: Vec<Range<usize>> = std::iter::once(0..inputs.len()).collect();
        while let Some(part) = parts.pop() {
            match self.commit(&inputs, part.clone()).await {
                Ok(settlement) => {
                    if self.trouble.ended() {
                        info!("batches are stored again");
                    }
                    self.settle(&inputs[part], &mut settled, settlement);
                }
                Err(fault) if fault.is_caused_by_batch() && part.len() > 1 => {
                    let middle = part.start + part.len() / 2;
                    parts.extend([middle..part.end, part.start..middle]);
                }
                Err(fault) => {
                    let said = match fault.is_caused_by_batch() {
                        true => Some(error_chain(&fault)),
                        false => self.trouble.met(&fault),
                    };
                    if let Some(what) = said {
                        error!(inputs = part.len(), "batch not stored: {what}");
                    }
                    self.parts.observer.batch_not_stored();
                    if fault.is_caused_by_batch() {
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
                let again = Arc::new(vec![
                    input.with_failure(delivered, FailedAttempt::new(FailureKind::Transient, reason)),
                ]);
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
            InputKind::TaskResult { .. } => {
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
            if !outcome.is_task_needed() {
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
