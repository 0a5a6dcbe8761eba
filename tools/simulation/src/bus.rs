//! Shell: the broker as one process reaches it: late, twice, or not at all.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use saga_core::dead_letter::DeliveryInfo;
use saga_engine::nats::pack::{self, PackedFact, Unacknowledged};
use saga_engine::nats::pack_publishing::{PackAnswer, PackSender, publish_in_packs};
use saga_engine::runtime::bus::{
    Advisories, Advisory, Backlog, Bus, BusError, BusFact, ConsumerProgress, Durable, FactStream, Publish,
};
use saga_engine::runtime::in_progress::{InProgress, InProgressGuard};
use saga_engine::store::{OutboxEntry, PublishOutcome};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::broker::{ACK_WAIT, Broker};
use crate::coverage::CoveragePoint;
use crate::failure_reasons;
use crate::planted_fault::PlantedFault;
use crate::process::Process;
use crate::sim::Sim;

const AWAY: &str = "the broker is away";
/// Percentage of advisories that were delivered too often to be retried.
const EXHAUSTED_PERCENT: u8 = 50;
/// Maximum time until an unanswered request fails.
const REQUEST_TIMEOUT_MS: u64 = 5_000;

/// The broker that all processes share. Clones share its state.
#[derive(Clone)]
pub struct SharedBroker(Arc<Inner>);

struct Inner {
    sim: Sim,
    broker: Mutex<Broker>,
    /// Wakes the consumers of each durable.
    deliveries: BTreeMap<String, Notify>,
    advisories: Notify,
}

impl SharedBroker {
    /// Wraps a broker whose durables are all declared.
    pub fn new(sim: Sim, broker: Broker) -> Self {
        let deliveries = broker.durables().map(|name| (name.to_owned(), Notify::new())).collect();
        Self(Arc::new(Inner { sim, broker: Mutex::new(broker), deliveries, advisories: Notify::new() }))
    }

    pub fn lock(&self) -> MutexGuard<'_, Broker> {
        self.0.broker.lock()
    }

    /// Stores a message of one fact.
    pub fn store(&self, id: Uuid, subject: &str, payload: Bytes, window_forgot: bool) {
        self.store_pack(id, subject, vec![PackedFact { payload, headers: vec![] }], window_forgot);
    }

    /// Stores a message of these facts and delivers it to its consumers after some latency.
    pub fn store_pack(&self, id: Uuid, subject: &str, facts: Vec<PackedFact>, window_forgot: bool) {
        let sim = &self.0.sim;
        let latency = || if sim.chance(10) { sim.up_to(4_000) } else { sim.up_to(30) };
        let consumers = self.lock().store((id, subject, facts), window_forgot, sim.age(), latency);
        self.wake(&consumers);
        for durable in consumers {
            if sim.chance(sim.profile().max_deliveries_reached) {
                let index = self.lock().messages().len() - 1;
                sim.note(|| format!("message {index} reaches the delivery limit of {durable}"));
                self.exhaust(&durable, index);
            }
        }
    }

    /// Redelivers a message to all its consumers.
    pub fn redeliver(&self, index: usize) {
        let consumers = self.lock().redeliver(index, self.0.sim.age());
        self.wake(&consumers);
    }

    /// Ends the delivery of a message after too many attempts.
    fn exhaust(&self, durable: &str, index: usize) {
        self.lock().exhaust(durable, index, self.0.sim.age());
        self.0.advisories.notify_waiters();
    }

    /// Makes the broker unreachable or reachable.
    pub fn set_away(&self, is_away: bool) {
        self.lock().set_away(is_away);
        self.wake_all();
    }

    /// Wakes all consumers, to notice that the broker is away or reachable.
    pub fn wake_all(&self) {
        self.0.deliveries.values().for_each(Notify::notify_waiters);
        self.0.advisories.notify_waiters();
    }

    fn wake(&self, durables: &[String]) {
        durables.iter().filter_map(|name| self.0.deliveries.get(name)).for_each(Notify::notify_waiters);
    }
}

