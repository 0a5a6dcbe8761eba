//! Blocked steps at a real broker: nothing is pulled, no delivery is used up, and nothing is lost.

use std::sync::Arc;
use std::time::Duration;

use saga_core::breaker::BreakerPolicy;
use saga_core::fault::FaultKind;
use saga_core::service::{Step, stream_of};
use saga_engine::nats::{BusSettings, NatsBus};
use saga_engine::runtime::admission::BreakerAction;
use saga_engine::runtime::injected_faults::NewFault;

use super::consuming::{durable, say, waiting};
use crate::support::{
    DepotCommand, EngineHarness, FILLING, LISTENING, Nats, PRODUCERS, Pace, SUPPLIER, Supplier, fault_of,
    in_memory, in_time, wait_until,
};

/// Guarantee 7: the breaker of the step, or of its dependency.
#[tokio::test]
async fn step_behind_an_open_breaker_pulls_nothing_and_processes_all_afterwards() {
    let cases = [
        (FILLING.name, BreakerAction::Reset),
        (FILLING.name, BreakerAction::Closed),
        (SUPPLIER, BreakerAction::Reset),
        (SUPPLIER, BreakerAction::Closed),
    ];
    let nats = Nats::start().await;
    for (shut, closing) in cases {
        let bus = afresh(&nats, nats.settings()).await;
        let harness = listening(&bus, Pace::default(), Arc::default(), BreakerPolicy::default()).await;
        say(&bus, 1..=1).await;
        harness.has_handled(FILLING, 1).await;
        wait_until("it is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
        harness.change_breaker(shut, BreakerAction::Open);
        wait_until("nobody waits for messages", async || seen(&bus, FILLING).await.waiting == 0).await;

        let before = seen(&bus, FILLING).await;
        say(&bus, 2..=50).await;
        // The other step hears the same and is not held up; what could have been delivered was delivered by then.
        harness.has_handled(LISTENING, 50).await;
        assert_eq!(seen(&bus, FILLING).await, Seen { pending: 49, ..before });
        assert_eq!(harness.tea().await.pieces, 1);

        harness.change_breaker(shut, closing);
        harness.has_handled(FILLING, 50).await;
        wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
        assert_eq!(harness.tea().await.pieces, 50);
        assert_eq!(seen(&bus, FILLING).await.delivered, 50, "each was delivered once");
        nothing_is_dead_lettered_or_waits(&harness).await;
    }
}

/// Guarantee 7.
#[tokio::test]
async fn messages_in_flight_when_the_breaker_opens_are_processed_once_afterwards() {
    let nats = Nats::start().await;
    let bus = afresh(&nats, nats.settings()).await;
    let harness = listening(&bus, Pace::default(), Arc::default(), BreakerPolicy::default()).await;
    for round in 0..5_u128 {
        say(&bus, round * 40 + 1..=round * 40 + 40).await;
        harness.change_breaker(FILLING.name, BreakerAction::Open);
        harness.has_handled(LISTENING, u64::try_from(round * 40 + 40).expect("a small number")).await;
        harness.change_breaker(FILLING.name, BreakerAction::Reset);
    }
    harness.has_handled(FILLING, 200).await;
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    assert_eq!(harness.tea().await.pieces, 200);
    nothing_is_dead_lettered_or_waits(&harness).await;
}

/// Only as many are pulled as there are probes.
#[tokio::test]
async fn half_open_step_takes_few_messages_and_then_more() {
    let nats = Nats::start().await;
    let bus = afresh(&nats, nats.settings()).await;
    let policy = BreakerPolicy { open_for: Duration::from_millis(50), ..BreakerPolicy::default() };
    let harness = listening(&bus, Pace::default(), Arc::default(), policy).await;
    say(&bus, 1..=1).await;
    harness.has_handled(FILLING, 1).await;
    // Probes take their time, so that one can count them.
    let slow = NewFault { delay_ms: Some(3_000), ..fault_of(FILLING, FaultKind::DELAY) };
    harness.faults.inject(slow).expect("faults are on");
    harness.fail_until_open(FILLING.name);
    wait_until("nobody waits for messages", async || seen(&bus, FILLING).await.waiting == 0).await;
    say(&bus, 2..=300).await;
    wait_until("probes are under way", async || seen(&bus, FILLING).await.delivered > 1).await;
    harness.has_handled(LISTENING, 300).await;
    let seen_now = seen(&bus, FILLING).await;
    assert!(seen_now.delivered <= 1 + 3, "three probes: {seen_now:?}");
    harness.faults.clear();
    harness.has_handled(FILLING, 300).await;
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    assert_eq!(harness.tea().await.pieces, 300);
    nothing_is_dead_lettered_or_waits(&harness).await;
}

/// Guarantee 7. A defect: each failed probe left pulled messages alone, until the broker gave them up after `max_deliveries`.
#[tokio::test]
async fn long_outage_of_a_dependency_makes_no_dead_letters() {
    let nats = Nats::start().await;
    let settings = BusSettings { max_deliveries: 3, ack_wait: Duration::from_millis(300), ..nats.settings() };
    let bus = afresh(&nats, settings).await;
    let policy = BreakerPolicy { open_for: Duration::from_millis(50), ..BreakerPolicy::default() };
    let pace = Pace {
        attempts: 6,
        poll: Duration::from_millis(5),
        first_delay: Duration::from_millis(5),
        ..Pace::default()
    };
    let supplier = Supplier::closed();
    let mut harness = listening(&bus, pace, supplier, policy).await;
    harness.processes_advisories(&bus);
    // More calls than probes: there is no room for what messages may bring.
    for _ in 0..20 {
        harness.execute(DepotCommand::Supply("milk")).await;
    }
    say(&bus, 1..=30).await;
    let outage = async || harness.supplier.called().len() > 60;
    wait_until("the dependency was probed in vain, again and again", outage).await;
    no_advisory_is_left(&bus, &harness).await;
    harness.supplier.opens();
    harness.has_handled(FILLING, 30).await;
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    wait_until("all calls are answered", async || harness.stats().await.tasks == 0).await;
    assert_eq!(harness.tea().await.pieces, 30);
    no_advisory_is_left(&bus, &harness).await;
    nothing_is_dead_lettered_or_waits(&harness).await;
}

/// Guarantee 7, over many openings of the breaker.
#[tokio::test]
async fn long_outage_of_a_step_makes_no_dead_letters() {
    let nats = Nats::start().await;
    let settings = BusSettings { max_deliveries: 3, ack_wait: Duration::from_millis(300), ..nats.settings() };
    let bus = afresh(&nats, settings).await;
    let policy = BreakerPolicy { open_for: Duration::from_millis(30), ..BreakerPolicy::default() };
    let pace = Pace {
        attempts: 6,
        poll: Duration::from_millis(5),
        first_delay: Duration::from_millis(5),
        ..Pace::default()
    };
    let mut harness = listening(&bus, pace, Arc::default(), policy).await;
    harness.processes_advisories(&bus);
    let failing = fault_of(FILLING, FaultKind::FAIL_TRANSIENTLY);
    harness.faults.inject(failing).expect("faults are on");
    say(&bus, 1..=30).await;
    let hits = async || harness.faults.view().faults[0].hits > 40;
    wait_until("many tries have failed", hits).await;
    no_advisory_is_left(&bus, &harness).await;
    harness.faults.clear();
    harness.has_handled(FILLING, 30).await;
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    assert_eq!(harness.tea().await.pieces, 30);
    no_advisory_is_left(&bus, &harness).await;
    nothing_is_dead_lettered_or_waits(&harness).await;
}

/// Other steps continue.
#[tokio::test]
async fn paused_step_pulls_nothing_until_the_pause_ends() {
    let nats = Nats::start().await;
    let bus = afresh(&nats, nats.settings()).await;
    let harness = listening(&bus, Pace::default(), Arc::default(), BreakerPolicy::default()).await;
    say(&bus, 1..=1).await;
    harness.has_handled(FILLING, 1).await;
    let pause = fault_of(FILLING, FaultKind::PAUSE);
    let pause = harness.faults.inject(pause).expect("faults are on");
    wait_until("nobody waits for messages", async || seen(&bus, FILLING).await.waiting == 0).await;
    let before = seen(&bus, FILLING).await;
    say(&bus, 2..=20).await;
    harness.has_handled(LISTENING, 20).await;
    assert_eq!(seen(&bus, FILLING).await, Seen { pending: 19, ..before });
    assert!(harness.faults.remove(pause.id));
    harness.has_handled(FILLING, 20).await;
    assert_eq!(seen(&bus, FILLING).await.delivered, 20);
    nothing_is_dead_lettered_or_waits(&harness).await;
}

/// A depot over streams without a past.
async fn afresh(nats: &Nats, settings: BusSettings) -> NatsBus {
    let bus = NatsBus::connect(settings, "test").await.expect("an address");
    in_time("the broker is reached", bus.wait_until_connected()).await.expect("a new broker");
    let streams = PRODUCERS.map(stream_of);
    for stream in streams.iter().map(String::as_str).chain(["ADVISORY"]) {
        // There only in the second round.
        let _ = bus.jetstream().delete_stream(stream).await;
    }
    let _ = nats;
    // What was deleted may still be on its way from the broker's disk, and then nothing can be made in its place.
    wait_until("the streams are made", async || bus.ensure_streams(&PRODUCERS).await.is_ok()).await;
    bus
}

async fn listening(
    bus: &NatsBus,
    pace: Pace,
    supplier: Arc<Supplier>,
    policy: BreakerPolicy,
) -> EngineHarness {
    let mut harness = EngineHarness::guarded(in_memory(), pace, supplier, policy).await;
    harness.execute(DepotCommand::List("tea")).await;
    harness.listens(bus, FILLING);
    harness.listens(bus, LISTENING);
    harness
}

/// Consumer information of the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    /// Waiting pull requests.
    waiting: usize,
    /// Undelivered messages.
    pending: u64,
    /// Deliveries, with redeliveries.
    delivered: u64,
    /// Deliveries without an acknowledgement.
    unacknowledged: usize,
}

async fn seen(bus: &NatsBus, step: &Step) -> Seen {
    let mut consumer = durable(bus, step).await.expect("the consumer is there");
    let info = consumer.info().await.expect("its state");
    Seen {
        waiting: info.num_waiting,
        pending: info.num_pending,
        delivered: info.delivered.consumer_sequence,
        unacknowledged: info.num_ack_pending,
    }
}

/// No message was delivered so often that the broker gave it up.
async fn no_advisory_is_left(bus: &NatsBus, harness: &EngineHarness) {
    assert_eq!(harness.stats().await.dead_letters, 0);
    let mut stream = bus.jetstream().get_stream("ADVISORY").await.expect("the stream");
    assert_eq!(stream.info().await.expect("its state").state.messages, 0, "the broker gave something up");
}

async fn nothing_is_dead_lettered_or_waits(harness: &EngineHarness) {
    let stats = harness.stats().await;
    assert_eq!((stats.dead_letters, stats.retries, stats.tasks), (0, 0, 0));
}
