//! Shell: one durable pull consumer per step, each message an input of the engine.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::{AckKind, Message, consumer, consumer::pull};
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info, warn};

use super::connection::{Bus, BusFault};
use crate::contract::Delivery;
use crate::engine::calls::Place;
use crate::engine::{Engine, Input, Outcome, error_chain};
use crate::faults::FaultKind;
use crate::gate::{Gate, Leave, Mischief};
use crate::ids;
use crate::service::{Service, Step, Subscription};

/// Pause before a consumer that was lost is made again.
const REMAKE_PAUSE: Duration = Duration::from_millis(200);
/// One request for messages lasts this long; the broker beats twice meanwhile, so a dead one is noticed.
const PULL_EXPIRES: Duration = Duration::from_secs(4);
const HEARTBEAT: Duration = Duration::from_secs(2);
/// How long one request for the next message lasts while a breaker is not wholly closed again.
const NEXT_WITHIN: Duration = Duration::from_secs(1);

/// One step's way from the broker into the engine.
pub struct Consumer<S: Service> {
    bus: Bus,
    engine: Engine<S>,
    gate: Gate,
    subscription: &'static Subscription,
    stream: String,
}

/// Leave for one message, with room for the call that it may end with.
struct Ticket {
    leave: Leave,
    place: Option<Place>,
}

/// What the gate lets a consumer do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    /// Go on.
    On,
    /// Pull nothing until the gate opens.
    Shut,
}

/// A pull consumer of JetStream.
pub(super) type Pull = consumer::Consumer<pull::Config>;

impl<S: Service> Consumer<S> {
    /// Feeds `engine` with what `subscription` of the gate's step hears.
    pub fn new(bus: Bus, engine: Engine<S>, gate: Gate, subscription: &'static Subscription) -> Self {
        Self { bus, engine, gate, subscription, stream: subscription.stream() }
    }

