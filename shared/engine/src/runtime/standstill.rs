//! Shell: how many messages wait at the broker for each consumer, and whether a step stands still: messages wait for it, no
//! breaker holds it back, and it settles none. One that an injected fault pauses is as ready as it was told to be: that it
//! stands still is known, and no complaint. Of processes that share the consumers, each answers for what it could take and
//! for what it has, and not for what another one has.
//!
//! [`judge`] decides on what one look saw; [`run`] looks every few seconds, beside the loops: for metrics, and for
//! readiness.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use saga_core::service::Service;
use tokio::time::Instant;

use super::admission::StepAdmission;
use super::bus::{Bus, BusError, Durable, Waiting};
use super::clock::SharedClock;
use super::observer::{Observer, SharedObserver};
use super::signed;

/// Looks in the time after which a standstill is told.
const LOOKS: u32 = 5;
/// Looks are at least this far apart, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));

/// Who takes the messages of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// This process alone.
    Whole,
    /// Other processes too, and none before this one.
    Equal,
    /// Another one before this one: what nobody has is that one's.
    Rest,
}

/// What one look at a step saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    /// It has settled something since the last look.
    pub has_moved: bool,
    /// A breaker holds it back, which tells of itself.
    pub is_shut: bool,
    /// An injected fault does.
    pub is_paused: bool,
    /// Who else may take its messages.
    pub share: Share,
    /// This process has some of the messages, or has tried some in vain that come again.
    pub has_some: bool,
    /// Messages at the broker that are not settled yet, whoever has them, or why that is not known.
    pub waiting: Result<Waiting, BusError>,
}

impl Sight {
    /// Whether messages wait that this process may be asked about.
    fn awaits(&self) -> bool {
        match &self.waiting {
            Ok(waiting) => match self.share {
                Share::Whole => waiting.all() > 0,
                Share::Equal => waiting.gives_some() || (self.has_some && waiting.delivered > 0),
                Share::Rest => self.has_some && waiting.delivered > 0,
            },
            Err(_) => true,
        }
    }
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
    let stands = !sight.has_moved && !sight.is_shut && sight.awaits();
    let (is_paused, waiting) = (sight.is_paused, sight.waiting.map(Waiting::all));
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

/// What was known of a step at the last look at it.
struct Before {
    settled: u64,
    cut_off: u64,
    /// When something was last seen to be tried in vain: so long after that it is delivered again, to whoever.
    cut_off_at: Option<Instant>,
}

impl Before {
    fn of(admission: &StepAdmission) -> Self {
        Self { settled: admission.settled(), cut_off: admission.cut_off(), cut_off_at: None }
    }

    /// Whether it has settled something since, and whether it has something or will have it again within `comes_again`.
    fn look(&mut self, admission: &StepAdmission, comes_again: Duration) -> (bool, bool) {
        let (settled, cut_off) = (admission.settled(), admission.cut_off());
        let has_moved = settled != std::mem::replace(&mut self.settled, settled);
        if cut_off != std::mem::replace(&mut self.cut_off, cut_off) {
            self.cut_off_at = Some(Instant::now());
        }
        let comes_again = self.cut_off_at.is_some_and(|at| at.elapsed() <= comes_again);
        (has_moved, comes_again || admission.held() > 0)
    }
}

/// Looks at `steps` until dropped, a few times within `limit`; `observer` hears what waits, and `share` says who takes it.
pub async fn run<S: Service, B: Bus>(
    bus: B,
    steps: Vec<StepAdmission>,
    share: impl Fn() -> Share + Send,
    standstills: Standstills,
    limit: Duration,
    clock: SharedClock,
    observer: SharedObserver,
) {
    let pause = (limit / LOOKS).clamp(PAUSES.0, PAUSES.1);
    // A look later it is seen.
    let comes_again = bus.ack_wait() + pause;
    let mut befores: Vec<_> = steps.iter().map(Before::of).collect();
    loop {
        // First: right after a start the consumers are not there yet.
        tokio::time::sleep(pause).await;
        // That it is away is told elsewhere.
        let is_connected = bus.is_connected();
        if !is_connected {
            standstills.forget();
        }
        for (admission, before) in steps.iter().zip(&mut befores) {
            let waiting = waiting::<S, B>(is_connected.then_some(&bus), admission, observer.as_ref()).await;
            // What was settled while the broker was asked is no standstill.
            let (has_moved, has_some) = before.look(admission, comes_again);
            let is_paused = admission.is_paused();
            let is_shut = !is_paused && admission.is_shut();
            if is_connected {
                let sight = Sight { has_moved, is_shut, is_paused, share: share(), has_some, waiting };
                standstills.look(admission.step().name, sight, clock.now());
            }
        }
    }
}

/// The messages that wait for a step at the broker, if it is there.
async fn waiting<S: Service, B: Bus>(
    bus: Option<&B>,
    admission: &StepAdmission,
    observer: &dyn Observer,
) -> Result<Waiting, BusError> {
    let mut all = Ok(Waiting::default());
    for durable in Durable::all(S::NAME, &[admission.step()]) {
        let waiting = match bus {
            Some(bus) => bus.waiting(durable).await,
            None => Err("the broker is away".to_owned()),
        };
        observer.lagging(&durable.name(), waiting.as_ref().ok().map(|waiting| waiting.all()));
        all = match (all, waiting) {
            (Ok(all), Ok(waiting)) => Ok(both(all, waiting)),
            (Err(why), _) | (Ok(_), Err(why)) => Err(why),
        };
    }
    all
}

/// What waits for both. None is full as long as one of them could still get some that wait for it.
fn both(one: Waiting, other: Waiting) -> Waiting {
    Waiting {
        undelivered: one.undelivered + other.undelivered,
        delivered: one.delivered + other.delivered,
        is_full: !one.gives_some() && !other.gives_some(),
    }
}