/// The broker as one process reaches it.
#[derive(Clone)]
pub struct SimBus {
    process: Process,
    broker: SharedBroker,
    /// Maximum number of facts in flight from one durable.
    max_in_flight: usize,
}

impl SimBus {
    pub const fn new(process: Process, broker: SharedBroker, max_in_flight: usize) -> Self {
        Self { process, broker, max_in_flight }
    }

    fn sim(&self) -> &Sim {
        self.process.sim()
    }

    /// Records that this process knows the broker's time.
    pub fn received_time(&self) {
        self.process.received_time();
    }

    /// Time by the broker's clock.
    pub fn time(&self) -> Timestamp {
        self.sim().broker_time()
    }

    /// True if this process does not reach the broker.
    fn is_away(&self) -> bool {
        self.process.is_cut_off() || self.broker.lock().is_away()
    }

    /// Simulates one request, which fails while the broker is away.
    async fn reach(&self) -> Result<(), BusError> {
        self.process.crash_point("on its way to the broker").await;
        if self.is_away() {
            sleep(self.sim().up_to(REQUEST_TIMEOUT_MS)).await;
            return Err(AWAY.to_owned());
        }
        sleep(self.sim().up_to(3)).await;
        Ok(())
    }

    /// Waits until `take` finds something; `until` returns the next time to try without a wake-up.
    async fn wait_for<T>(
        &self,
        woken: &Notify,
        mut take: impl FnMut(&mut Broker, Duration) -> Option<T>,
        until: impl Fn(&Broker) -> Option<Duration>,
    ) -> Result<T, BusError> {
        loop {
            // Armed before `take`, or a wake-up between the two would be lost.
            let woken = woken.notified();
            let (taken, next) = {
                let (mut broker, age) = (self.broker.lock(), self.sim().age());
                if broker.is_away() || self.process.is_cut_off() {
                    return Err(AWAY.to_owned());
                }
                (take(&mut broker, age), until(&broker))
            };
            if let Some(taken) = taken {
                self.process.crash_point("with a message in hand").await;
                return match self.sim().chance(self.sim().profile().connection_breaks) {
                    true => Err("the connection broke".to_owned()),
                    false => Ok(taken),
                };
            }
            match next {
                Some(at) => drop(timeout(at.saturating_sub(self.sim().age()), woken).await),
                None => woken.await,
            }
        }
    }
}

impl Bus for SimBus {
    type Facts = SimFacts;
    type Advisories = SimAdvisories;

    fn is_connected(&self) -> bool {
        !self.is_away()
    }

    async fn consume(&self, durable: Durable) -> Result<SimFacts, BusError> {
        self.reach().await?;
        Ok(SimFacts {
            bus: self.clone(),
            durable: durable.name(),
            held: InProgress::default(),
            unpacked: VecDeque::new(),
            in_flight: Arc::new(Semaphore::new(self.max_in_flight)),
        })
    }

    async fn advisories(&self, durables: &[Durable]) -> Result<SimAdvisories, BusError> {
        self.reach().await?;
        let durables = durables.iter().map(Durable::name).collect();
        Ok(SimAdvisories { bus: self.clone(), durables, current: None, more: VecDeque::new() })
    }

    fn ack_wait(&self) -> Duration {
        ACK_WAIT
    }

    async fn in_progress(&self, (durable, index): &(String, usize)) -> Result<(), BusError> {
        self.reach().await?;
        self.broker.lock().in_progress(durable, *index, self.sim().age());
        Ok(())
    }

    async fn progress(&self, durable: Durable) -> Result<ConsumerProgress, BusError> {
        self.reach().await?;
        let undelivered = self.broker.lock().waiting(&durable.name());
        let backlog = Backlog { undelivered, ..Backlog::default() };
        Ok(ConsumerProgress { backlog, ..ConsumerProgress::default() })
    }
}

