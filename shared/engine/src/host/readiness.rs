//! Shell: readiness checks of a service.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use saga_core::breaker::State;
use saga_core::retry::error_chain;
use saga_core::service::Service;
use saga_core::service_stats::StoreStats;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};
use tracing::{debug, error, info};

use super::app::App;
use super::clock_sync::offset_warning;
use super::disk_check;
use super::http::{Check, CheckState, Readiness, ReadinessProbe};
use super::metrics::{Metrics, names};
use crate::nats::NatsBus;
use crate::reloaded::unusable_files;
use crate::runtime::admission::BreakerView;
use crate::runtime::clock::Clock as _;
use crate::runtime::error_throttle::ErrorThrottle;
use crate::runtime::signed;
use crate::store::StoreFault;

/// Interval of the checks, and thus the resolution of metrics and of the time since which a check fails.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Limit on the store's answer, which normally takes milliseconds. Shorter than the time-out of a probe
/// ([`super::health_probe`]).
const STATS_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Runs the checks at an interval, until dropped, for metrics and history.
pub(super) async fn run<S: Service, X: Send + Sync + 'static>(app: App<S, X>) {
    let mut errors = ErrorThrottle::default();
    loop {
        // Recorded even while the store fails, because then the queue grows.
        app.metrics.record_queue(app.engine.queued());
        if let Some(in_flight) = &app.in_flight {
            app.metrics.record_in_flight(in_flight.count());
        }
        let stats = stats(&app).await;
        record_checks(&of(&app, &stats), &app.metrics);
        if let Ok(stats) = &stats {
            app.messaging.observe_outbox(stats.outbox_oldest);
        }
        match &stats {
            Err(fault) => {
                if let Some(what) = errors.failed(fault) {
                    error!("the store cannot be asked: {what}");
                }
            }
            Ok(_) if errors.recovered() => info!("the store answers again"),
            Ok(_) => {}
        }
        app.metrics.record_stats(stats.ok(), app.clock.now());
        app.controls.admission.breakers().iter().for_each(|view| app.metrics.record_breaker(view));
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

/// Writes at an interval where nothing else does, until dropped: a database that answers reads may take no writes. The outcome
/// is in the check `store`.
pub(super) async fn probe_writes<S: Service, X: Send + Sync + 'static>(app: App<S, X>) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        if let Err(fault) = app.store.probe_write().await {
            debug!("the database takes no writes: {}", error_chain(&fault));
        }
    }
}

/// Records the states of the checks as metrics.
fn record_checks(readiness: &Readiness, metrics: &Metrics) {
    let state = |check: &Check| match check.state {
        CheckState::Ok => 0.0,
        CheckState::Degraded => 1.0,
        CheckState::Failed => 2.0,
    };
    let all: Vec<_> =
        readiness.checks.iter().map(|(name, check)| (vec![name.clone()], state(check))).collect();
    metrics.replace(&names::READINESS_CHECK, &all);
}

/// Makes the callback of `/readyz`, which runs the checks.
pub(super) fn health<S: Service, X: Send + Sync + 'static>(app: App<S, X>) -> ReadinessProbe {
    Arc::new(move || {
        let app = app.clone();
        Box::pin(async move { of(&app, &stats(&app).await) })
    })
}

/// Reads the store's statistics within a limit. A hanging disk would otherwise leave the last statistics in place.
///
/// # Errors
/// When the store fails, or does not answer in time.
pub(super) async fn stats<S: Service, X>(app: &App<S, X>) -> Result<StoreStats, StoreFault> {
    in_time(app.store.stats()).await
}

async fn in_time(
    stats: impl Future<Output = Result<StoreStats, StoreFault>> + Send,
) -> Result<StoreStats, StoreFault> {
    let late = |elapsed: Elapsed| StoreFault::Database {
        context: "it does not answer, as where a disk hangs",
        source: elapsed.into(),
    };
    timeout(STATS_TIMEOUT, stats).await.map_err(late)?
}

/// Runs all checks on the given statistics of the store.
pub(super) fn of<S: Service, X>(app: &App<S, X>, stats: &Result<StoreStats, StoreFault>) -> Readiness {
    let mut readiness = app.health.history.record(&check_all(app, stats), app.clock.now());
    readiness.is_leader = app.messaging.bus.as_ref().is_some_and(NatsBus::is_leader);
    readiness.remarks.extend(app.settings.http.remark().map(str::to_owned));
    readiness
}

fn check_all<S: Service, X>(
    app: &App<S, X>,
    stats: &Result<StoreStats, StoreFault>,
) -> Vec<(&'static str, Option<String>)> {
    let (now, settings) = (app.clock.now(), &app.settings);
    let mut found = vec![
        ("overload", (app.health.overload)(app)),
        ("breakers", open_breakers(&app.controls.admission.breakers())),
        ("files", unusable_files()),
        ("crashes", app.controls.overrides.crash_loop(now)),
        ("overrides", app.controls.overrides.unreadable()),
    ];
    if app.stop.is_cancelled() {
        found.push(("stopping", Some("connections are accepted for a moment only (http.drain)".to_owned())));
    }
    match stats {
        Ok(stats) => {
            let age = stats.outbox_oldest.map_or(SignedDuration::ZERO, |oldest| now.duration_since(oldest));
            let is_late = age > signed(settings.readiness.max_outbox_age);
            let late = is_late.then(|| format!("oldest entry has waited {}s", age.as_secs()));
            let limit = settings.readiness.max_publish_stall;
            let late = late.or_else(|| app.messaging.describe_outbox_stall(limit));
            let disk = disk_check::problem(stats, &settings.store);
            let store = app.store.write_problem();
            found.extend([("store", store), ("database", None), ("disk", disk), ("outbox", late)]);
        }
        Err(lost @ StoreFault::DataLost(_)) => found.push(("database", Some(error_chain(lost)))),
        Err(fault) => found.push(("store", Some(error_chain(fault)))),
    }
    if let Some(bus) = &app.messaging.bus {
        let (limits, now) = (&settings.readiness, Instant::now());
        found.extend([
            ("broker", bus.disconnected()),
            ("publish_stall", app.messaging.publish_stall.describe(limits.max_publish_stall, now)),
            ("consumer_stall", app.messaging.consumer_stalls.describe(limits.max_consumer_stall, now)),
            ("startup", app.messaging.startup_pending().map(str::to_owned)),
        ]);
    }
    let jump = app.clock.jump().map(|jump| jump.to_string());
    found.push(("clock", jump.or_else(|| offset_warning(app.clock.offset(), &settings.clock))));
    found
}

fn open_breakers(breakers: &[BreakerView]) -> Option<String> {
    let is_open = |breaker: &&BreakerView| match breaker.state {
        State::Open | State::ForcedOpen => true,
        State::HalfOpen | State::Closed | State::ForcedClosed => false,
    };
    let open: Vec<_> = breakers.iter().filter(is_open).map(|breaker| breaker.name.as_str()).collect();
    (!open.is_empty()).then(|| format!("open: {}", open.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn store_that_never_answers_times_out() {
        assert!(in_time(ready(Ok(StoreStats::default()))).await.is_ok());
        let fault = in_time(pending()).await.expect_err("nobody knows");
        assert!(error_chain(&fault).contains("does not answer"), "{fault:?}");
    }
}
