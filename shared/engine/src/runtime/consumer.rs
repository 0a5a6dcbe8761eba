//! Shell: one step's way from the broker into the engine: each message an input, acknowledged once it is settled.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use saga_core::fault::FaultKind;
use saga_core::input::{Input, Outcome};
use saga_core::service::Service;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info, warn};

use super::admission::{HeldHere, InjectedFault, StepAdmission, StepPermit};
use super::bus::{Bus, BusError, BusMessage, Deliveries, Durable, HoldOf};
use super::engine::Engine;
use super::held::{self, Held, Holding};
use super::observer::SharedObserver;

/// Pause before a consumer that was lost is made again.
const REMAKE_PAUSE: Duration = Duration::from_millis(200);
/// How long one request for the next message lasts while a breaker is not wholly closed again.
const NEXT_WITHIN: Duration = Duration::from_secs(1);

/// The bounds of a consumer.
#[derive(Debug, Clone, Copy)]
pub struct ConsumerBounds {
    /// Messages asked for at once.
    pub pull: usize,
    /// Messages under way at once.
    pub under_way: usize,
}

/// The consumer of one subscription of one step.
pub struct Consumer<S: Service, B: Bus> {
    bus: B,
    engine: Engine<S>,
    admission: StepAdmission,
    durable: Durable,
    bounds: ConsumerBounds,
    /// Tries that an injected fault delays.
    delayed: JoinSet<()>,
    held: Held<HoldOf<B>>,
    observer: SharedObserver,
}

/// What stands before the step lets a consumer do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    On,
    /// Pull nothing until it opens.
    Shut,
}

/// Where messages go to be acknowledged: beside the engine, which must not wait for a broker that is away.
type Acknowledge<B> = mpsc::Sender<<<B as Bus>::Deliveries as Deliveries>::Message>;

/// A message, and what keeps it from coming again as long as it is not settled.
type Delivered<B> = (<<B as Bus>::Deliveries as Deliveries>::Message, (Holding<HoldOf<B>>, HeldHere));

fn holding<M: BusMessage>(
    held: &Held<M::Hold>,
    admission: &StepAdmission,
    message: M,
) -> (M, (Holding<M::Hold>, HeldHere)) {
    let holding = held.hold(message.hold());
    (message, (holding, admission.hold()))
}

impl<S: Service, B: Bus> Consumer<S, B> {
    /// Feeds `engine` with what `durable` is to have.
    pub fn new(
        bus: B,
        engine: Engine<S>,
        admission: StepAdmission,
        durable: Durable,
        bounds: ConsumerBounds,
    ) -> Self {
        let (delayed, held, observer) = (JoinSet::new(), Held::nothing(), Arc::new(()));
        Self { bus, engine, admission, durable, bounds, delayed, held, observer }
    }

    /// The same, that tells this observer what comes again.
    #[must_use]
    pub fn observed(self, observer: SharedObserver) -> Self {
        Self { observer, ..self }
    }

    /// Runs until dropped.
    ///
    /// A message is acknowledged once its outcome is durable, and not otherwise: what dies with this process is
    /// delivered again. A consumer that vanishes (broker restarted, deleted by hand) is made again. While the
    /// step may take nothing, nothing is pulled; what had been pulled already comes again later.
    pub async fn run(mut self) {
        let step = self.admission.step().name;
        let mut has_complained = false;
        loop {
            self.admission.opens().await;
            match self.consume().await {
                Ok(()) => {
                    self.admission.interrupt();
                    info!(step, "pulls nothing for now");
                    has_complained = false;
                }
                Err(reason) => {
                    // During an outage this repeats, and the connection itself logs the outage.
                    if self.bus.is_connected() && !std::mem::replace(&mut has_complained, true) {
                        warn!(step, "consumer interrupted, it will be made again: {reason}");
                    } else {
                        debug!(step, "consumer interrupted: {reason}");
                    }
                    tokio::time::sleep(REMAKE_PAUSE).await;
                }
            }
        }
    }

    /// Consumes until nothing may be taken any more. What is held meanwhile does not come again.
    async fn consume(&mut self) -> Result<(), BusError> {
        let deliveries = self.bus.consume(self.durable).await?;
        let (bus, held) = (self.bus.clone(), self.held.clone());
        tokio::select! {
            biased;
            ended = self.consume_all(deliveries) => ended,
            () = held::tell(&bus, held) => Ok(()),
        }
    }

