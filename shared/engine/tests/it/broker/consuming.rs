//! Consuming: what a step receives, and when it acknowledges.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use saga_core::input::RequestKey;
use saga_core::service::Step;
use saga_engine::nats::{BusSettings, NatsBus, Publisher};
use saga_engine::runtime::bus::{Bus as _, Durable, Publish as _};
use saga_engine::store::OutboxEntry;
use uuid::Uuid;

use super::all_done;
use crate::support::{
    Deed, DepotCommand, Disk, EngineHarness, FILLING, LISTENING, Nats, Pace, ShelfEvent, Supplier, arrived,
    commit, id, in_memory, newest_dead_letters, no_faults, recorded, shelf, state, stored, wait_until,
};

#[tokio::test]
async fn each_step_processes_each_fact_once_and_acknowledges_it() {
    let (_nats, bus) = Nats::with_bus().await;
    let harness = listening(&bus, Pace::default()).await;
    say(&bus, 1..=40).await;
    harness.has_handled(FILLING, 40).await;
    harness.has_handled(LISTENING, 40).await;
    assert_eq!(harness.tea().await.pieces, 40);
    for step in [FILLING, LISTENING] {
        wait_until("all is acknowledged", async || waiting(&bus, step).await == 0).await;
    }
}

#[tokio::test]
async fn new_step_receives_earlier_messages() {
    let (_nats, bus) = Nats::with_bus().await;
    say(&bus, 1..=3).await;
    let harness = listening(&bus, Pace::default()).await;
    harness.has_handled(FILLING, 3).await;
}

/// Beyond the duplicate window only the inbox recognises it.
#[tokio::test]
async fn message_stored_twice_at_the_broker_is_processed_once() {
    let nats = Nats::start().await;
    let bus =
        nats.bus_with(BusSettings { duplicate_window: Duration::from_millis(100), ..nats.settings() }).await;
    let harness = listening(&bus, Pace::default()).await;
    let is_stored_twice = async || {
        say(&bus, 1..=1).await;
        stored(&bus, "COURIER").await.len() == 2
    };
    wait_until("the broker holds it twice", is_stored_twice).await;
    say(&bus, 2..=2).await;
    harness.has_handled(FILLING, 2).await;
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    assert_eq!(harness.tea().await.pieces, 2);
}

