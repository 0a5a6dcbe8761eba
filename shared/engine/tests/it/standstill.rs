//! Steps that make no progress although messages wait: noticed after a while, and told with what waits and since when.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use saga_core::fault::FaultKind;
use saga_core::service::Step;
use saga_engine::nats::NatsBus;
use saga_engine::runtime::admission::BreakerAction;
use saga_engine::runtime::bus::{BusError, Waiting};
use saga_engine::runtime::clock::SystemClock;
use saga_engine::runtime::faults::NewFault;
use saga_engine::runtime::standstill::{self, Share, Sight, Standstill, Standstills, judge};

use crate::broker::consuming::{listening, say, waiting};
use crate::support::{
    Depot, DepotCommand, Disk, EngineHarness, FILLING, LISTENING, Nats, Pace, fault_of, in_time, wait_until,
};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const LIMIT: Duration = Duration::from_secs(15);

fn after(seconds: i64) -> Timestamp {
    NOW + SignedDuration::from_secs(seconds)
}

fn sight(undelivered: u64) -> Sight {
    Sight {
        has_moved: false,
        is_shut: false,
        is_paused: false,
        share: Share::Whole,
        has_some: false,
        waiting: Ok(Waiting { undelivered, ..Waiting::default() }),
    }
}

fn delivered(delivered: u64) -> Result<Waiting, BusError> {
    Ok(Waiting { delivered, ..Waiting::default() })
}

#[test]
fn a_step_stands_still_when_messages_wait_and_neither_it_moves_nor_anything_holds_it_back() {
    let unknown = || Err("no consumer".to_owned());
    let cases = [
        (sight(0), false),
        (sight(1), true),
        // It alone has it, or has lost it.
        (Sight { waiting: delivered(1), ..sight(0) }, true),
        (Sight { has_moved: true, ..sight(1) }, false),
        (Sight { is_shut: true, ..sight(1) }, false),
        (Sight { waiting: unknown(), ..sight(0) }, true),
        (Sight { waiting: unknown(), is_shut: true, ..sight(0) }, false),
        (Sight { is_paused: true, ..sight(1) }, true),
        (Sight { is_paused: true, ..sight(0) }, false),
    ];
    for (sight, stands) in cases {
        assert_eq!(judge(None, sight.clone(), NOW).is_some(), stands, "{sight:?}");
    }
}

/// What one of several processes has is its own affair; what nobody has, and what is not known, is everybody's.
#[test]
fn of_several_processes_one_answers_for_what_it_has_and_for_what_it_could_take() {
    let shared = |undelivered| Sight { share: Share::Equal, ..sight(undelivered) };
    let full = |undelivered| Ok(Waiting { undelivered, delivered: 9, is_full: true });
    let cases = [
        (shared(0), false),
        (shared(1), true),
        (Sight { waiting: delivered(9), ..shared(0) }, false),
        (Sight { waiting: delivered(9), has_some: true, ..shared(0) }, true),
        (Sight { waiting: delivered(0), has_some: true, ..shared(0) }, false),
        (Sight { waiting: full(5), ..shared(0) }, false),
        (Sight { waiting: full(5), has_some: true, ..shared(0) }, true),
        (Sight { waiting: Err("no consumer".to_owned()), ..shared(0) }, true),
        (Sight { share: Share::Rest, ..shared(1) }, false),
        (Sight { share: Share::Rest, waiting: full(5), has_some: true, ..shared(0) }, true),
        (Sight { has_moved: true, has_some: true, ..shared(1) }, false),
        (Sight { is_paused: true, ..shared(1) }, true),
    ];
    for (sight, stands) in cases {
        assert_eq!(judge(None, sight.clone(), NOW).is_some(), stands, "{sight:?}");
    }
}

#[test]
fn a_standstill_counts_from_the_first_look_on_and_ends_with_the_first_message_settled() {
    let first = judge(None, sight(3), NOW);
    let later = judge(first.as_ref(), sight(5), after(9));
    assert_eq!(later, Some(Standstill { since: NOW, is_paused: false, waiting: Ok(5) }));
    assert_eq!(judge(later.as_ref(), Sight { has_moved: true, ..sight(5) }, after(10)), None);
}

#[test]
fn a_standstill_is_told_after_its_time_and_not_before() {
    let standstills = Standstills::default();
    standstills.look("shelf-filling", sight(3), NOW);
    standstills.look("shelf-listening", sight(0), NOW);
    standstills.look("shelf-filling", sight(5), after(15));
    assert_eq!(standstills.in_words(LIMIT, after(15)), None);
    let told = "shelf-filling stands still: 5 messages wait, none settled since 1970-01-01T00:00:00Z";
    assert_eq!(standstills.in_words(LIMIT, after(16)).as_deref(), Some(told));
    standstills.forget();
    assert_eq!(standstills.in_words(LIMIT, after(17)), None);
}

