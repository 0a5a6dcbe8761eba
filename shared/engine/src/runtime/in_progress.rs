//! Shell: unfinished deliveries, which are reported to the broker as in progress.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Unfinished deliveries of one consumer. Clones share one set.
pub struct InProgress<H: Ord>(Arc<Mutex<Deliveries<H>>>);

struct Deliveries<H> {
    /// Each delivery with the number of reports before it arrived, and the number of its guards.
    unfinished: BTreeMap<H, (u64, usize)>,
    reports: u64,
}

/// Keeps one delivery in the set until dropped.
pub struct InProgressGuard<H: Ord> {
    set: InProgress<H>,
    handle: H,
}

impl<H: Ord> Clone for InProgress<H> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<H: Ord> Default for InProgress<H> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Deliveries { unfinished: BTreeMap::new(), reports: 0 })))
    }
}

impl<H: Clone + Ord> InProgress<H> {
    /// Adds a delivery, which stays in the set until its last guard is dropped. Facts of one pack share a delivery.
    pub fn add(&self, handle: H) -> InProgressGuard<H> {
        let mut all = self.0.lock();
        let reports = all.reports;
        all.unfinished.entry(handle.clone()).or_insert((reports, 0)).1 += 1;
        drop(all);
        InProgressGuard { set: self.clone(), handle }
    }

    /// Returns the deliveries that were in the set at the report before. Newer ones are too young to need one.
    pub(super) fn next_report(&self) -> Vec<H> {
        let mut all = self.0.lock();
        let reports = all.reports;
        all.reports += 1;
        let old = all.unfinished.iter().filter(|(_, (since, _))| *since < reports);
        old.map(|(handle, _)| handle.clone()).collect()
    }
}

impl<H: Ord> Drop for InProgressGuard<H> {
    fn drop(&mut self) {
        let mut all = self.set.0.lock();
        if let Some((_, guards)) = all.unfinished.get_mut(&self.handle) {
            *guards -= 1;
            if *guards == 0 {
                all.unfinished.remove(&self.handle);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_contains_deliveries_that_were_in_progress_at_the_report_before() {
        let set = InProgress::default();
        let first = set.add(1);
        assert!(set.next_report().is_empty(), "too young");
        let second = set.add(2);
        assert_eq!(set.next_report(), [1]);
        drop(first);
        let third = set.add(3);
        assert_eq!(set.next_report(), [2]);
        assert_eq!(set.next_report(), [2, 3]);
        drop((second, third));
        assert!(set.next_report().is_empty());
    }

    #[test]
    fn delivery_stays_until_the_last_of_its_facts_is_finished() {
        let set = InProgress::default();
        let facts = [set.add(1), set.add(1)];
        assert!(set.next_report().is_empty());
        let [one, other] = facts;
        drop(one);
        assert_eq!(set.next_report(), [1]);
        drop(other);
        assert!(set.next_report().is_empty() && set.0.lock().unfinished.is_empty());
    }
}
