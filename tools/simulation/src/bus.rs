//! Shell: the broker as one process reaches it: late, twice, or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use saga_core::dead_letter::DeliveryInfo;
use saga_engine::runtime::bus::{
    Advisories, Advisory, Backlog, Bus, BusError, BusFact, Durable, FactStream, Publish,
};
use saga_engine::runtime::in_progress::{InProgress, InProgressGuard};
use saga_engine::store::{OutboxEntry, PublishOutcome};
use tokio::sync::Notify;
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

    /// Stores a message and delivers it to its consumers after some latency.
    pub fn store(&self, id: Uuid, subject: &str, payload: Bytes, window_forgot: bool) {
        let sim = &self.0.sim;
        let latency = || if sim.chance(10) { sim.up_to(4_000) } else { sim.up_to(30) };
        let consumers = self.lock().store((id, subject, payload), window_forgot, sim.age(), latency);
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
}

impl SimBus {
    pub const fn new(process: Process, broker: SharedBroker) -> Self {
        Self { process, broker }
    }

    fn sim(&self) -> &Sim {
        self.process.sim()
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
        Ok(SimFacts { bus: self.clone(), durable: durable.name(), held: InProgress::default() })
    }

    async fn advisories(&self, durables: &[Durable]) -> Result<SimAdvisories, BusError> {
        self.reach().await?;
        let durables = durables.iter().map(Durable::name).collect();
        Ok(SimAdvisories { bus: self.clone(), durables, current: None })
    }

    fn ack_wait(&self) -> Duration {
        ACK_WAIT
    }

    async fn in_progress(&self, (durable, index): &(String, usize)) -> Result<(), BusError> {
        self.reach().await?;
        self.broker.lock().in_progress(durable, *index, self.sim().age());
        Ok(())
    }

    async fn backlog(&self, durable: Durable) -> Result<Backlog, BusError> {
        self.reach().await?;
        let undelivered = self.broker.lock().waiting(&durable.name());
        Ok(Backlog { undelivered, ..Backlog::default() })
    }
}

pub struct SimFacts {
    bus: SimBus,
    durable: String,
    held: InProgress<(String, usize)>,
}

impl SimFacts {
    fn message(&self, index: usize) -> SimFact {
        let bus = self.bus.clone();
        if bus.sim().has(PlantedFault::AcknowledgeBeforeCommit) {
            bus.broker.lock().acknowledge(&self.durable, index);
        }
        let held = self.held.add((self.durable.clone(), index));
        SimFact { bus, durable: self.durable.clone(), index, _held: held }
    }
}

impl FactStream for SimFacts {
    type Fact = SimFact;

    fn hold(&mut self, in_progress: &InProgress<(String, usize)>) {
        self.held = in_progress.clone();
    }

    async fn next(&mut self) -> Result<SimFact, BusError> {
        let (name, inner) = (self.durable.as_str(), &self.bus.broker.0);
        let Some(woken) = inner.deliveries.get(name) else {
            return Err(format!("there is no durable {name}"));
        };
        let take = |broker: &mut Broker, at| broker.take(name, at);
        let index = self.bus.wait_for(woken, take, |broker| broker.next_delivery(name)).await?;
        Ok(self.message(index))
    }

    async fn fetch(&mut self, most: usize) -> Result<Vec<SimFact>, BusError> {
        self.bus.reach().await?;
        let age = self.bus.sim().age();
        let mut broker = self.bus.broker.lock();
        let taken: Vec<_> = (0..most).map_while(|_| broker.take(&self.durable, age)).collect();
        drop(broker);
        Ok(taken.into_iter().map(|index| self.message(index)).collect())
    }

    async fn next_within(&mut self, time: Duration) -> Result<Option<SimFact>, BusError> {
        timeout(time, self.next()).await.map_or(Ok(None), |next| next.map(Some))
    }
}

pub struct SimFact {
    bus: SimBus,
    durable: String,
    index: usize,
    _held: InProgressGuard<(String, usize)>,
}

impl BusFact for SimFact {
    type Handle = (String, usize);

    fn payload(&self) -> Bytes {
        let payload = self.bus.broker.lock().messages()[self.index].payload.clone();
        self.bus.sim().planted_fault().alter_delivery(payload, self.bus.sim().age())
    }