pub struct SimFacts {
    bus: SimBus,
    durable: String,
    held: InProgress<(String, usize)>,
    /// Facts of received messages that were not returned yet.
    unpacked: VecDeque<SimFact>,
    /// Bounds the facts in flight, as in production.
    in_flight: Arc<Semaphore>,
}

impl SimFacts {
    /// Splits a message into its facts.
    fn unpack(&mut self, index: usize) {
        let bus = self.bus.clone();
        if bus.sim().has(PlantedFault::AcknowledgeBeforeCommit) {
            bus.broker.lock().acknowledge(&self.durable, index);
        }
        let facts = bus.broker.lock().messages()[index].facts.len();
        let is_last_lost = facts > 1 && bus.sim().has(PlantedFault::PackLosesLastFact);
        let facts = if is_last_lost { facts - 1 } else { facts };
        let held = self.held.add((self.durable.clone(), index));
        let (durable, unacknowledged) = (self.durable.clone(), Unacknowledged::new(facts));
        let message = Arc::new(SimMessage { bus, durable, index, unacknowledged, _held: held });
        let of_message = |part| SimFact { message: message.clone(), part, _permit: None };
        self.unpacked.extend((0..facts).map(of_message));
    }

    async fn receive(&mut self) -> Result<(), BusError> {
        let (name, inner) = (self.durable.as_str(), &self.bus.broker.0);
        let Some(woken) = inner.deliveries.get(name) else {
            return Err(format!("there is no durable {name}"));
        };
        let take = |broker: &mut Broker, at| broker.take(name, at);
        let index = self.bus.wait_for(woken, take, |broker| broker.next_delivery(name)).await?;
        self.unpack(index);
        Ok(())
    }
}

impl FactStream for SimFacts {
    type Fact = SimFact;

    fn hold(&mut self, in_progress: &InProgress<(String, usize)>) {
        self.held = in_progress.clone();
    }

    async fn next(&mut self) -> Result<SimFact, BusError> {
        let permit = self.in_flight.clone().acquire_owned().await.map_err(|closed| closed.to_string())?;
        loop {
            if let Some(fact) = self.unpacked.pop_front() {
                return Ok(SimFact { _permit: Some(permit), ..fact });
            }
            self.receive().await?;
        }
    }

    async fn fetch(&mut self, most: usize) -> Result<Vec<SimFact>, BusError> {
        if self.unpacked.is_empty() {
            self.bus.reach().await?;
            let age = self.bus.sim().age();
            let mut broker = self.bus.broker.lock();
            let taken: Vec<_> = (0..most).map_while(|_| broker.take(&self.durable, age)).collect();
            drop(broker);
            taken.into_iter().for_each(|index| self.unpack(index));
        }
        Ok(self.unpacked.drain(..most.min(self.unpacked.len())).collect())
    }

    async fn next_within(&mut self, time: Duration) -> Result<Option<SimFact>, BusError> {
        if self.unpacked.is_empty()
            && let Ok(received) = timeout(time, self.receive()).await
        {
            received?;
        }
        Ok(self.unpacked.pop_front())
    }
}

struct SimMessage {
    bus: SimBus,
    durable: String,
    index: usize,
    unacknowledged: Unacknowledged,
    _held: InProgressGuard<(String, usize)>,
}

/// A fact in a delivered message, which is acknowledged with its last fact.
pub struct SimFact {
    message: Arc<SimMessage>,
    part: usize,
    /// Permit of a fact in flight.
    _permit: Option<OwnedSemaphorePermit>,
}

impl BusFact for SimFact {
    type Handle = (String, usize);

    fn payload(&self) -> Bytes {
        let SimMessage { bus, index, .. } = &*self.message;
        let payload = bus.broker.lock().messages()[*index].facts[self.part].payload.clone();
        bus.sim().planted_fault().alter_delivery(payload, bus.sim().age())
    }

