//! Shell: waits for the broker that have no other end than its answer.

use std::time::Duration;

use tracing::warn;

/// Between two questions to a broker that gives no answer.
#[derive(Default)]
pub(super) struct AskingAgain {
    has_complained: bool,
}

impl AskingAgain {
    /// Says it once: a broker that has just started takes a moment, one that refuses refuses for ever. And pauses.
    pub(super) async fn after(&mut self, complaint: &str) {
        if !std::mem::replace(&mut self.has_complained, true) {
            warn!("{complaint}");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
