//! Shell: the durable pull consumer of one subscription, and the facts that it delivers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Subject;
use async_nats::jetstream::{AckKind, Message, consumer, consumer::pull};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use saga_core::dead_letter::DeliveryInfo;
use saga_core::retry::error_chain;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::advisories::NatsAdvisories;
use super::connection::{BusFault, NatsBus};
use super::durables;
use super::message::{facts_of, in_one_line, published_subject};
use super::pack::{PackedFact, Unacknowledged};
use super::pull_requests::{self, GROUP, PullConsumer, PullRequests};
use crate::runtime::bus::{Backlog, Bus, BusError, BusFact, ConsumerProgress, Durable, FactStream};
use crate::runtime::in_progress::{InProgress, InProgressGuard};

/// Interval of attempts while another service has not created its stream yet.
const STREAM_POLL: Duration = Duration::from_millis(100);
/// Interval at which a consumer at the broker is compared with its declaration: with another filter it is silent.
const CHECK_EVERY: Duration = Duration::from_secs(3);

impl Bus for NatsBus {
    type Facts = NatsFacts;
    type Advisories = NatsAdvisories;

    fn is_connected(&self) -> bool {
        Self::is_connected(self)
    }

    async fn consume(&self, durable: Durable) -> Result<NatsFacts, BusError> {
        let consumer = ensure_consumer(self, durable).await.map_err(|fault| error_chain(&fault))?;
        Ok(NatsFacts {
            bus: Arc::new(self.clone()),
            consumer,
            requests: PullRequests::of(self),
            declared: durables::recorded(config_of(self, durable)),
            check_at: Instant::now() + CHECK_EVERY,
            durable: durable.name(),
            stream: durable.subscription.stream().into(),
            held: InProgress::default(),
            unpacked: VecDeque::new(),
            in_flight: Arc::new(Semaphore::new(self.max_in_flight)),
        })
    }

    async fn advisories(&self, durables: &[Durable]) -> Result<NatsAdvisories, BusError> {
        NatsAdvisories::subscribe(self, durables).await
    }

    fn ack_wait(&self) -> Duration {
        self.settings.ack_wait
    }

    async fn in_progress(&self, reply: &Option<Subject>) -> Result<(), BusError> {
        match reply {
            Some(reply) => send_ack(self, reply.clone(), AckKind::Progress).await,
            None => Ok(()),
        }
    }

    async fn progress(&self, durable: Durable) -> Result<ConsumerProgress, BusError> {
        let (stream, name) = (durable.subscription.stream(), durable.name());
        let reading = self.in_time(self.jetstream.get_consumer_from_stream(&name, &stream));
        let consumer: PullConsumer = reading.await.map_err(in_one_line)?;
        let info = consumer.cached_info();
        let (unacknowledged, limit) = (info.num_ack_pending as u64, info.config.max_ack_pending);
        let is_full = u64::try_from(limit).is_ok_and(|limit| limit > 0 && unacknowledged >= limit);
        let facts_in = |messages| self.pack_sizes.facts_in(&name, messages);
        let (undelivered, unacknowledged) = (facts_in(info.num_pending), facts_in(unacknowledged));
        Ok(ConsumerProgress {
            backlog: Backlog { undelivered, unacknowledged, is_full },
            delivered: info.delivered.stream_sequence,
            acknowledged: info.ack_floor.stream_sequence,
        })
    }
}

impl NatsBus {
    /// Reads the position of the newest message in a stream. A service may only read its own.
    ///
    /// # Errors
    /// If the broker does not answer.
    pub fn last_sequence(&self, stream: &str) -> BoxFuture<'_, Result<u64, BusError>> {
        let stream = stream.to_owned();
        Box::pin(async move {
            let stream = self.in_time(self.jetstream.get_stream(stream)).await.map_err(in_one_line)?;
            Ok(stream.cached_info().state.last_sequence)
        })
    }
}

/// Sends an acknowledgement to the reply subject of a delivery.
fn send_ack(bus: &NatsBus, reply: Subject, kind: AckKind) -> BoxFuture<'_, Result<(), BusError>> {
    let sending = bus.client.publish(reply, kind.into());
    Box::pin(async move { bus.in_time(sending).await.map_err(in_one_line) })
}

/// Declaration of a durable consumer.
fn config_of(bus: &NatsBus, durable: Durable) -> pull::Config {
    let config = pull::Config {
        durable_name: Some(durable.name()),
        deliver_policy: consumer::DeliverPolicy::All,
        ack_policy: consumer::AckPolicy::Explicit,
        ack_wait: bus.settings.ack_wait,
        max_deliver: i64::from(bus.settings.max_deliveries),
        max_ack_pending: i64::from(bus.settings.max_ack_pending),
        filter_subjects: durable.subscription.subjects(durable.service),
        ..pull::Config::default()
    };
    if bus.leads.is_some() { pull_requests::with_priorities(config) } else { config }
}

