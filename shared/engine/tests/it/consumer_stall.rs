//! Consumer stalls: reported after a time, with the number of waiting messages and the start.

use std::sync::Arc;
use std::time::Duration;

use saga_core::fault::FaultKind;
use saga_core::service::Step;
use saga_engine::nats::{BusSettings, NatsBus};
use saga_engine::runtime::admission::BreakerAction;
use saga_engine::runtime::bus::{Backlog, BusError};
use saga_engine::runtime::clock::SystemClock;
use saga_engine::runtime::consumer_stall::{
    self, ConsumerStall, ConsumerStalls, Observation, ReplicaRole, StallWatch, assess,
};
use saga_engine::runtime::injected_faults::NewFault;
use tokio::time::Instant;

use crate::broker::consuming::{listening, say, waiting};
use crate::support::{
    Depot, DepotCommand, Disk, EngineHarness, FILLING, LISTENING, Nats, Pace, fault_of, in_time, moment,
    wait_until,
};

const LIMIT: Duration = Duration::from_secs(15);

fn observation(undelivered: u64) -> Observation {
    Observation {
        has_progressed: false,
        is_blocked: false,
        is_paused: false,
        role: ReplicaRole::Only,
        has_own: false,
        backlog: Ok(Backlog { undelivered, ..Backlog::default() }),
    }
}

fn unacknowledged(unacknowledged: u64) -> Result<Backlog, BusError> {
    Ok(Backlog { unacknowledged, ..Backlog::default() })
}

#[test]
fn step_is_stalled_when_messages_wait_and_it_neither_progresses_nor_is_blocked() {
    let unknown = || Err("no consumer".to_owned());
    let cases = [
        (observation(0), false),
        (observation(1), true),
        // In flight here, or lost here.
        (Observation { backlog: unacknowledged(1), ..observation(0) }, true),
        (Observation { has_progressed: true, ..observation(1) }, false),
        (Observation { is_blocked: true, ..observation(1) }, false),
        (Observation { backlog: unknown(), ..observation(0) }, true),
        (Observation { backlog: unknown(), is_blocked: true, ..observation(0) }, false),
        (Observation { is_paused: true, ..observation(1) }, true),
        (Observation { is_paused: true, ..observation(0) }, false),
    ];
    for (observation, stands) in cases {
        assert_eq!(assess(None, observation.clone(), moment(0)).is_some(), stands, "{observation:?}");
    }
}

#[test]
fn replica_answers_for_its_own_and_for_deliverable_messages() {
    let shared = |undelivered| Observation { role: ReplicaRole::Peer, ..observation(undelivered) };
    let full = |undelivered| Ok(Backlog { undelivered, unacknowledged: 9, is_full: true });
    let cases = [
        (shared(0), false),
        (shared(1), true),
        (Observation { backlog: unacknowledged(9), ..shared(0) }, false),
        (Observation { backlog: unacknowledged(9), has_own: true, ..shared(0) }, true),
        (Observation { backlog: unacknowledged(0), has_own: true, ..shared(0) }, false),
        (Observation { backlog: full(5), ..shared(0) }, false),
        (Observation { backlog: full(5), has_own: true, ..shared(0) }, true),
        (Observation { backlog: Err("no consumer".to_owned()), ..shared(0) }, true),
        (Observation { role: ReplicaRole::Follower, ..shared(1) }, false),
        (Observation { role: ReplicaRole::Follower, backlog: full(5), has_own: true, ..shared(0) }, true),
        (Observation { has_progressed: true, has_own: true, ..shared(1) }, false),
        (Observation { is_paused: true, ..shared(1) }, true),
    ];
    for (observation, stands) in cases {
        assert_eq!(assess(None, observation.clone(), moment(0)).is_some(), stands, "{observation:?}");
    }
}

#[test]
fn stall_starts_with_its_first_observation_and_ends_with_progress() {
    let first = assess(None, observation(3), moment(0));
    let later = assess(first.as_ref(), observation(5), moment(9));
    assert_eq!(later, Some(ConsumerStall { since: moment(0), is_paused: false, waiting: Ok(5) }));
    assert_eq!(
        assess(later.as_ref(), Observation { has_progressed: true, ..observation(5) }, moment(10)),
        None
    );
}

#[test]
fn stall_is_described_only_after_its_limit() {
    let stalls = ConsumerStalls::default();
    stalls.record("shelf-filling", observation(3), moment(0));
    stalls.record("shelf-listening", observation(0), moment(0));
    stalls.record("shelf-filling", observation(5), moment(15));
    assert_eq!(stalls.describe(LIMIT, moment(15).instant), None);
    let text = "shelf-filling is stalled: 5 messages wait, none processed since 1970-01-01T00:00:00Z";
    assert_eq!(stalls.describe(LIMIT, moment(16).instant).as_deref(), Some(text));
    stalls.clear();
    assert_eq!(stalls.describe(LIMIT, moment(17).instant), None);
}

