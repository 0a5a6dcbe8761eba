//! Shell: one durable pull consumer for each subscription of each step.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_nats::Subject;
use async_nats::jetstream::{AckKind, Message, consumer, consumer::pull};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use saga_core::dead_letter::DeliveryInfo;
use saga_core::retry::error_chain;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout_at};

use super::advisories::Advisories;
use super::connection::{BusFault, NatsBus};
use super::pack::Packed;
use super::pulling::{GROUP, Pull, facts_of, in_words, said_on};
use super::requests::{self, Requests};
use crate::runtime::bus::{Bus, BusError, BusMessage, Deliveries, Durable, Waiting};

/// How often it is tried whether another service has made its stream.
const STREAM_POLL: Duration = Duration::from_millis(100);

impl Bus for NatsBus {
    type Deliveries = NatsDeliveries;
    type GivenUps = Advisories;

    fn is_connected(&self) -> bool {
        Self::is_connected(self)
    }

    async fn consume(&self, durable: Durable) -> Result<NatsDeliveries, BusError> {
        let consumer = ensure(self, durable).await.map_err(|fault| error_chain(&fault))?;
        Ok(NatsDeliveries {
            bus: Arc::new(self.clone()),
            consumer,
            requests: Requests::of(self),
            stream: durable.subscription.stream().into(),
            unpacked: VecDeque::new(),
            room: Arc::new(Semaphore::new(self.room)),
        })
    }

    async fn given_ups(&self, durables: &[Durable]) -> Result<Advisories, BusError> {
        Advisories::of(self, durables).await
    }

    fn ack_wait(&self) -> Duration {
        self.settings.ack_wait
    }

    async fn in_progress(&self, reply: &Option<Subject>) -> Result<(), BusError> {
        match reply {
            Some(reply) => say(self, reply.clone(), AckKind::Progress).await,
            None => Ok(()),
        }
    }

    async fn waiting(&self, durable: Durable) -> Result<Waiting, BusError> {
        Ok(self.reach(durable).await?.waiting)
    }
}

/// How far a durable has come with its stream.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reach {
    /// What the durable still waits for, or waits to hear of.
    pub waiting: Waiting,
    /// Everything up to this place in the stream was acknowledged, or is not for this durable.
    pub acknowledged: u64,
}

impl NatsBus {
    /// How far this durable has come.
    ///
    /// # Errors
    /// When the broker does not say.
    pub fn reach(&self, durable: Durable) -> BoxFuture<'_, Result<Reach, BusError>> {
        Box::pin(async move {
            let (stream, name) = (durable.subscription.stream(), durable.name());
            let asked = self.in_time(self.jetstream.get_consumer_from_stream(&name, &stream));
            let consumer: Pull = asked.await.map_err(in_words)?;
            let info = consumer.cached_info();
            let (delivered, most) = (info.num_ack_pending as u64, info.config.max_ack_pending);
            let is_full = u64::try_from(most).is_ok_and(|most| most > 0 && delivered >= most);
            let waiting = Waiting { undelivered: info.num_pending, delivered, is_full };
            Ok(Reach { waiting, acknowledged: info.ack_floor.stream_sequence })
        })
    }

    /// The place of the newest message of this stream; only of a stream that one may ask about: one's own.
    ///
    /// # Errors
    /// When the broker does not say.
    pub fn newest(&self, stream: &str) -> BoxFuture<'_, Result<u64, BusError>> {
        let stream = stream.to_owned();
        Box::pin(async move {
            let stream = self.in_time(self.jetstream.get_stream(stream)).await.map_err(in_words)?;
            Ok(stream.cached_info().state.last_sequence)
        })
    }
}

/// Tells the broker what became of a delivery.
fn say(bus: &NatsBus, reply: Subject, what: AckKind) -> BoxFuture<'_, Result<(), BusError>> {
    let saying = bus.client.publish(reply, what.into());
    Box::pin(async move { bus.in_time(saying).await.map_err(in_words) })
}

fn ensure(bus: &NatsBus, durable: Durable) -> BoxFuture<'_, Result<Pull, BusFault>> {
    let stream = durable.subscription.stream();
    let config = pull::Config {
        durable_name: Some(durable.name()),
        deliver_policy: consumer::DeliverPolicy::All,
        ack_policy: consumer::AckPolicy::Explicit,
        ack_wait: bus.settings.ack_wait,
        max_deliver: i64::from(bus.settings.max_deliver),
        max_ack_pending: i64::from(bus.settings.max_ack_pending),
        filter_subjects: durable.subscription.subjects(durable.listener),
        ..pull::Config::default()
    };
    let config = if bus.leads.is_some() { requests::of_replicas(config) } else { config };
    let producer = durable.subscription.producer;
    Box::pin(async move {
        let until = Instant::now() + bus.settings.publish_timeout;
        loop {
            let creating = bus.jetstream.create_consumer_on_stream(config.clone(), &stream);
            match bus.in_time(creating).await {
                Ok(consumer) => return Ok(consumer),
                // Its service is about to make it, when all start together.
                Err(_) if !bus.makes_stream_of(producer) && Instant::now() < until => {
                    sleep(STREAM_POLL).await;
                }
                Err(source) => {
                    // The stream may have gone with the broker's disk, and this service's own with it.
                    bus.ensure_streams(&[producer, durable.listener]).await?;
                    return Err(BusFault::Stream { stream, source });
                }
            }
        }
    })
}

/// Facts of one pull consumer.
pub struct NatsDeliveries {
    bus: Arc<NatsBus>,
    consumer: Pull,
    requests: Requests,
    stream: Arc<str>,
    /// What came in one message with a fact that was answered, and was not answered yet.
    unpacked: VecDeque<NatsMessage>,
    /// For as many facts as messages may be under way: a pack is one of those to the broker, and many here.
    room: Arc<Semaphore>,
}

