//! What a step gets to hear, and when the broker is told.

use std::time::Duration;

use bytes::Bytes;
use shared::bus::{Bus, BusSettings, Publish as _, Publisher, consumer};
use shared::engine::RequestKey;
use shared::service::{Step, Subscription};
use shared::store::OutboxEntry;
use uuid::Uuid;

use super::all_done;
use crate::support::nats::{Nats, stored};
use crate::support::rig::{Deed, Pace, Rig, Supplier, in_memory, no_faults};
use crate::support::shop::{FILLING, LISTENING, ShopCommand, replenished};
use crate::support::wait_until;
use crate::support::writes::{id, letters, state};

#[tokio::test]
async fn every_step_hears_every_fact_once_and_the_broker_is_told() {
    let nats = Nats::start().await;
    let bus = nats.bus().await;
    let rig = listening(&bus, Pace::default()).await;
    say(&bus, 1..=40).await;
    handled(&rig, FILLING, 40).await;
    handled(&rig, LISTENING, 40).await;
    assert_eq!(pieces(&rig).await, 40);
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
    let rig = listening(&bus, Pace::default()).await;
    handled(&rig, FILLING, 3).await;
}

/// The broker forgets the ids it knew; the inbox does not.
#[tokio::test]
async fn a_message_that_the_broker_holds_twice_is_handled_once() {
    let nats = Nats::start().await;
    let settings = BusSettings { duplicate_window: Duration::from_millis(100), ..nats.settings() };
    let bus = Bus::connect(settings, "test").await.expect("an address");
    bus.reached().await.expect("a new broker");
    bus.ensure_streams().await.expect("streams");
    let rig = listening(&bus, Pace::default()).await;
    let is_held_twice = async || {
        say(&bus, 1..=1).await;
        stored(&bus, "INVENTORY").await.len() == 2
    };
    wait_until("the broker holds it twice", is_held_twice).await;
    say(&bus, 2..=2).await;
    handled(&rig, FILLING, 2).await;
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    assert_eq!(pieces(&rig).await, 2);
}

#[test]
fn a_step_that_hears_two_services_has_a_consumer_for_each() {
    let of = |producer| Subscription { producer, facts: &[] };
    static TWO: [Subscription; 2] =
        [Subscription { producer: "order", facts: &[] }, Subscription { producer: "payment", facts: &[] }];
    static ONE: [Subscription; 1] = [Subscription { producer: "order", facts: &[] }];
    let (two, one) = (
        Step { name: "watching", hears: &TWO, needs: &[] },
        Step { name: "watching", hears: &ONE, needs: &[] },
    );
    assert_eq!(
        [of("order"), of("payment")].map(|it| two.durable(&it)),
        ["watching-order", "watching-payment"]
    );
    assert_eq!(one.durable(&of("order")), "watching");
}

/// Law 2: bytes that nobody can read are parked under their place in the stream, and the rest goes on.
#[tokio::test]
async fn bytes_that_cannot_be_read_are_parked_and_acknowledged() {
    let nats = Nats::start().await;
    let bus = nats.bus().await;
    let rig = listening(&bus, Pace::default()).await;
    let garbage = OutboxEntry { payload: Bytes::from_static(b"\xff garbage"), ..said(1) };
    all_done(Publisher::new(bus.clone(), "inventory", no_faults()).publish(&[garbage]).await);
    say(&bus, 2..=2).await;
    handled(&rig, FILLING, 1).await;
    wait_until("it is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    let parked = letters(rig.store.as_ref(), 9).await.expect("the store works");
    let letter = parked.iter().find(|letter| letter.step == FILLING.name).expect("a dead letter");
    assert_eq!(letter.payload_base64, "/yBnYXJiYWdl");
    assert_eq!(letter.message_id, shared::ids::of_stream_position("INVENTORY", 1));
}

/// Bounds: while too many calls are open, messages wait at the broker.
#[tokio::test]
async fn nothing_is_taken_up_while_there_is_no_room_for_more_calls() {
    let nats = Nats::start().await;
    let bus = nats.bus().await;
    let pace = Pace { backlog: 1, ..Pace::default() };
    let mut rig = Rig::with_supplier(in_memory(), pace, Supplier::will([Deed::Hang])).await;
    rig.ask(ShopCommand::List("tea")).await;
    rig.ask(ShopCommand::Supply("coffee")).await;
    wait_until("the call is under way", async || !rig.supplier.called().is_empty()).await;
    rig.listens(&bus, FILLING);
    say(&bus, 1..=3).await;
    let is_delivered = async || {
        let mut consumer = durable(&bus, FILLING).await?;
        consumer.info().await.ok().map(|info| info.num_ack_pending)
    };
    wait_until("the consumer has messages in hand", async || is_delivered().await == Some(3)).await;
    // An input that comes after them is settled before them.
    let key = RequestKey { key: "k".to_owned(), fingerprint: String::new() };
    let asked = rig.engine.ask(Uuid::now_v7(), ShopCommand::Put("milk", 1), Some(key)).await;
    asked.expect("the store works");
    assert_eq!(pieces(&rig).await, 0);
    rig.supplier.release();
    handled(&rig, FILLING, 3).await;
}

/// A shop that listens with both of its steps, and has a shelf for tea.
pub async fn listening(bus: &Bus, pace: Pace) -> Rig {
    let mut rig = Rig::over(in_memory(), pace).await;
    rig.ask(ShopCommand::List("tea")).await;
    rig.listens(bus, FILLING);
    rig.listens(bus, LISTENING);
    rig
}

/// Inventory says that a piece of tea came in, once for each number.
pub async fn say(bus: &Bus, numbers: impl IntoIterator<Item = u128>) {
    let entries: Vec<_> = numbers.into_iter().map(said).collect();
    all_done(Publisher::new(bus.clone(), "inventory", no_faults()).publish(&entries).await);
}

pub fn said(number: u128) -> OutboxEntry {
    OutboxEntry {
        seq: i64::try_from(number).expect("a small number"),
        id: id(number),
        subject: "inventory.stock_replenished".to_owned(),
        payload: replenished(id(number), "tea", 1),
    }
}

pub async fn handled(rig: &Rig, step: &Step, count: u64) {
    let is_handled = async || {
        let tallies = rig.store.tallies().await.expect("the store works");
        tallies.handled.get(step.name) == Some(&count)
    };
    wait_until(&format!("{} has handled {count}", step.name), is_handled).await;
}

pub async fn pieces(rig: &Rig) -> i64 {
    state(rig.store.as_ref(), "tea").await.expect("the store works").map_or(0, |shelf| shelf.pieces)
}

/// Messages that a step has yet to acknowledge.
pub async fn waiting(bus: &Bus, step: &Step) -> u64 {
    consumer::waiting(bus, step, &step.hears[0]).await.expect("the consumer is there")
}

/// A step's consumer, once it is there.
pub async fn durable(
    bus: &Bus,
    step: &Step,
) -> Option<async_nats::jetstream::consumer::Consumer<async_nats::jetstream::consumer::pull::Config>> {
    bus.jetstream().get_consumer_from_stream(step.name, "INVENTORY").await.ok()
}
