//! Shell: one look at everything, bounded in time whatever is down.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep_until};

use super::metrics::Reading;
use super::state::Look;
use crate::overview::Asked;

/// A look begins so long after the last began, or when that has ended.
pub const EVERY: Duration = Duration::from_secs(1);

/// Who looks.
pub struct Eyes {
    pub asked: Asked,
    opened: Instant,
}

impl Eyes {
    pub fn open(asked: Asked) -> Self {
        Self { asked, opened: Instant::now() }
    }

    /// Asks everybody at once. Who does not answer is no error.
    ///
    /// # Errors
    /// When nobody can be asked, as there is no HTTP client.
    pub async fn look(&self) -> anyhow::Result<Look> {
        let (at, clock) = (Timestamp::now(), self.opened.elapsed());
        let (processes, overview, metrics) =
            tokio::join!(self.asked.processes(), self.asked.overview(), self.asked.metrics());
        Ok(Look {
            at,
            clock,
            overview,
            reading: metrics.ok().map(|text| Reading::of(&text)),
            processes: processes?,
        })
    }

    /// Until a look is due that is to begin at the next second since these eyes were opened.
    pub async fn wait(&self) {
        let begun = self.opened.elapsed().as_secs();
        sleep_until(self.opened + EVERY * u32::try_from(begun + 1).unwrap_or(u32::MAX)).await;
    }
}