    fn delivery(&self) -> DeliveryInfo {
        let SimMessage { bus, index, .. } = &*self.message;
        bus.broker.lock().delivery(*index, self.part)
    }

    async fn acknowledge(self) -> Result<(), BusError> {
        let SimMessage { bus, durable, index, unacknowledged, .. } = &*self.message;
        if !unacknowledged.acknowledge_one() {
            return Ok(());
        }
        bus.process.crash_point("before it acknowledges").await;
        sleep(bus.sim().up_to(2)).await;
        if bus.is_away() {
            return Err(AWAY.to_owned());
        }
        if !bus.sim().chance(bus.sim().profile().ack_lost) {
            bus.broker.lock().acknowledge(durable, *index);
        }
        Ok(())
    }
}

/// Advisories about messages that reached the delivery limit.
pub struct SimAdvisories {
    bus: SimBus,
    durables: Vec<String>,
    current: Option<(String, usize)>,
    /// Further facts of the current message.
    more: VecDeque<Advisory>,
}

impl Advisories for SimAdvisories {
    async fn next(&mut self) -> Result<Advisory, BusError> {
        if let Some(advisory) = self.more.pop_front() {
            return Ok(advisory);
        }
        let woken = &self.bus.broker.0.advisories;
        let take = |broker: &mut Broker, at| broker.take_advisory(&self.durables, at);
        let (durable, index) =
            self.bus.wait_for(woken, take, |broker| broker.next_advisory(&self.durables)).await?;
        if self.bus.sim().has(PlantedFault::AdvisoryAcknowledgedFirst) {
            self.bus.broker.lock().acknowledge_advisory(&durable, index);
        }
        self.current = Some((durable.clone(), index));
        // Sometimes the processes that received it before have died of it.
        let deliveries = if self.bus.sim().chance(EXHAUSTED_PERCENT) { u64::MAX } else { 1 };
        let broker = self.bus.broker.lock();
        let facts = broker.messages()[index].facts.iter().enumerate();
        let mut advisories = facts.map(|(part, fact)| Advisory {
            durable: durable.clone(),
            payload: fact.payload.clone(),
            delivery: broker.delivery(index, part),
            reason: failure_reasons::MAX_DELIVERIES.to_owned(),
            is_terminated: false,
            deliveries,
        });
        let first = advisories.next().ok_or("a message without a fact")?;
        self.more.extend(advisories);
        Ok(first)
    }

    async fn in_progress(&mut self) -> Result<(), BusError> {
        self.bus.reach().await
    }

    async fn acknowledge(&mut self) -> Result<(), BusError> {
        if !self.more.is_empty() {
            return Ok(());
        }
        self.bus.reach().await?;
        if let Some((durable, index)) = self.current.take() {
            self.bus.broker.lock().acknowledge_advisory(&durable, index);
        }
        Ok(())
    }
}

