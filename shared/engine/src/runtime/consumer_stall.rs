//! Shell: detects consumer stalls: messages wait for a step, no breaker blocks it, and it processes none.
//!
//! A step that an injected fault pauses is reported as paused, which is no complaint. Of processes that share consumers,
//! each answers for the messages that it has or could take. [`assess`] decides on one observation. [`run`] observes every
//! few seconds, for metrics and for readiness.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use saga_core::service::Service;
use tokio::time::Instant;

use super::admission::StepAdmission;
use super::bus::{Backlog, Bus, BusError, Durable};
use super::clock::{Moment, SharedClock};
use super::observer::{Observer, SharedObserver};

/// Observations within the time after which a stall is reported.
const OBSERVATIONS: u32 = 5;
/// Minimum and maximum time between two observations.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));

/// Role of this process among those that share the consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaRole {
    /// Only process that consumes, such as on SQLite.
    Only,
    /// Process among several, none of which is served before it.
    Peer,
    /// Process that the broker serves after the leader. Undelivered messages are the leader's concern.
    Follower,
}

/// Observation of one step since the observation before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// True if the step has processed a message since the last observation.
    pub has_progressed: bool,
    /// True if a breaker blocks the step. The breaker reports that by itself.
    pub is_blocked: bool,
    /// True if an injected fault pauses the step.
    pub is_paused: bool,
    /// Role of this process at the moment.
    pub role: ReplicaRole,
    /// True if this process has messages in flight, or has failed to store some that will be redelivered.
    pub has_own: bool,
    /// Unacknowledged messages of the step at the broker, or the reason why they are unknown.
    pub backlog: Result<Backlog, BusError>,
}

impl Observation {
    /// True if messages wait that this process is responsible for.
    fn has_waiting(&self) -> bool {
        match &self.backlog {
            Ok(backlog) => match self.role {
                ReplicaRole::Only => backlog.all() > 0,
                ReplicaRole::Peer => {
                    backlog.has_deliverable() || (self.has_own && backlog.unacknowledged > 0)
                }
                ReplicaRole::Follower => self.has_own && backlog.unacknowledged > 0,
            },
            Err(_) => true,
        }
    }
}

/// Stall of one step, from its first observation on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerStall {
    /// First observation of the stall.
    pub since: Moment,
    /// True if an injected fault pauses the step.
    pub is_paused: bool,
    /// Messages that waited at the last observation, or the reason why they are unknown.
    pub waiting: Result<u64, BusError>,
}

/// Decides whether a step is stalled. `before` is the result of the observation before.
#[must_use]
pub fn assess(
    before: Option<&ConsumerStall>,
    observation: Observation,
    now: Moment,
) -> Option<ConsumerStall> {
    let is_stalled = !observation.has_progressed && !observation.is_blocked && observation.has_waiting();
    let (is_paused, waiting) = (observation.is_paused, observation.backlog.map(Backlog::all));
    // The end of a pause starts a new stall: the step needs time to begin.
    let before = before.filter(|before| before.is_paused == is_paused);
    is_stalled.then(|| ConsumerStall { since: before.map_or(now, |before| before.since), is_paused, waiting })
}

/// Stalled steps of a process. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct ConsumerStalls(Arc<Mutex<BTreeMap<&'static str, ConsumerStall>>>);

impl ConsumerStalls {
    /// Records an observation of a step.
    pub fn record(&self, step: &'static str, observation: Observation, now: Moment) {
        let mut all = self.0.lock();
        match assess(all.get(step), observation, now) {
            Some(stall) => drop(all.insert(step, stall)),
            None => drop(all.remove(step)),
        }
    }

    /// Forgets all stalls, as after a lost connection.
    pub fn clear(&self) {
        self.0.lock().clear();
    }

    /// Start of a stall, paused or not, that lasts longer than `limit`.
    #[must_use]
    pub fn stalled_since(&self, step: &str, limit: Duration, now: Instant) -> Option<Timestamp> {
        let since = self.0.lock().get(step)?.since;
        since.is_older(limit, now).then_some(since.time)
    }

