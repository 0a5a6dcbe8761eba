//! Services follow the broker's time, whatever their machines' clocks show.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use saga_engine::host::clock_sync::{self, ClockSettings, offset_warning};
use saga_engine::runtime::clock::{BrokerClock, Clock};
use saga_engine::store::StoreFault;

use crate::support::{DepotCommand, EngineHarness, Nats, Pace, in_memory, in_time, state, wait_until};

const HOUR: i64 = 3600;

/// Machine clock with an offset of so many seconds, which can be corrected.
struct Shifted(AtomicI64);

impl Clock for Shifted {
    fn now(&self) -> Timestamp {
        Timestamp::now() + SignedDuration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

#[tokio::test]
async fn deadline_follows_the_brokers_time_on_a_machine_an_hour_off() -> Result<(), StoreFault> {
    let (_nats, bus) = Nats::with_bus().await;
    for off in [HOUR, -HOUR] {
        let own = Arc::new(Shifted(AtomicI64::new(off)));
        let clock = Arc::new(BrokerClock::new(own.clone()));
        let pace = Pace { poll: Duration::from_millis(20), ..Pace::default() };
        let harness = EngineHarness::on_clock(in_memory(), pace, clock.clone()).await;
        let now = Timestamp::now();
        harness.execute(DepotCommand::CheckAt("tea", now)).await;
        harness.execute(DepotCommand::CheckAt("coffee", now + SignedDuration::from_mins(30))).await;
        in_time(
            "the broker says what time it is",
            clock_sync::first_sync(&clock, &bus, harness.store.as_ref()),
        )
        .await;
        assert!(is_near(clock.now(), Timestamp::now()), "{off}: {}", clock.now());
        assert!(is_near(clock.now() + SignedDuration::from_secs(off), own.now()));
        assert!((clock.offset().as_secs() - off).abs() <= 10, "{:?}", clock.offset());
        let is_over = async |label| {
            let shelf = state(harness.store.as_ref(), label).await.expect("a store");
            shelf.is_some_and(|shelf| shelf.check_at.is_none())
        };
        wait_until("what is due comes", async || is_over("tea").await).await;
        assert!(!is_over("coffee").await, "{off}: a deadline that has not come has passed");

        own.0.store(0, Ordering::SeqCst);
        assert!(is_near(clock.now(), Timestamp::now()), "{off}: nothing happens when the clock is put right");
        in_time("the broker says it again", clock_sync::first_sync(&clock, &bus, harness.store.as_ref()))
            .await;
        assert!(is_near(clock.now(), Timestamp::now()));
        assert_eq!(offset_warning(clock.offset(), &lenient()), None);
    }
    Ok(())
}

/// The stream that is asked is created again.
#[tokio::test]
async fn clock_offset_is_measured_after_the_broker_lost_its_disk() {
    let (_nats, bus) = Nats::with_bus().await;
    bus.jetstream().delete_stream("ADVISORY").await.expect("it was there");
    let clock = BrokerClock::new(Arc::new(Shifted(AtomicI64::new(HOUR))));
    in_time("the broker says what time it is", clock_sync::first_sync(&clock, &bus, in_memory().as_ref()))
        .await;
    assert!(is_near(clock.now(), Timestamp::now()));
}

/// The machine's clock may be wrong.
#[tokio::test]
async fn nothing_is_due_before_the_broker_time_is_known() -> Result<(), StoreFault> {
    let clock = Arc::new(BrokerClock::new(Arc::new(Shifted(AtomicI64::new(HOUR)))));
    let pace = Pace { poll: Duration::from_millis(1), ..Pace::default() };
    let harness = EngineHarness::on_clock(in_memory(), pace, clock.clone()).await;
    let now = Timestamp::now();
    harness.execute(DepotCommand::CheckAt("coffee", now + SignedDuration::from_mins(30))).await;
    harness.execute(DepotCommand::CheckAt("tea", now)).await;
    clock.correct(SignedDuration::from_secs(-HOUR), None);
    let checked = async |label| {
        let shelf = state(harness.store.as_ref(), label).await.expect("a store");
        shelf.is_some_and(|shelf| shelf.check_at.is_none())
    };
    wait_until("what is due comes", async || checked("tea").await).await;
    assert!(!checked("coffee").await);
    Ok(())
}

/// A broker on the machine of the service jumps together with it, so that nobody contradicts.
#[tokio::test]
async fn no_deadline_fires_while_a_jump_is_in_doubt() -> Result<(), StoreFault> {
    let own = Arc::new(Shifted(AtomicI64::new(0)));
    let clock = Arc::new(BrokerClock::new(own.clone()));
    let pace = Pace { poll: Duration::from_millis(1), ..Pace::default() };
    let harness = EngineHarness::on_clock(in_memory(), pace, clock.clone()).await;
    clock.correct(SignedDuration::ZERO, None);
    harness.execute(DepotCommand::CheckAt("coffee", Timestamp::now() + SignedDuration::from_hours(1))).await;
    own.0.store(48 * HOUR, Ordering::SeqCst);
    assert!(clock.correct(SignedDuration::from_hours(48), None).is_some());
    harness.execute(DepotCommand::CheckAt("tea", Timestamp::now())).await;
    // Others are processed meanwhile, so that the timers have scanned.
    for _ in 0..200 {
        harness.execute(DepotCommand::Put("sugar", 1)).await;
    }
    let checked = async |label| {
        let shelf = state(harness.store.as_ref(), label).await.expect("a store");
        shelf.is_some_and(|shelf| shelf.check_at.is_none())
    };
    assert!(!checked("tea").await && !checked("coffee").await, "a deadline fired");
    own.0.store(0, Ordering::SeqCst);
    clock.correct(SignedDuration::ZERO, None);
    wait_until("what is due comes", async || checked("tea").await).await;
    assert!(!checked("coffee").await);
    Ok(())
}

#[test]
fn small_clock_offset_is_ignored_and_a_large_one_is_logged() {
    let clock = BrokerClock::new(Arc::new(Shifted(AtomicI64::new(0))));
    clock.correct(SignedDuration::from_millis(90), None);
    assert!(clock.offset().abs() < SignedDuration::from_millis(80), "{:?}", clock.offset());
    let named = |seconds| offset_warning(SignedDuration::from_secs(seconds), &ClockSettings::default());
    assert_eq!(named(1), None);
    assert_eq!(named(HOUR).as_deref(), Some("this machine's clock is 3600.0s ahead of the broker's"));
    assert_eq!(named(-2).as_deref(), Some("this machine's clock is 2.0s behind the broker's"));
}

/// True if two times are close, with a margin for a busy machine.
fn is_near(time: Timestamp, other: Timestamp) -> bool {
    time.duration_since(other).abs() < SignedDuration::from_secs(10)
}

fn lenient() -> ClockSettings {
    ClockSettings { warn_offset: Duration::from_secs(10), ..ClockSettings::default() }
}
