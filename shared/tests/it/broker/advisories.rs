//! What the broker gives up on: it says so once, and it becomes one dead letter, whole.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{AckKind, consumer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use rusqlite::Connection;
use shared::bus::{Bus, BusSettings};
use shared::contract::{DeadLettered, Delivery, LetterOrigin};
use shared::service::Service as _;
use shared::store::sqlite::SqliteStore;

use super::consuming::{handled, pieces, say};
use crate::support::nats::{Nats, stored};
use crate::support::rig::{Pace, Rig, in_memory};
use crate::support::shop::{FILLING, Shop, ShopCommand, heard, replenished};
use crate::support::wait_until;
use crate::support::writes::{id, letters};

/// Law 2: a message that kills whoever takes it is delivered again and again, until the broker has enough of it.
#[tokio::test]
async fn a_message_that_nobody_ever_acknowledges_becomes_one_dead_letter_with_everything_about_it() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    let deadly = foreign(&bus).await;
    say(&bus, 7..=7).await;
    given_up(&bus, &deadly).await;
    let rig = hearing(&bus).await;
    let letter = the_letter(&rig).await;
    let DeadLettered { step, origin, message_id, message_type, saga, attempts, delivery, .. } = &letter;
    assert_eq!((step.as_str(), *origin), (FILLING.name, LetterOrigin::Message));
    assert_eq!((*message_id, message_type.as_deref(), *saga), (id(7), Some("StockReplenished"), Some(id(7))));
    assert_eq!(STANDARD.decode(&letter.payload_base64).expect("base64"), replenished(id(7), "tea", 1));
    assert_eq!((letter.reason.as_str(), *attempts), ("the broker gave it up after 2 deliveries", 1));
    let headers = vec![("Nats-Msg-Id".to_owned(), id(7).to_string())];
    assert_eq!(delivery, &Some(Delivery { stream: "INVENTORY".to_owned(), sequence: 1, headers }));
    assert_eq!(pieces(&rig).await, 0);
    // It waits for a human like any other, and a redelivery does not handle it.
    let again = rig.settle_together(vec![heard(replenished(id(7), "tea", 1))]).await;
    assert_eq!(again[0].name(), "duplicate");
}

/// Somebody with the broker's own tools may end a message: that is no reason to lose it.
#[tokio::test]
async fn a_message_that_was_terminated_at_the_broker_becomes_one_dead_letter() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    let durable = foreign(&bus).await;
    say(&bus, 7..=8).await;
    let mut messages = durable.fetch().max_messages(1).messages().await.expect("messages");
    let message = messages.next().await.expect("one").expect("a message");
    message.ack_with(AckKind::Term).await.expect("it is terminated");
    let mut rig = hearing(&bus).await;
    let letter = the_letter(&rig).await;
    assert_eq!(letter.message_id, id(7));
    assert!(
        letter.reason.contains("the broker gave it up") || letter.reason.contains("terminated"),
        "{letter:?}"
    );
    // The rest goes on.
    rig.listens(&bus, FILLING);
    handled(&rig, FILLING, 1).await;
    assert_eq!(pieces(&rig).await, 1);
}

/// Law 2: bytes that nobody can read are parked under their place in the stream, here as everywhere.
#[tokio::test]
async fn given_up_bytes_that_are_no_message_are_parked_under_their_place() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    let durable = foreign(&bus).await;
    let ack = bus.jetstream().publish("inventory.stock_replenished", "garbage".into()).await;
    ack.expect("published").await.expect("stored");
    given_up(&bus, &durable).await;
    let rig = hearing(&bus).await;
    let letter = the_letter(&rig).await;
    assert_eq!(
        (letter.origin, letter.message_id),
        (LetterOrigin::Foreign, shared::ids::of_stream_position("INVENTORY", 1))
    );
    assert_eq!(letter.payload_base64, STANDARD.encode("garbage"));
}

/// What was handled meanwhile (it was only the acknowledgement that got lost) stays handled.
#[tokio::test]
async fn a_given_up_message_that_was_handled_or_waits_is_not_parked() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    let durable = foreign(&bus).await;
    say(&bus, 7..=9).await;
    let mut rig =
        Rig::over(in_memory(), Pace { first_delay: Duration::from_hours(1), ..Pace::default() }).await;
    rig.ask(ShopCommand::List("tea")).await;
    let mut early = heard(replenished(id(8), "nowhere", 1));
    early.roll = u32::MAX;
    let outcomes = rig.settle_together(vec![heard(replenished(id(7), "tea", 1)), early]).await;
    assert_eq!(outcomes.iter().map(|it| it.name()).collect::<Vec<_>>(), ["done", "retried"]);
    given_up(&bus, &durable).await;
    rig.hears_advisories(&bus);
    // The third one is the proof that the advisories were heard.
    assert_eq!(the_letter(&rig).await.message_id, id(9));
    all_advisories_heard(&bus).await;
    assert_eq!(the_letter(&rig).await.message_id, id(9));
    assert_eq!((pieces(&rig).await, rig.store.stats().await.expect("the store works").retries), (1, 1));
}

/// Two replicas, or one that died before it acknowledged the advisory: it is one letter.
#[tokio::test]
async fn an_advisory_that_is_heard_twice_makes_one_dead_letter() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    let durable = foreign(&bus).await;
    say(&bus, 7..=7).await;
    given_up(&bus, &durable).await;
    let rig = hearing(&bus).await;
    the_letter(&rig).await;
    all_advisories_heard(&bus).await;
    bus.jetstream().delete_consumer_from_stream("order-advisories", "ADVISORY").await.expect("it is there");
    // Its successor hears everything once more.
    all_advisories_heard(&bus).await;
    the_letter(&rig).await;
    assert_eq!(rig.store.stats().await.expect("the store works").outbox_pending, 1, "one announcement");
}

