//! Pure: decides when the next batch may start: at once after a pause, and later the more a commit costs.
//!
//! A transaction has a fixed cost: a sync, the pages that every batch changes, a batch at the broker. A delay between two
//! batches spreads that cost over the inputs that arrive meanwhile. The delay follows the measured cost of a commit. A slow
//! commit means large batches, a slow disk or a busy processor: in each case fewer batches help.

use std::time::Duration;

/// Commit duration at which the delay reaches its maximum; at half of it the delay is an eighth of the maximum.
/// With the default of `engine.max_batch_delay`, a service at this cost spends a fifth of its time on commits. The handful
/// of services on one machine leave each other room. A service whose commits take less than a millisecond never waits.
const FULL_COST: Duration = Duration::from_millis(4);
/// Number of batches over which the cost is averaged. A single slow sync is soon forgotten.
const AVERAGED_OVER: u32 = 8;

/// Start and cost of the last batches. Times are on a monotonic clock.
#[derive(Debug)]
pub(super) struct BatchDelay {
    max: Duration,
    last_start: Duration,
    /// Average time from the start of a batch to its last answer, including a pause after a store fault.
    /// One batch counts for at most twice [`FULL_COST`].
    cost: Duration,
}

impl BatchDelay {
    /// Creates a delay of at most `max` between the starts of two batches.
    pub(super) const fn new(max: Duration) -> Self {
        Self { max, last_start: Duration::ZERO, cost: Duration::ZERO }
    }

    /// Earliest start of the next batch, which may be in the past.
    pub(super) fn next(&self) -> Duration {
        let cost = self.cost.div_duration_f64(FULL_COST).min(1.0);
        self.last_start + self.max.mul_f64(cost.powi(3))
    }

    /// Records the start of a batch.
    pub(super) const fn started(&mut self, at: Duration) {
        self.last_start = at;
    }

    /// Records the end of a batch, stored or not.
    pub(super) fn ended(&mut self, at: Duration) {
        let cost = at.saturating_sub(self.last_start).min(FULL_COST * 2);
        self.cost = (self.cost * (AVERAGED_OVER - 1) + cost) / AVERAGED_OVER;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_millis(20);

    /// Delay between two batches after a hundred of this cost.
    fn delay_at(cost: Duration) -> Duration {
        let (mut delay, mut at) = (BatchDelay::new(MAX), Duration::ZERO);
        for _ in 0..100 {
            at = at.max(delay.next());
            delay.started(at);
            at += cost;
            delay.ended(at);
        }
        delay.next() - (at - cost)
    }

    #[test]
    fn batch_after_a_pause_starts_at_once() {
        let (mut delay, mut at) = (BatchDelay::new(MAX), Duration::ZERO);
        assert_eq!(delay.next(), Duration::ZERO);
        for _ in 0..100 {
            delay.started(at);
            at += FULL_COST;
            delay.ended(at);
        }
        assert!(delay.next() > at);
        let after_pause = at + MAX;
        assert!(delay.next() <= after_pause);
    }

    #[test]
    fn delay_grows_with_the_third_power_of_the_commit_cost() {
        let [half, quarter] = [2, 4].map(|part| delay_at(FULL_COST / part));
        assert!(half.abs_diff(MAX / 8) < MAX / 100, "{half:?}");
        assert!(quarter.abs_diff(MAX / 64) < MAX / 100, "{quarter:?}");
    }

    #[test]
    fn delay_never_exceeds_its_maximum() {
        assert_eq!(delay_at(Duration::from_secs(1)), MAX);
    }

    #[test]
    fn single_slow_batch_is_soon_forgotten() {
        let (mut delay, mut at) = (BatchDelay::new(MAX), Duration::ZERO);
        for cost in std::iter::once(Duration::from_secs(2)).chain([Duration::from_micros(500); 30]) {
            delay.started(at);
            at += cost;
            delay.ended(at);
        }
        let apart = delay.next() - (at - Duration::from_micros(500));
        assert!(apart < Duration::from_millis(2), "{apart:?}");
    }

    #[test]
    fn delay_of_zero_never_waits() {
        let mut delay = BatchDelay::new(Duration::ZERO);
        delay.started(Duration::from_millis(100));
        delay.ended(Duration::from_millis(200));
        assert_eq!(delay.next(), Duration::from_millis(100));
    }
}
