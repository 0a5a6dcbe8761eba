//! Shell: health report of a service: readiness, waiting messages, open breakers, injected faults. Cheap enough for frequent
//! polls, because it uses the counts of the readiness checks.

use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use saga_core::breaker::State;
use saga_core::service::{Service, Step, steps_of};
use saga_core::service_stats::StoreStats;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use super::app::App;
use super::http::Readiness;
use super::in_flight::InFlight;
use super::metrics::names;
use super::readiness;
use crate::runtime::admission::BreakerView;
use crate::runtime::bus::{Bus as _, Durable};
use crate::runtime::injected_faults::ActiveFault;

/// Limit on the broker's answer. A connected broker answers sooner, and a report must not wait for one that is away.
const BROKER_TIMEOUT: Duration = Duration::from_millis(500);

/// Readiness, statistics and restrictions of one service.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HealthReport {
    /// Version of the running build.
    #[serde(default)]
    pub version: Option<String>,
    /// Result of the health checks.
    pub readiness: Readiness,
    /// Statistics of the store; `None` while the check `store` fails.
    pub stats: Option<StoreStats>,
    /// Sagas that have begun and not ended; `None` for a service that does not count them.
    #[serde(default)]
    pub in_flight: Option<u64>,
    /// Breakers that are not closed, or that an operator holds closed.
    pub breakers: Vec<BreakerView>,
    /// Waiting messages of each step, and what holds it back.
    pub steps: Vec<StepHealth>,
    /// Injected faults that are active in this process.
    #[serde(default)]
    pub faults: Vec<ActiveFault>,
}

/// Waiting messages of a step, and what holds the step back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StepHealth {
    /// Name of the step, as in its durable consumer.
    pub step: String,
    /// Messages that wait at the broker; `None` while the broker does not answer.
    pub waiting: Option<u64>,
    /// Start of a consumer stall: messages wait, and none is processed.
    pub stalled_since: Option<Timestamp>,
    /// True if an injected fault pauses the step.
    #[serde(default)]
    pub paused: bool,
}

impl HealthReport {
    /// Collects the current health of this service.
    pub async fn of<S: Service, X: Send + Sync>(app: &App<S, X>) -> Self {
        let (stats, steps) = tokio::join!(readiness::stats(app), step_health(app));
        let readiness = readiness::of(app, &stats);
        let breakers = app.controls.admission.breakers().into_iter().filter(is_reported).collect();
        let (version, faults) = (Some(names::VERSION.to_owned()), app.controls.faults.view().faults);
        let in_flight = app.in_flight.as_ref().map(InFlight::count);
        Self { version, readiness, stats: stats.ok(), in_flight, breakers, steps, faults }
    }
}

fn is_reported(breaker: &BreakerView) -> bool {
    match breaker.state {
        State::Open | State::HalfOpen | State::ForcedOpen | State::ForcedClosed => true,
        State::Closed => false,
    }
}

async fn step_health<S: Service, X: Send + Sync>(app: &App<S, X>) -> Vec<StepHealth> {
    let (now, limit) = (Instant::now(), app.settings.readiness.max_consumer_stall);
    let steps = steps_of::<S>().into_iter().map(async |step| StepHealth {
        step: step.name.to_owned(),
        waiting: waiting_messages(app, step).await,
        stalled_since: app.messaging.consumer_stalls.stalled_since(step.name, limit, now),
        paused: app.controls.faults.pauses(step.name),
    });
    join_all(steps).await
}

/// Counts the messages that wait at the broker for a step; `None` when the broker does not answer soon.
pub async fn waiting_messages<S: Service, X: Send + Sync>(
    app: &App<S, X>,
    step: &'static Step,
) -> Option<u64> {
    let Some(bus) = &app.messaging.bus else { return Some(0) };
    if !bus.is_connected() {
        return None;
    }
    let durables = Durable::all(S::NAME, &[step]);
    let backlogs = join_all(durables.into_iter().map(|durable| bus.progress(durable)));
    let answers = timeout(BROKER_TIMEOUT, backlogs).await.ok()?;
    answers.into_iter().map(|progress| progress.ok().map(|progress| progress.backlog.all())).sum()
}