/// It is as it was told to be, which is no complaint; when the pause ends it has its time to begin.
#[test]
fn a_standstill_by_an_injected_pause_is_known_and_no_complaint() {
    let standstills = Standstills::default();
    let known = |at| standstills.since("shelf-filling", LIMIT, at);
    let paused = || Sight { is_paused: true, ..sight(3) };
    standstills.look("shelf-filling", paused(), NOW);
    standstills.look("shelf-filling", paused(), after(16));
    assert_eq!((known(after(16)), standstills.in_words(LIMIT, after(16))), (Some(NOW), None));
    standstills.look("shelf-filling", sight(3), after(17));
    assert_eq!((known(after(18)), standstills.in_words(LIMIT, after(18))), (None, None));
}

/// With a real broker: what waits is known wherever it waits, and the other step is not blamed.
#[tokio::test]
async fn a_step_that_is_stuck_is_told_until_it_moves() {
    let nats = Nats::start().await;
    let bus = nats.bus().await;
    let mut harness = listening(&bus, Pace::default()).await;
    let standstills = watched(&mut harness, &bus);
    let told = || standstills.in_words(Duration::from_millis(200), Timestamp::now());
    // Longer than the limit, as a hanging reaction would take.
    let slow = NewFault { delay_ms: Some(2_000), ..fault_of(FILLING, FaultKind::DELAY) };
    let slow = harness.faults.inject(slow).expect("faults are on");
    say(&bus, 1..=3).await;
    harness.has_handled(LISTENING, 3).await;
    let prefix = "shelf-filling stands still: 3 messages wait, none settled since ";
    let is_told = |words: String| words.starts_with(prefix) && !words.contains(LISTENING.name);
    wait_until("it alone is told", async || told().is_some_and(is_told)).await;
    assert!(harness.faults.remove(slow.id));
    harness.has_handled(FILLING, 3).await;
    wait_until("nothing stands still", async || told().is_none()).await;
}

/// Two processes on one consumer, of which one has the message: the other has nothing to answer for.
#[tokio::test]
async fn a_step_that_is_stuck_at_one_process_is_told_by_that_one_alone() {
    let nats = Nats::start().await;
    let bus = nats.bus().await;
    let mut stuck = listening(&bus, Pace::default()).await;
    let mut idle = listening(&bus, Pace::default()).await;
    let (by_stuck, by_idle) = (watched_beside(&mut stuck, &bus), watched_beside(&mut idle, &bus));
    let slow = || NewFault { delay_ms: Some(600_000), ..fault_of(FILLING, FaultKind::DELAY) };
    let both = [&stuck, &idle].map(|harness| harness.faults.inject(slow()).expect("faults are on").id);
    say(&bus, 1..=1).await;
    // For so long that the other has looked several times.
    let is_told = |standstills: &Standstills| {
        let words = standstills.in_words(Duration::from_secs(1), Timestamp::now()).unwrap_or_default();
        words.contains("shelf-filling stands still: 1 messages")
    };
    wait_until("one of them tells", async || is_told(&by_stuck) || is_told(&by_idle)).await;
    let other = if is_told(&by_stuck) { &by_idle } else { &by_stuck };
    assert_eq!(told(other), "", "it has nothing, and there is nothing to be had");
    // Once there is something to be had that it does not take, it is asked about that too.
    assert!(stuck.faults.remove(both[0]) && idle.faults.remove(both[1]));
    let stream = bus.jetstream().get_stream("COURIER").await.expect("the stream");
    let until = std::time::SystemTime::now() + Duration::from_secs(3_600);
    stream.pause_consumer(FILLING.name, until.into()).await.expect("it can be paused");
    say(&bus, 2..=2).await;
    wait_until("both tell", async || !told(&by_stuck).is_empty() && !told(&by_idle).is_empty()).await;
}

/// A consumer that somebody paused at the broker: nothing comes, and nobody says why.
#[tokio::test]
async fn a_step_whose_consumer_is_paused_at_the_broker_is_told() {
    let nats = Nats::start().await;
    let bus = nats.bus().await;
    let mut harness = listening(&bus, Pace::default()).await;
    let standstills = watched(&mut harness, &bus);
    say(&bus, 1..=1).await;
    harness.has_handled(FILLING, 1).await;
    let stream = bus.jetstream().get_stream("COURIER").await.expect("the stream");
    let until = std::time::SystemTime::now() + Duration::from_secs(3_600);
    stream.pause_consumer(FILLING.name, until.into()).await.expect("it can be paused");
    say(&bus, 2..=4).await;
    is_told(&standstills, "shelf-filling stands still: 3 messages wait").await;
    lags(&harness, "3.0").await;
    stream.resume_consumer(FILLING.name).await.expect("it can be resumed");
    harness.has_handled(FILLING, 4).await;
    wait_until("nothing stands still", async || told(&standstills).is_empty()).await;
}

