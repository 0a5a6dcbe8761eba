//! Shell: detects a publish stall: the broker is connected but accepts no messages.
//!
//! A broker that is not connected is no stall. The connection reports that by itself.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::clock::Moment;
use crate::store::PublishOutcome;

/// Current publish stall of a process, if any. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct PublishStall(Arc<Mutex<Option<Stall>>>);

#[derive(Debug)]
struct Stall {
    since: Moment,
    reason: String,
}

impl PublishStall {
    /// Records the result of a publish to a connected broker.
    pub fn record(&self, published: &PublishOutcome, now: Moment) {
        let Some((_, reason)) = &published.delayed else { return self.clear() };
        if !published.done.is_empty() {
            self.clear();
        }
        self.stalled(reason, now);
    }

    /// Records that the broker accepts nothing, with its reason. An ongoing stall keeps its start.
    pub fn stalled(&self, reason: &str, now: Moment) {
        let mut stall = self.0.lock();
        let since = stall.as_ref().map_or(now, |stall| stall.since);
        *stall = Some(Stall { since, reason: reason.to_owned() });
    }

    /// Ends the stall: the broker accepts messages, or is not connected.
    pub fn clear(&self) {
        self.0.lock().take();
    }

    /// Describes a stall that lasts longer than `limit`.
    #[must_use]
    pub fn describe(&self, limit: Duration, now: Instant) -> Option<String> {
        let stall = self.0.lock();
        let stall = stall.as_ref().filter(|stall| stall.since.is_older(limit, now))?;
        Some(format!("the broker takes no messages since {:.0}: {}", stall.since.time, stall.reason))
    }
}
