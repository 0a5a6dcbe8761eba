//! Pure: not more dead letters a second than an operator said.

use std::time::Duration;

/// Tokens are counted in millionths: what a rate of one a second earns in a microsecond.
const TOKEN: u64 = 1_000_000;

/// How fast a redrive may send: a bucket that fills at the rate and holds what a fifth of a second earns, one
/// dead letter at least. Time is an argument.
#[derive(Debug, Clone)]
pub struct Pace {
    per_second: Option<u32>,
    filled_at: Duration,
    millionths: u64,
}

impl Pace {
    /// At most `per_second`; as fast as it goes without it. The first may go at once.
    #[must_use]
    pub const fn new(per_second: Option<u32>, now: Duration) -> Self {
        Self { per_second, filled_at: now, millionths: TOKEN }
    }

    /// How many of the wanted dead letters may be sent now. They count as sent.
    pub fn grant(&mut self, now: Duration, wanted: u64) -> u64 {
        let Some(rate) = self.per_second else {
            return wanted;
        };
        self.fill(now, rate.into());
        let granted = wanted.min(self.millionths / TOKEN);
        self.millionths -= granted * TOKEN;
        granted
    }

    /// What was granted and not sent.
    pub fn give_back(&mut self, unused: u64) {
        self.millionths = self.millionths.saturating_add(unused.saturating_mul(TOKEN));
    }

    fn fill(&mut self, now: Duration, rate: u64) {
        let passed = now.saturating_sub(self.filled_at).as_micros();
        let earned = u64::try_from(passed).unwrap_or(u64::MAX).saturating_mul(rate);
        let room = (rate * TOKEN / 5).max(TOKEN);
        self.millionths = self.millionths.saturating_add(earned).min(room);
        self.filled_at = self.filled_at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn without_a_rate_everything_goes_at_once() {
        let mut pace = Pace::new(None, Duration::ZERO);
        assert_eq!(pace.grant(Duration::ZERO, 4_000), 4_000);
    }

    #[test]
    fn a_low_rate_sends_one_now_and_one_each_second() {
        let mut pace = Pace::new(Some(1), Duration::ZERO);
        let mut at = |ms| pace.grant(Duration::from_millis(ms), 100);
        assert_eq!([at(0), at(500), at(999), at(1_000), at(1_001), at(60_000)], [1, 0, 0, 1, 0, 1]);
    }

    #[test]
    fn a_high_rate_is_reached_and_a_pause_earns_a_fifth_of_a_second() {
        let mut pace = Pace::new(Some(1_000), Duration::ZERO);
        let mut at = |ms| pace.grant(Duration::from_millis(ms), 500);
        assert_eq!([at(0), at(100), at(200), at(300)], [1, 100, 100, 100]);
        assert_eq!([at(60_000), at(60_000)], [200, 0], "nobody is flooded after a pause");
        // A clock that went back earns nothing twice.
        assert_eq!([at(59_000), at(60_001)], [0, 1]);
    }

    #[test]
    fn what_was_not_sent_may_be_sent_later() {
        let mut pace = Pace::new(Some(1_000), Duration::ZERO);
        let second = Duration::from_secs(1);
        assert_eq!(pace.grant(second, 500), 200);
        pace.give_back(3);
        assert_eq!((pace.grant(second, 2), pace.grant(second, 500)), (2, 1));
    }

    proptest! {
        #[test]
        fn over_any_time_no_more_is_sent_than_the_rate_allows(
            rate in 1_u32..10_000, pauses in prop::collection::vec(0_u64..400, 1..60), wanted in 1_u64..500,
        ) {
            let mut pace = Pace::new(Some(rate), Duration::ZERO);
            let (mut now, mut sent) = (Duration::ZERO, 0);
            for pause in pauses {
                now += Duration::from_millis(pause);
                sent += pace.grant(now, wanted);
            }
            let earned = now.as_millis() * u128::from(rate) / 1_000;
            prop_assert!(u128::from(sent) <= earned + 1);
        }
    }
}
