//! Shell: takes samples of a system, each bounded in time.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep_until};

use super::metrics::SagaMetrics;
use super::state::Sample;
use crate::overview::Source;

/// Time between the starts of two samples, unless one takes longer.
pub const PERIOD: Duration = Duration::from_secs(1);

pub struct Sampler {
    pub source: Source,
    start: Instant,
}

impl Sampler {
    pub fn new(source: Source) -> Self {
        Self { source, start: Instant::now() }
    }

    /// Takes a sample. An admin that does not answer is part of it.
    pub async fn sample(&self) -> anyhow::Result<Sample> {
        let (at, elapsed) = (Timestamp::now(), self.start.elapsed());
        let source = &self.source;
        let (processes, overview, metrics) =
            tokio::join!(source.processes(), source.overview(), source.metrics());
        let metrics = metrics.ok().map(|text| SagaMetrics::parse(&text));
        Ok(Sample { at, elapsed, overview, metrics, processes: processes? })
    }

    /// Waits for the next full second since the start.
    pub async fn next_tick(&self) {
        let elapsed = self.start.elapsed().as_secs();
        sleep_until(self.start + PERIOD * u32::try_from(elapsed + 1).unwrap_or(u32::MAX)).await;
    }
}
