//! Pure: how long a batch waits for more to come: not at all at rest, and longer the more comes.
//!
//! What a transaction costs, it costs however much it carries: a sync, the pages that every batch changes, a batch at the
//! broker. Waiting a moment for more divides that by what has come meanwhile.

use std::time::Duration;

/// Inputs per second at which a batch waits as long as it may; at half of that an eighth, so that a service which is only
/// half at work answers nearly as soon as one at rest.
const FULL_RATE: u64 = 6_000;
/// From so many inputs per second on a line of log for each costs more than many of them tell.
const BUSY_RATE: u64 = 500;
/// What came in the meantime is counted at most so often.
const COUNTED_EVERY: Duration = Duration::from_millis(50);
/// A pause this long is a rest: what came before says nothing any more.
const REST: Duration = Duration::from_millis(500);
/// The runtime's timers are no finer.
const SHORTEST: Duration = Duration::from_millis(1);

/// What is known of the rate at which inputs arrive.
#[derive(Debug)]
pub(super) struct Gathering {
    longest: Duration,
    /// Inputs per second.
    rate: u64,
    /// Inputs since it was counted.
    count: u64,
    counted_at: Duration,
}

impl Gathering {
    /// Waits this long at most.
    pub(super) const fn new(longest: Duration) -> Self {
        Self { longest, rate: 0, count: 0, counted_at: Duration::ZERO }
    }

    /// A batch of so many inputs was taken at this time, on a clock that does not go back.
    pub(super) fn taken(&mut self, inputs: usize, at: Duration) {
        self.count += inputs as u64;
        let since = at.saturating_sub(self.counted_at);
        if since < COUNTED_EVERY {
            return;
        }
        let micros = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        let rate = self.count.saturating_mul(1_000_000) / micros;
        self.rate = if since >= REST { rate } else { (self.rate + rate) / 2 };
        (self.count, self.counted_at) = (0, at);
    }

    /// Whether so much comes that nobody reads a line about each.
    pub(super) const fn is_busy(&self) -> bool {
        self.rate >= BUSY_RATE
    }

    /// How long the next batch may wait, counted from its first input.
    pub(super) fn window(&self) -> Option<Duration> {
        let rate = self.rate.min(FULL_RATE);
        let longest = u64::try_from(self.longest.as_micros()).unwrap_or(u64::MAX);
        let window = longest.saturating_mul(rate.pow(3)) / FULL_RATE.pow(3);
        Some(Duration::from_micros(window)).filter(|window| *window >= SHORTEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The window after a second of so many inputs, in batches of ten.
    fn window_at(rate: u64) -> Option<Duration> {
        let mut gathering = Gathering::new(Duration::from_millis(15));
        for batch in 1..=rate / 10 {
            gathering.taken(10, Duration::from_micros(batch * 10_000_000 / rate));
        }
        gathering.window()
    }

    #[test]
    fn it_waits_for_nothing_at_rest_and_longer_the_more_comes() {
        assert_eq!(Gathering::new(Duration::from_millis(15)).window(), None);
        assert_eq!(window_at(100), None);
        let (half, full) = (window_at(FULL_RATE / 2), window_at(FULL_RATE));
        assert!(half < full, "{half:?} at half the rate, {full:?} at the whole");
        assert!(half.is_some_and(|half| half < Duration::from_millis(3)), "{half:?}");
        assert!(full.is_some_and(|full| full > Duration::from_millis(13)), "{full:?}");
    }

    #[test]
    fn it_never_waits_longer_than_it_may() {
        assert_eq!(window_at(1_000_000), Some(Duration::from_millis(15)));
    }

    #[test]
    fn after_a_rest_it_waits_for_nothing_again() {
        let mut gathering = Gathering::new(Duration::from_millis(15));
        gathering.taken(1_000, Duration::from_millis(100));
        assert!(gathering.window().is_some());
        gathering.taken(1, Duration::from_secs(2));
        assert_eq!(gathering.window(), None);
    }

    #[test]
    fn nothing_is_waited_for_where_that_is_switched_off() {
        let mut gathering = Gathering::new(Duration::ZERO);
        gathering.taken(1_000, Duration::from_millis(100));
        assert_eq!(gathering.window(), None);
    }
}
