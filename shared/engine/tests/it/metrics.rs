//! Metrics as scraped: names, labels, declared series, unknown values.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use saga_core::admission::CallResult;
use saga_core::breaker::{Recorded, State};
use saga_core::metric::{Measurement, Metric, MetricKind};
use saga_core::outcome::{OF_COMMANDS, OF_DUE_ROWS, OF_MESSAGES};
use saga_core::service_stats::StoreStats;
use saga_core::trace::TraceContext;
use saga_engine::host::metrics::{Metrics, names};
use saga_engine::runtime::admission::BreakerView;
use saga_engine::runtime::observer::{Observer as _, ProcessedInput};

use crate::support::{EngineHarness, Lines, SUPPLIER, at};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Histogram bounds of this test alone.
const BOUNDS: &[f64] = &[1.0, 2.0];
const PARCELS: Metric = Metric::counter("parcel_total", &["way"], "Parcels, by way");
const WEIGHED: Metric = Metric::histogram("parcel_weighing_seconds", &[], BOUNDS, "Time on the scales");
const ON_SHELF: Metric = Metric::gauge("parcel_on_shelf", &["shelf"], "Parcels on each shelf");

#[test]
fn every_measurement_appears_under_its_metric() {
    let metrics = Metrics::new("shelf", &[]);
    let (took, trace) = (Duration::from_millis(4), TraceContext::parse(TRACE));
    let settled = ProcessedInput { source: "shelf-filling", outcome: "done", took, trace };
    metrics.input_processed(&settled);
    metrics.input_processed(&settled);
    metrics.foreign_dead_lettered("shelf-filling");
    metrics.call_ended("supply", CallResult::Failed, took, None);
    metrics.batch_committed(3, took);
    metrics.record_queue(17);
    metrics.batch_not_stored();
    metrics.outbox_written(6);
    metrics.published(5, 1, took);
    // A broker that takes none of them says so at once: it is no quick publish.
    metrics.published(0, 2, Duration::ZERO);
    metrics.redelivered("shelf-filling");
    metrics.consumer_backlog("shelf-filling", Some(12));
    metrics.record_clock_offset(Some(SignedDuration::from_millis(-1_500)));
    let text = metrics.text().expect("metrics");
    for line in [
        "saga_input_total{step=\"shelf-filling\",outcome=\"done\"} 2",
        "step_duration_seconds_bucket{le=\"0.005\",step=\"shelf-filling\"} 2 # {trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\"} 0.004",
        "message_foreign_total{step=\"shelf-filling\"} 1",
        "task_call_total{task=\"supply\",outcome=\"failed\"} 1",
        "task_call_duration_seconds_count{task=\"supply\"} 1",
        "store_commit_duration_seconds_sum 0.004",
        "engine_batch_inputs_sum 3.0",
        "engine_queue_inputs 17.0",
        "store_faults_total 1",
        "outbox_written_total 6",
        "outbox_published_total 5",
        "outbox_rejected_total 3",
        "outbox_publish_messages_sum 5.0",
        "outbox_publish_messages_count 1",
        "outbox_publish_duration_seconds_sum 0.004",
        "outbox_publish_duration_seconds_count 1",
        "consumer_redelivery_total{consumer=\"shelf-filling\"} 1",
        "consumer_lag_messages{consumer=\"shelf-filling\"} 12.0",
        "clock_offset_seconds -1.5",
        "build_info{service=\"shelf\",version=\"0.1.0\"} 1.0",
    ] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
    assert!(text.ends_with("# EOF\n"), "it is OpenMetrics");
}

#[test]
fn own_metrics_of_service_are_exported() {
    let metrics = Metrics::new("shelf", &[&PARCELS, &WEIGHED, &ON_SHELF]);
    metrics.measured(&Measurement::more(&PARCELS, &["in"], 3), None);
    metrics.measured(&Measurement::took(&WEIGHED, &[], SignedDuration::from_millis(1_500)), None);
    metrics.measured(&Measurement::took(&WEIGHED, &[], SignedDuration::from_secs(-1)), None);
    metrics.replace(&ON_SHELF, &[(vec!["upper".to_owned()], 1.0), (vec!["lower".to_owned()], 2.0)]);
    metrics.replace(&ON_SHELF, &[(vec!["lower".to_owned()], 4.0)]);
    let text = metrics.text().expect("metrics");
    for line in [
        "parcel_total{way=\"in\"} 3",
        "parcel_weighing_seconds_bucket{le=\"1.0\"} 1",
        "parcel_weighing_seconds_bucket{le=\"2.0\"} 2",
        "parcel_on_shelf{shelf=\"lower\"} 4.0",
    ] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
    assert!(!text.contains("upper"), "what is not there any more is gone: {text}");
}

