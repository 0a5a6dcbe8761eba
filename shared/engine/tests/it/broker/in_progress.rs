//! Messages in progress for longer than the acknowledgement wait: they are neither redelivered nor given up.

use std::time::Duration;

use saga_core::fault::FaultKind;
use saga_engine::nats::{BusSettings, NatsBus};
use saga_engine::runtime::injected_faults::NewFault;

use super::consuming::{durable, say, waiting};
use crate::support::{
    Deed, DepotCommand, EngineHarness, FILLING, Nats, Pace, Supplier, fault_of, in_memory, wait_until,
};

/// The handler takes several times the acknowledgement wait.
#[tokio::test]
async fn message_in_a_slow_handler_is_delivered_once() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    let mut harness = listening(&bus, Pace::default(), Supplier::will([])).await;
    let slow = NewFault { delay_ms: Some(5_000), ..fault_of(FILLING, FaultKind::DELAY) };
    harness.faults.inject(slow).expect("faults are on");
    harness.listens(&bus, FILLING);
    say(&bus, 1..=5).await;
    harness.has_handled(FILLING, 5).await;
    each_was_delivered_once(&bus, &harness, 5).await;
}

/// The wait takes several times the acknowledgement wait.
#[tokio::test]
async fn message_waiting_for_task_backlog_is_delivered_once() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    let pace = Pace { backlog: 1, concurrency: 1, ..Pace::default() };
    let mut harness = listening(&bus, pace, Supplier::will([Deed::Hang])).await;
    harness.execute(DepotCommand::Supply("coffee")).await;
    wait_until("the call is under way", async || !harness.supplier.called().is_empty()).await;
    harness.listens(&bus, FILLING);
    say(&bus, 1..=20).await;
    let began = tokio::time::Instant::now();
    wait_until("the broker would have given up", async || began.elapsed() > 3 * ACK_WAIT).await;
    assert_eq!(harness.handled(FILLING).await, 0, "there was no room");
    harness.supplier.release();
    harness.has_handled(FILLING, 20).await;
    each_was_delivered_once(&bus, &harness, 20).await;
}

const ACK_WAIT: Duration = Duration::from_millis(1_500);

/// Broker that gives a message up after two deliveries.
async fn impatient(nats: &Nats) -> NatsBus {
    nats.bus_with(BusSettings { max_deliveries: 2, ack_wait: ACK_WAIT, ..nats.settings() }).await
}

async fn listening(bus: &NatsBus, pace: Pace, supplier: std::sync::Arc<Supplier>) -> EngineHarness {
    let mut harness = EngineHarness::with_supplier(in_memory(), pace, supplier).await;
    harness.execute(DepotCommand::List("tea")).await;
    harness.processes_advisories(bus);
    harness
}

async fn each_was_delivered_once(bus: &NatsBus, harness: &EngineHarness, messages: u64) {
    wait_until("all is acknowledged", async || waiting(bus, FILLING).await == 0).await;
    let mut consumer = durable(bus, FILLING).await.expect("the consumer is there");
    let delivered = consumer.info().await.expect("its state").delivered.consumer_sequence;
    assert_eq!(delivered, messages, "deliveries of {messages} messages");
    let mut stream = bus.jetstream().get_stream("ADVISORY").await.expect("the stream");
    assert_eq!(stream.info().await.expect("its state").state.messages, 0, "the broker gave something up");
    assert_eq!(harness.stats().await.dead_letters, 0);
}
