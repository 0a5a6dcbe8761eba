//! What a step gets to hear, and when the broker is told.

use std::time::Duration;

use bytes::Bytes;
use saga_core::input::RequestKey;
use saga_core::service::Step;
use saga_engine::nats::{BusSettings, NatsBus, Publisher};
use saga_engine::runtime::bus::{Bus as _, Durable, Publish as _};
use saga_engine::store::OutboxEntry;
use uuid::Uuid;

use super::all_done;
use crate::support::{
    Deed, DepotCommand, Disk, EngineHarness, FILLING, LISTENING, Nats, PRODUCERS, Pace, Supplier, arrived,
    id, in_memory, no_faults, parked, stored, wait_until,
};

#[tokio::test]
async fn every_step_hears_every_fact_once_and_the_broker_is_told() {
    let nats = Nats::start().await;
    let bus = nats.bus().await;
    let harness = listening(&bus, Pace::default()).await;
    say(&bus, 1..=40).await;
    harness.has_handled(FILLING, 40).await;
    harness.has_handled(LISTENING, 40).await;
    assert_eq!(harness.tea().await.pieces, 40);
    for step in [FILLING, LISTENING] {
        wait_until("all is acknowledged", async || waiting(&bus, step).await == 0).await;
    }
}

/// What was said while nobody listened is heard by whoever comes.
#[tokio::test]
async fn a_new_step_hears_what_was_said_before_it_came() {
    let nats = Nats::start().await;
    let bus = nats.bus().await;
    say(&bus, 1..=3).await;
    let harness = listening(&bus, Pace::default()).await;
    harness.has_handled(FILLING, 3).await;
}

/// The broker forgets the ids it knew; the inbox does not.
#[tokio::test]
async fn a_message_that_the_broker_holds_twice_is_handled_once() {
    let nats = Nats::start().await;
    let settings = BusSettings { duplicate_window: Duration::from_millis(100), ..nats.settings() };
    let bus = NatsBus::connect(settings, "test").await.expect("an address");
    bus.reached().await.expect("a new broker");
    bus.ensure_streams(&PRODUCERS).await.expect("streams");
    let harness = listening(&bus, Pace::default()).await;
    let is_held_twice = async || {
        say(&bus, 1..=1).await;
        stored(&bus, "COURIER").await.len() == 2
    };
    wait_until("the broker holds it twice", is_held_twice).await;
    say(&bus, 2..=2).await;
    harness.has_handled(FILLING, 2).await;
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    assert_eq!(harness.tea().await.pieces, 2);
}

