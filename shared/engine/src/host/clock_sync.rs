//! Shell: follows the broker's clock, and reports a machine whose clock is off.

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::SignedDuration;
use saga_core::retry::error_chain;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::broker_retry::BrokerRetry;
use super::metrics::Metrics;
use crate::nats::NatsBus;
use crate::runtime::clock::{BrokerClock, Clock as _, Jump};
use crate::runtime::signed;
use crate::store::Store;

/// Synchronisation with the broker's clock (section `clock`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClockSettings {
    /// Interval between two requests for the broker's time.
    #[serde(with = "humantime_serde")]
    pub every: Duration,
    /// Offset of the machine's clock from which on the check `clock` is degraded, and a warning is logged.
    #[serde(with = "humantime_serde")]
    pub warn_offset: Duration,
}

impl Default for ClockSettings {
    fn default() -> Self {
        Self { every: Duration::from_secs(10), warn_offset: Duration::from_secs(2) }
    }
}

/// Describes the offset of the machine's clock, if it reaches `warn_offset`.
#[must_use]
pub fn offset_warning(offset: SignedDuration, settings: &ClockSettings) -> Option<String> {
    let direction = if offset.is_negative() { "behind" } else { "ahead of" };
    let seconds = offset.abs().as_secs_f64();
    let is_off = offset.abs() >= signed(settings.warn_offset);
    is_off.then(|| format!("this machine's clock is {seconds:.1}s {direction} the broker's"))
}

/// Interval of requests for the broker's time while the first answer is in doubt.
const DOUBT_PAUSE: Duration = Duration::from_secs(1);
/// Maximum duration of a usable answer of the database. Its error is up to half of that.
const TOO_SLOW: Duration = Duration::from_secs(1);

/// Asks for the broker's time until it answers, and the answer is not in doubt.
pub fn first_sync<'a>(clock: &'a BrokerClock, bus: &'a NatsBus, store: &'a dyn Store) -> BoxFuture<'a, ()> {
    Box::pin(async move {
        let (mut retry, mut doubts) = (BrokerRetry::default(), Doubts::default());
        loop {
            match sync(clock, bus, store).await {
                Ok(None) => return,
                Ok(jump) => {
                    doubts.log(jump);
                    tokio::time::sleep(DOUBT_PAUSE).await;
                }
                Err(fault) => {
                    // The stream whose metadata carries the time may have been lost with the broker's disk.
                    let restored = match bus.ensure_streams(&[]).await {
                        Ok(()) => String::new(),
                        Err(fault) => {
                            format!("; its stream cannot be created either: {}", error_chain(&fault))
                        }
                    };
                    let failure = format!("the broker does not say what time it is: {fault}{restored}");
                    retry.pause_after(&failure).await;
                }
            }
        }
    })
}

/// Synchronises at an interval, until dropped. While the broker is away, time goes on by the monotonic clock.
pub(super) async fn run(
    clock: &BrokerClock,
    bus: &NatsBus,
    store: &dyn Store,
    settings: &ClockSettings,
    metrics: &Metrics,
) {
    let (mut was_off, mut is_known, mut doubts) = (false, true, Doubts::default());
    loop {
        let offset = clock.offset();
        metrics.record_clock_offset(is_known.then_some(offset));
        let warning = offset_warning(offset, settings);
        match (&warning, was_off) {
            (Some(warning), false) => warn!("{warning}; deadlines go by the broker's"),
            (None, true) => info!("this machine's clock agrees with the broker's again"),
            (Some(_), true) | (None, false) => {}
        }
        was_off = warning.is_some();
        tokio::time::sleep(settings.every).await;
        let synced = sync(clock, bus, store).await;
        is_known = synced.is_ok();
        if let Ok(jump) = synced {
            doubts.log(jump);
        }
    }
}

/// Follows the machine's clock at an interval, for a program without a broker, until dropped.
pub(super) async fn follow_machine(clock: &BrokerClock, store: &dyn Store, settings: &ClockSettings) {
    let mut doubts = Doubts::default();
    loop {
        tokio::time::sleep(settings.every).await;
        let database = database_offset(clock, store).await;
        doubts.log(clock.follow_machine(database));
    }
}

/// Synchronises once. Returns the jump if that is doubted.
async fn sync(clock: &BrokerClock, bus: &NatsBus, store: &dyn Store) -> Result<Option<Jump>, String> {
    let database = database_offset(clock, store).await;
    let ahead = bus.clock_offset(clock).await.map_err(|fault| error_chain(&fault))?;
    Ok(clock.correct(ahead, database))
}

/// Offset by which the database's clock is ahead; `None` if it has none, or does not answer in time.
async fn database_offset(clock: &BrokerClock, store: &dyn Store) -> Option<SignedDuration> {
    let (began, before) = (Instant::now(), clock.now());
    let time = timeout(TOO_SLOW, store.clock()).await.ok()?.ok()??;
    Some(time.duration_since(before.saturating_add(began.elapsed() / 2).ok()?))
}

/// Log of doubted jumps: one line for the beginning of each, and one for its end.
#[derive(Default)]
struct Doubts(Option<Jump>);

impl Doubts {
    fn log(&mut self, jump: Option<Jump>) {
        let before = std::mem::replace(&mut self.0, jump);
        let verdict = |jump: Option<Jump>| jump.map(|jump| jump.is_refuted);
        match jump {
            _ if verdict(before) == verdict(jump) => {}
            Some(jump) => warn!("{jump}"),
            None => info!("the time is no longer in doubt"),
        }
    }
}