    async fn consume_all(&mut self, mut deliveries: B::Deliveries) -> Result<(), BusError> {
        let (acknowledge, settled) = mpsc::channel(self.bounds.under_way);
        let _acknowledging = AbortOnDropHandle::new(tokio::spawn(acknowledge_all(settled)));
        if self.ramp_up(&mut deliveries, &acknowledge).await? == Flow::Shut {
            return Ok(());
        }
        let (admission, held) = (self.admission.clone(), self.held.clone());
        let mut shuts = std::pin::pin!(admission.shuts());
        let mut waiting = VecDeque::new();
        loop {
            let message = match waiting.pop_front() {
                Some(message) => message,
                None => tokio::select! {
                    biased;
                    () = &mut shuts => return Ok(()),
                    message = deliveries.next() => holding(&held, &admission, message?),
                },
            };
            let (flow, broken) = {
                let mut taking = std::pin::pin!(self.take(message, &acknowledge));
                let mut broken = None;
                // What the broker has delivered meanwhile is held too; it delivers no more than it may.
                let are_held = deliveries.are_held();
                loop {
                    tokio::select! {
                        biased;
                        flow = &mut taking => break (flow?, broken),
                        message = deliveries.next(), if are_held && broken.is_none() => match message {
                            Ok(message) => waiting.push_back(holding(&held, &admission, message)),
                            Err(error) => broken = Some(error),
                        },
                    }
                }
            };
            match broken {
                _ if flow == Flow::Shut => return Ok(()),
                Some(error) => return Err(error),
                None => {}
            }
        }
    }

    /// After a breaker was open, a backlog comes a few messages at a time, and with each good end more, until the
    /// breaker is wholly closed again. The permit comes before the pull: what is pulled and then left alone would
    /// use up its deliveries.
    async fn ramp_up(
        &mut self,
        deliveries: &mut B::Deliveries,
        acknowledge: &Acknowledge<B>,
    ) -> Result<Flow, BusError> {
        while let Some(few) = self.few() {
            let Some(mut permits) = self.permits(few).await else {
                return Ok(Flow::Shut);
            };
            // All are held before the first is handed in, which may wait.
            let fetched = deliveries.fetch(permits.len()).await?.into_iter();
            let fetched: Vec<_> =
                fetched.map(|message| holding(&self.held, &self.admission, message)).collect();
            for message in fetched {
                let Some(permit) = permits.pop() else { break };
                self.hand_in(message, permit, acknowledge).await?;
            }
            let is_backlog = permits.is_empty();
            drop(permits);
            if is_backlog {
                continue;
            }
            // The next one is waited for without a permit, which retries may need meanwhile.
            if let Some(message) = deliveries.next_within(NEXT_WITHIN).await?
                && self.take(holding(&self.held, &self.admission, message), acknowledge).await? == Flow::Shut
            {
                return Ok(Flow::Shut);
            }
        }
        Ok(Flow::On)
    }

    /// Hands a message in when there is a permit for it. Otherwise it is left alone, and comes again.
    async fn take(&mut self, message: Delivered<B>, acknowledge: &Acknowledge<B>) -> Result<Flow, BusError> {
        match self.admission.enter().await {
            Some(permit) => self.hand_in(message, permit, acknowledge).await.map(|()| Flow::On),
            None => Ok(Flow::Shut),
        }
    }

    /// How many messages may be asked for at once while a breaker is not wholly closed again.
    fn few(&self) -> Option<usize> {
        self.admission.ramp().map(|few| few.clamp(1, self.bounds.pull))
    }

    /// Waits for one permit, and takes as many more as there are at once.
    async fn permits(&self, most: usize) -> Option<Vec<StepPermit>> {
        let mut permits = vec![self.admission.enter().await?];
        while permits.len() < most
            && let Some(Some(permit)) = self.admission.enter().now_or_never()
        {
            permits.push(permit);
        }
        Some(permits)
    }

    async fn hand_in(
        &mut self,
        (message, holding): Delivered<B>,
        mut permit: StepPermit,
        acknowledge: &Acknowledge<B>,
    ) -> Result<(), BusError> {
        if message.is_redelivery() {
            self.observer.delivered_again(&self.durable.name());
        }
        let InjectedFault { failure, delay } = permit.begin();
        let input = self.input(&message).with_injected_failure(failure);
        let (engine, faults) = (self.engine.clone(), self.admission.faults().clone());
        let acknowledge = acknowledge.clone();
        let handing_in = async move {
            let settled = move |outcome: Outcome<S>| {
                permit.ended(&outcome);
                drop(holding);
                faults.crash(FaultKind::CRASH_BEFORE_ACK);
                // Full only while the broker is away, and then the message comes again anyway.
                let _ = acknowledge.try_send(message);
            };
            engine.hand_in(input, settled).await
        };
        match delay {
            None => handing_in.await.map_err(|_| "the service is stopping".to_owned()),
            // Beside the others, as a slow step would be; the broker bounds how many.
            Some(delay) => {
                while self.delayed.try_join_next().is_some() {}
                self.delayed.spawn(async move {
                    tokio::time::sleep(delay).await;
                    let _ = handing_in.await;
                });
                Ok(())
            }
        }
    }

    fn input(&self, message: &impl BusMessage) -> Input<S> {
        Input::from_broker(self.admission.step(), message.payload(), message.delivery(), fastrand::u32(..))
    }
}

async fn acknowledge_all(mut settled: mpsc::Receiver<impl BusMessage>) {
    while let Some(message) = settled.recv().await {
        if let Err(error) = message.acknowledge().await {
            warn!("acknowledgement not sent, the message will come again: {error}");
        }
    }
}