/// Guarantee 2: it is dead-lettered under its stream position, and others continue.
#[tokio::test]
async fn unreadable_message_is_dead_lettered_and_acknowledged() {
    let (_nats, bus) = Nats::with_bus().await;
    let harness = listening(&bus, Pace::default()).await;
    let garbage = OutboxEntry { payload: Bytes::from_static(b"\xff garbage"), ..courier_entry(1) };
    all_done(Publisher::new(bus.clone(), "courier", no_faults()).publish(&[garbage]).await);
    say(&bus, 2..=2).await;
    harness.has_handled(FILLING, 1).await;
    wait_until("it is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    let dead_letters = newest_dead_letters(harness.store.as_ref(), 9).await.expect("the store works");
    let dead_letter =
        dead_letters.iter().find(|dead_letter| dead_letter.step == FILLING.name).expect("a dead letter");
    assert_eq!(dead_letter.payload_base64, "/yBnYXJiYWdl");
    assert_eq!(dead_letter.message_id, saga_core::ids::of_stream_position("COURIER", 1));
}

/// Guarantee 1.
#[tokio::test]
async fn message_is_acknowledged_only_after_its_commit() {
    let nats = Nats::start().await;
    let bus = nats.bus_with(BusSettings { ack_wait: Duration::from_millis(200), ..nats.settings() }).await;
    let disk = Disk::new();
    let mut harness = EngineHarness::over(disk.store(), Pace::default()).await;
    harness.execute(DepotCommand::List("tea")).await;
    harness.listens(&bus, FILLING);
    disk.rejects("outbox", "ABORT");
    say(&bus, 1..=1).await;
    let info = async || match durable(&bus, FILLING).await {
        Some(mut consumer) => Some(consumer.info().await.expect("its state").clone()),
        None => None,
    };
    let is_redelivered = async || info().await.is_some_and(|info| info.delivered.consumer_sequence > 1);
    wait_until("it has come, and come again", is_redelivered).await;
    let seen = info().await.expect("the consumer is there");
    assert_eq!((seen.ack_floor.stream_sequence, seen.num_ack_pending), (0, 1), "nobody acknowledged it");
    assert_eq!(harness.tea().await.pieces, 0);
    disk.works("outbox");
    harness.has_handled(FILLING, 1).await;
    wait_until("it is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    assert_eq!(harness.tea().await.pieces, 1);
}

/// Messages wait at the broker meanwhile.
#[tokio::test]
async fn no_message_is_processed_while_the_task_backlog_is_full() {
    let (_nats, bus) = Nats::with_bus().await;
    let pace = Pace { backlog: 1, ..Pace::default() };
    let mut harness = EngineHarness::with_supplier(in_memory(), pace, Supplier::will([Deed::Hang])).await;
    harness.execute(DepotCommand::List("tea")).await;
    harness.execute(DepotCommand::Supply("coffee")).await;
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
    let executed = harness.engine.execute(Uuid::now_v7(), DepotCommand::Put("milk", 1), Some(key)).await;
    executed.expect("the store works");
    assert_eq!(harness.tea().await.pieces, 0);
    harness.supplier.release();
    harness.has_handled(FILLING, 3).await;
}

/// Messages that waited at the broker may meet or move a deadline that passed meanwhile.
#[tokio::test]
async fn deadline_that_passed_before_the_start_waits_for_messages_of_that_time() {
    let (_nats, bus) = Nats::with_bus().await;
    let store = in_memory();
    let planned = ShelfEvent::CheckPlanned { at: Timestamp::UNIX_EPOCH };
    commit(store.as_ref(), recorded("tea", &[], &[ShelfEvent::Listed, planned]))
        .await
        .expect("the store works");
    say(&bus, 1..=3).await;
    let is_checked = async || {
        let tea = state(store.as_ref(), "tea").await.expect("the store works");
        tea.is_some_and(|tea| tea.check_at.is_none())
    };
    let _harness = EngineHarness::catches_up(store.clone(), &bus, FILLING).await;
    wait_until("the deadline has fired", is_checked).await;
    let events = store.events(shelf("tea"), 0, usize::MAX).await.expect("the store works");
    let names: Vec<_> = events.iter().map(|event| &event.name[..]).collect();
    assert_eq!(names, ["Listed", "CheckPlanned", "Put", "Put", "Put", "Checked"]);
}

/// Depot with both of its steps consuming, and a shelf for tea.
pub async fn listening(bus: &NatsBus, pace: Pace) -> EngineHarness {
    let mut harness = EngineHarness::over(in_memory(), pace).await;
    harness.execute(DepotCommand::List("tea")).await;
    harness.listens(bus, FILLING);
    harness.listens(bus, LISTENING);
    harness
}

/// Publishes a piece of tea from the courier for each number.
pub async fn say(bus: &NatsBus, numbers: impl IntoIterator<Item = u128>) {
    let entries: Vec<_> = numbers.into_iter().map(courier_entry).collect();
    all_done(Publisher::new(bus.clone(), "courier", no_faults()).publish(&entries).await);
}

pub fn courier_entry(number: u128) -> OutboxEntry {
    OutboxEntry {
        trace: None,
        is_repetition: false,
        seq: i64::try_from(number).expect("a small number"),
        id: id(number),
        saga: id(number),
        subject: "courier.parcels_arrived".to_owned(),
        payload: arrived(id(number), "tea", 1),
    }
}

/// Unacknowledged messages of a step.
pub async fn waiting(bus: &NatsBus, step: &'static Step) -> u64 {
    bus.progress(durable_of(step)).await.expect("the consumer is there").backlog.all()
}

/// The only durable consumer of a step.
pub fn durable_of(step: &'static Step) -> Durable {
    Durable { step, subscription: &step.consumes[0], service: "depot" }
}

/// Consumer of a step, if it exists.
pub async fn durable(
    bus: &NatsBus,
    step: &Step,
) -> Option<async_nats::jetstream::consumer::Consumer<async_nats::jetstream::consumer::pull::Config>> {
    bus.jetstream().get_consumer_from_stream(step.name, "COURIER").await.ok()
}
