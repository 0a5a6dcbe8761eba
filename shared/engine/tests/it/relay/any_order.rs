//! Random schedules of engine, relay, broker and operator: nothing is lost, entries of a saga keep their order, and
//! each message counts once.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use saga_core::decision::{OutboxWrite, Writes};
use saga_engine::runtime::bus::Publish;
use saga_engine::runtime::relay::{Relay, Round};
use saga_engine::runtime::relay_queue::RelayQueue;
use saga_engine::store::{OutboxEntry, PublishOutcome, Store};

use crate::support::{at, commit_entries, id, in_memory, outbox_write};

use super::broker::relay;

/// Number of schedules.
const SEEDS: u64 = 100;
/// Actions in each schedule.
const STEPS: usize = 120;
const SAGAS: u128 = 5;

#[tokio::test]
async fn messages_arrive_in_saga_order_and_count_once_in_any_schedule() {
    for seed in 0..SEEDS {
        World::new(seed).runs().await;
    }
}

/// Broker with random faults that keeps the contract of [`Publish`].
struct Moody {
    arrived: Mutex<Vec<OutboxEntry>>,
    rng: Mutex<Rng>,
    /// Percentage of publishes with a fault.
    failures: Mutex<u8>,
}

impl Moody {
    /// Anything may be refused, delayed or go unanswered; what is behind such a one in its saga is not taken.
    fn take(&self, entries: &[OutboxEntry]) -> PublishOutcome {
        let (mut rng, mut published) = (self.rng.lock(), PublishOutcome::default());
        let is_troubled = rng.u8(..100) < *self.failures.lock();
        let mut blocked = Vec::new();
        for entry in entries {
            if blocked.contains(&entry.saga) {
                continue;
            }
            let is_behind = published.delayed.is_some();
            match if is_troubled { rng.u8(..10) } else { 9 } {
                0 if !is_behind => {
                    published.rejected.push((entry.seq, "never".to_owned()));
                    blocked.push(entry.saga);
                }
                mood @ 1..=3 => {
                    if mood == 1 {
                        self.arrived.lock().push(entry.clone());
                    }
                    published.delayed.get_or_insert((entry.seq, "no answer".to_owned()));
                    blocked.push(entry.saga);
                }
                _ => {
                    self.arrived.lock().push(entry.clone());
                    published.done.push(entry.seq);
                }
            }
        }
        published
    }
}

impl Publish for Moody {
    fn publish<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, PublishOutcome> {
        Box::pin(async {
            let published = self.take(entries);
            if self.rng.lock().bool() {
                tokio::task::yield_now().await;
            }
            published
        })
    }
}

struct World {
    seed: u64,
    rng: Rng,
    store: Arc<dyn Store>,
    broker: Moody,
    relay: Relay,
    relay_queue: Arc<RelayQueue>,
    /// Standby relay on the same database.
    other: Relay,
    second: i64,
    commit_entries: BTreeMap<u128, Vec<u128>>,
    count: u128,
}

impl World {
    fn new(seed: u64) -> Self {
        let (store, relay_queue) = (in_memory(), Arc::new(RelayQueue::default()));
        let rng = Rng::with_seed(seed);
        let broker = Moody {
            arrived: Mutex::default(),
            rng: Mutex::new(Rng::with_seed(seed + 1_000_000)),
            failures: Mutex::new(0),
        };
        let (relay, other) =
            (relay(&store, "depot-1").with_queue(relay_queue.clone()), self::relay(&store, "depot-2"));
        Self {
            seed,
            rng,
            store,
            broker,
            relay,
            relay_queue,
            other,
            second: 0,
            commit_entries: BTreeMap::new(),
            count: 0,
        }
    }

    async fn runs(mut self) {
        for _ in 0..STEPS {
            self.step().await;
        }
        *self.broker.failures.lock() = 0;
        self.ends().await;
        self.is_right().await;
    }

    async fn step(&mut self) {
        match self.rng.u8(..100) {
            0..30 => self.commits().await,
            30..75 => drop(self.round().await),
            75..80 => *self.broker.failures.lock() = self.rng.u8(..100),
            80..83 => drop(self.store.retry_failed_entries(None).await.expect("it works")),
            83..86 => {
                let failed = self.store.outbox_items(100).await.expect("it works");
                let failed = failed.iter().filter(|item| item.status == "FAILED").collect::<Vec<_>>();
                if let Some(item) = self.rng.choice(failed) {
                    self.store.retry_failed_entries(Some(item.seq)).await.expect("it works");
                    self.relay_queue.request_scan();
                }
            }
            86..89 => {
                let since = at(self.rng.i64(0..=self.second));
                self.store.republish(since, 0, 100).await.expect("it works");
                if self.rng.bool() {
                    self.relay_queue.request_scan();
                }
            }
            89..92 => {
                self.relay_queue = Arc::new(RelayQueue::default());
                self.relay = relay(&self.store, "depot-1").with_queue(self.relay_queue.clone());
            }
            92..94 => {
                self.second += 20;
                drop(self.other.round(&self.broker, &(), at(self.second)).await.expect("it works"));
                self.second += if self.rng.bool() { 20 } else { 0 };
            }
            94..97 => self.second += self.rng.i64(0..70),
            _ => tokio::task::yield_now().await,
        }
    }

    async fn commits(&mut self) {
        let mut writes = Writes { decided_at: at(self.second), ..Writes::default() };
        for _ in 0..self.rng.usize(1..=4) {
            self.count += 1;
            let saga = self.rng.u128(0..SAGAS);
            self.commit_entries.entry(saga).or_default().push(self.count);
            let subject = format!("depot.{}", self.rng.u8(..2));
            writes.outbox.push(OutboxWrite { saga: id(saga), subject, ..outbox_write(self.count, None) });
        }
        let commit_entries = commit_entries(self.store.as_ref(), writes).await.expect("it works");
        // Now and then nobody hears of it: the commit was unclear.
        if self.rng.u8(..10) > 0 {
            self.relay_queue.push(commit_entries);
        }
    }

    async fn round(&mut self) -> Round {
        self.relay.round(&self.broker, &(), at(self.second)).await.expect("it works")
    }

    async fn ends(&mut self) {
        for _ in 0..100 {
            self.store.retry_failed_entries(None).await.expect("it works");
            self.relay_queue.request_scan();
            self.second += 1;
            let round = self.round().await;
            tokio::task::yield_now().await;
            let stats = self.store.stats().await.expect("it works");
            if round == Round::Idle
                && stats.outbox_pending + stats.outbox_failed + stats.outbox_republishing == 0
            {
                return;
            }
        }
        panic!("seed {}: it never ends: {:?}", self.seed, self.store.outbox_items(9).await);
    }

    async fn is_right(&self) {
        let mut arrived: BTreeMap<u128, Vec<u128>> = BTreeMap::new();
        for entry in self.broker.arrived.lock().iter() {
            let (saga, number) = (entry.saga.as_u128(), entry.id.as_u128());
            let of_saga = arrived.entry(saga).or_default();
            if !of_saga.contains(&number) {
                of_saga.push(number);
            }
        }
        assert_eq!(arrived, self.commit_entries, "seed {}", self.seed);
        let published = self.store.message_counts().await.expect("it works").published;
        let published: u64 = published.values().sum();
        assert_eq!(u128::from(published), self.count, "seed {}", self.seed);
    }
}
