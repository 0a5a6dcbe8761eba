//! Shell: the consumer: takes the facts of one durable consumer from the broker to the engine.
//!
//! The path of a fact: [`Consumer::run`] pulls it, waits for a permit of the step, and submits it to the engine. The
//! engine commits its outcome and runs the callback of `submit`, which acknowledges the fact.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::pending;
use saga_core::fault::FaultKind;
use saga_core::input::{Input, Outcome};
use saga_core::service::Service;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info, warn};

use super::admission::{FaultEffect, InFlightGuard, StepAdmission, StepPermit};
use super::bus::{Bus, BusError, BusFact, Durable, FactStream, HandleOf};
use super::engine::Engine;
use super::in_progress::InProgress;
use super::observer::SharedObserver;
use super::progress_reports;

/// Pause before a lost consumer is created again.
const RECREATE_PAUSE: Duration = Duration::from_millis(200);
/// Time without a fault after which an idle consumer counts as usable again: longer than a pull request, with its answer.
const USABLE_AFTER: Duration = Duration::from_secs(10);
/// Duration of one request for the next fact while a breaker recovers.
const NEXT_WITHIN: Duration = Duration::from_secs(1);

/// Limits of one consumer (settings `bus.pull_batch`, `bus.max_ack_pending`).
#[derive(Debug, Clone, Copy)]
pub struct ConsumerLimits {
    /// Maximum number of messages in one pull request.
    pub pull_batch: usize,
    /// Maximum number of unacknowledged facts.
    pub max_in_flight: usize,
}

/// Consumer of one subscription of one step.
pub struct Consumer<S: Service, B: Bus> {
    bus: B,
    engine: Engine<S>,
    admission: StepAdmission,
    durable: Durable,
    limits: ConsumerLimits,
    /// Attempts that an injected fault delays.
    delayed: JoinSet<()>,
    in_progress: InProgress<HandleOf<B>>,
    observer: SharedObserver,
}

/// State of the step's admission, as it concerns pulling.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Open,
    /// Pulling stops until the step is unblocked.
    Blocked,
}

/// Queue of facts to acknowledge. The engine must not wait for a broker that is down.
type AckQueue<B> = mpsc::Sender<<<B as Bus>::Facts as FactStream>::Fact>;

/// Fact with the guard that counts it as in flight.
type Tracked<B> = (<<B as Bus>::Facts as FactStream>::Fact, InFlightGuard);

fn track<F: BusFact>(admission: &StepAdmission, fact: F) -> (F, InFlightGuard) {
    (fact, admission.track_delivery())
}

impl<S: Service, B: Bus> Consumer<S, B> {
    /// Creates a consumer that submits the facts of `durable` to `engine`.
    pub fn new(
        bus: B,
        engine: Engine<S>,
        admission: StepAdmission,
        durable: Durable,
        limits: ConsumerLimits,
    ) -> Self {
        let (delayed, in_progress, observer) = (JoinSet::new(), InProgress::default(), Arc::new(()));
        Self { bus, engine, admission, durable, limits, delayed, in_progress, observer }
    }

    /// Reports each redelivery to `observer`, for metrics.
    #[must_use]
    pub fn observed(self, observer: SharedObserver) -> Self {
        Self { observer, ..self }
    }

    /// Runs until dropped.
    ///
    /// A fact is acknowledged once its outcome is durable, and never before: what is lost with this process is
    /// redelivered. A consumer that disappears (broker restarted, deleted by hand) is created again. While the step is
    /// blocked nothing is pulled, and facts that were already pulled are redelivered later.
    pub async fn run(mut self) {
        let step = self.admission.step().name;
        let mut is_reported = false;
        loop {
            self.admission.until_unblocked().await;
            match self.consume().await {
                Ok(()) => {
                    self.admission.interrupt();
                    info!(step, "step is blocked by a breaker or an injected fault, pulling stops");
                    is_reported = false;
                }
                Err(reason) => {
                    if self.bus.is_connected() {
                        self.admission.record_consumer(&self.durable.name(), Some(reason.clone()));
                    }
                    // Repeats during an outage, which the connection logs by itself.
                    if self.bus.is_connected() && !std::mem::replace(&mut is_reported, true) {
                        warn!(step, "consumer interrupted, it will be created again: {reason}");
                    } else {
                        debug!(step, "consumer interrupted: {reason}");
                    }
                    tokio::time::sleep(RECREATE_PAUSE).await;
                }
            }
        }
    }

    /// Consumes until the step is blocked. Unfinished facts are reported to the broker as in progress.
    async fn consume(&mut self) -> Result<(), BusError> {
        let mut facts = self.bus.consume(self.durable).await?;
        facts.hold(&self.in_progress);
        let (bus, in_progress) = (self.bus.clone(), self.in_progress.clone());
        let (admission, durable) = (self.admission.clone(), self.durable.name());
        let usable = async move {
            tokio::time::sleep(USABLE_AFTER).await;
            admission.record_consumer(&durable, None);
            pending::<()>().await;
        };
        tokio::select! {
            biased;
            ended = self.consume_all(facts) => ended,
            () = progress_reports::report(&bus, in_progress) => Ok(()),
            () = usable => Ok(()),
        }
    }