#[test]
fn declared_series_start_at_zero() {
    let metrics = Metrics::default();
    metrics.declare(&["shelf-filling"], &["supply"]);
    let text = metrics.text().expect("metrics");
    for line in [
        "saga_input_total{step=\"shelf-filling\",outcome=\"dead_lettered\"} 0",
        "task_call_total{task=\"supply\",outcome=\"rejected\"} 0",
        "store_faults_total 0",
    ] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
}

#[test]
fn process_metrics_are_exported() {
    let text = Metrics::default().text().expect("metrics");
    for name in ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"] {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        assert!(value.is_some_and(|value| value >= 0.0), "no {name} in {text}");
    }
}

/// The help text lists every outcome.
#[test]
fn every_outcome_is_in_help_and_declared() {
    let metrics = Metrics::default();
    metrics.declare(&["shelf-filling"], &["supply"]);
    let text = metrics.text().expect("metrics");
    let all = [
        ("shelf-filling", &OF_MESSAGES[..]),
        ("supply", &OF_MESSAGES),
        ("command", &OF_COMMANDS),
        ("due", &OF_DUE_ROWS),
    ];
    for (source, outcomes) in all {
        for outcome in outcomes {
            let line = format!("saga_input_total{{step=\"{source}\",outcome=\"{outcome}\"}} 0\n");
            assert!(text.contains(&line), "no {line:?} in {text}");
        }
        let listed = outcomes.join(", ");
        assert!(names::INPUTS.help.contains(&listed), "{listed}: {}", names::INPUTS.help);
    }
}

/// The caller goes on, and the log says it once.
#[test]
fn wrong_metric_is_logged_once_and_ignored() {
    let (lines, _listening) = Lines::listen();
    let metrics = Metrics::new("shelf", &[&PARCELS]);
    for _ in 0..2 {
        metrics.measured(&Measurement::took(&WEIGHED, &[], SignedDuration::from_secs(1)), None);
        metrics.set(&ON_SHELF, &["upper"], 1.0);
        metrics.measured(&Measurement::more(&PARCELS, &["in", "out"], 3), None);
        metrics.replace(&ON_SHELF, &[(vec!["lower".to_owned()], 4.0)]);
    }
    metrics.measured(&Measurement::more(&PARCELS, &["in"], 3), None);
    let text = metrics.text().expect("metrics");
    assert!(text.contains("parcel_total{way=\"in\"} 3\n"), "{text}");
    assert!(!text.contains("parcel_weighing") && !text.contains("parcel_on_shelf"), "{text}");
    let lines_logged = lines.all();
    let of = |name: &str| lines_logged.iter().filter(|line| line["metric"] == name).count();
    assert_eq!(
        (of(PARCELS.name), of(WEIGHED.name), of(ON_SHELF.name), lines_logged.len()),
        (1, 1, 1, 3),
        "{lines_logged:?}"
    );
}

/// Prometheus may scrape at any time.
#[test]
fn replaced_gauge_keeps_remaining_series_visible() {
    let metrics = Metrics::new("shelf", &[&ON_SHELF]);
    let shelf = |name: &str| (vec![name.to_owned()], 1.0);
    metrics.replace(&ON_SHELF, &[shelf("lower")]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                metrics.replace(&ON_SHELF, &[shelf("upper"), shelf("lower")]);
                metrics.replace(&ON_SHELF, &[shelf("lower")]);
            }
        });
        let without = (0..2_000).filter(|_| {
            let text = metrics.text().expect("metrics");
            !text.contains("parcel_on_shelf{shelf=\"lower\"} 1.0")
        });
        let without = without.count();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(without, 0, "of 2000 looks");
    });
}

