//! Messages: processed once, kept for a retry, and independent of each other.

use std::time::Duration;

use saga_core::input::{Input, MessageOutcome, Outcome};
use saga_core::message::Envelope;
use saga_engine::store::StoreFault;

use super::{done, names};
use crate::support::{
    Depot, DepotCommand, EngineHarness, FILLING, LISTENING, Pace, UNLUCKY, UNREADABLE, arrived, due_query,
    id, in_memory, newest_dead_letters, received, shelf, wait_until,
};

#[tokio::test]
async fn repeated_message_is_processed_once() -> Result<(), StoreFault> {
    let harness = listed().await;
    let tea = || received(arrived(id(1), "tea", 3));
    assert_eq!(names(&harness.process_together(vec![tea(), tea()]).await), ["done", "duplicate"]);
    assert_eq!(names(&harness.process_together(vec![tea()]).await), ["duplicate"]);
    assert_eq!(harness.tea().await.pieces, 3);
    assert_eq!(harness.store.message_counts().await?.handled, [("shelf-filling".to_owned(), 1)].into());
    assert_eq!(harness.stats().await.outbox_pending, 1);
    Ok(())
}

/// Guarantee 8.
#[tokio::test]
async fn each_step_processes_a_message_independently() -> Result<(), StoreFault> {
    let harness = listed().await;
    let payload = arrived(id(1), "tea", 3);
    let for_step = |step| Input::<Depot>::message(step, payload.clone(), id(9), 0);
    let outcomes = harness.process_together(vec![for_step(FILLING), for_step(LISTENING)]).await;
    assert_eq!(names(&outcomes), ["done", "done"]);
    assert_eq!(harness.store.message_counts().await?.handled.len(), 2);
    Ok(())
}

/// Guarantee 6.
#[tokio::test]
async fn rejected_message_is_processed() -> Result<(), StoreFault> {
    let harness = listed().await;
    let nothing = || received(arrived(id(1), "tea", 0));
    assert_eq!(names(&harness.process_together(vec![nothing(), nothing()]).await), ["rejected", "duplicate"]);
    let stats = harness.stats().await;
    assert_eq!((stats.retries, stats.dead_letters, stats.outbox_pending), (0, 0, 0));
    Ok(())
}

/// Guarantee 2.
#[tokio::test]
async fn panicking_message_is_dead_lettered_and_its_batch_continues() -> Result<(), StoreFault> {
    let harness = listed().await;
    let tea = |number, pieces| received(arrived(id(number), "tea", pieces));
    let outcomes = harness.process_together(vec![tea(1, 3), tea(2, UNLUCKY), tea(3, 4)]).await;
    assert_eq!(names(&outcomes), ["done", "dead_lettered", "done"]);
    assert_eq!(harness.tea().await.pieces, 7);
    let events = harness.store.events(shelf("tea"), 0, usize::MAX).await?;
    assert_eq!(events.len(), 3, "nothing of the poisoned one");
    assert_eq!(events[1].recorded_at, events[2].recorded_at, "they were one batch");

    let [dead_letter] = &newest_dead_letters(harness.store.as_ref(), 9).await?[..] else {
        panic!("one dead letter")
    };
    assert_eq!((dead_letter.message_id, dead_letter.attempts), (id(2), 1));
    assert!(dead_letter.reason.contains("an unlucky number of pieces"), "{}", dead_letter.reason);
    Ok(())
}

/// Guarantee 2.
#[tokio::test]
async fn message_whose_reads_panic_is_dead_lettered_and_its_batch_continues() -> Result<(), StoreFault> {
    let harness = listed().await;
    let good = |number| received(arrived(id(number), "tea", 3));
    let poison = received(arrived(id(2), UNREADABLE, 1));
    let outcomes = harness.process_together(vec![good(1), poison, good(3)]).await;
    assert_eq!(names(&outcomes), ["done", "dead_lettered", "done"]);
    assert_eq!(harness.tea().await.pieces, 6);
    assert_eq!(harness.store.dead_letters(9).await?.readable.len(), 1);
    Ok(())
}

