//! Advisories: each message that the broker gives up becomes at most one dead letter.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{AckKind, consumer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use saga_core::breaker::BreakerPolicy;
use saga_core::dead_letter::{DeadLetterOrigin, DeadLettered, DeliveryInfo};
use saga_core::service::{Service as _, steps_of};
use saga_engine::nats::{BusSettings, NatsBus, Publisher};
use saga_engine::runtime::admission::BreakerAction;
use saga_engine::runtime::bus::{self, Advisories as _, Bus as _, Publish as _};
use saga_engine::store::{OutboxEntry, Store};

use super::all_done;
use super::consuming::{courier_entry, say};
use crate::support::{
    Depot, DepotCommand, Disk, EngineHarness, FILLING, Nats, Pace, UNLUCKY, arrived, id, in_memory, in_time,
    no_faults, received, stored, wait_until,
};

/// Guarantee 2: a message that kills each process is redelivered until the broker gives it up.
#[tokio::test]
async fn message_never_acknowledged_becomes_one_complete_dead_letter() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    let deadly = foreign(&bus).await;
    say(&bus, 7..=7).await;
    advisory(&bus, &deadly).await;
    delivered_in_vain(&bus, 1).await;
    let harness = hearing(&bus).await;
    let dead_letter = harness.the_dead_letter().await;
    let DeadLettered { step, origin, message_id, message_type, saga, attempts, delivery, .. } = &dead_letter;
    assert_eq!((step.as_str(), *origin), (FILLING.name, DeadLetterOrigin::Message));
    assert_eq!((*message_id, message_type.as_deref(), *saga), (id(7), Some("ParcelsArrived"), Some(id(7))));
    assert_eq!(STANDARD.decode(&dead_letter.payload_base64).expect("base64"), arrived(id(7), "tea", 1));
    assert_eq!((dead_letter.reason.as_str(), *attempts), ("the broker gave it up after 2 deliveries", 1));
    let headers = vec![("Nats-Msg-Id".to_owned(), id(7).to_string())];
    assert_eq!(
        delivery,
        &Some(DeliveryInfo {
            stream: "COURIER".to_owned(),
            sequence: 1,
            subject: "courier.parcels_arrived".to_owned(),
            headers
        })
    );
    assert_eq!(harness.tea().await.pieces, 0);
    // It waits for a human like any other, and a redelivery does not handle it.
    let again = harness.process_together(vec![received(arrived(id(7), "tea", 1))]).await;
    assert_eq!(again[0].name(), "duplicate");
}

#[tokio::test]
async fn message_terminated_at_the_broker_becomes_one_dead_letter() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    let durable = foreign(&bus).await;
    say(&bus, 7..=8).await;
    let mut messages = durable.fetch().max_messages(1).messages().await.expect("messages");
    let message = messages.next().await.expect("one").expect("a message");
    message.ack_with(AckKind::Term).await.expect("it is terminated");
    let mut harness = hearing(&bus).await;
    let dead_letter = harness.the_dead_letter().await;
    assert_eq!(dead_letter.message_id, id(7));
    assert!(
        dead_letter.reason.contains("the broker gave it up") || dead_letter.reason.contains("terminated"),
        "{dead_letter:?}"
    );
    // The rest goes on.
    harness.listens(&bus, FILLING);
    harness.has_handled(FILLING, 1).await;
    assert_eq!(harness.tea().await.pieces, 1);
}

/// Guarantee 2.
#[tokio::test]
async fn unreadable_message_given_up_is_dead_lettered_under_its_stream_position() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    let durable = foreign(&bus).await;
    let ack = bus.jetstream().publish("courier.parcels_arrived", "garbage".into()).await;
    ack.expect("published").await.expect("stored");
    advisory(&bus, &durable).await;
    let harness = hearing(&bus).await;
    let dead_letter = harness.the_dead_letter().await;
    assert_eq!(
        (dead_letter.origin, dead_letter.message_id),
        (DeadLetterOrigin::Foreign, saga_core::ids::of_stream_position("COURIER", 1))
    );
    assert_eq!(dead_letter.payload_base64, STANDARD.encode("garbage"));
}

