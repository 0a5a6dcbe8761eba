//! What becomes of messages: handled once, kept for later, never in each other's way.

use std::time::Duration;

use shared::contract::FactType;
use shared::engine::{Input, Outcome};
use shared::envelope::Envelope;
use shared::store::StoreFault;

use super::{done, names};
use crate::support::rig::{Pace, Rig, in_memory};
use crate::support::shop::{FILLING, LISTENING, Shop, ShopCommand, UNLUCKY, UNREADABLE, heard, replenished};
use crate::support::wait_until;
use crate::support::writes::{id, letters, look, shelf, state};

#[tokio::test]
async fn a_message_is_handled_once_however_often_it_comes() -> Result<(), StoreFault> {
    let rig = listed().await;
    let tea = || heard(replenished(id(1), "tea", 3));
    assert_eq!(names(&rig.settle_together(vec![tea(), tea()]).await), ["done", "duplicate"]);
    assert_eq!(names(&rig.settle_together(vec![tea()]).await), ["duplicate"]);
    assert_eq!(pieces(&rig).await?, 3);
    assert_eq!(rig.store.tallies().await?.handled, [("shelf-filling".to_owned(), 1)].into());
    assert_eq!(rig.store.stats().await?.outbox_pending, 1);
    Ok(())
}

/// Law 8: what one step knows says nothing about another.
#[tokio::test]
async fn each_step_handles_the_message_for_itself() -> Result<(), StoreFault> {
    let rig = listed().await;
    let payload = replenished(id(1), "tea", 3);
    let for_step = |step| Input::<Shop>::message(step, payload.clone(), id(9), 0);
    let outcomes = rig.settle_together(vec![for_step(FILLING), for_step(LISTENING)]).await;
    assert_eq!(names(&outcomes), ["done", "done"]);
    assert_eq!(rig.store.tallies().await?.handled.len(), 2);
    Ok(())
}

/// Law 6: the business's no is handled, like a yes.
#[tokio::test]
async fn a_rejected_message_is_handled_and_waits_for_nobody() -> Result<(), StoreFault> {
    let rig = listed().await;
    let nothing = || heard(replenished(id(1), "tea", 0));
    assert_eq!(names(&rig.settle_together(vec![nothing(), nothing()]).await), ["rejected", "duplicate"]);
    let stats = rig.store.stats().await?;
    assert_eq!((stats.retries, stats.dead_letters, stats.outbox_pending), (0, 0, 0));
    Ok(())
}

/// Law 2: the poisoned one is parked, and nobody else notices.
#[tokio::test]
async fn a_message_that_panics_is_parked_and_touches_no_other_of_its_batch() -> Result<(), StoreFault> {
    let rig = listed().await;
    let tea = |number, pieces| heard(replenished(id(number), "tea", pieces));
    let outcomes = rig.settle_together(vec![tea(1, 3), tea(2, UNLUCKY), tea(3, 4)]).await;
    assert_eq!(names(&outcomes), ["done", "dead", "done"]);
    assert_eq!(pieces(&rig).await?, 7);
    let events = rig.store.events(shelf("tea")).await?;
    assert_eq!(events.len(), 3, "nothing of the poisoned one");
    assert_eq!(events[1].recorded_at, events[2].recorded_at, "they were one batch");

    let [letter] = &letters(rig.store.as_ref(), 9).await?[..] else { panic!("one dead letter") };
    assert_eq!((letter.message_id, letter.attempts), (id(2), 1));
    assert!(letter.reason.contains("an unlucky number of pieces"), "{}", letter.reason);
    Ok(())
}