    /// Describes the stalls, without paused steps, that last longer than `limit`.
    #[must_use]
    pub fn describe(&self, limit: Duration, now: Instant) -> Option<String> {
        let all = self.0.lock();
        let active = all.iter().filter(|(_, stall)| !stall.is_paused);
        let long = active.filter(|(_, stall)| stall.since.is_older(limit, now));
        let texts: Vec<_> = long
            .map(|(step, ConsumerStall { since, waiting, .. })| match waiting {
                Ok(waiting) => {
                    format!(
                        "{step} is stalled: {waiting} messages wait, none processed since {:.0}",
                        since.time
                    )
                }
                Err(reason) => {
                    format!("{step} processes nothing since {:.0}: {reason}", since.time)
                }
            })
            .collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// Counters of a step at the last observation.
struct Before {
    processed: u64,
    unstored: u64,
    /// Time at which a message was last seen to fail in the store. It is redelivered some time after.
    unstored_at: Option<Instant>,
}

impl Before {
    fn of(admission: &StepAdmission) -> Self {
        Self { processed: admission.processed(), unstored: admission.unstored(), unstored_at: None }
    }

    /// Updates the counters. Returns whether the step has progressed, and whether this process has messages of it, or
    /// expects a redelivery within `redelivery`.
    fn update(&mut self, admission: &StepAdmission, redelivery: Duration) -> (bool, bool) {
        let (processed, unstored) = (admission.processed(), admission.unstored());
        let has_progressed = processed != std::mem::replace(&mut self.processed, processed);
        if unstored != std::mem::replace(&mut self.unstored, unstored) {
            self.unstored_at = Some(Instant::now());
        }
        let is_expected = self.unstored_at.is_some_and(|at| at.elapsed() <= redelivery);
        (has_progressed, is_expected || admission.in_flight() > 0)
    }
}

/// Inputs of [`run`], beside broker and steps.
pub struct StallWatch<R> {
    /// Role of this process now.
    pub role: R,
    /// Stalls found, shared with the readiness check.
    pub stalls: ConsumerStalls,
    /// Time after which a stall is reported. Steps are observed several times within it.
    pub limit: Duration,
    /// Clock that stamps the start of stalls.
    pub clock: SharedClock,
    /// Observer of the backlog of each consumer.
    pub observer: SharedObserver,
}

/// Observes `steps` until dropped, for metrics and readiness.
pub async fn run<S: Service, B: Bus>(
    bus: B,
    steps: Vec<StepAdmission>,
    watch: StallWatch<impl Fn() -> ReplicaRole + Send>,
) {
    let StallWatch { role, stalls, limit, clock, observer } = watch;
    let pause = (limit / OBSERVATIONS).clamp(PAUSES.0, PAUSES.1);
    // A redelivery is seen at the next observation.
    let redelivery = bus.ack_wait() + pause;
    let mut befores: Vec<_> = steps.iter().map(Before::of).collect();
    loop {
        // Sleeps first: right after a start the consumers do not exist yet.
        tokio::time::sleep(pause).await;
        // A lost connection is reported by the connection.
        let is_connected = bus.is_connected();
        if !is_connected {
            stalls.clear();
        }
        for (admission, before) in steps.iter().zip(&mut befores) {
            let backlog =
                backlog_of::<S, B>(is_connected.then_some(&bus), admission, observer.as_ref()).await;
            // Read after the backlog, so that what was processed meanwhile counts as progress.
            let (has_progressed, has_own) = before.update(admission, redelivery);
            // Other consumers of the step may progress, and one with another filter has no backlog.
            let (has_progressed, backlog) = match admission.unusable_consumers() {
                Some(reason) => (false, Err(format!("it cannot consume, {reason}"))),
                None => (has_progressed, backlog.map_err(|reason| format!("backlog unknown, {reason}"))),
            };
            let is_paused = admission.is_paused();
            let is_blocked = !is_paused && admission.is_blocked();
            if is_connected {
                let observation =
                    Observation { has_progressed, is_blocked, is_paused, role: role(), has_own, backlog };
                stalls.record(admission.step().name, observation, Moment::now(clock.as_ref()));
            }
        }
    }
}

/// Sums the backlog of all consumers of a step.
async fn backlog_of<S: Service, B: Bus>(
    bus: Option<&B>,
    admission: &StepAdmission,
    observer: &dyn Observer,
) -> Result<Backlog, BusError> {
    let mut all = Ok(Backlog::default());
    for durable in Durable::all(S::NAME, &[admission.step()]) {
        let backlog = match bus {
            Some(bus) => bus.progress(durable).await.map(|progress| progress.backlog),
            None => Err("the broker is not connected".to_owned()),
        };
        observer.consumer_backlog(&durable.name(), backlog.as_ref().ok().map(|backlog| backlog.all()));
        all = match (all, backlog) {
            (Ok(all), Ok(backlog)) => Ok(sum(all, backlog)),
            (Err(reason), _) | (Ok(_), Err(reason)) => Err(reason),
        };
    }
    all
}

/// Adds two backlogs. The sum is full only if neither has deliverable messages.
fn sum(one: Backlog, other: Backlog) -> Backlog {
    Backlog {
        undelivered: one.undelivered + other.undelivered,
        unacknowledged: one.unacknowledged + other.unacknowledged,
        is_full: !one.has_deliverable() && !other.has_deliverable(),
    }
}
