//! Pure: draining: whether work that was in flight has completed.

use admin::ledgers::draining::Draining;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use saga_core::service_stats::{ServiceStats, StepStats, StoreStats};
use saga_engine::testing::NOON;

/// Statistics of one producer and one consumer at a time.
fn look(second: i64, oldest: Option<i64>, newest: u64, acknowledged: u64) -> Vec<ServiceStats> {
    let at = |second| NOON + SignedDuration::from_secs(second);
    let of = |name: &str, stats, newest, steps| ServiceStats {
        service: name.to_owned(),
        instance: name.to_owned(),
        at: at(second),
        stats,
        calls_open: 0,
        published: [].into(),
        newest,
        lost_before: None,
        steps,
    };
    let pending = u64::from(oldest.is_some());
    let outbox_oldest: Option<Timestamp> = oldest.map(at);
    let stats = StoreStats { outbox_pending: pending, outbox_oldest, ..StoreStats::default() };
    let step = StepStats {
        step: "inventory-sale".to_owned(),
        subjects: vec![],
        handled: 0,
        retrying: 0,
        dead: 0,
        waiting: Some(newest - acknowledged),
        acknowledged: [("order".to_owned(), acknowledged)].into(),
    };
    vec![
        of("order", stats, Some(newest), vec![]),
        of("inventory", StoreStats::default(), Some(0), vec![step]),
    ]
}

#[test]
fn draining_ends_after_outboxes_and_consumers_caught_up() {
    let mut draining = Draining::since(&look(0, Some(-1), 5, 3));
    assert!(!draining.advance(&look(1, Some(-1), 5, 5)), "the old entry is not even published");
    assert!(!draining.advance(&look(2, Some(1), 6, 5)), "it is, and its place is to be measured");
    assert!(!draining.advance(&look(3, Some(2), 8, 5)), "it is one of eight");
    assert!(!draining.advance(&look(4, Some(3), 12, 7)), "the eighth is not heard");
    assert!(draining.advance(&look(5, Some(4), 20, 8)), "what came later does not matter");
}

#[test]
fn step_without_waiting_messages_has_drained() {
    let mut draining = Draining::since(&look(0, None, 5, 5));
    assert!(!draining.advance(&look(1, None, 5, 5)));
    assert!(!draining.advance(&look(2, None, 5, 5)));
    assert!(draining.advance(&look(3, None, 5, 5)));
}

#[test]
fn waiting_retries_and_unknown_backlog_have_not_drained() {
    for spoil in [
        (|looks: &mut Vec<ServiceStats>| looks[1].stats.retries = 1) as fn(&mut Vec<ServiceStats>),
        |looks| looks[1].steps[0].waiting = None,
    ] {
        let mut draining = Draining::since(&look(0, None, 5, 5));
        for second in 1..9 {
            let mut looks = look(second, None, 5, 5);
            spoil(&mut looks);
            assert!(!draining.advance(&looks));
        }
    }
}

proptest! {
    /// Every message that was in the outbox at the start is processed when draining ends.
    #[test]
    fn draining_covers_all_work_in_flight(paces in prop::collection::vec((1..4_u64, 0..4_u64, 0..4_u64), 1..60)) {
        // Written, published and heard so far; what was written up to the first look is number `wanted`.
        let (mut written, mut published, mut received) = (9_u64, 5_u64, 2_u64);
        let wanted = written;
        let at = |number: u64| if number <= wanted { -1 } else { i64::try_from(number).expect("a few") };
        let seen = |written: u64, published: u64, received: u64| {
            let oldest = (published < written).then(|| at(published + 1));
            look(0, oldest, published, received)
        };
        let mut draining = Draining::since(&seen(written, published, received));
        for (writes, publishes, hears) in paces {
            written += writes;
            published = written.min(published + publishes);
            received = published.min(received + hears);
            if draining.advance(&seen(written, published, received)) {
                prop_assert!(received >= wanted);
            }
        }
    }
}
