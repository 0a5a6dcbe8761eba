//! Shell: how many messages wait at the broker for each consumer, and whether a step stands still: messages wait for it, no
//! breaker holds it back, and it settles none. One that an injected fault pauses is as ready as it was told to be: that it
//! stands still is known, and no complaint.
//!
//! [`judge`] decides on what one look saw; [`run`] looks every few seconds, beside the loops: for metrics, and for
//! readiness.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use saga_core::service::Service;

use super::admission::StepAdmission;
use super::bus::{Bus, BusError, Durable};
use super::clock::SharedClock;
use super::observer::{Observer, SharedObserver};
use super::signed;

/// Looks in the time after which a standstill is told.
const LOOKS: u32 = 5;
/// Looks are at least this far apart, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));

/// What one look at a step saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    /// It has settled something since the last look.
    pub has_moved: bool,
    /// A breaker holds it back, which tells of itself.
    pub is_shut: bool,
    /// An injected fault does.
    pub is_paused: bool,
    /// Messages at the broker that it has not settled yet, or why that is not known.
    pub waiting: Result<u64, BusError>,
}

/// A step that settles nothing although messages wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standstill {
    /// When it was first seen so, without a break.
    pub since: Timestamp,
    /// An injected fault holds it back.
    pub is_paused: bool,
    /// Messages that waited at the last look, or why that is not known.
    pub waiting: Result<u64, BusError>,
}

/// Whether a step stands still, after a look at it; `stood` is what the look before came to.
#[must_use]
pub fn judge(stood: Option<&Standstill>, sight: Sight, now: Timestamp) -> Option<Standstill> {
    let Sight { has_moved, is_shut, is_paused, waiting } = sight;
    let stands = !has_moved && !is_shut && waiting != Ok(0);
    // After a pause it has its time to begin.
    let stood = stood.filter(|stood| stood.is_paused == is_paused);
    stands.then(|| Standstill { since: stood.map_or(now, |stood| stood.since), is_paused, waiting })
}

/// The steps of a process that stand still. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Standstills(Arc<Mutex<BTreeMap<&'static str, Standstill>>>);

impl Standstills {
    /// Takes over what a look at a step saw.
    pub fn look(&self, step: &'static str, sight: Sight, now: Timestamp) {
        let mut all = self.0.lock();
        match judge(all.get(step), sight, now) {
            Some(standstill) => drop(all.insert(step, standstill)),
            None => drop(all.remove(step)),
        }
    }

    /// Nothing is known any more.
    pub fn forget(&self) {
        self.0.lock().clear();
    }

    /// Since when a step has stood still, paused or not, when that is for longer than `limit`.
    #[must_use]
    pub fn since(&self, step: &str, limit: Duration, now: Timestamp) -> Option<Timestamp> {
        let since = self.0.lock().get(step)?.since;
        (now.duration_since(since) > signed(limit)).then_some(since)
    }

    /// Which steps have stood still for longer than `limit` with nothing that holds them back, how many messages wait for
    /// each, and since when.
    #[must_use]
    pub fn in_words(&self, limit: Duration, now: Timestamp) -> Option<String> {
        let limit = signed(limit);
        let all = self.0.lock();
        let own = all.iter().filter(|(_, standstill)| !standstill.is_paused);
        let long = own.filter(|(_, standstill)| now.duration_since(standstill.since) > limit);
        let said: Vec<_> = long
            .map(|(step, Standstill { since, waiting, .. })| match waiting {
                Ok(waiting) => {
                    format!("{step} stands still: {waiting} messages wait, none settled since {since:.0}")
                }
                Err(why) => {
                    format!("{step} settles nothing since {since:.0}, and what waits is not known: {why}")
                }
            })
            .collect();
        (!said.is_empty()).then(|| said.join("; "))
    }
}

/// Looks at `steps` until dropped, a few times within `limit`; `observer` hears what waits.
pub async fn run<S: Service, B: Bus>(
    bus: B,
    steps: Vec<StepAdmission>,
    standstills: Standstills,
    limit: Duration,
    clock: SharedClock,
    observer: SharedObserver,
) {
    let pause = (limit / LOOKS).clamp(PAUSES.0, PAUSES.1);
    let mut settled: Vec<_> = steps.iter().map(StepAdmission::settled).collect();
    loop {
        // First: right after a start the consumers are not there yet.
        tokio::time::sleep(pause).await;
        // That it is away is told elsewhere.
        let is_connected = bus.is_connected();
        if !is_connected {
            standstills.forget();
        }
        for (admission, before) in steps.iter().zip(&mut settled) {
            let waiting = waiting::<S, B>(is_connected.then_some(&bus), admission, observer.as_ref()).await;
            // What was settled while the broker was asked is no standstill.
            let settled = admission.settled();
            let has_moved = settled != std::mem::replace(before, settled);
            let is_paused = admission.is_paused();
            let is_shut = !is_paused && admission.is_shut();
            if is_connected {
                let sight = Sight { has_moved, is_shut, is_paused, waiting };
                standstills.look(admission.step().name, sight, clock.now());
            }
        }
    }
}

/// How many messages wait for a step at the broker, if it is there.
async fn waiting<S: Service, B: Bus>(
    bus: Option<&B>,
    admission: &StepAdmission,
    observer: &dyn Observer,
) -> Result<u64, BusError> {
    let mut all = Ok(0);
    for durable in Durable::all(S::NAME, &[admission.step()]) {
        let waiting = match bus {
            Some(bus) => bus.waiting(durable).await,
            None => Err("the broker is away".to_owned()),
        };
        observer.lagging(&durable.name(), waiting.as_ref().ok().copied());
        all = match (all, waiting) {
            (Ok(all), Ok(waiting)) => Ok(all + waiting),
            (Err(why), _) | (Ok(_), Err(why)) => Err(why),
        };
    }
    all
}
