//! Shell: keeps a service to the broker's time, and says so when the machine's clock is off.

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::SignedDuration;
use saga_core::retry::error_chain;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::asking::AskingAgain;
use super::metrics::Metrics;
use crate::nats::NatsBus;
use crate::runtime::clock::BrokerClock;
use crate::runtime::signed;

/// How the broker's time is followed (section `clock`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClockSettings {
    /// The broker is asked so often.
    #[serde(with = "humantime_serde")]
    pub every: Duration,
    /// From then on the log says that the machine's clock is off.
    #[serde(with = "humantime_serde")]
    pub warn_offset: Duration,
}

impl Default for ClockSettings {
    fn default() -> Self {
        Self { every: Duration::from_secs(10), warn_offset: Duration::from_secs(2) }
    }
}

/// How far the machine's clock is off, when that is worth a word.
#[must_use]
pub fn complaint(offset: SignedDuration, settings: &ClockSettings) -> Option<String> {
    let direction = if offset.is_negative() { "behind" } else { "ahead of" };
    let seconds = offset.abs().as_secs_f64();
    let is_off = offset.abs() >= signed(settings.warn_offset);
    is_off.then(|| format!("this machine's clock is {seconds:.1}s {direction} the broker's"))
}

/// Asks the broker what time it is, until it answers.
pub fn meet<'a>(clock: &'a BrokerClock, bus: &'a NatsBus) -> BoxFuture<'a, ()> {
    Box::pin(async move {
        let mut asking = AskingAgain::default();
        while let Err(fault) = ask(clock, bus).await {
            // What is asked about may have gone with the broker's disk since it was made.
            let vain = match bus.ensure_streams(&[]).await {
                Ok(()) => String::new(),
                Err(fault) => format!("; nor can it be asked about anything: {}", error_chain(&fault)),
            };
            asking.after(&format!("the broker does not say what time it is: {fault}{vain}")).await;
        }
    })
}

/// Asks again and again, until dropped. A broker that is away is asked later: the time goes on meanwhile.
pub(super) async fn keep(clock: &BrokerClock, bus: &NatsBus, settings: &ClockSettings, metrics: &Metrics) {
    let (mut is_off, mut is_known) = (false, true);
    loop {
        let offset = clock.offset();
        metrics.take_clock_offset(is_known.then_some(offset));
        let complaint = complaint(offset, settings);
        match (&complaint, is_off) {
            (Some(complaint), false) => warn!("{complaint}; deadlines go by the broker's"),
            (None, true) => info!("this machine's clock agrees with the broker's again"),
            (Some(_), true) | (None, false) => {}
        }
        is_off = complaint.is_some();
        tokio::time::sleep(settings.every).await;
        is_known = ask(clock, bus).await.is_ok();
    }
}

async fn ask(clock: &BrokerClock, bus: &NatsBus) -> Result<(), String> {
    let ahead = bus.ahead_of(clock).await.map_err(|fault| error_chain(&fault))?;
    clock.correct(ahead);
    Ok(())
}