    async fn consume_all(&mut self, mut facts: B::Facts) -> Result<(), BusError> {
        let (acks, processed) = mpsc::channel(self.limits.max_in_flight);
        let _acknowledging = AbortOnDropHandle::new(tokio::spawn(acknowledge_all(processed)));
        if self.ramp_up(&mut facts, &acks).await? == Flow::Blocked {
            return Ok(());
        }
        let admission = self.admission.clone();
        let mut blocked = std::pin::pin!(admission.until_blocked());
        let mut prefetched = VecDeque::new();
        let mut is_first = true;
        loop {
            let fact = match prefetched.pop_front() {
                Some(fact) => fact,
                None => tokio::select! {
                    biased;
                    () = &mut blocked => return Ok(()),
                    fact = facts.next() => track(&admission, fact?),
                },
            };
            if std::mem::take(&mut is_first) {
                admission.record_consumer(&self.durable.name(), None);
            }
            let (flow, broken) = {
                let mut taking = std::pin::pin!(self.take(fact, &acks));
                let mut broken = None;
                // The broker bounds how much it delivers, and so how much is prefetched.
                loop {
                    tokio::select! {
                        biased;
                        flow = &mut taking => break (flow?, broken),
                        fact = facts.prefetch(), if broken.is_none() => match fact {
                            Ok(fact) => prefetched.push_back(track(&admission, fact)),
                            Err(error) => broken = Some(error),
                        },
                    }
                }
            };
            match broken {
                _ if flow == Flow::Blocked => return Ok(()),
                Some(error) => return Err(error),
                None => {}
            }
        }
    }

    /// Takes a backlog in small steps after a breaker was open: more with each success, until it has recovered.
    ///
    /// Permits come before pulls, as facts that are pulled without a permit would use up their deliveries.
    async fn ramp_up(&mut self, facts: &mut B::Facts, acks: &AckQueue<B>) -> Result<Flow, BusError> {
        while let Some(few) = self.ramp_limit() {
            let Some(mut permits) = self.permits(few).await else {
                return Ok(Flow::Blocked);
            };
            // All are tracked before the first is submitted, which may wait.
            let fetched = facts.fetch(permits.len()).await?.into_iter();
            let fetched: Vec<_> = fetched.map(|fact| track(&self.admission, fact)).collect();
            for fact in fetched {
                let Some(permit) = permits.pop() else { break };
                self.submit(fact, permit, acks).await?;
            }
            let is_backlog = permits.is_empty();
            drop(permits);
            if is_backlog {
                continue;
            }
            // Waits without a permit, as retries may need it meanwhile.
            if let Some(fact) = facts.next_within(NEXT_WITHIN).await?
                && self.take(track(&self.admission, fact), acks).await? == Flow::Blocked
            {
                return Ok(Flow::Blocked);
            }
        }
        Ok(Flow::Open)
    }

    /// Submits a fact once there is a permit for it. If the step is blocked, the fact is left to be redelivered.
    async fn take(&mut self, fact: Tracked<B>, acks: &AckQueue<B>) -> Result<Flow, BusError> {
        match self.admission.acquire().await {
            Some(permit) => self.submit(fact, permit, acks).await.map(|()| Flow::Open),
            None => Ok(Flow::Blocked),
        }
    }

    /// Maximum number of facts to fetch at once while a breaker recovers.
    fn ramp_limit(&self) -> Option<usize> {
        self.admission.ramp().map(|few| few.clamp(1, self.limits.pull_batch))
    }

    /// Waits for one permit, and takes up to `most` that are free now.
    async fn permits(&self, most: usize) -> Option<Vec<StepPermit>> {
        let mut permits = vec![self.admission.acquire().await?];
        while permits.len() < most
            && let Some(Some(permit)) = self.admission.acquire().now_or_never()
        {
            permits.push(permit);
        }
        Some(permits)
    }

    async fn submit(
        &mut self,
        (fact, guard): Tracked<B>,
        mut permit: StepPermit,
        acks: &AckQueue<B>,
    ) -> Result<(), BusError> {
        if fact.is_redelivery() {
            self.observer.redelivered(&self.durable.name());
        }
        let FaultEffect { failure, delay } = permit.begin();
        let input = self.input(&fact).with_injected_failure(failure);
        let (engine, faults, acks) = (self.engine.clone(), self.admission.faults().clone(), acks.clone());
        let submitting = async move {
            let on_outcome = move |outcome: Outcome<S>| {
                permit.complete(&outcome);
                drop(guard);
                faults.crash(FaultKind::CRASH_BEFORE_ACK);
                // Full only while the broker is down, and then the fact is redelivered anyway.
                let _ = acks.try_send(fact);
            };
            engine.submit(input, on_outcome).await
        };
        match delay {
            None => submitting.await.map_err(|_| "the service is stopping".to_owned()),
            // Runs beside the others, as a slow step would. The broker bounds how many.
            Some(delay) => {
                while self.delayed.try_join_next().is_some() {}
                self.delayed.spawn(async move {
                    tokio::time::sleep(delay).await;
                    let _ = submitting.await;
                });
                Ok(())
            }
        }
    }

    fn input(&self, fact: &impl BusFact) -> Input<S> {
        Input::from_broker(self.admission.step(), fact.payload(), fact.delivery(), fastrand::u32(..))
            .with_redelivery(fact.is_redelivery())
    }
}

async fn acknowledge_all(mut processed: mpsc::Receiver<impl BusFact>) {
    while let Some(fact) = processed.recv().await {
        if let Err(error) = fact.acknowledge().await {
            warn!("acknowledgement not sent, the message will be redelivered: {error}");
        }
    }
}
