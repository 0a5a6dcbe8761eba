//! Shell: follows the broker's clock, and reports a machine whose clock is off.

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::SignedDuration;
use saga_core::retry::error_chain;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::broker_retry::BrokerRetry;
use super::metrics::Metrics;
use crate::nats::NatsBus;
use crate::runtime::clock::BrokerClock;
use crate::runtime::signed;

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

/// Asks for the broker's time until it answers.
pub fn first_sync<'a>(clock: &'a BrokerClock, bus: &'a NatsBus) -> BoxFuture<'a, ()> {
    Box::pin(async move {
        let mut retry = BrokerRetry::default();
        while let Err(fault) = sync(clock, bus).await {
            // The stream whose metadata carries the time may have been lost with the broker's disk.
            let restored = match bus.ensure_streams(&[]).await {
                Ok(()) => String::new(),
                Err(fault) => format!("; its stream cannot be created either: {}", error_chain(&fault)),
            };
            retry.pause_after(&format!("the broker does not say what time it is: {fault}{restored}")).await;
        }
    })
}

/// Synchronises at an interval, until dropped. While the broker is away, time goes on by the monotonic clock.
pub(super) async fn run(clock: &BrokerClock, bus: &NatsBus, settings: &ClockSettings, metrics: &Metrics) {
    let (mut was_off, mut is_known) = (false, true);
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
        is_known = sync(clock, bus).await.is_ok();
    }
}

async fn sync(clock: &BrokerClock, bus: &NatsBus) -> Result<(), String> {
    let ahead = bus.clock_offset(clock).await.map_err(|fault| error_chain(&fault))?;
    clock.correct(ahead);
    Ok(())
}
