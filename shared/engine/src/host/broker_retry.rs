//! Shell: retries of broker requests that end only with an answer.

use std::time::Duration;

use tracing::warn;

/// Pause between two tries. A broker that has just started answers after some tries.
const PAUSE: Duration = Duration::from_millis(200);

/// Retry of one request to the broker.
#[derive(Default)]
pub(super) struct BrokerRetry {
    has_warned: bool,
}

impl BrokerRetry {
    /// Logs the first failure, and pauses before the next try.
    pub(super) async fn pause_after(&mut self, failure: &str) {
        if !std::mem::replace(&mut self.has_warned, true) {
            warn!("{failure}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}
