//! Delivery to replicas: the leader first, and others for what it does not request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use saga_engine::nats::{BusSettings, NatsBus};
use saga_engine::runtime::bus::{Bus as _, BusFact as _, FactStream as _};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::consuming::{durable, durable_of, say};
use crate::support::{
    Deed, DepotCommand, EngineHarness, FILLING, Nats, Pace, Supplier, in_memory, in_time, wait_until,
};

const BATCH: usize = 256;

/// Replica that takes, counts and acknowledges all messages until it is dropped.
struct Replica {
    leads: watch::Sender<bool>,
    taken: Arc<AtomicUsize>,
    _taking: AbortOnDropHandle<()>,
}

impl Replica {
    async fn begin(bus: &NatsBus, leads: bool) -> Self {
        let (leads, led) = watch::channel(leads);
        let mut deliveries =
            bus.clone().of_replica(Some(led), BATCH).consume(durable_of(FILLING)).await.expect("a consumer");
        let taken = Arc::new(AtomicUsize::new(0));
        let counted = taken.clone();
        let taking = tokio::spawn(async move {
            while let Ok(message) = deliveries.next().await {
                message.acknowledge().await.expect("the broker is there");
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { leads, taken, _taking: AbortOnDropHandle::new(taking) }
    }

    async fn takes(&self, count: usize) {
        wait_until("it is given so many", async || self.taken.load(Ordering::Relaxed) >= count).await;
    }

    fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

/// Waits until so many pull requests wait at the broker.
async fn wait_for_pull_requests(bus: &NatsBus, requests: usize) {
    let waiting = async || match durable(bus, FILLING).await {
        Some(mut consumer) => consumer.info().await.expect("its state").num_waiting == requests,
        None => false,
    };
    wait_until("so many requests wait", waiting).await;
}

#[tokio::test]
async fn leader_receives_all_messages_and_the_other_replica_after_its_end() {
    let (_nats, bus) = Nats::with_bus().await;
    let (lead, other) = (Replica::begin(&bus, true).await, Replica::begin(&bus, false).await);
    wait_for_pull_requests(&bus, 3).await;
    for first in (1..=201).step_by(8) {
        say(&bus, first..first + 8).await;
        lead.takes(usize::try_from(first).expect("a small number") + 7).await;
    }
    assert_eq!(other.taken(), 0);
    drop(lead);
    say(&bus, 501..=550).await;
    other.takes(50).await;
}

/// It has requested few of them.
#[tokio::test]
async fn stalled_leader_leaves_messages_to_the_other_replica() {
    let (_nats, bus) = Nats::with_bus().await;
    let pace = Pace { backlog: 1, ..Pace::default() };
    let mut lead = EngineHarness::with_supplier(in_memory(), pace, Supplier::will([Deed::Hang])).await;
    lead.execute(DepotCommand::List("tea")).await;
    lead.execute(DepotCommand::Supply("coffee")).await;
    wait_until("the call is under way", async || !lead.supplier.called().is_empty()).await;
    let (_leads, led) = watch::channel(true);
    lead.listens(&bus.clone().of_replica(Some(led), BATCH), FILLING);
    let other = Replica::begin(&bus, false).await;
    wait_for_pull_requests(&bus, 3).await;
    say(&bus, 1..=400).await;
    other.takes(300).await;
}

#[tokio::test]
async fn messages_follow_a_change_of_leader() {
    let (_nats, bus) = Nats::with_bus().await;
    let (one, other) = (Replica::begin(&bus, true).await, Replica::begin(&bus, false).await);
    wait_for_pull_requests(&bus, 3).await;
    one.leads.send_replace(false);
    wait_for_pull_requests(&bus, 2).await;
    other.leads.send_replace(true);
    wait_for_pull_requests(&bus, 3).await;
    say(&bus, 1..=12).await;
    other.takes(12).await;
    assert_eq!(one.taken(), 0);
}

#[tokio::test]
async fn messages_that_the_leader_does_not_request_go_to_the_other_replica() {
    let (nats, bus) = Nats::with_bus().await;
    let settings = BusSettings { pull_batch: 4, ..nats.settings() };
    let busy = NatsBus::connect(settings, "busy").await.expect("an address");
    let (_leads, led) = watch::channel(true);
    let mut lead = busy.of_replica(Some(led), BATCH).consume(durable_of(FILLING)).await.expect("a consumer");
    say(&bus, 1..=1).await;
    // It asks for four, both ways, and does not look again for now.
    let _held = lead.next().await.expect("a message");
    let other = Replica::begin(&bus, false).await;
    wait_for_pull_requests(&bus, 3).await;
    say(&bus, 2..=41).await;
    other.takes(40 - 7).await;
    let mut taken = Vec::new();
    while taken.len() < 7 {
        let message = in_time("it has them", lead.next()).await.expect("a message");
        taken.push(message.delivery().sequence);
    }
    assert!(
        [2, 3, 4].iter().all(|first| taken.contains(first)),
        "what came first went to the lead: {taken:?}"
    );
}

#[tokio::test]
async fn former_leader_keeps_messages_that_have_arrived() {
    let (_nats, bus) = Nats::with_bus().await;
    let (leads, led) = watch::channel(true);
    let mut lead =
        bus.clone().of_replica(Some(led), BATCH).consume(durable_of(FILLING)).await.expect("a consumer");
    say(&bus, 1..=1).await;
    lead.next().await.expect("a message").acknowledge().await.expect("the broker is there");
    say(&bus, 2..=5).await;
    wait_until("they have come", async || {
        durable(&bus, FILLING).await.expect("it is there").info().await.expect("its state").num_ack_pending
            == 4
    })
    .await;
    leads.send_replace(false);
    for sequence in 2..=5 {
        let message = in_time("it has come", lead.next()).await.expect("a message");
        assert_eq!((message.delivery().sequence, message.is_redelivery()), (sequence, false));
        message.acknowledge().await.expect("the broker is there");
    }
}

/// As behind a half-open breaker.
#[tokio::test]
async fn follower_can_fetch_a_few_messages() {
    let (_nats, bus) = Nats::with_bus().await;
    let lead = Replica::begin(&bus, true).await;
    wait_for_pull_requests(&bus, 2).await;
    let (_leads, led) = watch::channel(false);
    let mut other =
        bus.clone().of_replica(Some(led), BATCH).consume(durable_of(FILLING)).await.expect("a consumer");
    assert!(other.fetch(2).await.expect("an answer").is_empty(), "none is there");
    drop(lead);
    wait_for_pull_requests(&bus, 0).await;
    say(&bus, 1..=3).await;
    let next = in_time("one comes", other.next_within(Duration::from_secs(5))).await.expect("an answer");
    next.expect("a message").acknowledge().await.expect("the broker is there");
    let few = in_time("the others too", other.fetch(2)).await.expect("an answer");
    assert_eq!(few.len(), 2);
}

/// A single process on SQLite requests no priority group.
#[tokio::test]
async fn durable_consumer_is_updated_for_replicas_and_back() {
    let (_nats, bus) = Nats::with_bus().await;
    let mut alone = bus.consume(durable_of(FILLING)).await.expect("a consumer");
    say(&bus, 1..=1).await;
    alone.next().await.expect("a message").acknowledge().await.expect("the broker is there");
    drop(alone);
    let replica = Replica::begin(&bus, true).await;
    say(&bus, 2..=2).await;
    replica.takes(1).await;
    drop(replica);
    let mut alone = bus.consume(durable_of(FILLING)).await.expect("a consumer");
    say(&bus, 3..=3).await;
    let next = alone.next().await.expect("a message");
    assert_eq!(next.delivery().sequence, 3, "what was acknowledged does not come again");
}
