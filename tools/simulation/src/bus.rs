//! Shell: the broker as one process reaches it: late, twice, or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use saga_core::dead_letter::Delivery;
use saga_engine::runtime::bus::{
    Bus, BusError, BusMessage, Deliveries, Durable, GivenUp, GivenUps, Publish, Waiting,
};
use saga_engine::store::{OutboxEntry, Published};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::broker::{ACK_WAIT, Broker};
use crate::endings::Ending;
use crate::process::Process;
use crate::reasons;
use crate::sabotage::Sabotage;
use crate::sim::Sim;

/// Why nothing reaches the broker.
const AWAY: &str = "the broker is away";
/// Percent of what is given up that was told so often that nobody tries it any more.
const TOLD_OFTEN: u8 = 50;
/// How long a request takes that nobody answers, at most.
const REQUEST_TIMEOUT_MS: u64 = 5_000;

/// The broker that all processes share. Clones are the same.
#[derive(Clone)]
pub struct SharedBroker(Arc<Inner>);

struct Inner {
    sim: Sim,
    broker: Mutex<Broker>,
    /// Wakes those who wait for messages of a durable.
    news: BTreeMap<String, Notify>,
    /// Wakes those who wait for what was given up.
    given_up: Notify,
}

impl SharedBroker {
    /// Shares a broker all of whose durables are declared.
    #[must_use]
    pub fn new(sim: Sim, broker: Broker) -> Self {
        let news = broker.durables().map(|name| (name.to_owned(), Notify::new())).collect();
        Self(Arc::new(Inner { sim, broker: Mutex::new(broker), news, given_up: Notify::new() }))
    }

    pub fn lock(&self) -> MutexGuard<'_, Broker> {
        self.0.broker.lock()
    }

    /// Stores a message, which reaches each step that hears it after a while.
    pub fn store(&self, id: Uuid, subject: &str, payload: Bytes, window_forgot: bool) {
        let sim = &self.0.sim;
        let latency = || if sim.chance(10) { sim.up_to(4_000) } else { sim.up_to(30) };
        let hearers = self.lock().store((id, subject, payload), window_forgot, sim.age(), latency);
        self.tell(&hearers);
        for durable in hearers {
            if sim.chance(sim.weather().gives_up) {
                let index = self.lock().messages().len() - 1;
                sim.note(|| format!("the broker gives message {index} up for {durable}"));
                self.give_up(&durable, index);
            }
        }
    }

    /// A message comes again, to every step that hears it.
    pub fn deliver_again(&self, index: usize) {
        let hearers = self.lock().deliver_again(index, self.0.sim.age());
        self.tell(&hearers);
    }

    /// A message was delivered too often, and comes no more; its service is told so.
    fn give_up(&self, durable: &str, index: usize) {
        self.lock().give_up(durable, index, self.0.sim.age());
        self.0.given_up.notify_waiters();
    }

    /// From now on nobody reaches it, or everybody does.
    pub fn set_away(&self, is_away: bool) {
        self.lock().set_away(is_away);
        self.0.news.values().for_each(Notify::notify_waiters);
        self.0.given_up.notify_waiters();
    }

    fn tell(&self, durables: &[String]) {
        durables.iter().filter_map(|name| self.0.news.get(name)).for_each(Notify::notify_waiters);
    }
}

/// The broker as one process reaches it.
#[derive(Clone)]
pub struct SimBus {
    process: Process,
    broker: SharedBroker,
}

impl SimBus {
    /// The way of this process to the broker.
    #[must_use]
    pub const fn new(process: Process, broker: SharedBroker) -> Self {
        Self { process, broker }
    }

    fn sim(&self) -> &Sim {
        self.process.sim()
    }

    /// A request to the broker gets there and back, or not.
    async fn reach(&self) -> Result<(), BusError> {
        self.process.moment("on its way to the broker").await;
        if self.broker.lock().is_away() {
            sleep(self.sim().up_to(REQUEST_TIMEOUT_MS)).await;
            return Err(AWAY.to_owned());
        }
        sleep(self.sim().up_to(3)).await;
        Ok(())
    }