#[tokio::test]
async fn each_fact_of_a_pack_given_up_is_tried_once_more() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    given_up_in_a_pack(&nats, &bus, 7..=9).await;
    assert_eq!(advisories(&bus).await, 1, "they were one message");
    let harness = hearing(&bus).await;
    harness.has_handled(FILLING, 3).await;
    all_advisories_are_processed(&bus).await;
    assert_eq!((harness.tea().await.pieces, harness.stats().await.dead_letters), (3, 0));
}

/// Guarantee 2: one fact kills each process; the others of its pack are processed.
#[tokio::test]
async fn only_the_next_fact_of_a_pack_is_dead_lettered_after_repeated_advisories() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    given_up_in_a_pack(&nats, &bus, 7..=10).await;
    delivered_in_vain(&bus, 1).await;
    let mut harness = EngineHarness::over(in_memory(), Pace::default()).await;
    harness.execute(DepotCommand::List("tea")).await;
    // Those who died handled the first before they came to the second.
    harness.process_together(vec![received(arrived(id(7), "tea", 1))]).await;
    harness.processes_advisories(&bus);
    harness.has_handled(FILLING, 3).await;
    all_advisories_are_processed(&bus).await;
    assert_eq!((harness.the_dead_letter().await.message_id, harness.tea().await.pieces), (id(8), 3));
}

/// Only its acknowledgement was lost.
#[tokio::test]
async fn message_given_up_after_it_was_processed_or_scheduled_is_not_dead_lettered() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    let durable = foreign(&bus).await;
    say(&bus, 7..=9).await;
    let mut harness =
        EngineHarness::over(in_memory(), Pace { first_delay: Duration::from_hours(1), ..Pace::default() })
            .await;
    harness.execute(DepotCommand::List("tea")).await;
    let mut early = received(arrived(id(8), "nowhere", 1));
    early.jitter = u32::MAX;
    let outcomes = harness.process_together(vec![received(arrived(id(7), "tea", 1)), early]).await;
    assert_eq!(outcomes.iter().map(|it| it.name()).collect::<Vec<_>>(), ["done", "retried"]);
    advisory(&bus, &durable).await;
    delivered_in_vain(&bus, 3).await;
    harness.processes_advisories(&bus);
    // The third one is the proof that the advisories were heard.
    assert_eq!(harness.the_dead_letter().await.message_id, id(9));
    all_advisories_are_processed(&bus).await;
    assert_eq!(harness.the_dead_letter().await.message_id, id(9));
    assert_eq!((harness.tea().await.pieces, harness.stats().await.retries), (1, 1));
}

#[tokio::test]
async fn advisory_delivered_twice_makes_one_dead_letter() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    let durable = foreign(&bus).await;
    say(&bus, 7..=7).await;
    advisory(&bus, &durable).await;
    delivered_in_vain(&bus, 1).await;
    let harness = hearing(&bus).await;
    harness.the_dead_letter().await;
    all_advisories_are_processed(&bus).await;
    bus.jetstream().delete_consumer_from_stream("depot-advisories", "ADVISORY").await.expect("it is there");
    // Its successor hears everything once more.
    all_advisories_are_processed(&bus).await;
    harness.the_dead_letter().await;
    assert_eq!(harness.stats().await.outbox_pending, 1, "one announcement");
}

#[tokio::test]
async fn message_missing_from_its_stream_is_dead_lettered_without_payload() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    let durable = foreign(&bus).await;
    say(&bus, 7..=7).await;
    advisory(&bus, &durable).await;
    let stream = bus.jetstream().get_stream("COURIER").await.expect("the stream");
    stream.delete_message(1).await.expect("it is there");
    let harness = hearing(&bus).await;
    let dead_letter = harness.the_dead_letter().await;
    assert_eq!(
        (dead_letter.payload_base64.as_str(), dead_letter.delivery.map(|it| it.sequence)),
        ("", Some(1))
    );
    assert!(dead_letter.reason.contains("the broker gave it up"), "{}", dead_letter.reason);
}

