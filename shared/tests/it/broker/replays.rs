//! An operator's wish on its way from admin's stream to the one service it is for.

use bytes::Bytes;
use shared::bus::{Bus, Publish as _, Publisher};
use shared::contract::Fact;
use shared::store::{LetterStatus, OutboxEntry};
use uuid::Uuid;

use super::all_done;
use super::consuming::{handled, listening, pieces, say};
use crate::support::nats::Nats;
use crate::support::rig::{Pace, Rig, no_faults};
use crate::support::shop::{FILLING, LISTENING, OPERATING, ShopCommand};
use crate::support::wait_until;
use crate::support::wishes::{discard, payload, replay};
use crate::support::writes::letters;

/// Law 8, from the broker to the broker: parked, handed back through admin's stream, handled once, and announced;
/// whoever else heard the message hears nothing, and wishes for other services never arrive.
#[tokio::test]
async fn a_wish_reaches_the_service_it_is_for_and_the_step_that_failed() {
    let nats = Nats::start().await;
    let bus = nats.bus().await;
    let mut rig = Rig::over(crate::support::rig::in_memory(), Pace { attempts: 1, ..Pace::default() }).await;
    for step in [FILLING, LISTENING, OPERATING] {
        rig.listens(&bus, step);
    }
    say(&bus, 1..=3).await;
    handled(&rig, LISTENING, 3).await;
    let are_parked = async || rig.store.stats().await.is_ok_and(|stats| stats.dead_letters == 3);
    wait_until("all are parked", are_parked).await;
    rig.ask(ShopCommand::List("tea")).await;
    let parked = letters(rig.store.as_ref(), 9).await.expect("the store works");
    let [first, second, third] = [0, 1, 2].map(|index: usize| parked[index].id);

    // Each of them twice, as a broker may bring them, with somebody else's between.
    let mut elsewhere = replay(third, 1);
    if let Fact::ReplayRequested(wish) = &mut elsewhere {
        wish.service = "payment".to_owned();
    }
    let wishes = [replay(first, 1), elsewhere, discard(second, 1), replay(first, 1)];
    wish(&bus, &wishes).await;
    handled(&rig, FILLING, 1).await;
    handled(&rig, OPERATING, 2).await;
    let statuses = async || {
        let letters = rig.store.dead_letters(9).await.expect("the store works");
        [first, second, third]
            .map(|id| letters.iter().find(|stored| stored.letter.id == id).map(|stored| stored.status))
    };
    use LetterStatus::{Discarded, Pending, Resolved};
    wait_until("the wishes are fulfilled", async || {
        statuses().await == [Some(Resolved), Some(Discarded), Some(Pending)]
    })
    .await;
    assert_eq!(pieces(&rig).await, 1);
    handled(&rig, LISTENING, 3).await;
}

/// Two operators in two browsers: their wishes come together, and the message is handled once.
#[tokio::test]
async fn wishes_that_come_all_at_once_hand_a_message_back_once() {
    let nats = Nats::start().await;
    let bus = nats.bus().await;
    let mut rig = listening(&bus, Pace { attempts: 1, ..Pace::default() }).await;
    let ack = bus.jetstream().publish("inventory.stock_replenished", Bytes::from_static(b"x")).await;
    ack.expect("published").await.expect("stored");
    let are_parked = async || rig.store.stats().await.is_ok_and(|stats| stats.dead_letters == 2);
    wait_until("it is parked by both steps", are_parked).await;
    let parked = letters(rig.store.as_ref(), 9).await.expect("the store works");
    let letter = parked.iter().find(|letter| letter.step == FILLING.name).expect("its letter");
    rig.listens(&bus, OPERATING);
    let wishes: Vec<_> = (1..=40).map(|revision| replay(letter.id, revision)).collect();
    wish(&bus, &wishes).await;
    handled(&rig, OPERATING, 40).await;
    let is_parked_again = async || {
        let letters = rig.store.dead_letters(9).await.expect("the store works");
        let stored = letters.into_iter().find(|stored| stored.letter.id == letter.id).expect("its letter");
        let is_idle = rig.store.stats().await.is_ok_and(|stats| stats.retries == 0);
        (stored.status == LetterStatus::Pending && is_idle).then_some(stored)
    };
    wait_until("it failed again", async || is_parked_again().await.is_some()).await;
    let stored = is_parked_again().await.expect("it is idle");
    assert_eq!(stored.revision, 40);
    assert!((1..=40).contains(&stored.letter.replays), "{}", stored.letter.replays);
    assert_eq!(stored.letter.attempts, 1 + stored.letter.replays, "each replay was one try");
}

/// Admin's outbox, published.
async fn wish(bus: &Bus, wishes: &[Fact]) {
    let entry = |(number, fact): (usize, &Fact)| OutboxEntry {
        seq: i64::try_from(number).expect("a small number"),
        id: Uuid::now_v7(),
        subject: fact.subject("admin"),
        payload: payload(fact),
    };
    let entries: Vec<_> = wishes.iter().enumerate().map(entry).collect();
    all_done(Publisher::new(bus.clone(), "admin", no_faults()).publish(&entries).await);
}