/// A consumer that is gone from the broker, which lets nobody make it again.
#[tokio::test]
async fn a_step_whose_consumer_is_gone_and_cannot_be_made_again_is_told() {
    let mut nats = Nats::start().await;
    let bus = nats.bus().await;
    let mut harness = listening(&bus, Pace::default()).await;
    let standstills = watched(&mut harness, &bus);
    say(&bus, 1..=1).await;
    harness.has_handled(FILLING, 1).await;
    nats.restart_denying("$JS.API.CONSUMER.CREATE.>").await;
    let deleted = async || bus.jetstream().delete_consumer_from_stream(FILLING.name, "COURIER").await.is_ok();
    wait_until("it is deleted", deleted).await;
    is_told(&standstills, "shelf-filling settles nothing since ").await;
    // Not what it was when the broker last said.
    lags(&harness, "NaN").await;
}

/// A database that takes nothing: what is delivered is tried, and comes again and again.
#[tokio::test]
async fn a_step_whose_database_takes_nothing_is_told() {
    let nats = Nats::start().await;
    let bus = nats.bus().await;
    let disk = Disk::new();
    let mut harness = EngineHarness::over(disk.store(), Pace::default()).await;
    harness.ask(DepotCommand::List("tea")).await;
    harness.listens(&bus, FILLING);
    let standstills = watched(&mut harness, &bus);
    disk.refuses("outbox", "ABORT");
    disk.refuses("retry", "ABORT");
    say(&bus, 1..=1).await;
    is_told(&standstills, "shelf-filling stands still: 1 messages wait").await;
    disk.works("outbox");
    disk.works("retry");
    harness.has_handled(FILLING, 1).await;
    wait_until("nothing stands still", async || !told(&standstills).contains(FILLING.name)).await;
}

async fn is_told(standstills: &Standstills, words: &str) {
    wait_until("it is told", async || told(standstills).contains(words)).await;
}

fn told(standstills: &Standstills) -> String {
    standstills.in_words(Duration::from_millis(200), Timestamp::now()).unwrap_or_default()
}

/// What is held back on purpose does not stand still.
#[tokio::test]
async fn a_step_behind_an_open_breaker_is_not_told() {
    let nats = Nats::start().await;
    let bus = nats.bus().await;
    let mut harness = listening(&bus, Pace::default()).await;
    let standstills = watched(&mut harness, &bus);
    say(&bus, 1..=1).await;
    harness.has_handled(FILLING, 1).await;
    wait_until("it is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    harness.turn(FILLING.name, BreakerAction::Open);
    say(&bus, 2..=4).await;
    harness.has_handled(LISTENING, 4).await;
    let is_known = async || waiting(&bus, FILLING).await == 3;
    wait_until("messages wait", is_known).await;
    // Over several looks.
    let watched = async {
        let until = tokio::time::Instant::now() + Duration::from_secs(1);
        while tokio::time::Instant::now() < until {
            let words = standstills.in_words(Duration::ZERO, Timestamp::now()).unwrap_or_default();
            assert!(!words.contains(FILLING.name), "{words}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time("several looks", watched).await;
}

/// Waits until this is shown of the messages that wait for a step.
async fn lags(harness: &EngineHarness, messages: &str) {
    let line = format!("consumer_lag_messages{{consumer=\"{}\"}} {messages}\n", FILLING.name);
    wait_until(&line, async || harness.metrics.text().expect("metrics").contains(&line)).await;
}

fn watched(harness: &mut EngineHarness, bus: &NatsBus) -> Standstills {
    watched_as(harness, bus, Share::Whole)
}

/// As one of several processes.
fn watched_beside(harness: &mut EngineHarness, bus: &NatsBus) -> Standstills {
    watched_as(harness, bus, Share::Equal)
}

fn watched_as(harness: &mut EngineHarness, bus: &NatsBus, share: Share) -> Standstills {
    let standstills = Standstills::default();
    let steps = [FILLING, LISTENING].map(|step: &'static Step| harness.step(step).clone());
    let limit = Duration::from_millis(500);
    let (bus, told) = (bus.clone(), standstills.clone());
    let (clock, observer) = (Arc::new(SystemClock), Arc::new(harness.metrics.clone()));
    let watching =
        standstill::run::<Depot, _>(bus, steps.to_vec(), move || share, told, limit, clock, observer);
    harness.runs(watching);
    standstills
}