/// Guarantee 7: a full disk makes the broker give up messages that are not to blame.
#[tokio::test]
async fn messages_given_up_during_a_store_outage_are_processed_afterwards() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    let disk = Disk::new();
    let mut harness = soon_open_again(disk.store()).await;
    harness.execute(DepotCommand::List("tea")).await;
    TABLES.iter().for_each(|table| disk.rejects(table, "ABORT"));
    harness.listens(&bus, FILLING);
    harness.processes_advisories(&bus);
    say(&bus, 1..=3).await;
    wait_until("the broker has given them up", async || advisories(&bus).await >= 3).await;
    // Whatever the engine had of them by then has failed too, and so has the parking.
    nothing_is_stored_again_and_again(&harness).await;
    TABLES.iter().for_each(|table| disk.works(table));
    harness.has_handled(FILLING, 3).await;
    all_advisories_are_processed(&bus).await;
    assert_eq!(harness.tea().await.pieces, 3);
    assert_eq!(harness.stats().await.dead_letters, 0);
}

/// Guarantee 7: the new process does not remember the outage, and tries the message.
#[tokio::test]
async fn message_given_up_is_tried_once_more_after_a_restart() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    let disk = Disk::new();
    let store = disk.store();
    let mut first = soon_open_again(store.clone()).await;
    first.execute(DepotCommand::List("tea")).await;
    TABLES.iter().for_each(|table| disk.rejects(table, "ABORT"));
    first.listens(&bus, FILLING);
    first.processes_advisories(&bus);
    say(&bus, 1..=3).await;
    wait_until("the broker has given them up", async || advisories(&bus).await >= 3).await;
    nothing_is_stored_again_and_again(&first).await;
    drop(first);
    TABLES.iter().for_each(|table| disk.works(table));
    let mut second = soon_open_again(store).await;
    second.processes_advisories(&bus);
    second.has_handled(FILLING, 3).await;
    all_advisories_are_processed(&bus).await;
    assert_eq!((second.tea().await.pieces, second.stats().await.dead_letters), (3, 0));
}

#[tokio::test]
async fn message_given_up_that_still_fails_becomes_one_dead_letter() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    let durable = foreign(&bus).await;
    let unlucky = OutboxEntry { payload: arrived(id(7), "tea", UNLUCKY), ..courier_entry(7) };
    all_done(Publisher::new(bus.clone(), "courier", no_faults()).publish(&[unlucky]).await);
    advisory(&bus, &durable).await;
    let harness = hearing(&bus).await;
    all_advisories_are_processed(&bus).await;
    let dead_letter = harness.the_dead_letter().await;
    assert!(dead_letter.reason.contains("an unlucky number of pieces"), "{}", dead_letter.reason);
    assert_eq!((dead_letter.message_id, harness.tea().await.pieces), (id(7), 0));
}

/// No attempt is consumed meanwhile.
#[tokio::test]
async fn message_given_up_waits_for_its_step_while_a_breaker_is_open() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    let durable = foreign(&bus).await;
    say(&bus, 7..=7).await;
    advisory(&bus, &durable).await;
    let pace = Pace { poll: Duration::from_millis(5), ..Pace::default() };
    let mut harness = EngineHarness::over(in_memory(), pace).await;
    harness.execute(DepotCommand::List("tea")).await;
    harness.change_breaker(FILLING.name, BreakerAction::Open);
    harness.processes_advisories(&bus);
    all_advisories_are_processed(&bus).await;
    let stats = harness.stats().await;
    assert_eq!((stats.retries, stats.dead_letters, harness.handled(FILLING).await), (1, 0, 0));
    harness.change_breaker(FILLING.name, BreakerAction::Reset);
    harness.has_handled(FILLING, 1).await;
    assert_eq!((harness.tea().await.pieces, harness.stats().await.dead_letters), (1, 0));
}

/// What becomes of a message is written into one of these.
const TABLES: [&str; 3] = ["inbox", "retry", "dead_letter"];

/// A depot whose breakers do not stay open for long, and whose timers notice.
async fn soon_open_again(store: Arc<dyn Store>) -> EngineHarness {
    let policy = BreakerPolicy { open_for: Duration::from_millis(50), ..BreakerPolicy::default() };
    let pace = Pace { poll: Duration::from_millis(5), ..Pace::default() };
    EngineHarness::guarded(store, pace, Arc::default(), policy).await
}

