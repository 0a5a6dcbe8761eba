//! Shell: progress of the outbox, as the database shows it to replicas that do not publish.
//!
//! The replica that publishes knows by itself that the broker takes nothing ([`super::publish_stall`]). The others see that
//! the oldest entry stays the same.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Oldest unpublished entry, and how long it has been that. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct OutboxProgress(Arc<Mutex<Option<Waiting>>>);

#[derive(Debug)]
struct Waiting {
    created_at: Timestamp,
    /// Time of the first observation. The entry's own time is that of other clocks, and of a backlog that may shrink.
    since: Instant,
}

impl OutboxProgress {
    /// Records the creation time of the oldest unpublished entry. `None` if there is none, if this process publishes itself, or
    /// if it does not reach the broker.
    pub fn observe(&self, oldest: Option<Timestamp>, now: Instant) {
        let mut waiting = self.0.lock();
        let is_same =
            waiting.as_ref().is_some_and(|waiting| oldest.is_some_and(|oldest| oldest == waiting.created_at));
        if !is_same {
            *waiting = oldest.map(|created_at| Waiting { created_at, since: now });
        }
    }

    /// Describes an outbox without progress for longer than `limit`.
    #[must_use]
    pub fn describe_stall(&self, limit: Duration, now: Instant) -> Option<String> {
        let waiting = self.0.lock();
        let took = now.duration_since(waiting.as_ref()?.since);
        (took > limit).then(|| format!("no outbox entry was published for {}s by the leader", took.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn outbox_is_stalled_while_its_oldest_entry_stays_the_same() {
        let (progress, origin) = (OutboxProgress::default(), Instant::now());
        let after = |seconds| origin + Duration::from_secs(seconds);
        let entry = |second| Some(Timestamp::constant(second, 0));
        let is_stalled = |at| progress.describe_stall(LIMIT, after(at)).is_some();
        progress.observe(entry(1), after(0));
        progress.observe(entry(1), after(10));
        assert!(!is_stalled(10) && is_stalled(11));
        progress.observe(entry(2), after(11));
        assert!(!is_stalled(21), "one was published, however old the next is");
        progress.observe(None, after(21));
        assert!(!is_stalled(99));
        progress.observe(entry(2), after(99));
        assert!(!is_stalled(109) && is_stalled(110));
    }
}