/// A message whose stream no longer has it: the letter says at least that there was one, and when.
#[tokio::test]
async fn a_given_up_message_that_is_gone_from_its_stream_is_parked_empty() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    let durable = foreign(&bus).await;
    say(&bus, 7..=7).await;
    given_up(&bus, &durable).await;
    let stream = bus.jetstream().get_stream("INVENTORY").await.expect("the stream");
    stream.delete_message(1).await.expect("it is there");
    let rig = hearing(&bus).await;
    let letter = the_letter(&rig).await;
    assert_eq!((letter.payload_base64.as_str(), letter.delivery.map(|it| it.sequence)), ("", Some(1)));
    assert!(letter.reason.contains("the broker gave it up"), "{}", letter.reason);
}

/// Law 7: a disk that is full for long enough makes the broker give messages up that have done nothing wrong. They
/// are handled when there is room again, and parked by nobody.
#[tokio::test]
async fn messages_that_could_not_be_stored_for_long_are_handled_afterwards_and_not_parked() {
    let nats = Nats::start().await;
    let bus = impatient(&nats).await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("shop.db");
    let store = SqliteStore::open(&path, Shop::rows()).expect("a new database");
    let mut rig = Rig::over(Arc::new(store), Pace::default()).await;
    rig.ask(ShopCommand::List("tea")).await;
    let by_hand = |sql: &str| {
        let conn = Connection::open(&path).expect("the file");
        conn.busy_timeout(Duration::from_secs(5)).expect("a pragma");
        conn.execute_batch(sql).expect("the change");
    };
    by_hand(
        "CREATE TRIGGER broken BEFORE INSERT ON inbox BEGIN SELECT RAISE(ABORT, 'disk full'); END;
         CREATE TRIGGER broken_too BEFORE INSERT ON dead_letter BEGIN SELECT RAISE(ABORT, 'disk full'); END",
    );
    rig.listens(&bus, FILLING);
    rig.hears_advisories(&bus);
    say(&bus, 1..=3).await;
    wait_until("the broker has given them up", async || advisories(&bus).await >= 3).await;
    // Whatever the engine had of them by then has failed too, and so has the parking.
    let faults = || {
        let text = rig.metrics.text().expect("metrics");
        let count =
            text.lines().find_map(|line| line.strip_prefix("store_faults_total ")?.parse::<u64>().ok());
        count.expect("a counter")
    };
    let before = faults();
    wait_until("nothing could be stored, again and again", async || faults() >= before + 3).await;
    by_hand("DROP TRIGGER broken; DROP TRIGGER broken_too");
    handled(&rig, FILLING, 3).await;
    all_advisories_heard(&bus).await;
    assert_eq!(pieces(&rig).await, 3);
    assert_eq!(rig.store.stats().await.expect("the store works").dead_letters, 0);
}

/// A broker that gives a message up after two deliveries, a fifth of a second each.
async fn impatient(nats: &Nats) -> Bus {
    let settings = BusSettings { max_deliver: 2, ack_wait: Duration::from_millis(200), ..nats.settings() };
    let bus = Bus::connect(settings, "test").await.expect("an address");
    bus.reached().await.expect("a new broker");
    bus.ensure_streams().await.expect("streams");
    bus
}

type Durable = consumer::Consumer<consumer::pull::Config>;

/// The step's consumer, in the hands of somebody else.
async fn foreign(bus: &Bus) -> Durable {
    let config = consumer::pull::Config {
        durable_name: Some(FILLING.name.to_owned()),
        ack_policy: consumer::AckPolicy::Explicit,
        ack_wait: Duration::from_millis(200),
        max_deliver: 2,
        // As the step itself declares it.
        max_ack_pending: 2_000,
        filter_subjects: FILLING.hears[0].subjects("order"),
        ..Default::default()
    };
    bus.jetstream().create_consumer_on_stream(config, "INVENTORY").await.expect("a consumer")
}

/// Takes everything and acknowledges nothing, until the broker has given up on all of it.
async fn given_up(bus: &Bus, durable: &Durable) {
    let all = stored(bus, "INVENTORY").await.len();
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

async fn advisories(bus: &Bus) -> u64 {
    let mut stream = bus.jetstream().get_stream("ADVISORY").await.expect("the stream");
    stream.info().await.expect("its state").state.messages
}

async fn all_advisories_heard(bus: &Bus) {
    let is_heard = async || {
        let durable: Result<Durable, _> =
            bus.jetstream().get_consumer_from_stream("order-advisories", "ADVISORY").await;
        let Ok(mut durable) = durable else { return false };
        durable.info().await.is_ok_and(|info| info.num_pending == 0 && info.num_ack_pending == 0)
    };
    wait_until("all advisories are heard", is_heard).await;
}

/// A shop that hears what the broker gives up on, and nothing else.
async fn hearing(bus: &Bus) -> Rig {
    let mut rig = Rig::over(in_memory(), Pace::default()).await;
    rig.ask(ShopCommand::List("tea")).await;
    rig.hears_advisories(bus);
    rig
}

async fn the_letter(rig: &Rig) -> DeadLettered {
    let parked = async || rig.store.stats().await.is_ok_and(|stats| stats.dead_letters > 0);
    wait_until("a dead letter", parked).await;
    let mut found = letters(rig.store.as_ref(), 9).await.expect("the store works");
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}