/// Creates the durable consumer, or updates it to the settings.
fn ensure_consumer(bus: &NatsBus, durable: Durable) -> BoxFuture<'_, Result<PullConsumer, BusFault>> {
    let (stream, config) = (durable.subscription.stream(), config_of(bus, durable));
    let producer = durable.subscription.producer;
    Box::pin(async move {
        let until = Instant::now() + bus.settings.publish_timeout;
        loop {
            match durables::ensure(bus, &stream, config.clone()).await {
                Ok(consumer) => return Ok(consumer),
                // When all services start together, the producer is about to create its stream.
                Err(_) if !bus.owns_stream_of(producer) && Instant::now() < until => {
                    sleep(STREAM_POLL).await;
                }
                Err(source) => {
                    // The broker's disk may be lost, and with it the streams of both services.
                    bus.ensure_streams(&[producer, durable.service]).await?;
                    return Err(BusFault::Stream { stream, source });
                }
            }
        }
    })
}

/// Facts of one durable consumer.
pub struct NatsFacts {
    bus: Arc<NatsBus>,
    consumer: PullConsumer,
    requests: PullRequests,
    declared: pull::Config,
    /// Time of the next comparison with the consumer at the broker.
    check_at: Instant,
    durable: String,
    stream: Arc<str>,
    /// Deliveries that are reported to the broker as in progress.
    held: InProgress<Option<Subject>>,
    /// Facts of received messages that were not returned yet.
    unpacked: VecDeque<NatsFact>,
    /// Bounds the facts in flight. A pack counts as one message at the broker, but as many facts here.
    in_flight: Arc<Semaphore>,
}

impl NatsFacts {
    /// Splits a message into its facts.
    fn unpack(&mut self, message: Message) {
        let (sequence, is_redelivery) =
            message.info().map_or((0, false), |info| (info.stream_sequence, info.delivered > 1));
        let facts = facts_of(&message.payload, message.headers.as_ref());
        self.bus.pack_sizes.record(&self.durable, facts.len());
        let held = self.held.add(message.reply.clone());
        let message = Arc::new(DeliveredMessage {
            bus: self.bus.clone(),
            subject: published_subject(&message.subject, message.headers.as_ref()),
            reply: message.message.reply,
            unacknowledged: Unacknowledged::new(facts.len()),
            stream: self.stream.clone(),
            sequence,
            is_redelivery,
            _held: held,
        });
        let of_message = |fact| NatsFact { message: message.clone(), fact, _permit: None };
        self.unpacked.extend(facts.into_iter().map(of_message));
    }

    /// Checks that the consumer at the broker is as declared.
    async fn check(&mut self) -> Result<(), BusError> {
        let found = durables::difference(&self.bus, &self.stream, &self.declared).await;
        self.check_at = Instant::now() + CHECK_EVERY;
        match found {
            None => Ok(()),
            Some(_) => Err(format!("consumer {} was changed at the broker", self.durable)),
        }
    }

    /// Number of messages that there is room for.
    fn request_size(&self) -> usize {
        let room = self.in_flight.available_permits().saturating_sub(self.unpacked.len());
        self.messages_of(room).min(self.bus.settings.pull_batch)
    }

    /// Number of messages that hold about so many facts.
    fn messages_of(&self, facts: usize) -> usize {
        self.bus.pack_sizes.messages_of(&self.durable, facts, self.bus.settings.max_pack)
    }

    fn take_unpacked(&mut self, most: usize) -> Vec<NatsFact> {
        self.unpacked.drain(..most.min(self.unpacked.len())).collect()
    }