/// Law 2, for a bug in the look at what the message needs.
#[tokio::test]
async fn a_message_whose_reads_panic_is_parked_and_touches_no_other_of_its_batch() -> Result<(), StoreFault> {
    let rig = listed().await;
    let good = |number| heard(replenished(id(number), "tea", 3));
    let poison = heard(replenished(id(2), UNREADABLE, 1));
    let outcomes = rig.settle_together(vec![good(1), poison, good(3)]).await;
    assert_eq!(names(&outcomes), ["done", "dead", "done"]);
    assert_eq!(pieces(&rig).await?, 6);
    assert_eq!(rig.store.dead_letters(9).await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_message_that_comes_too_early_is_handled_when_its_time_has_come() -> Result<(), StoreFault> {
    let pace = Pace { attempts: 50, first_delay: Duration::from_millis(20), ..Pace::default() };
    let rig = Rig::over(in_memory(), pace).await;
    let outcome = rig.settle_together(vec![heard(replenished(id(1), "tea", 3))]).await.remove(0);
    assert!(matches!(&outcome, Outcome::Retried(why) if why.contains("not listed yet")), "{outcome:?}");
    done(rig.ask(ShopCommand::List("tea")).await);
    wait_until("the message is handled", async || pieces(&rig).await.is_ok_and(|pieces| pieces == 3)).await;

    let stats = rig.store.stats().await?;
    assert_eq!((stats.retries, stats.dead_letters), (0, 0));
    assert_eq!(rig.store.tallies().await?.handled, [("shelf-filling".to_owned(), 1)].into());
    let again = rig.settle_together(vec![heard(replenished(id(1), "tea", 3))]).await;
    assert_eq!(names(&again), ["duplicate"]);
    Ok(())
}

/// Law 2: while it waits the broker may bring it again; that is neither a try nor a loss.
#[tokio::test]
async fn a_message_that_waits_for_its_next_try_is_a_duplicate() -> Result<(), StoreFault> {
    let pace = Pace { first_delay: Duration::from_hours(1), ..Pace::default() };
    let rig = Rig::over(in_memory(), pace).await;
    // A roll that makes the delay long.
    let tea = || {
        let mut input = heard(replenished(id(1), "tea", 3));
        input.roll = u32::MAX;
        input
    };
    assert_eq!(names(&rig.settle_together(vec![tea(), tea()]).await), ["retried", "duplicate"]);
    assert_eq!(names(&rig.settle_together(vec![tea()]).await), ["duplicate"]);
    let due = rig.store.due(look(jiff::Timestamp::MAX, 9, "nobody", jiff::Timestamp::MAX)).await?;
    assert_eq!(due.retries.iter().map(|retry| retry.attempts).collect::<Vec<_>>(), [1]);
    Ok(())
}

/// Law 2: waiting survives whoever waits.
#[tokio::test]
async fn a_message_that_waits_is_handled_by_the_next_life() -> Result<(), StoreFault> {
    let pace = Pace { first_delay: Duration::from_millis(50), ..Pace::default() };
    let rig = Rig::over(in_memory(), pace).await;
    let mut early = heard(replenished(id(1), "tea", 3));
    early.roll = u32::MAX;
    let outcomes = rig.settle_together(vec![early]).await;
    assert_eq!(names(&outcomes), ["retried"]);
    done(rig.ask(ShopCommand::List("tea")).await);
    let store = rig.store.clone();
    drop(rig);
    let next = Rig::over(store, pace).await;
    wait_until("the message is handled", async || pieces(&next).await.is_ok_and(|pieces| pieces == 3)).await;
    assert_eq!(next.store.stats().await?.retries, 0);
    Ok(())
}

/// Two reactions to one cause derive different ids, and a reaction repeats its own.
#[tokio::test]
async fn what_a_message_causes_names_it_as_its_cause() -> Result<(), StoreFault> {
    let rig = listed().await;
    rig.settle_together(vec![heard(replenished(id(1), "tea", 3)), heard(replenished(id(2), "tea", 4))]).await;
    let told = rig.store.pending(jiff::Timestamp::now(), 9).await?;
    let envelopes: Vec<_> =
        told.iter().map(|entry| Envelope::from_bytes(&entry.payload).expect("an envelope")).collect();
    let causes: Vec<_> = envelopes.iter().map(|envelope| envelope.causation_id).collect();
    assert_eq!(causes, [id(1), id(2)]);
    assert_ne!(envelopes[0].id, envelopes[1].id);
    let expected = shared::ids::message_id("order:shelf-filling", id(1), 0);
    assert_eq!((envelopes[0].id, told[0].id), (expected, expected));
    assert_eq!(envelopes[0].message_type, FactType::OrderConfirmed.name());
    assert_eq!((&envelopes[0].producer[..], &told[0].subject[..]), ("order", "order.confirmed"));
    assert_eq!(rig.store.events(shelf("tea")).await?[1].causation_id, id(1));
    Ok(())
}

/// A shop with a shelf for tea.
async fn listed() -> Rig {
    let rig = Rig::new().await;
    done(rig.ask(ShopCommand::List("tea")).await);
    rig
}

async fn pieces(rig: &Rig) -> Result<i64, StoreFault> {
    Ok(state(rig.store.as_ref(), "tea").await?.map_or(0, |shelf| shelf.pieces))
}