/// Before the first check, and while a check fails: not 0, and not the previous value.
#[test]
fn gauge_is_nan_while_value_is_unknown() {
    let metrics = Metrics::new("shelf", &[&ON_SHELF]);
    let gauges = [
        "outbox_pending",
        "outbox_failed",
        "outbox_oldest_pending_age_seconds",
        "retry_waiting",
        "task_open",
        "task_oldest_open_age_seconds",
        "dead_letter_unresolved",
        "store_free_bytes",
        "store_log_bytes",
        "clock_offset_seconds",
    ];
    let assert_unknown = |metrics: &Metrics| {
        let text = metrics.text().expect("metrics");
        for name in gauges {
            assert!(text.contains(&format!("\n{name} NaN\n")), "{name} in {text}");
        }
    };
    assert_unknown(&metrics);
    let (free_bytes, log_bytes) = (Some(1), Some(1));
    let stats = StoreStats { outbox_pending: 3, free_bytes, log_bytes, ..StoreStats::default() };
    metrics.record_stats(Some(stats), at(0));
    metrics.record_clock_offset(Some(SignedDuration::ZERO));
    metrics.consumer_backlog("shelf-filling", Some(3));
    metrics.record_queue(0);
    metrics.record_in_flight(0);
    let text = metrics.text().expect("metrics");
    assert!(!text.lines().any(|line| line.ends_with(" NaN")), "{text}");
    metrics.record_stats(None, at(1));
    metrics.record_clock_offset(None);
    metrics.consumer_backlog("shelf-filling", None);
    assert_unknown(&metrics);
    let text = metrics.text().expect("metrics");
    assert!(text.contains("consumer_lag_messages{consumer=\"shelf-filling\"} NaN\n"), "{text}");
    assert_eq!(metrics.stats().outbox_pending, 3, "what it said last is remembered");
}

/// Names have their unit and type suffix, and every metric has a help text.
#[test]
fn metric_names_follow_prometheus_conventions() {
    for metric in names::ALL.iter().chain(&names::PROCESS) {
        let Metric { name, help, kind, .. } = metric;
        let is_counter = matches!(kind, MetricKind::Counter);
        assert_eq!(name.ends_with("_total"), is_counter, "{name}");
        let is_fine = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'_'));
        assert!(is_fine && !help.is_empty() && !help.ends_with('.'), "{name}: {help}");
    }
    let mut all: Vec<_> = names::ALL.iter().chain(&names::PROCESS).map(|metric| metric.name).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), names::ALL.len() + names::PROCESS.len(), "each is declared once");
}

#[test]
fn store_statistics_are_exported_and_remembered() {
    let metrics = Metrics::default();
    let stats = StoreStats {
        outbox_pending: 1,
        outbox_failed: 2,
        outbox_republishing: 7,
        outbox_kept: 8,
        outbox_oldest: Some(at(0)),
        retries: 3,
        retry_oldest: None,
        tasks: 4,
        task_oldest: Some(at(5)),
        dead_letters: 6,
        free_bytes: Some(9),
        log_bytes: None,
    };
    metrics.record_stats(Some(stats), at(0) + SignedDuration::from_millis(7_500));
    assert_eq!((metrics.stats().retries, metrics.stats().task_oldest), (3, Some(at(5))));
    let text = metrics.text().expect("metrics");
    for line in [
        "outbox_pending 1.0",
        "outbox_failed 2.0",
        "outbox_oldest_pending_age_seconds 7.5",
        "retry_waiting 3.0",
        "task_open 4.0",
        "task_oldest_open_age_seconds 2.5",
        "dead_letter_unresolved 6.0",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "no {line:?} in {text}");
    }
}

#[tokio::test]
async fn breaker_exports_state_and_rejected_calls() {
    let harness = EngineHarness::new().await;
    let view = harness.breaker(SUPPLIER);
    let recorded = Recorded { successes: 7, failures: 2, ignored: 1 };
    let states = [
        (State::Closed, 0),
        (State::ForcedClosed, 0),
        (State::HalfOpen, 1),
        (State::Open, 2),
        (State::ForcedOpen, 2),
    ];
    for (state, shown) in states {
        harness.metrics.record_breaker(&BreakerView { state, rejected: 9, recorded, ..view.clone() });
        let text = harness.metrics.text().expect("metrics");
        for line in [
            format!("breaker_state{{breaker=\"{SUPPLIER}\"}} {shown}.0"),
            format!("breaker_calls_total{{breaker=\"{SUPPLIER}\",outcome=\"failure\"}} 2"),
            format!("breaker_not_permitted_total{{breaker=\"{SUPPLIER}\"}} 9"),
        ] {
            assert!(text.contains(&line), "no {line:?} in {text}");
        }
    }
}