    fn delivery(&self) -> DeliveryInfo {
        self.bus.broker.lock().delivery(self.index)
    }

    async fn acknowledge(self) -> Result<(), BusError> {
        let bus = &self.bus;
        bus.process.crash_point("before it acknowledges").await;
        sleep(bus.sim().up_to(2)).await;
        if bus.is_away() {
            return Err(AWAY.to_owned());
        }
        if !bus.sim().chance(bus.sim().profile().ack_lost) {
            bus.broker.lock().acknowledge(&self.durable, self.index);
        }
        Ok(())
    }
}

/// Advisories about messages that reached the delivery limit.
pub struct SimAdvisories {
    bus: SimBus,
    durables: Vec<String>,
    current: Option<(String, usize)>,
}

impl Advisories for SimAdvisories {
    async fn next(&mut self) -> Result<Advisory, BusError> {
        let woken = &self.bus.broker.0.advisories;
        let take = |broker: &mut Broker, at| broker.take_advisory(&self.durables, at);
        let (durable, index) =
            self.bus.wait_for(woken, take, |broker| broker.next_advisory(&self.durables)).await?;
        if self.bus.sim().has(PlantedFault::AdvisoryAcknowledgedFirst) {
            self.bus.broker.lock().acknowledge_advisory(&durable, index);
        }
        self.current = Some((durable.clone(), index));
        let broker = self.bus.broker.lock();
        let (payload, delivery) = (broker.messages()[index].payload.clone(), broker.delivery(index));
        let (reason, is_terminated) = (failure_reasons::MAX_DELIVERIES.to_owned(), false);
        // Sometimes the processes that received it before have died of it.
        let deliveries = if self.bus.sim().chance(EXHAUSTED_PERCENT) { u64::MAX } else { 1 };
        Ok(Advisory { durable, payload, delivery, reason, is_terminated, deliveries })
    }

    async fn in_progress(&mut self) -> Result<(), BusError> {
        self.bus.reach().await
    }

    async fn acknowledge(&mut self) -> Result<(), BusError> {
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
            let published = self.publish_some(entries);
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
    /// Publishes all entries, or only the first few.
    fn publish_some(&self, entries: &[OutboxEntry]) -> PublishOutcome {
        let (sim, profile) = (self.sim(), self.sim().profile());
        let accepted = if sim.chance(profile.publish_fails) { sim.below(2) } else { entries.len() };
        let ignores_failure = sim.has(PlantedFault::SettleWithoutPublish);
        let rejected = sim.chance(profile.publish_rejected).then(|| sim.below(entries.len()));
        let rejected = rejected.and_then(|index| entries.get(index));
        let mut published = PublishOutcome::default();
        for (index, entry) in entries.iter().enumerate() {
            // Later entries of the same saga wait behind a rejected one.
            let rejected =
                rejected.filter(|it| index < accepted && it.saga == entry.saga && it.seq <= entry.seq);
            if let Some(rejected) = rejected {
                if rejected.seq == entry.seq {
                    sim.note(|| {
                        format!("{}: the broker rejects {} {}", self.process.name(), entry.subject, entry.id)
                    });
                    published.rejected.push((entry.seq, "rejected by the broker".to_owned()));
                }
                continue;
            }
            if index < accepted {
                self.publish_entry(entry);
            } else if !ignores_failure {
                published.delayed = Some((entry.seq, "the broker does not answer".to_owned()));
                break;
            }
            published.done.push(entry.seq);
        }
        published
    }

    fn publish_entry(&self, entry: &OutboxEntry) {
        let (sim, profile) = (self.sim(), self.sim().profile());
        let newer =
            sim.chance(profile.newer_version).then(|| failure_reasons::in_newer_version(&entry.payload));
        let payload = newer.flatten().map_or_else(|| entry.payload.clone(), Bytes::from);
        sim.note(|| format!("{} publishes {} {}", self.process.name(), entry.subject, entry.id));
        let has_no_id = entry.is_repetition || sim.chance(profile.window_forgets);
        self.broker.store(entry.id, &entry.subject, payload, has_no_id);
        if sim.chance(profile.duplicates) {
            sim.count(CoveragePoint::PublishedTwice);
            self.broker.store(entry.id, &entry.subject, entry.payload.clone(), true);
        }
    }
}