    /// Requests about `most` facts: those that arrive within `time`, or those that are available now.
    fn pull(
        &mut self,
        most: usize,
        time: Option<Duration>,
    ) -> BoxFuture<'_, Result<Vec<NatsFact>, BusError>> {
        Box::pin(async move {
            if !self.unpacked.is_empty() {
                return Ok(self.take_unpacked(most));
            }
            // A request that is lost with its broker gets no answer, and the client would wait for ever.
            let patience = self.bus.settings.publish_timeout;
            let until = Instant::now() + time.unwrap_or_default() + patience;
            let mut batch = self.request(self.messages_of(most), time).await?;
            let problem = loop {
                match timeout_at(until, batch.next()).await {
                    Ok(Some(Ok(message))) => self.unpack(message),
                    Ok(None) => break None,
                    Ok(Some(Err(error))) => break Some(error.to_string()),
                    Err(_) => break Some(format!("no answer to a request for messages within {patience:?}")),
                }
            };
            // Messages that arrived are returned all the same: the problem shows again at the next request.
            match problem {
                Some(problem) if self.unpacked.is_empty() => Err(problem),
                Some(_) | None => Ok(self.take_unpacked(most)),
            }
        })
    }

    /// Sends a single pull request. It has the leader's priority in every replica: a half-open breaker that lets few
    /// messages through must see how they end.
    async fn request(&self, most: usize, time: Option<Duration>) -> Result<pull::Batch, BusError> {
        let is_replica = self.bus.leads.is_some();
        let requesting = async {
            match time {
                Some(time) => {
                    let batch = self.consumer.batch().max_messages(most).expires(time);
                    let batch = if is_replica { batch.group(GROUP) } else { batch };
                    batch.messages().await
                }
                None => {
                    let fetch = self.consumer.fetch().max_messages(most);
                    let fetch = if is_replica { fetch.group(GROUP) } else { fetch };
                    fetch.messages().await
                }
            }
        };
        self.bus.in_time(requesting).await.map_err(in_one_line)
    }
}

impl FactStream for NatsFacts {
    type Fact = NatsFact;

    fn hold(&mut self, in_progress: &InProgress<Option<Subject>>) {
        self.held = in_progress.clone();
    }

    async fn prefetch(&mut self) -> Result<NatsFact, BusError> {
        if self.bus.leads.is_none() {
            return self.next().await;
        }
        // Other replicas would take further ones: a busy replica should hold few.
        loop {
            let message = self.requests.arriving(&self.bus).await;
            self.unpack(message);
        }
    }

    async fn next(&mut self) -> Result<NatsFact, BusError> {
        loop {
            let request_size = self.request_size();
            let awaits_permit = request_size == 0 || !self.unpacked.is_empty();
            let permit = self.in_flight.clone().acquire_owned();
            tokio::select! {
                biased;
                () = sleep_until(self.check_at) => self.check().await?,
                permit = permit, if awaits_permit => {
                    let permit = permit.map_err(|closed| closed.to_string())?;
                    if let Some(fact) = self.unpacked.pop_front() {
                        return Ok(NatsFact { _permit: Some(permit), ..fact });
                    }
                }
                // Also without room: what was requested is held as soon as it arrives.
                message = self.requests.next(&self.bus, &self.consumer, request_size) => self.unpack(message?),
            }
        }
    }

    async fn fetch(&mut self, most: usize) -> Result<Vec<NatsFact>, BusError> {
        self.pull(most, None).await
    }

    async fn next_within(&mut self, time: Duration) -> Result<Option<NatsFact>, BusError> {
        let facts = self.pull(1, Some(time)).await?;
        Ok(facts.into_iter().next())
    }
}

/// Message as delivered by the broker, which carries one fact or a pack.
struct DeliveredMessage {
    bus: Arc<NatsBus>,
    reply: Option<Subject>,
    unacknowledged: Unacknowledged,
    stream: Arc<str>,
    sequence: u64,
    subject: String,
    is_redelivery: bool,
    /// Reports the message as in progress until the last of its facts is dropped.
    _held: InProgressGuard<Option<Subject>>,
}

/// Fact in a delivered message. The message is acknowledged with its last fact; until then the broker redelivers all of
/// its facts.
pub struct NatsFact {
    message: Arc<DeliveredMessage>,
    fact: PackedFact,
    /// Permit of a fact in flight.
    _permit: Option<OwnedSemaphorePermit>,
}

impl BusFact for NatsFact {
    /// Reply subject of the message.
    type Handle = Option<Subject>;

    fn payload(&self) -> Bytes {
        self.fact.payload.clone()
    }

    fn delivery(&self) -> DeliveryInfo {
        let DeliveredMessage { stream, sequence, subject, .. } = &*self.message;
        let headers = self.fact.headers.clone();
        DeliveryInfo { stream: stream.to_string(), sequence: *sequence, subject: subject.clone(), headers }
    }

    fn is_redelivery(&self) -> bool {
        self.message.is_redelivery
    }

    async fn acknowledge(self) -> Result<(), BusError> {
        let DeliveredMessage { bus, reply, unacknowledged, .. } = &*self.message;
        match reply {
            Some(reply) if unacknowledged.acknowledge_one() => {
                send_ack(bus, reply.clone(), AckKind::Ack).await
            }
            Some(_) | None => Ok(()),
        }
    }
}
