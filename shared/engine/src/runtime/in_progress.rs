//! Shell: reports unfinished deliveries to the broker as in progress, so that it does not redeliver them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use super::bus::{Bus, HandleOf};

/// Reports within one acknowledgement wait of the broker.
const REPORTS_PER_ACK_WAIT: u32 = 3;

/// Unfinished deliveries of one consumer. Clones share one set.
pub(super) struct InProgress<H>(Arc<Mutex<Slots<H>>>);

/// Slots are reused, so that the set allocates only while it grows.
struct Slots<H> {
    /// Deliveries, each with the number of reports before it arrived.
    slots: Vec<Option<(u64, H)>>,
    free: Vec<usize>,
    reports: u64,
}

/// Keeps one delivery in the set until dropped.
pub(super) struct InProgressGuard<H> {
    set: InProgress<H>,
    slot: usize,
}

impl<H> Clone for InProgress<H> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<H: Clone + PartialEq> InProgress<H> {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Slots { slots: vec![], free: vec![], reports: 0 })))
    }

    pub(super) fn add(&self, handle: H) -> InProgressGuard<H> {
        let mut all = self.0.lock();
        let entry = Some((all.reports, handle));
        let slot = match all.free.pop() {
            Some(slot) => {
                all.slots[slot] = entry;
                slot
            }
            None => {
                all.slots.push(entry);
                all.slots.len() - 1
            }
        };
        drop(all);
        InProgressGuard { set: self.clone(), slot }
    }

    /// Returns the deliveries that were in the set at the report before. Newer ones are too young to need one.
    fn next_report(&self) -> Vec<H> {
        let mut all = self.0.lock();
        let reports = all.reports;
        all.reports += 1;
        let old = all.slots.iter().flatten().filter(|(since, _)| *since < reports);
        let mut handles: Vec<_> = old.map(|(_, handle)| handle.clone()).collect();
        // Facts of one pack share a handle, and mostly lie side by side.
        handles.dedup();
        handles
    }
}

impl<H> Drop for InProgressGuard<H> {
    fn drop(&mut self) {
        let mut all = self.set.0.lock();
        all.slots[self.slot] = None;
        all.free.push(self.slot);
    }
}

/// Reports the deliveries in `set` until dropped.
pub(super) async fn report<B: Bus>(bus: &B, set: InProgress<HandleOf<B>>) {
    let mut tick = interval((bus.ack_wait() / REPORTS_PER_ACK_WAIT).max(Duration::from_millis(1)));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        for handle in set.next_report() {
            if let Err(error) = bus.in_progress(&handle).await {
                debug!("in-progress report not sent, deliveries may come again: {error}");
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_contains_deliveries_that_were_in_progress_at_the_report_before() {
        let set = InProgress::new();
        let first = set.add(1);
        assert!(set.next_report().is_empty(), "too young");
        let second = set.add(2);
        assert_eq!(set.next_report(), [1]);
        drop(first);
        let third = set.add(3);
        assert_eq!(set.next_report(), [2]);
        assert_eq!(set.next_report(), [3, 2], "in the slot of the first");
        drop((second, third));
        assert!(set.next_report().is_empty());
        assert_eq!(set.0.lock().slots.len(), 2);
    }
}
