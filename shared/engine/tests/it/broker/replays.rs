//! Operator commands on their way from admin's stream to a service.

use std::time::Duration;

use bytes::Bytes;
use saga_core::dead_letter::{DeadLetterMessage, DeadLetterStatus};
use saga_core::fault::FaultKind;
use saga_core::message::Message as _;
use saga_engine::nats::{NatsBus, Publisher};
use saga_engine::runtime::bus::Publish as _;
use saga_engine::store::OutboxEntry;
use uuid::Uuid;

use super::all_done;
use super::consuming::{listening, say};
use crate::support::{
    DepotCommand, EngineHarness, FILLING, LISTENING, Nats, Pace, discard, fault_of, for_another, in_memory,
    newest_dead_letters, no_faults, operating, payload, replay, wait_until,
};

/// Guarantee 8: commands for other services never arrive.
#[tokio::test]
async fn replay_command_reaches_only_its_service_and_the_step_that_failed() {
    let (_nats, bus) = Nats::with_bus().await;
    let mut harness = EngineHarness::over(in_memory(), Pace { attempts: 1, ..Pace::default() }).await;
    for step in [FILLING, LISTENING, operating()] {
        harness.listens(&bus, step);
    }
    say(&bus, 1..=3).await;
    harness.has_handled(LISTENING, 3).await;
    let are_dead_lettered = async || harness.stats().await.dead_letters == 3;
    wait_until("all are parked", are_dead_lettered).await;
    harness.execute(DepotCommand::List("tea")).await;
    let dead_letters = newest_dead_letters(harness.store.as_ref(), 9).await.expect("the store works");
    let [first, second, third] = [0, 1, 2].map(|index: usize| dead_letters[index].id);

    // Each of them twice, as a broker may bring them, with somebody else's between.
    let elsewhere = for_another(replay(third, 1));
    let commands = [replay(first, 1), elsewhere, discard(second, 1), replay(first, 1)];
    say_commands(&bus, &commands).await;
    harness.has_handled(FILLING, 1).await;
    harness.has_handled(operating(), 2).await;
    let statuses = async || {
        let dead_letters = harness.store.dead_letters(9).await.expect("the store works").readable;
        [first, second, third].map(|id| {
            dead_letters.iter().find(|stored| stored.dead_letter.id == id).map(|stored| stored.status)
        })
    };
    use DeadLetterStatus::{Discarded, Pending, Resolved};
    wait_until("the commands are fulfilled", async || {
        statuses().await == [Some(Resolved), Some(Discarded), Some(Pending)]
    })
    .await;
    assert_eq!(harness.tea().await.pieces, 1);
    harness.has_handled(LISTENING, 3).await;
}

#[tokio::test]
async fn simultaneous_replay_commands_replay_a_message_once() {
    let (_nats, bus) = Nats::with_bus().await;
    let mut harness =
        listening(&bus, Pace { attempts: 1, poll: Duration::from_millis(20), ..Pace::default() }).await;
    let ack = bus.jetstream().publish("courier.parcels_arrived", Bytes::from_static(b"x")).await;
    ack.expect("published").await.expect("stored");
    let are_dead_lettered = async || harness.stats().await.dead_letters == 2;
    wait_until("it is parked by both steps", are_dead_lettered).await;
    let dead_letters = newest_dead_letters(harness.store.as_ref(), 9).await.expect("the store works");
    let dead_letter =
        dead_letters.iter().find(|dead_letter| dead_letter.step == FILLING.name).expect("its dead letter");
    harness.listens(&bus, operating());
    // All of them come before the message is tried again.
    let pause = harness.faults.inject(fault_of(FILLING, FaultKind::PAUSE)).expect("faults are on");
    let commands: Vec<_> = (1..=40).map(|revision| replay(dead_letter.id, revision)).collect();
    say_commands(&bus, &commands).await;
    harness.has_handled(operating(), 40).await;
    assert!(harness.faults.remove(pause.id));
    let is_dead_lettered_again = async || {
        let dead_letters = harness.store.dead_letters(9).await.expect("the store works").readable;
        let stored = dead_letters
            .into_iter()
            .find(|stored| stored.dead_letter.id == dead_letter.id)
            .expect("its dead letter");
        let is_idle = harness.stats().await.retries == 0;
        (stored.status == DeadLetterStatus::Pending && is_idle).then_some(stored)
    };
    wait_until("it failed again", async || is_dead_lettered_again().await.is_some()).await;
    let stored = is_dead_lettered_again().await.expect("it is idle");
    assert_eq!(
        (stored.dead_letter.replays, stored.dead_letter.attempts),
        (1, 2),
        "handed back once, tried once"
    );
}

/// Publishes commands as admin's outbox does.
async fn say_commands(bus: &NatsBus, commands: &[DeadLetterMessage]) {
    let entry = |(number, message): (usize, &DeadLetterMessage)| OutboxEntry {
        trace: None,
        is_repetition: false,
        seq: i64::try_from(number).expect("a small number"),
        id: Uuid::now_v7(),
        saga: Uuid::now_v7(),
        subject: message.subject("admin"),
        payload: payload(message),
    };
    let entries: Vec<_> = commands.iter().enumerate().map(entry).collect();
    all_done(Publisher::new(bus.clone(), "admin", no_faults()).publish(&entries).await);
}
