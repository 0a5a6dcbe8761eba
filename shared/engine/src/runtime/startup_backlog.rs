//! Shell: what waited at the broker when this process started. Deadlines that passed in its absence wait for it: the message
//! that meets or extends a deadline may be among it.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::admission::StepAdmission;
use super::bus::{Bus, ConsumerProgress, Durable};

/// Time between two requests for the progress of a consumer.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// Maximum time for which deadlines wait. Longer than the broker takes to redeliver what the process before has received.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Backlog of a process at its start, shared by its loops.
#[derive(Debug, Clone)]
pub struct StartupBacklog {
    processed: CancellationToken,
}

impl StartupBacklog {
    /// Creates the backlog of a process that will consume. [`process`](Self::process) ends it.
    #[must_use]
    pub fn unknown() -> Self {
        Self { processed: CancellationToken::new() }
    }

    /// Creates the backlog of a process that consumes nothing, or for which nothing waits.
    #[must_use]
    pub fn none() -> Self {
        let backlog = Self::unknown();
        backlog.processed.cancel();
        backlog
    }

    /// True if nothing of the backlog is left, or it has taken too long.
    #[must_use]
    pub fn is_processed(&self) -> bool {
        self.processed.is_cancelled()
    }

    /// Waits until nothing of the backlog is left.
    pub(super) async fn wait(&self) {
        self.processed.cancelled().await;
    }

    /// Watches these consumers until they have acknowledged what waited for them, for a limited time. Those of blocked steps
    /// do not count.
    pub async fn process<B: Bus>(self, bus: B, consumers: Vec<(Durable, StepAdmission)>) {
        if !self.is_processed() {
            let all = consumers.iter().map(|(durable, step)| until_processed(&bus, *durable, step));
            let _ = timeout(MAX_WAIT, join_all(all)).await;
            self.processed.cancel();
        }
        std::future::pending().await
    }
}

/// Returns once the consumer has acknowledged all that the broker had delivered at a moment when no more waited.
async fn until_processed<B: Bus>(bus: &B, durable: Durable, step: &StepAdmission) {
    let mut delivered = None;
    while !step.is_blocked() {
        // The consumer may not be there yet.
        if let Ok(progress) = bus.progress(durable).await {
            let ConsumerProgress { backlog, acknowledged, .. } = progress;
            if backlog.undelivered == 0 {
                delivered.get_or_insert(progress.delivered);
            }
            if backlog.all() == 0 || delivered.is_some_and(|delivered| acknowledged >= delivered) {
                return;
            }
        }
        sleep(POLL_EVERY).await;
    }
}