    /// Waits for the next of what `take` finds; `until` tells when to look again by itself.
    async fn wait_for<T>(
        &self,
        woken: &Notify,
        mut take: impl FnMut(&mut Broker, Duration) -> Option<T>,
        until: impl Fn(&Broker) -> Option<Duration>,
    ) -> Result<T, BusError> {
        loop {
            // Armed before looking.
            let woken = woken.notified();
            let (taken, next) = {
                let (mut broker, age) = (self.broker.lock(), self.sim().age());
                if broker.is_away() {
                    return Err(AWAY.to_owned());
                }
                (take(&mut broker, age), until(&broker))
            };
            if let Some(taken) = taken {
                self.process.moment("with a message in hand").await;
                return match self.sim().chance(self.sim().weather().connection_breaks) {
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
    type Deliveries = SimDeliveries;
    type GivenUps = SimGivenUps;

    fn is_connected(&self) -> bool {
        !self.broker.lock().is_away()
    }

    async fn consume(&self, durable: Durable) -> Result<SimDeliveries, BusError> {
        self.reach().await?;
        Ok(SimDeliveries { bus: self.clone(), durable: durable.name() })
    }

    async fn given_ups(&self, durables: &[Durable]) -> Result<SimGivenUps, BusError> {
        self.reach().await?;
        let durables = durables.iter().map(Durable::name).collect();
        Ok(SimGivenUps { bus: self.clone(), durables, current: None })
    }

    fn ack_wait(&self) -> Duration {
        ACK_WAIT
    }

    async fn in_progress(&self, (durable, index): &(String, usize)) -> Result<(), BusError> {
        self.reach().await?;
        self.broker.lock().in_progress(durable, *index, self.sim().age());
        Ok(())
    }

    async fn waiting(&self, durable: Durable) -> Result<Waiting, BusError> {
        self.reach().await?;
        let undelivered = self.broker.lock().waiting(&durable.name());
        Ok(Waiting { undelivered, ..Waiting::default() })
    }
}

/// Messages on their way to one durable.
pub struct SimDeliveries {
    bus: SimBus,
    durable: String,
}

impl SimDeliveries {
    fn message(&self, index: usize) -> SimMessage {
        let bus = self.bus.clone();
        if bus.sim().has(Sabotage::AcknowledgeBeforeCommit) {
            bus.broker.lock().acknowledge(&self.durable, index);
        }
        SimMessage { bus, durable: self.durable.clone(), index }
    }
}

impl Deliveries for SimDeliveries {
    type Message = SimMessage;

    async fn next(&mut self) -> Result<SimMessage, BusError> {
        let (name, inner) = (self.durable.as_str(), &self.bus.broker.0);
        let Some(news) = inner.news.get(name) else { return Err(format!("there is no durable {name}")) };
        let take = |broker: &mut Broker, at| broker.take(name, at);
        let index = self.bus.wait_for(news, take, |broker| broker.next_of(name)).await?;
        Ok(self.message(index))
    }

    async fn fetch(&mut self, most: usize) -> Result<Vec<SimMessage>, BusError> {
        self.bus.reach().await?;
        let age = self.bus.sim().age();
        let mut broker = self.bus.broker.lock();
        let taken: Vec<_> = (0..most).map_while(|_| broker.take(&self.durable, age)).collect();
        drop(broker);
        Ok(taken.into_iter().map(|index| self.message(index)).collect())
    }

    async fn next_within(&mut self, time: Duration) -> Result<Option<SimMessage>, BusError> {
        timeout(time, self.next()).await.map_or(Ok(None), |next| next.map(Some))
    }
}

/// A message that was delivered.
pub struct SimMessage {
    bus: SimBus,
    durable: String,
    index: usize,
}

impl BusMessage for SimMessage {
    type Hold = (String, usize);

    fn hold(&self) -> (String, usize) {
        (self.durable.clone(), self.index)
    }

    fn payload(&self) -> Bytes {
        let payload = self.bus.broker.lock().messages()[self.index].payload.clone();
        self.bus.sim().sabotage().spoil_delivery(payload, self.bus.sim().age())
    }

    fn delivery(&self) -> Delivery {
        self.bus.broker.lock().delivery(self.index)
    }

    async fn acknowledge(self) -> Result<(), BusError> {
        let bus = &self.bus;
        bus.process.moment("before it acknowledges").await;
        sleep(bus.sim().up_to(2)).await;
        if bus.broker.lock().is_away() {
            return Err(AWAY.to_owned());
        }
        if !bus.sim().chance(bus.sim().weather().ack_lost) {
            bus.broker.lock().acknowledge(&self.durable, self.index);
        }
        Ok(())
    }
}

/// What the broker gave up on.
pub struct SimGivenUps {
    bus: SimBus,
    durables: Vec<String>,
    current: Option<(String, usize)>,
}

impl GivenUps for SimGivenUps {
    async fn next(&mut self) -> Result<GivenUp, BusError> {
        let woken = &self.bus.broker.0.given_up;
        let take = |broker: &mut Broker, at| broker.take_advisory(&self.durables, at);
        let (durable, index) =
            self.bus.wait_for(woken, take, |broker| broker.next_advisory(&self.durables)).await?;
        if self.bus.sim().has(Sabotage::AdvisoryAcknowledgedFirst) {
            self.bus.broker.lock().acknowledge_advisory(&durable, index);
        }
        self.current = Some((durable.clone(), index));
        let broker = self.bus.broker.lock();
        let (payload, delivery) = (broker.messages()[index].payload.clone(), broker.delivery(index));
        let (why, is_terminated) = (reasons::GIVEN_UP.to_owned(), false);
        // Now and then those who were told before have died of it.
        let told = if self.bus.sim().chance(TOLD_OFTEN) { u64::MAX } else { 1 };
        Ok(GivenUp { durable, payload, delivery, why, is_terminated, told })
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
    fn publish<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, Published> {
        Box::pin(async move {
            let refuse = |entry: Option<&OutboxEntry>, why: &str| Published {
                delayed: entry.map(|entry| (entry.seq, why.to_owned())),
                ..Published::default()
            };
            self.process.moment("before it publishes").await;
            sleep(self.sim().up_to(4)).await;
            if self.broker.lock().is_away() {
                return refuse(entries.first(), AWAY);
            }
            let published = self.take_some(entries);
            self.process.moment("before it settles what it published").await;
            sleep(self.sim().up_to(4)).await;
            match self.sim().chance(self.sim().weather().publish_fails) {
                true => refuse(entries.first(), "the acknowledgements were lost"),
                false => published,
            }
        })
    }
}

impl SimBus {
    /// The broker takes all, or only the first few.
    fn take_some(&self, entries: &[OutboxEntry]) -> Published {
        let (sim, weather) = (self.sim(), self.sim().weather());
        let takes = if sim.chance(weather.publish_fails) { sim.below(2) } else { entries.len() };
        let lies = sim.has(Sabotage::SettleWithoutPublish);
        let refused = sim.chance(weather.refuses).then(|| sim.below(entries.len()));
        let refused = refused.and_then(|refused| entries.get(refused));
        let mut published = Published::default();
        for (index, entry) in entries.iter().enumerate() {
            // What follows a refused one in its saga waits.
            let refused = refused.filter(|it| index < takes && it.saga == entry.saga && it.seq <= entry.seq);
            if let Some(refused) = refused {
                if refused.seq == entry.seq {
                    sim.note(|| format!("{} is refused {} {}", self.process.name(), entry.subject, entry.id));
                    published.refused.push((entry.seq, "the broker refuses it".to_owned()));
                }
                continue;
            }
            if index < takes {
                self.take(entry);
            } else if !lies {
                published.delayed = Some((entry.seq, "the broker does not answer".to_owned()));
                break;
            }
            published.done.push(entry.seq);
        }
        published
    }

    fn take(&self, entry: &OutboxEntry) {
        let (sim, weather) = (self.sim(), self.sim().weather());
        let newer = sim.chance(weather.too_new).then(|| reasons::in_newer_version(&entry.payload));
        let payload = newer.flatten().map_or_else(|| entry.payload.clone(), Bytes::from);
        sim.note(|| format!("{} publishes {} {}", self.process.name(), entry.subject, entry.id));
        self.broker.store(entry.id, &entry.subject, payload, sim.chance(weather.window_forgets));
        if sim.chance(weather.duplicates) {
            sim.count(Ending::PublishedTwice);
            self.broker.store(entry.id, &entry.subject, entry.payload.clone(), true);
        }
    }
}
