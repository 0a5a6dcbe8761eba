//! Shell: how one service is, in one look: whether it is ready, what waits, what is held back. Made for who asks often,
//! and soon: what is counted is what readiness counts anyway.

use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use saga_core::breaker::State;
use saga_core::service::{Service, Step, steps_of};
use saga_core::service_stats::StoreStats;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::app::App;
use super::http::Readiness;
use super::metrics::names;
use super::readiness;
use crate::runtime::admission::BreakerView;
use crate::runtime::bus::{Bus as _, Durable, Waiting};
use crate::runtime::clock::Clock as _;
use crate::runtime::faults::ActiveFault;

/// A broker that is there answers sooner; who looks at everything at once waits for none that is not.
const BROKER_ANSWERS_WITHIN: Duration = Duration::from_millis(500);

/// How one service is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Condition {
    /// Which build it is; earlier ones do not say.
    #[serde(default)]
    pub version: Option<String>,
    /// What its checks found.
    pub readiness: Readiness,
    /// What its store says; `None` when it cannot be asked, which is a check.
    pub stats: Option<StoreStats>,
    /// Its breakers that are not closed, or are held closed.
    pub breakers: Vec<BreakerView>,
    /// What waits for each of its steps.
    pub steps: Vec<StepCondition>,
    /// Its injected faults.
    #[serde(default)]
    pub faults: Vec<ActiveFault>,
}

/// What waits for a step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StepCondition {
    /// Its name.
    pub step: String,
    /// Messages that the broker has for it; `None` when it does not say.
    pub waiting: Option<u64>,
    /// Since when messages wait and it settles none.
    pub stands_still_since: Option<Timestamp>,
    /// Whether an injected fault holds it back.
    #[serde(default)]
    pub paused: bool,
}

impl Condition {
    /// How this service is now.
    pub async fn of<S: Service, X: Send + Sync>(app: &App<S, X>) -> Self {
        let (stats, steps) = tokio::join!(readiness::stats(app), steps_now(app));
        let readiness = readiness::of(app, &stats);
        let breakers = app.admission.breakers().into_iter().filter(is_worth_a_look).collect();
        let (version, faults) = (Some(names::VERSION.to_owned()), app.faults.view().faults);
        Self { version, readiness, stats: stats.ok(), breakers, steps, faults }
    }
}

fn is_worth_a_look(breaker: &BreakerView) -> bool {
    match breaker.state {
        State::Open | State::HalfOpen | State::ForcedOpen | State::ForcedClosed => true,
        State::Closed => false,
    }
}

async fn steps_now<S: Service, X: Send + Sync>(app: &App<S, X>) -> Vec<StepCondition> {
    let (now, limit) = (app.clock.now(), app.settings.readiness.max_consumer_stall);
    let steps = steps_of::<S>().into_iter().map(async |step| StepCondition {
        step: step.name.to_owned(),
        waiting: waiting_for(app, step).await,
        stands_still_since: app.standstills.since(step.name, limit, now),
        paused: app.faults.pauses(step.name),
    });
    join_all(steps).await
}

/// How many messages the broker has for a step; `None` when it does not say soon.
pub async fn waiting_for<S: Service, X: Send + Sync>(app: &App<S, X>, step: &'static Step) -> Option<u64> {
    let Some(bus) = &app.bus else { return Some(0) };
    if !bus.is_connected() {
        return None;
    }
    let durables = Durable::all(S::NAME, &[step]);
    let asked = join_all(durables.into_iter().map(|durable| bus.waiting(durable)));
    let answers = timeout(BROKER_ANSWERS_WITHIN, asked).await.ok()?;
    answers.into_iter().map(|waiting| waiting.ok().map(Waiting::all)).sum()
}
