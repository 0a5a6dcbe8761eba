//! Pure: when the next batch may begin: at once at rest, and the later the more it costs to store one.
//!
//! What a transaction costs, it costs however much it carries: a sync, the pages that every batch changes, a batch at the
//! broker. A moment between two divides that by what has come meanwhile. How long a moment is, storing says itself: where it
//! takes longer, as much has come, the disk is slow, or the processor has much else to do, fewer batches are what helps.

use std::time::Duration;

/// When storing a batch takes so long, they begin as far apart as they may; when it takes half as long, an eighth as far.
/// With the default of `engine.max_batch_delay` a service whose batches take this long stores for a fifth of its time, so that the
/// handful that share the cores of one machine leave each other room; one whose batches take less than a millisecond waits
/// for nothing.
const FULL_COST: Duration = Duration::from_millis(4);
/// What one batch cost counts for so much of what they cost: a stumble of the disk is soon forgotten.
const SHARE_OF_ONE: u32 = 8;

/// What is known of the batches so far. Times are on a clock that does not go back.
#[derive(Debug)]
pub(super) struct Gathering {
    longest: Duration,
    /// When the last batch began.
    began: Duration,
    /// From the beginning of one to its last answer, of late; a pause after a fault counts as part of it. At most twice
    /// [`FULL_COST`] of each.
    cost: Duration,
}

impl Gathering {
    /// Two batches begin at most this far apart, while anything waits.
    pub(super) const fn new(longest: Duration) -> Self {
        Self { longest, began: Duration::ZERO, cost: Duration::ZERO }
    }

    /// When the next batch begins, at the earliest: that may be long ago.
    pub(super) fn next(&self) -> Duration {
        let cost = self.cost.div_duration_f64(FULL_COST).min(1.0);
        self.began + self.longest.mul_f64(cost.powi(3))
    }

    /// A batch begins now.
    pub(super) const fn begins(&mut self, at: Duration) {
        self.began = at;
    }

    /// It is stored, or could not be.
    pub(super) fn ended(&mut self, at: Duration) {
        let cost = at.saturating_sub(self.began).min(FULL_COST * 2);
        self.cost = (self.cost * (SHARE_OF_ONE - 1) + cost) / SHARE_OF_ONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_millis(20);

    /// How far apart two batches begin after a hundred that took so long to store.
    fn apart_at(cost: Duration) -> Duration {
        let (mut gathering, mut at) = (Gathering::new(LONGEST), Duration::ZERO);
        for _ in 0..100 {
            at = at.max(gathering.next());
            gathering.begins(at);
            at += cost;
            gathering.ended(at);
        }
        gathering.next() - (at - cost)
    }

    #[test]
    fn what_comes_after_a_rest_is_stored_at_once() {
        let (mut gathering, mut at) = (Gathering::new(LONGEST), Duration::ZERO);
        assert_eq!(gathering.next(), Duration::ZERO);
        for _ in 0..100 {
            gathering.begins(at);
            at += FULL_COST;
            gathering.ended(at);
        }
        assert!(gathering.next() > at);
        let rested = at + LONGEST;
        assert!(gathering.next() <= rested);
    }

    #[test]
    fn batches_are_the_further_apart_the_longer_it_takes_to_store_one() {
        let [half, quarter] = [2, 4].map(|part| apart_at(FULL_COST / part));
        assert!(half.abs_diff(LONGEST / 8) < LONGEST / 100, "{half:?}");
        assert!(quarter.abs_diff(LONGEST / 64) < LONGEST / 100, "{quarter:?}");
    }

    #[test]
    fn they_are_never_further_apart_than_they_may() {
        assert_eq!(apart_at(Duration::from_secs(1)), LONGEST);
    }

    #[test]
    fn one_that_took_long_is_soon_forgotten() {
        let (mut gathering, mut at) = (Gathering::new(LONGEST), Duration::ZERO);
        for cost in std::iter::once(Duration::from_secs(2)).chain([Duration::from_micros(500); 30]) {
            gathering.begins(at);
            at += cost;
            gathering.ended(at);
        }
        let apart = gathering.next() - (at - Duration::from_micros(500));
        assert!(apart < Duration::from_millis(2), "{apart:?}");
    }

    #[test]
    fn nothing_is_waited_for_where_that_is_switched_off() {
        let mut gathering = Gathering::new(Duration::ZERO);
        gathering.begins(Duration::from_millis(100));
        gathering.ended(Duration::from_millis(200));
        assert_eq!(gathering.next(), Duration::from_millis(100));
    }
}