#[test]
fn paused_step_has_a_stall_start_but_no_description_and_starts_anew_after_the_pause() {
    let stalls = ConsumerStalls::default();
    let waiting = |at| stalls.stalled_since("shelf-filling", LIMIT, moment(at).instant);
    let paused = || Observation { is_paused: true, ..observation(3) };
    stalls.record("shelf-filling", paused(), moment(0));
    stalls.record("shelf-filling", paused(), moment(16));
    assert_eq!((waiting(16), stalls.describe(LIMIT, moment(16).instant)), (Some(moment(0).time), None));
    stalls.record("shelf-filling", observation(3), moment(17));
    assert_eq!((waiting(18), stalls.describe(LIMIT, moment(18).instant)), (None, None));
}

#[tokio::test]
async fn hanging_step_is_described_until_it_progresses_and_the_other_step_is_not() {
    let (_nats, bus) = Nats::with_bus().await;
    let mut harness = listening(&bus, Pace::default()).await;
    let stalls = watched(&mut harness, &bus);
    let description = || stalls.describe(Duration::from_millis(200), Instant::now());
    // Longer than the limit, as a hanging handler would take.
    let slow = NewFault { delay_ms: Some(2_000), ..fault_of(FILLING, FaultKind::DELAY) };
    let slow = harness.faults.inject(slow).expect("faults are on");
    say(&bus, 1..=3).await;
    harness.has_handled(LISTENING, 3).await;
    let prefix = "shelf-filling is stalled: 3 messages wait, none processed since ";
    let is_reported = |words: String| words.starts_with(prefix) && !words.contains(LISTENING.name);
    wait_until("it alone is described", async || description().is_some_and(is_reported)).await;
    assert!(harness.faults.remove(slow.id));
    harness.has_handled(FILLING, 3).await;
    wait_until("no step is stalled", async || description().is_none()).await;
}

#[tokio::test]
async fn message_in_flight_in_one_process_is_a_stall_of_that_process_alone() {
    let (_nats, bus) = Nats::with_bus().await;
    let mut stuck = listening(&bus, Pace::default()).await;
    let mut idle = listening(&bus, Pace::default()).await;
    let (by_stuck, by_idle) = (watched_as_peer(&mut stuck, &bus), watched_as_peer(&mut idle, &bus));
    let slow = || NewFault { delay_ms: Some(600_000), ..fault_of(FILLING, FaultKind::DELAY) };
    let both = [&stuck, &idle].map(|harness| harness.faults.inject(slow()).expect("faults are on").id);
    say(&bus, 1..=1).await;
    // Long enough for several observations by the other process.
    let is_reported = |stalls: &ConsumerStalls| {
        let words = stalls.describe(Duration::from_secs(1), Instant::now()).unwrap_or_default();
        words.contains("shelf-filling is stalled: 1 messages")
    };
    wait_until("one of them reports the stall", async || is_reported(&by_stuck) || is_reported(&by_idle))
        .await;
    let other = if is_reported(&by_stuck) { &by_idle } else { &by_stuck };
    assert_eq!(description(other), "", "it has no message, and none is deliverable");
    // A deliverable message that nobody takes is a stall of both.
    assert!(stuck.faults.remove(both[0]) && idle.faults.remove(both[1]));
    let stream = bus.jetstream().get_stream("COURIER").await.expect("the stream");
    let until = std::time::SystemTime::now() + Duration::from_secs(3_600);
    stream.pause_consumer(FILLING.name, until.into()).await.expect("it can be paused");
    say(&bus, 2..=2).await;
    wait_until("both report the stall", async || {
        !description(&by_stuck).is_empty() && !description(&by_idle).is_empty()
    })
    .await;
}

#[tokio::test]
async fn consumer_paused_at_the_broker_is_a_stall() {
    let (_nats, bus) = Nats::with_bus().await;
    let mut harness = listening(&bus, Pace::default()).await;
    let stalls = watched(&mut harness, &bus);
    say(&bus, 1..=1).await;
    harness.has_handled(FILLING, 1).await;
    let stream = bus.jetstream().get_stream("COURIER").await.expect("the stream");
    let until = std::time::SystemTime::now() + Duration::from_secs(3_600);
    stream.pause_consumer(FILLING.name, until.into()).await.expect("it can be paused");
    say(&bus, 2..=4).await;
    is_described(&stalls, "shelf-filling is stalled: 3 messages wait").await;
    lags(&harness, "3.0").await;
    stream.resume_consumer(FILLING.name).await.expect("it can be resumed");
    harness.has_handled(FILLING, 4).await;
    wait_until("no step is stalled", async || description(&stalls).is_empty()).await;
}