    /// Runs until dropped.
    ///
    /// A message is acknowledged once its outcome is durable, and not otherwise: what dies with this process is
    /// delivered again. A consumer that vanishes (broker restarted, deleted by hand) is made again. While the
    /// gate is shut nothing is pulled; what had been pulled already comes again later.
    pub async fn run(self) {
        let step = self.gate.step().name;
        let mut has_complained = false;
        loop {
            self.gate.opens().await;
            match self.consume().await {
                Ok(()) => {
                    self.gate.interrupt();
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

    /// Consumes until the gate is shut.
    async fn consume(&self) -> Result<(), String> {
        let consumer = ensure(&self.bus, self.gate.step(), self.subscription, S::NAME)
            .await
            .map_err(|fault| error_chain(&fault))?;
        // Beside the engine, which must not wait for a broker that is away.
        let (acknowledge, settled) = mpsc::channel(self.bus.settings.max_ack_pending as usize);
        let _acknowledging = AbortOnDropHandle::new(tokio::spawn(acknowledge_all(settled)));
        if self.ramp_up(&consumer, &acknowledge).await? == Flow::Shut {
            return Ok(());
        }
        let mut messages = messages_of(&consumer, self.bus.settings.pull).await?;
        let mut shuts = std::pin::pin!(self.gate.shuts());
        loop {
            let message = tokio::select! {
                message = messages.next() => message.ok_or("the stream of messages ended")?,
                () = &mut shuts => return Ok(()),
            };
            let message = message.map_err(|error| error_chain(&error))?;
            if self.take(message, &acknowledge).await? == Flow::Shut {
                return Ok(());
            }
        }
    }

    /// After a breaker was open, a backlog comes a few messages at a time, and with each good end more, until the
    /// breaker is wholly closed again. Leave comes before the pull: what is pulled and then left alone would use up
    /// its deliveries.
    async fn ramp_up(&self, consumer: &Pull, acknowledge: &mpsc::Sender<Message>) -> Result<Flow, String> {
        while let Some(few) = self.few() {
            let Some(mut tickets) = self.tickets(few).await else {
                return Ok(Flow::Shut);
            };
            let fetched = consumer.fetch().max_messages(tickets.len()).messages().await;
            let mut messages = fetched.map_err(|error| error.to_string())?;
            while let Some(message) = messages.next().await {
                let message = message.map_err(|error| error.to_string())?;
                let Some(ticket) = tickets.pop() else { break };
                self.hand_in(message, ticket, acknowledge).await?;
            }
            let is_backlog = tickets.is_empty();
            drop(tickets);
            if is_backlog {
                continue;
            }
            // The next one is waited for without leave, which retries may need meanwhile.
            let next = consumer.batch().max_messages(1).expires(NEXT_WITHIN).messages().await;
            let mut next = next.map_err(|error| error.to_string())?;
            while let Some(message) = next.next().await {
                let message = message.map_err(|error| error.to_string())?;
                if self.take(message, acknowledge).await? == Flow::Shut {
                    return Ok(Flow::Shut);
                }
            }
        }
        Ok(Flow::On)
    }

    /// Hands a message in when there is leave for it. When the gate is shut it is left alone, and comes again.
    async fn take(&self, message: Message, acknowledge: &mpsc::Sender<Message>) -> Result<Flow, String> {
        match self.ticket().await {
            Some(ticket) => self.hand_in(message, ticket, acknowledge).await.map(|()| Flow::On),
            None => Ok(Flow::Shut),
        }
    }

    /// How many messages may be asked for at once while a breaker is not wholly closed again.
    fn few(&self) -> Option<usize> {
        self.gate.ramp().map(|few| few.clamp(1, self.bus.settings.pull))
    }

    /// Waits for leave and room for one message; `None` when the gate is shut.
    async fn ticket(&self) -> Option<Ticket> {
        let place = match self.gate.step().needs {
            [] => None,
            _ => Some(self.engine.calls().place().await?),
        };
        Some(Ticket { leave: self.gate.enter().await?, place })
    }

    /// Waits for one, and takes as many more as there are at once.
    async fn tickets(&self, most: usize) -> Option<Vec<Ticket>> {
        let mut tickets = vec![self.ticket().await?];
        while tickets.len() < most
            && let Some(Some(ticket)) = self.ticket().now_or_never()
        {
            tickets.push(ticket);
        }
        Some(tickets)
    }

    async fn hand_in(
        &self,
        message: Message,
        ticket: Ticket,
        acknowledge: &mpsc::Sender<Message>,
    ) -> Result<(), String> {
        let Ticket { mut leave, place } = ticket;
        let Mischief { trouble, delay } = leave.begin();
        let input = self.input(&message).in_trouble(trouble);
        let (engine, gate, acknowledge) = (self.engine.clone(), self.gate.clone(), acknowledge.clone());
        let handing_in = async move {
            let settled = move |outcome: Outcome<S>| {
                leave.ended(&outcome);
                drop(place);
                gate.faults().crash(FaultKind::CrashBeforeAck);
                // Full only while the broker is away, and then the message comes again anyway.
                let _ = acknowledge.try_send(message);
            };
            engine.hand_in(input, settled).await
        };
        match delay {
            None => handing_in.await.map_err(|_| "the service is stopping".to_owned()),
            // Beside the others, as a slow step would be; the broker bounds how many.
            Some(delay) => {
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    let _ = handing_in.await;
                });
                Ok(())
            }
        }
    }

    fn input(&self, message: &Message) -> Input<S> {
        let sequence = message.info().map_or(0, |info| info.stream_sequence);
        let fallback_id = ids::of_stream_position(&self.stream, sequence);
        let delivery =
            Delivery { stream: self.stream.clone(), sequence, headers: headers_of(message.headers.as_ref()) };
        Input::message(self.gate.step(), message.payload.clone(), fallback_id, fastrand::u32(..))
            .delivered(delivery)
    }
}

/// The messages of a consumer, of which `pull` are asked for at once, until something goes wrong.
pub(super) async fn messages_of(consumer: &Pull, pull: usize) -> Result<pull::Stream, String> {
    consumer
        .stream()
        .max_messages_per_batch(pull)
        .expires(PULL_EXPIRES)
        .heartbeat(HEARTBEAT)
        .messages()
        .await
        .map_err(|error| error.to_string())
}

/// Headers, in the order of their names.
pub(super) fn headers_of(headers: Option<&HeaderMap>) -> Vec<(String, String)> {
    let all = headers.into_iter().flat_map(HeaderMap::iter);
    let mut headers: Vec<_> = all
        .flat_map(|(name, values)| values.iter().map(|value| (name.to_string(), value.to_string())))
        .collect();
    headers.sort();
    headers
}

async fn acknowledge_all(mut settled: mpsc::Receiver<Message>) {
    while let Some(message) = settled.recv().await {
        if let Err(error) = message.ack_with(AckKind::Ack).await {
            warn!("acknowledgement not sent, the message will come again: {error}");
        }
    }
}

async fn ensure(
    bus: &Bus,
    step: &Step,
    subscription: &Subscription,
    listener: &str,
) -> Result<Pull, BusFault> {
    let stream = subscription.stream();
    let subjects = subscription.subjects(listener);
    let config = pull::Config {
        durable_name: Some(step.durable(subscription)),
        deliver_policy: consumer::DeliverPolicy::All,
        ack_policy: consumer::AckPolicy::Explicit,
        ack_wait: bus.settings.ack_wait,
        max_deliver: i64::from(bus.settings.max_deliver),
        max_ack_pending: i64::from(bus.settings.max_ack_pending),
        filter_subjects: subjects,
        ..pull::Config::default()
    };
    match bus.jetstream.create_consumer_on_stream(config, &stream).await {
        Ok(consumer) => Ok(consumer),
        Err(error) => {
            // The stream may have gone with the broker's disk.
            bus.ensure_stream(subscription.producer).await?;
            Err(BusFault::Stream { stream, source: Box::new(error) })
        }
    }
}

/// How far a step's durable has come: (waiting or under way, delivered again).
///
/// # Errors
/// When the broker does not answer.
pub async fn waiting(bus: &Bus, step: &Step, subscription: &Subscription) -> Result<u64, BusFault> {
    let stream = subscription.stream();
    let durable = step.durable(subscription);
    let fault = |source: Box<dyn std::error::Error + Send + Sync>| BusFault::Stream {
        stream: stream.clone(),
        source,
    };
    let mut consumer: Pull = bus
        .jetstream
        .get_consumer_from_stream(&durable, &stream)
        .await
        .map_err(|error| fault(Box::new(error)))?;
    let info = consumer.info().await.map_err(|error| fault(Box::new(error)))?;
    Ok(info.num_pending + info.num_ack_pending as u64)
}
