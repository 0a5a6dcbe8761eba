//! Pure: how much comes, and whether that is so much that nobody reads a line of log about each.

use std::time::Duration;

/// From so many inputs per second on a line for each costs more than many of them tell.
const BUSY_RATE: u64 = 500;
/// What came in the meantime is counted at most so often.
const COUNTED_EVERY: Duration = Duration::from_millis(50);
/// A pause this long is a rest: what came before says nothing any more.
const REST: Duration = Duration::from_millis(500);

/// What came of late. Times are on a clock that does not go back.
#[derive(Debug, Default)]
pub(super) struct Rush {
    /// Inputs per second.
    rate: u64,
    /// Inputs since it was counted.
    count: u64,
    counted_at: Duration,
}

impl Rush {
    /// So many inputs have come.
    pub(super) fn came(&mut self, inputs: usize, at: Duration) {
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

    /// Whether so much comes.
    pub(super) const fn is_on(&self) -> bool {
        self.rate >= BUSY_RATE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_on_while_much_comes_and_not_after_a_rest() {
        let mut rush = Rush::default();
        rush.came(1_000, Duration::from_millis(100));
        assert!(rush.is_on());
        rush.came(1, Duration::from_secs(2));
        assert!(!rush.is_on());
    }
}