#[tokio::test]
async fn early_message_is_processed_after_a_retry() -> Result<(), StoreFault> {
    let pace = Pace { attempts: 50, first_delay: Duration::from_millis(20), ..Pace::default() };
    let harness = EngineHarness::over(in_memory(), pace).await;
    let outcome = harness.process_together(vec![received(arrived(id(1), "tea", 3))]).await.remove(0);
    assert!(
        matches!(&outcome, Outcome::Message(MessageOutcome::Retried(why)) if why.contains("not listed yet")),
        "{outcome:?}"
    );
    done(harness.execute(DepotCommand::List("tea")).await);
    wait_until("the message is handled", async || harness.tea().await.pieces == 3).await;

    let stats = harness.stats().await;
    assert_eq!((stats.retries, stats.dead_letters), (0, 0));
    assert_eq!(harness.store.message_counts().await?.handled, [("shelf-filling".to_owned(), 1)].into());
    let again = harness.process_together(vec![received(arrived(id(1), "tea", 3))]).await;
    assert_eq!(names(&again), ["duplicate"]);
    Ok(())
}

/// Guarantee 2: it consumes no attempt.
#[tokio::test]
async fn message_redelivered_while_it_waits_for_a_retry_is_a_duplicate() -> Result<(), StoreFault> {
    let pace = Pace { first_delay: Duration::from_hours(1), ..Pace::default() };
    let harness = EngineHarness::over(in_memory(), pace).await;
    // A jitter that makes the delay long.
    let tea = || {
        let mut input = received(arrived(id(1), "tea", 3));
        input.jitter = u32::MAX;
        input
    };
    assert_eq!(names(&harness.process_together(vec![tea(), tea()]).await), ["retried", "duplicate"]);
    assert_eq!(names(&harness.process_together(vec![tea()]).await), ["duplicate"]);
    let due =
        harness.store.claim_due(due_query(jiff::Timestamp::MAX, 9, "nobody", jiff::Timestamp::MAX)).await?;
    assert_eq!(due.retries.iter().map(|retry| retry.attempts).collect::<Vec<_>>(), [1]);
    Ok(())
}

/// Guarantee 2.
#[tokio::test]
async fn waiting_message_is_processed_after_a_restart() -> Result<(), StoreFault> {
    let pace = Pace { first_delay: Duration::from_millis(50), ..Pace::default() };
    let harness = EngineHarness::over(in_memory(), pace).await;
    let mut early = received(arrived(id(1), "tea", 3));
    early.jitter = u32::MAX;
    let outcomes = harness.process_together(vec![early]).await;
    assert_eq!(names(&outcomes), ["retried"]);
    done(harness.execute(DepotCommand::List("tea")).await);
    let store = harness.store.clone();
    drop(harness);
    let next = EngineHarness::over(store, pace).await;
    wait_until("the message is handled", async || next.tea().await.pieces == 3).await;
    assert_eq!(next.store.stats().await?.retries, 0);
    Ok(())
}

/// Two reactions to one cause derive different ids.
#[tokio::test]
async fn outbox_entries_of_a_message_have_its_causation_id() -> Result<(), StoreFault> {
    let harness = listed().await;
    harness
        .process_together(vec![received(arrived(id(1), "tea", 3)), received(arrived(id(2), "tea", 4))])
        .await;
    let entries = harness.store.pending_entries(9).await?;
    let envelopes: Vec<_> =
        entries.iter().map(|entry| Envelope::from_bytes(&entry.payload).expect("an envelope")).collect();
    let causes: Vec<_> = envelopes.iter().map(|envelope| envelope.causation_id).collect();
    assert_eq!(causes, [id(1), id(2)]);
    assert_ne!(envelopes[0].id, envelopes[1].id);
    let expected = saga_core::ids::message_id(envelopes[0].correlation_id, "depot:shelf-filling", id(1), 0);
    assert_eq!((envelopes[0].id, entries[0].id), (expected, expected));
    assert_eq!(envelopes[0].message_type, "ParcelsStored");
    assert_eq!((&envelopes[0].producer[..], &entries[0].subject[..]), ("depot", "depot.stored"));
    assert_eq!(harness.store.events(shelf("tea"), 0, usize::MAX).await?[1].causation_id, id(1));
    Ok(())
}

/// Depot with a shelf for tea.
async fn listed() -> EngineHarness {
    let harness = EngineHarness::new().await;
    done(harness.execute(DepotCommand::List("tea")).await);
    harness
}
