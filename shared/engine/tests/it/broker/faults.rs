//! Injected faults of publishing and consuming.

use bytes::Bytes;
use saga_core::dead_letter::{DeadLetterOrigin, DeadLetterStatus};
use saga_core::fault::FaultKind;
use saga_engine::nats::Publisher;
use saga_engine::runtime::bus::Publish as _;
use saga_engine::runtime::injected_faults::{InjectedFaults, NewFault};

use super::all_done;
use super::consuming::{courier_entry, listening, say, waiting};
use crate::support::{
    EngineHarness, FILLING, LISTENING, Nats, Pace, commanded, fault, fault_of, faults, newest_dead_letters,
    replay, stored, wait_until,
};

/// Guarantee 4: the broker cannot recognise the copy.
#[tokio::test]
async fn message_published_twice_is_processed_once() {
    let (_nats, bus) = Nats::with_bus().await;
    let harness = listening(&bus, Pace::default()).await;
    let faults = injected(NewFault { next: Some(4), ..fault(FaultKind::PUBLISH_TWICE) });
    let publisher = Publisher::new(bus.clone(), "courier", faults.clone());
    let entries: Vec<_> = (1..=20).map(courier_entry).collect();
    all_done(publisher.publish(&entries[..2]).await);
    all_done(publisher.publish(&entries[2..]).await);
    assert_eq!(faults.view().faults, [], "it struck as often as it was told");
    let stored_messages = stored(&bus, "COURIER").await;
    assert_eq!(stored_messages.len(), 24);
    for message in stored_messages.iter().filter(|message| message.id.is_nil()) {
        assert!(stored_messages.iter().any(|other| !other.id.is_nil() && other.payload == message.payload));
    }
    harness.has_handled(FILLING, 20).await;
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    assert_eq!(harness.tea().await.pieces, 20);
    assert_eq!(harness.stats().await.dead_letters, 0);
}

/// Guarantee 2.
#[tokio::test]
async fn published_garbage_is_dead_lettered_and_other_messages_are_processed() {
    let (_nats, bus) = Nats::with_bus().await;
    let harness = listening(&bus, Pace::default()).await;
    let faults = injected(NewFault { next: Some(2), ..fault(FaultKind::PUBLISH_GARBAGE) });
    let entries: Vec<_> = (1..=5).map(courier_entry).collect();
    all_done(Publisher::new(bus.clone(), "courier", faults).publish(&entries).await);
    assert_eq!(stored(&bus, "COURIER").await.len(), 5 + 2);
    harness.has_handled(FILLING, 5).await;
    harness.has_handled(LISTENING, 5).await;
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    let dead_letters = newest_dead_letters(harness.store.as_ref(), 9).await.expect("the store works");
    let of_filling = dead_letters.iter().filter(|dead_letter| dead_letter.step == FILLING.name);
    assert_eq!(of_filling.clone().count(), 2);
    assert!(of_filling.clone().all(|dead_letter| dead_letter.origin == DeadLetterOrigin::Foreign));
    // In the tallies of the messages there are five.
    let counts = harness.store.message_counts().await.expect("the store works");
    assert_eq!(counts.dead, [].into());
}

#[tokio::test]
async fn injected_copy_is_published_only_of_accepted_messages() {
    let (_nats, bus) = Nats::with_bus().await;
    let mut entries: Vec<_> = (1..=3).map(courier_entry).collect();
    // Too large for the broker; a bare copy without its header would just fit.
    entries[0].payload = Bytes::from(vec![b'x'; 1024 * 1024 - 10]);
    let faults = injected(fault(FaultKind::PUBLISH_TWICE));
    let published = Publisher::new(bus.clone(), "courier", faults).publish(&entries).await;
    assert_eq!((published.done, published.rejected.len()), (vec![2, 3], 1));
    let stored_messages = stored(&bus, "COURIER").await;
    let twice: Vec<_> =
        stored_messages.iter().filter(|message| message.id.is_nil()).map(|it| it.payload.len()).collect();
    assert!(twice.iter().all(|length| *length < 1000), "{twice:?}");
    assert_eq!(twice.len(), 2);
}

/// Guarantee 8: the replay is no duplicate.
#[tokio::test]
async fn message_dead_lettered_by_a_fault_can_be_replayed_after_it() {
    let (_nats, bus) = Nats::with_bus().await;
    let harness = listening(&bus, Pace::default()).await;
    let killing = NewFault { next: Some(2), ..fault_of(FILLING, FaultKind::FAIL_PERMANENTLY) };
    harness.faults.inject(killing).expect("faults are on");
    say(&bus, 1..=5).await;
    harness.has_handled(FILLING, 3).await;
    harness.has_handled(LISTENING, 5).await;
    assert_eq!(harness.faults.view().faults, []);
    let dead_letters = newest_dead_letters(harness.store.as_ref(), 9).await.expect("the store works");
    assert_eq!(dead_letters.len(), 2);
    for dead_letter in dead_letters {
        assert!(dead_letter.reason.contains("injected"), "{}", dead_letter.reason);
        assert_eq!(dead_letter.delivery.map(|index| index.stream), Some("COURIER".to_owned()));
        harness.process_together(vec![commanded(&replay(dead_letter.id, 1))]).await;
    }
    harness.has_handled(FILLING, 5).await;
    harness.has_handled(LISTENING, 5).await;
    assert_eq!(harness.tea().await.pieces, 5);
    let all = harness.store.dead_letters(9).await.expect("the store works").readable;
    assert!(all.iter().all(|stored| stored.status == DeadLetterStatus::Resolved), "{all:?}");
}

#[tokio::test]
async fn delayed_step_delays_no_other_step() {
    let (_nats, bus) = Nats::with_bus().await;
    let harness: EngineHarness = listening(&bus, Pace::default()).await;
    let slow = NewFault { delay_ms: Some(300), ..fault_of(FILLING, FaultKind::DELAY) };
    harness.faults.inject(slow).expect("faults are on");
    let began = std::time::Instant::now();
    say(&bus, 1..=50).await;
    harness.has_handled(LISTENING, 50).await;
    harness.has_handled(FILLING, 50).await;
    let took = began.elapsed();
    assert!(took >= std::time::Duration::from_millis(300), "{took:?}");
    assert!(took < std::time::Duration::from_millis(300 * 25), "not one after the other: {took:?}");
    assert_eq!(harness.tea().await.pieces, 50);
}

fn injected(new: NewFault) -> InjectedFaults {
    let faults = faults(true, vec![]);
    faults.inject(new).expect("faults are on");
    faults
}