#[tokio::test]
async fn deleted_consumer_that_cannot_be_created_again_is_a_stall() {
    let mut nats = Nats::start().await;
    // Each attempt takes as long.
    let settings = BusSettings { publish_timeout: Duration::from_secs(1), ..nats.settings() };
    let bus = nats.bus_with(settings).await;
    let mut harness = listening(&bus, Pace::default()).await;
    let stalls = watched(&mut harness, &bus);
    say(&bus, 1..=1).await;
    harness.has_handled(FILLING, 1).await;
    nats.restart_denying("$JS.API.CONSUMER.CREATE.>").await;
    let deleted = async || bus.jetstream().delete_consumer_from_stream(FILLING.name, "COURIER").await.is_ok();
    wait_until("it is deleted", deleted).await;
    is_described(&stalls, "shelf-filling processes nothing since ").await;
    // In the broker's words.
    let words = "Permissions Violation for Publish to \"$JS.API.CONSUMER.CREATE.COURIER.shelf-filling\"";
    let is_told = async || description(&stalls).to_lowercase().contains(&words.to_lowercase());
    wait_until("the broker's reason is told", is_told).await;
    // The last known number is not shown any more.
    lags(&harness, "NaN").await;
}

#[tokio::test]
async fn store_that_rejects_writes_is_a_stall_of_the_step() {
    let (_nats, bus) = Nats::with_bus().await;
    let disk = Disk::new();
    let mut harness = EngineHarness::over(disk.store(), Pace::default()).await;
    harness.execute(DepotCommand::List("tea")).await;
    harness.listens(&bus, FILLING);
    let stalls = watched(&mut harness, &bus);
    disk.rejects("outbox", "ABORT");
    disk.rejects("retry", "ABORT");
    say(&bus, 1..=1).await;
    is_described(&stalls, "shelf-filling is stalled: 1 messages wait").await;
    disk.works("outbox");
    disk.works("retry");
    harness.has_handled(FILLING, 1).await;
    wait_until("no step is stalled", async || !description(&stalls).contains(FILLING.name)).await;
}

async fn is_described(stalls: &ConsumerStalls, words: &str) {
    wait_until("the stall is described", async || description(stalls).contains(words)).await;
}

fn description(stalls: &ConsumerStalls) -> String {
    stalls.describe(Duration::from_millis(200), Instant::now()).unwrap_or_default()
}

#[tokio::test]
async fn step_behind_an_open_breaker_is_not_stalled() {
    let (_nats, bus) = Nats::with_bus().await;
    let mut harness = listening(&bus, Pace::default()).await;
    let stalls = watched(&mut harness, &bus);
    say(&bus, 1..=1).await;
    harness.has_handled(FILLING, 1).await;
    wait_until("it is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    harness.change_breaker(FILLING.name, BreakerAction::Open);
    say(&bus, 2..=4).await;
    harness.has_handled(LISTENING, 4).await;
    let is_described = async || waiting(&bus, FILLING).await == 3;
    wait_until("messages wait", is_described).await;
    // Over several observations.
    let watched = async {
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until {
            let words = stalls.describe(Duration::ZERO, Instant::now()).unwrap_or_default();
            assert!(!words.contains(FILLING.name), "{words}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time("several observations", watched).await;
}

/// Waits until the metric of the consumer backlog has this value.
async fn lags(harness: &EngineHarness, messages: &str) {
    let line = format!("consumer_lag_messages{{consumer=\"{}\"}} {messages}\n", FILLING.name);
    wait_until(&line, async || harness.metrics.text().expect("metrics").contains(&line)).await;
}

fn watched(harness: &mut EngineHarness, bus: &NatsBus) -> ConsumerStalls {
    watched_as(harness, bus, ReplicaRole::Only)
}

fn watched_as_peer(harness: &mut EngineHarness, bus: &NatsBus) -> ConsumerStalls {
    watched_as(harness, bus, ReplicaRole::Peer)
}

fn watched_as(harness: &mut EngineHarness, bus: &NatsBus, role: ReplicaRole) -> ConsumerStalls {
    let stalls = ConsumerStalls::default();
    let steps = [FILLING, LISTENING].map(|step: &'static Step| harness.step(step).clone());
    let watch = StallWatch {
        role: move || role,
        stalls: stalls.clone(),
        limit: Duration::from_millis(500),
        clock: Arc::new(SystemClock),
        observer: Arc::new(harness.metrics.clone()),
    };
    harness.runs(consumer_stall::run::<Depot, _>(bus.clone(), steps.to_vec(), watch));
    stalls
}