impl NatsDeliveries {
    /// Takes a message apart: what it carries waits to be answered.
    fn unpack(&mut self, message: Message) {
        let (sequence, is_redelivery) =
            message.info().map_or((0, false), |info| (info.stream_sequence, info.delivered > 1));
        let facts = facts_of(&message.payload, message.headers.as_ref());
        let subject = said_on(&message.subject, message.headers.as_ref());
        let (bus, stream, unsettled) = (self.bus.clone(), self.stream.clone(), AtomicUsize::new(facts.len()));
        let whole = Arc::new(Whole {
            bus,
            reply: message.message.reply,
            unsettled,
            stream,
            sequence,
            subject,
            is_redelivery,
        });
        let of_whole = |fact| NatsMessage { whole: whole.clone(), fact, _room: None };
        self.unpacked.extend(facts.into_iter().map(of_whole));
    }
}

impl Deliveries for NatsDeliveries {
    type Message = NatsMessage;

    fn are_held(&self) -> bool {
        self.bus.leads.is_none()
    }

    async fn next(&mut self) -> Result<NatsMessage, BusError> {
        let room = self.room.clone().acquire_owned().await.map_err(|closed| closed.to_string())?;
        loop {
            if let Some(message) = self.unpacked.pop_front() {
                return Ok(NatsMessage { _room: Some(room), ..message });
            }
            let message = self.requests.next(&self.bus, &self.consumer).await?;
            self.unpack(message);
        }
    }

    async fn fetch(&mut self, most: usize) -> Result<Vec<NatsMessage>, BusError> {
        self.pull(most, None).await
    }

    async fn next_within(&mut self, time: Duration) -> Result<Option<NatsMessage>, BusError> {
        let messages = self.pull(1, Some(time)).await?;
        Ok(messages.into_iter().next())
    }
}

impl NatsDeliveries {
    /// At most so many messages: those that come within this time, or those that are there at once.
    ///
    /// A request that gets lost with its broker is never answered: the client would wait for ever.
    fn pull(
        &mut self,
        most: usize,
        time: Option<Duration>,
    ) -> BoxFuture<'_, Result<Vec<NatsMessage>, BusError>> {
        Box::pin(async move {
            // What came before its turn is there.
            if !self.unpacked.is_empty() {
                return Ok(self.unpacked.drain(..most.min(self.unpacked.len())).collect());
            }
            let patience = self.bus.settings.publish_timeout;
            let until = Instant::now() + time.unwrap_or_default() + patience;
            let asking = async {
                // Before the others, whoever asks: a breaker that lets few through has to see how they end.
                let is_of_replica = self.bus.leads.is_some();
                match time {
                    Some(time) => {
                        let batch = self.consumer.batch().max_messages(most).expires(time);
                        let batch = if is_of_replica { batch.group(GROUP) } else { batch };
                        batch.messages().await
                    }
                    None => {
                        let fetch = self.consumer.fetch().max_messages(most);
                        let fetch = if is_of_replica { fetch.group(GROUP) } else { fetch };
                        fetch.messages().await
                    }
                }
            };
            let mut batch = self.bus.in_time(asking).await.map_err(in_words)?;
            let problem = loop {
                match timeout_at(until, batch.next()).await {
                    Ok(Some(Ok(message))) => self.unpack(message),
                    Ok(None) => break None,
                    Ok(Some(Err(error))) => break Some(error.to_string()),
                    Err(_) => break Some(format!("no answer to a request for messages within {patience:?}")),
                }
            };
            // What has come is handled; what is wrong shows again with the next request.
            match problem {
                Some(problem) if self.unpacked.is_empty() => Err(problem),
                Some(_) | None => Ok(self.unpacked.drain(..most.min(self.unpacked.len())).collect()),
            }
        })
    }
}

/// A message as the broker delivered it.
struct Whole {
    bus: Arc<NatsBus>,
    /// Where its acknowledgement goes.
    reply: Option<Subject>,
    /// Facts of it that are not settled.
    unsettled: AtomicUsize,
    stream: Arc<str>,
    sequence: u64,
    /// Where it was said.
    subject: String,
    is_redelivery: bool,
}

/// A fact of JetStream that was delivered, in a message of its own or with others: that is acknowledged once each of
/// them is, and otherwise all of them come again.
pub struct NatsMessage {
    whole: Arc<Whole>,
    fact: Packed,
    /// What it takes up as long as it is under way.
    _room: Option<OwnedSemaphorePermit>,
}

impl BusMessage for NatsMessage {
    /// Where its acknowledgement goes.
    type Hold = Option<Subject>;

    fn hold(&self) -> Option<Subject> {
        self.whole.reply.clone()
    }

    fn payload(&self) -> Bytes {
        self.fact.payload.clone()
    }

    fn delivery(&self) -> DeliveryInfo {
        let Whole { stream, sequence, subject, .. } = &*self.whole;
        let headers = self.fact.headers.clone();
        DeliveryInfo { stream: stream.to_string(), sequence: *sequence, subject: subject.clone(), headers }
    }

    fn is_redelivery(&self) -> bool {
        self.whole.is_redelivery
    }

    async fn acknowledge(self) -> Result<(), BusError> {
        let Whole { bus, reply, unsettled, .. } = &*self.whole;
        match reply {
            Some(reply) if unsettled.fetch_sub(1, Ordering::AcqRel) == 1 => {
                say(bus, reply.clone(), AckKind::Ack).await
            }
            Some(_) | None => Ok(()),
        }
    }
}