impl Publish for SimBus {
    fn publish<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, PublishOutcome> {
        Box::pin(async move {
            let delay = |why: &str| PublishOutcome {
                delayed: entries.first().map(|entry| (entry.seq, why.to_owned())),
                ..PublishOutcome::default()
            };
            self.process.crash_point("before it publishes").await;
            sleep(self.sim().up_to(4)).await;
            if self.is_away() {
                return delay(AWAY);
            }
            let published = self.publish_some(entries).await;
            self.process.crash_point("before it settles what it published").await;
            sleep(self.sim().up_to(4)).await;
            match self.sim().chance(self.sim().profile().publish_fails) {
                true => delay("the acknowledgements were lost"),
                false => published,
            }
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), BusError>> {
        Box::pin(self.reach())
    }
}

impl SimBus {
    /// Publishes all entries, or only the first few packs.
    async fn publish_some(&self, entries: &[OutboxEntry]) -> PublishOutcome {
        let (sim, profile) = (self.sim(), self.sim().profile());
        let accepted = if sim.chance(profile.publish_fails) { sim.below(2) } else { usize::MAX };
        let rejected = sim.chance(profile.publish_rejected).then(|| sim.below(entries.len()));
        let rejected = rejected.and_then(|index| entries.get(index)).map(|entry| entry.seq);
        let sender = SimSender { bus: self, accepted: AtomicUsize::new(accepted), rejected };
        publish_in_packs(entries, profile.max_pack, &sender).await
    }

    fn store_entries(&self, entries: &[&OutboxEntry]) {
        let (sim, profile, subject) = (self.sim(), self.sim().profile(), &entries[0].subject);
        let is_newer = |_: &&OutboxEntry| sim.chance(profile.newer_version);
        let altered = |entry: &OutboxEntry, is_newer: bool| {
            let newer = is_newer.then(|| failure_reasons::in_newer_version(&entry.payload)).flatten();
            let payload = newer.map_or_else(|| entry.payload.clone(), Bytes::from);
            OutboxEntry { payload, ..entry.clone() }
        };
        let sent: Vec<_> = entries.iter().map(|entry| altered(entry, is_newer(entry))).collect();
        let sent: Vec<_> = sent.iter().collect();
        for OutboxEntry { id, .. } in entries {
            sim.note(|| format!("{} publishes {subject} {id}, one of {}", self.process.name(), sent.len()));
        }
        sim.count_if(CoveragePoint::PackPublished, sent.len() > 1);
        let has_no_id = entries.iter().any(|entry| entry.is_repetition) || sim.chance(profile.window_forgets);
        self.broker.store_pack(message_id(entries), subject, packed(&sent), has_no_id);
        if sim.chance(profile.duplicates) {
            sim.count(CoveragePoint::PublishedTwice);
            self.broker.store_pack(message_id(entries), subject, packed(entries), true);
        }
    }
}

fn message_id(entries: &[&OutboxEntry]) -> Uuid {
    if let [single] = entries { single.id } else { pack::id_of(entries) }
}

/// Facts of the message of these entries, packed and unpacked as in production.
fn packed(entries: &[&OutboxEntry]) -> Vec<PackedFact> {
    if let [single] = entries {
        return vec![PackedFact { payload: single.payload.clone(), headers: vec![] }];
    }
    match pack::unpack(&entries.len().to_string(), &pack::pack(entries)) {
        Some(facts) => facts,
        None => panic!("a pack of {} facts is invalid", entries.len()),
    }
}

/// Sends packs to the broker, which may reject an entry and stop to answer.
struct SimSender<'a> {
    bus: &'a SimBus,
    /// Number of packs until the broker does not answer.
    accepted: AtomicUsize,
    /// Entry that the broker rejects.
    rejected: Option<i64>,
}

impl PackSender for SimSender<'_> {
    type Sent = PackAnswer;

    async fn send(&self, entries: &[&OutboxEntry]) -> PackAnswer {
        let (bus, sim) = (self.bus, self.bus.sim());
        if let Some(rejected) = entries.iter().find(|entry| Some(entry.seq) == self.rejected) {
            let OutboxEntry { subject, id, .. } = rejected;
            sim.note(|| format!("{}: the broker rejects {subject} {id}", bus.process.name()));
            sim.count_if(CoveragePoint::PackRejected, entries.len() > 1);
            return PackAnswer::NotAccepted {
                reason: "rejected by the broker".to_owned(),
                is_permanent: true,
            };
        }
        let one_less = |left: usize| left.checked_sub(1);
        if self.accepted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            bus.store_entries(entries);
        } else if !sim.has(PlantedFault::SettleWithoutPublish) {
            return PackAnswer::Unanswered("the broker does not answer".to_owned());
        }
        PackAnswer::Accepted
    }

    async fn answer(&self, _: &[&OutboxEntry], sent: PackAnswer) -> PackAnswer {
        sent
    }
}
