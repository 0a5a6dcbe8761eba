//! Replicas of which one loses the broker: the others publish in its place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use saga_engine::runtime::bus::{BusError, Publish};
use saga_engine::runtime::publish_stall::PublishStall;
use saga_engine::runtime::relay::{Relay, RelaySettings, Round};
use saga_engine::store::{OutboxEntry, PublishOutcome, Store};

use super::broker::{Broker, Outcome};
use crate::store::postgres_shared::two_replicas;
use crate::support::{PostgresServer, at, commit, moment, outbox_writes};

/// Connection of one replica to the broker, which can be cut.
#[derive(Default)]
struct Link {
    broker: Arc<Broker>,
    is_cut: AtomicBool,
    stall: PublishStall,
}

impl Link {
    fn is_stalled(&self) -> bool {
        self.stall.describe(Duration::ZERO, moment(99).instant).is_some()
    }
}

impl Publish for Link {
    fn publish<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, PublishOutcome> {
        match self.is_cut.load(Ordering::SeqCst) {
            true => {
                let delayed = entries.first().map(|entry| (entry.seq, "not connected".to_owned()));
                Box::pin(std::future::ready(PublishOutcome { delayed, ..PublishOutcome::default() }))
            }
            false => self.broker.publish(entries),
        }
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), BusError>> {
        if !self.is_cut.load(Ordering::SeqCst) {
            return Box::pin(std::future::ready(Ok(())));
        }
        let reason = "not connected".to_owned();
        self.stall.stalled(&reason, moment(0));
        Box::pin(std::future::ready(Err(reason)))
    }

    fn round_ended(&self, published: &PublishOutcome) {
        self.stall.record(published, moment(0));
    }
}

/// Two relays on one database, with a link each to the same broker.
struct Replicas {
    stores: [Arc<dyn Store>; 2],
    relays: [Relay; 2],
    links: [Link; 2],
    broker: Arc<Broker>,
    _server: PostgresServer,
}

impl Replicas {
    async fn new() -> Self {
        let (server, stores) = two_replicas().await;
        let stores = stores.map(|store| -> Arc<dyn Store> { store });
        let broker = Arc::new(Broker::default());
        let links = [broker.clone(), broker.clone()].map(|broker| Link { broker, ..Link::default() });
        let mut names = ["depot-1", "depot-2"].into_iter().map(str::to_owned);
        let settings = RelaySettings { lease: Duration::from_secs(10), ..RelaySettings::default() };
        let relays =
            stores.clone().map(|store| Relay::new(store, names.next().unwrap_or_default(), settings.clone()));
        Self { stores, relays, links, broker, _server: server }
    }

    fn cut(&self, replica: usize, is_cut: bool) {
        self.links[replica].is_cut.store(is_cut, Ordering::SeqCst);
    }

    async fn round(&mut self, replica: usize, second: i64) -> Round {
        let round = self.relays[replica].round(&self.links[replica], &(), at(second)).await;
        round.expect("the store works")
    }

    /// Repeats rounds of a replica without a broker until it has given its lease back.
    async fn until_given_back(&mut self, replica: usize, second: i64) {
        let leads = self.stores[replica].leadership().expect("replicas share the database");
        while *leads.borrow() {
            assert_eq!(self.round(replica, second).await, Round::Delayed("not connected".to_owned()));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The leader still reaches the database, and would renew its lease for ever.
#[tokio::test(flavor = "multi_thread")]
async fn leader_without_broker_gives_its_lease_back_and_the_other_replica_publishes() -> Outcome {
    let mut replicas = Replicas::new().await;
    assert_eq!(replicas.round(0, 0).await, Round::Idle);
    assert_eq!(replicas.round(1, 0).await, Round::Standby);
    replicas.cut(0, true);
    commit(replicas.stores[0].as_ref(), outbox_writes([1, 2])).await?;
    assert_eq!(replicas.round(0, 1).await, Round::Delayed("not connected".to_owned()));
    assert_eq!(replicas.round(1, 1).await, Round::Standby, "a short interruption moves nothing");

    replicas.until_given_back(0, 1).await;
    assert_eq!(replicas.round(1, 1).await, Round::Published(2), "at once, although the lease had not lapsed");
    assert_eq!(replicas.broker.arrived(), [1, 2]);
    assert_eq!(replicas.stores[1].stats().await?.outbox_pending, 0);
    Ok(())
}

/// Idle rounds publish nothing, so that they do not notice by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn idle_leader_without_broker_gives_its_lease_back() {
    let mut replicas = Replicas::new().await;
    assert_eq!(replicas.round(0, 0).await, Round::Idle);
    replicas.cut(0, true);
    assert_eq!(replicas.round(0, 1).await, Round::Idle, "it renews later");
    replicas.until_given_back(0, 6).await;
    assert_eq!(replicas.round(1, 6).await, Round::Idle, "the other leads");
}

/// Orders are rejected during a stall, so that nothing may be published that would show its end.
#[tokio::test(flavor = "multi_thread")]
async fn stall_of_an_idle_leader_ends_once_the_broker_answers() {
    let mut replicas = Replicas::new().await;
    assert_eq!(replicas.round(0, 0).await, Round::Idle);
    replicas.cut(0, true);
    assert_eq!(replicas.round(0, 6).await, Round::Delayed("not connected".to_owned()));
    assert!(replicas.links[0].is_stalled());
    replicas.cut(0, false);
    assert_eq!(replicas.round(0, 7).await, Round::Idle);
    assert!(!replicas.links[0].is_stalled());
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_without_broker_takes_no_lease_until_it_is_back() -> Outcome {
    let mut replicas = Replicas::new().await;
    commit(replicas.stores[0].as_ref(), outbox_writes([1])).await?;
    replicas.cut(0, true);
    for second in 0..30 {
        assert_eq!(replicas.round(0, second).await, Round::Delayed("not connected".to_owned()));
    }
    assert!(!*replicas.stores[0].leadership().expect("replicas share the database").borrow());
    replicas.cut(0, false);
    assert_eq!(replicas.round(0, 30).await, Round::Published(1));
    Ok(())
}

/// Entries that the broker rejects for every replica move no lease: the replicas would take turns for ever.
#[tokio::test(flavor = "multi_thread")]
async fn leader_that_the_broker_answers_keeps_its_lease_although_entries_are_delayed() -> Outcome {
    let mut replicas = Replicas::new().await;
    commit(replicas.stores[0].as_ref(), outbox_writes([1])).await?;
    replicas.broker.takes_nothing();
    let began = tokio::time::Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        assert_eq!(replicas.round(0, 1).await, Round::Delayed("no answer".to_owned()));
        assert_eq!(replicas.round(1, 1).await, Round::Standby);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