/// Whoever was told of these died of it, again and again.
async fn delivered_in_vain(bus: &NatsBus, messages: u64) {
    let steps = steps_of::<Depot>();
    let durables = bus::Durable::all(Depot::NAME, &steps);
    for _ in 0..3 * messages {
        let mut advisories = bus.advisories(&durables).await.expect("advisories");
        in_time("it is told", advisories.next()).await.expect("a message that was given up");
    }
}

async fn nothing_is_stored_again_and_again(harness: &EngineHarness) {
    let faults = || {
        let text = harness.metrics.text().expect("metrics");
        let count =
            text.lines().find_map(|line| line.strip_prefix("store_faults_total ")?.parse::<u64>().ok());
        count.expect("a counter")
    };
    let before = faults();
    wait_until("nothing could be stored, again and again", async || faults() >= before + 3).await;
}

/// A broker that gives a message up after two deliveries, a fifth of a second each.
async fn impatient(nats: &Nats) -> NatsBus {
    nats.bus_with(BusSettings { max_deliveries: 2, ack_wait: Duration::from_millis(200), ..nats.settings() })
        .await
}

type Durable = consumer::Consumer<consumer::pull::Config>;

/// The step's consumer, in the hands of somebody else.
async fn foreign(bus: &NatsBus) -> Durable {
    let config = consumer::pull::Config {
        durable_name: Some(FILLING.name.to_owned()),
        ack_policy: consumer::AckPolicy::Explicit,
        ack_wait: Duration::from_millis(200),
        max_deliver: 2,
        // As the step itself declares it.
        max_ack_pending: 2_000,
        filter_subjects: FILLING.consumes[0].subjects("depot"),
        ..Default::default()
    };
    bus.jetstream().create_consumer_on_stream(config, "COURIER").await.expect("a consumer")
}

/// Has facts go to the foreign consumer in one message, until the broker gives it up.
async fn given_up_in_a_pack(nats: &Nats, bus: &NatsBus, numbers: RangeInclusive<u128>) {
    let durable = foreign(bus).await;
    let settings = BusSettings { max_pack: 100, ..nats.settings() };
    let packing = NatsBus::connect(settings, "courier").await.expect("an address");
    packing.wait_until_connected().await.expect("a new broker");
    say(&packing, numbers).await;
    advisory(bus, &durable).await;
}

/// Takes everything and acknowledges nothing, until the broker has given up on all of it.
async fn advisory(bus: &NatsBus, durable: &Durable) {
    let all = stored(bus, "COURIER").await.len();
    let mut taken = 0;
    let is_over = async || {
        let fetch = durable.fetch().max_messages(10).expires(Duration::from_millis(100));
        let mut messages = fetch.messages().await.expect("messages");
        while let Some(Ok(_)) = messages.next().await {
            taken += 1;
        }
        advisories(bus).await >= all as u64
    };
    wait_until("the broker has given up", is_over).await;
    assert_eq!(taken, 2 * all, "two deliveries each");
}

async fn advisories(bus: &NatsBus) -> u64 {
    let mut stream = bus.jetstream().get_stream("ADVISORY").await.expect("the stream");
    stream.info().await.expect("its state").state.messages
}

async fn all_advisories_are_processed(bus: &NatsBus) {
    let is_processed = async || {
        let durable: Result<Durable, _> =
            bus.jetstream().get_consumer_from_stream("depot-advisories", "ADVISORY").await;
        let Ok(mut durable) = durable else { return false };
        durable.info().await.is_ok_and(|info| info.num_pending == 0 && info.num_ack_pending == 0)
    };
    wait_until("all advisories are heard", is_processed).await;
}

/// A depot that hears what the broker gives up on, and nothing else.
async fn hearing(bus: &NatsBus) -> EngineHarness {
    let mut harness = EngineHarness::over(in_memory(), Pace::default()).await;
    harness.execute(DepotCommand::List("tea")).await;
    harness.processes_advisories(bus);
    harness
}
