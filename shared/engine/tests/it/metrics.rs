//! What a service counts, as who watches it reads it.

use std::time::Duration;

use jiff::SignedDuration;
use saga_core::breaker::State;
use saga_core::machinery::Stats;
use saga_engine::host::metrics::Metrics;
use saga_engine::runtime::admission::BreakerView;
use saga_engine::runtime::observer::Observer as _;

use crate::support::{EngineHarness, SUPPLIER, at};

#[test]
fn everything_that_happens_is_counted_under_its_name() {
    let metrics = Metrics::default();
    metrics.input_settled("shelf-filling", "done");
    metrics.input_settled("shelf-filling", "done");
    metrics.foreign_parked("shelf-filling");
    metrics.call_ended("supply", "failed");
    metrics.batch_committed(3, Duration::from_millis(4));
    metrics.batch_not_stored();
    metrics.published(5);
    metrics.take_clock_offset(SignedDuration::from_millis(-1_500));
    let text = metrics.text().expect("metrics");
    for line in [
        "saga_input_total{step=\"shelf-filling\",outcome=\"done\"} 2",
        "message_foreign_total{step=\"shelf-filling\"} 1",
        "saga_call_total{step=\"supply\",outcome=\"failed\"} 1",
        "store_commit_seconds_sum 0.004",
        "engine_batch_inputs_sum 3.0",
        "store_faults_total 1",
        "outbox_published_total 5",
        "outbox_publish_messages_sum 5.0",
        "clock_offset_seconds -1.5",
    ] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
}

#[test]
fn what_the_store_says_of_itself_is_shown_and_remembered() {
    let metrics = Metrics::default();
    let stats = Stats {
        outbox_pending: 1,
        outbox_failed: 2,
        outbox_republishing: 7,
        outbox_kept: 8,
        outbox_oldest: Some(at(0)),
        retries: 3,
        tasks: 4,
        task_oldest: Some(at(5)),
        dead_letters: 6,
    };
    metrics.take_stats(stats, at(0) + SignedDuration::from_millis(7_500));
    assert_eq!((metrics.stats().retries, metrics.stats().task_oldest), (3, Some(at(5))));
    let text = metrics.text().expect("metrics");
    for line in [
        "outbox_pending 1",
        "outbox_failed 2",
        "outbox_oldest_pending_age_seconds 7.5",
        "retry_waiting 3",
        "task_open 4",
        "task_oldest_open_age_seconds 2.5",
        "dead_letter_unresolved 6",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "no {line:?} in {text}");
    }
}

#[tokio::test]
async fn a_breaker_is_shown_with_its_state_and_what_it_refused() {
    let harness = EngineHarness::new().await;
    let view = harness.breaker(SUPPLIER);
    let states = [
        (State::Closed, 0),
        (State::ForcedClosed, 0),
        (State::HalfOpen, 1),
        (State::Open, 2),
        (State::ForcedOpen, 2),
    ];
    for (state, shown) in states {
        harness.metrics.take_breaker(&BreakerView { state, refused: 9, ..view.clone() });
        let text = harness.metrics.text().expect("metrics");
        for line in [
            format!("breaker_state{{breaker=\"{SUPPLIER}\"}} {shown}"),
            format!("breaker_refused{{breaker=\"{SUPPLIER}\"}} 9"),
        ] {
            assert!(text.contains(&line), "no {line:?} in {text}");
        }
    }
}