/// Law 2: bytes that nobody can read are parked under their place in the stream, and the rest goes on.
#[tokio::test]
async fn bytes_that_cannot_be_read_are_parked_and_acknowledged() {
    let nats = Nats::start().await;
    let bus = nats.bus().await;
    let harness = listening(&bus, Pace::default()).await;
    let garbage = OutboxEntry { payload: Bytes::from_static(b"\xff garbage"), ..said(1) };
    all_done(Publisher::new(bus.clone(), "courier", no_faults()).publish(&[garbage]).await);
    say(&bus, 2..=2).await;
    harness.has_handled(FILLING, 1).await;
    wait_until("it is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    let parked = parked(harness.store.as_ref(), 9).await.expect("the store works");
    let dead_letter =
        parked.iter().find(|dead_letter| dead_letter.step == FILLING.name).expect("a dead letter");
    assert_eq!(dead_letter.payload_base64, "/yBnYXJiYWdl");
    assert_eq!(dead_letter.message_id, saga_core::ids::of_stream_position("COURIER", 1));
}

/// Law 1: as long as a message cannot be committed it is not acknowledged, and comes again until it can.
#[tokio::test]
async fn a_message_is_acknowledged_only_once_it_is_committed() {
    let nats = Nats::start().await;
    let settings = BusSettings { ack_wait: Duration::from_millis(200), ..nats.settings() };
    let bus = NatsBus::connect(settings, "test").await.expect("an address");
    bus.reached().await.expect("a new broker");
    bus.ensure_streams(&PRODUCERS).await.expect("streams");
    let disk = Disk::new();
    let mut harness = EngineHarness::over(disk.store(), Pace::default()).await;
    harness.ask(DepotCommand::List("tea")).await;
    harness.listens(&bus, FILLING);
    disk.refuses("outbox", "ABORT");
    say(&bus, 1..=1).await;
    let info = async || match durable(&bus, FILLING).await {
        Some(mut consumer) => Some(consumer.info().await.expect("its state").clone()),
        None => None,
    };
    let has_come_again = async || info().await.is_some_and(|info| info.delivered.consumer_sequence > 1);
    wait_until("it has come, and come again", has_come_again).await;
    let seen = info().await.expect("the consumer is there");
    assert_eq!((seen.ack_floor.stream_sequence, seen.num_ack_pending), (0, 1), "nobody acknowledged it");
    assert_eq!(harness.tea().await.pieces, 0);
    disk.works("outbox");
    harness.has_handled(FILLING, 1).await;
    wait_until("it is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    assert_eq!(harness.tea().await.pieces, 1);
}

/// Bounds: while too many calls are open, messages wait at the broker.
#[tokio::test]
async fn nothing_is_taken_up_while_there_is_no_room_for_more_calls() {
    let nats = Nats::start().await;
    let bus = nats.bus().await;
    let pace = Pace { backlog: 1, ..Pace::default() };
    let mut harness = EngineHarness::with_supplier(in_memory(), pace, Supplier::will([Deed::Hang])).await;
    harness.ask(DepotCommand::List("tea")).await;
    harness.ask(DepotCommand::Supply("coffee")).await;
    wait_until("the call is under way", async || !harness.supplier.called().is_empty()).await;
    harness.listens(&bus, FILLING);
    say(&bus, 1..=3).await;
    let is_delivered = async || {
        let mut consumer = durable(&bus, FILLING).await?;
        consumer.info().await.ok().map(|info| info.num_ack_pending)
    };
    wait_until("the consumer has messages in hand", async || is_delivered().await == Some(3)).await;
    // An input that comes after them is settled before them.
    let key = RequestKey { key: "k".to_owned(), fingerprint: String::new() };
    let asked = harness.engine.ask(Uuid::now_v7(), DepotCommand::Put("milk", 1), Some(key)).await;
    asked.expect("the store works");
    assert_eq!(harness.tea().await.pieces, 0);
    harness.supplier.release();
    harness.has_handled(FILLING, 3).await;
}

/// A depot that listens with both of its steps, and has a shelf for tea.
pub async fn listening(bus: &NatsBus, pace: Pace) -> EngineHarness {
    let mut harness = EngineHarness::over(in_memory(), pace).await;
    harness.ask(DepotCommand::List("tea")).await;
    harness.listens(bus, FILLING);
    harness.listens(bus, LISTENING);
    harness
}

/// The courier says that a piece of tea came in, once for each number.
pub async fn say(bus: &NatsBus, numbers: impl IntoIterator<Item = u128>) {
    let entries: Vec<_> = numbers.into_iter().map(said).collect();
    all_done(Publisher::new(bus.clone(), "courier", no_faults()).publish(&entries).await);
}

pub fn said(number: u128) -> OutboxEntry {
    OutboxEntry {
        trace: None,
        seq: i64::try_from(number).expect("a small number"),
        id: id(number),
        saga: id(number),
        subject: "courier.parcels_arrived".to_owned(),
        payload: arrived(id(number), "tea", 1),
    }
}

/// Messages that a step has yet to acknowledge.
pub async fn waiting(bus: &NatsBus, step: &'static Step) -> u64 {
    bus.waiting(durable_of(step)).await.expect("the consumer is there").all()
}

/// The one durable of a step.
pub fn durable_of(step: &'static Step) -> Durable {
    Durable { step, subscription: &step.consumes[0], listener: "depot" }
}

/// A step's consumer, once it is there.
pub async fn durable(
    bus: &NatsBus,
    step: &Step,
) -> Option<async_nats::jetstream::consumer::Consumer<async_nats::jetstream::consumer::pull::Config>> {
    bus.jetstream().get_consumer_from_stream(step.name, "COURIER").await.ok()
}
