//! Pure: the rate limit of a redrive, shared by all instances of admin.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// One token in millionths. A rate of one per second earns one millionth per microsecond.
const TOKEN: i64 = 1_000_000;

/// A token bucket that fills at the rate. It holds the tokens of a fifth of a second, and at least one. Its state is the
/// time at which it is full. Time is an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimit(Timestamp);

impl RateLimit {
    /// Starts with one token.
    pub fn new(per_second: u32, now: Timestamp) -> Self {
        // Rounded down: it must not hold a little less than one.
        Self(after(now, (capacity(per_second) - TOKEN) / rate(per_second)))
    }

    /// Number of available tokens.
    pub fn holds(self, per_second: u32, now: Timestamp) -> u64 {
        let held = capacity(per_second) - self.lacks(per_second, now);
        u64::try_from(held / TOKEN).unwrap_or(0)
    }

    /// Takes tokens.
    pub fn without(self, count: u64, per_second: u32, now: Timestamp) -> Self {
        let taken = i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(TOKEN);
        let lacks = self.lacks(per_second, now).saturating_add(taken);
        Self::lacking(lacks.min(capacity(per_second)), per_second, now)
    }

    fn lacking(millionths: i64, per_second: u32, now: Timestamp) -> Self {
        // Rounded up: nothing is earned early.
        let rate = rate(per_second);
        Self(after(now, (millionths + rate - 1) / rate))
    }

    fn lacks(self, per_second: u32, now: Timestamp) -> i64 {
        let wait = i64::try_from(self.0.duration_since(now).as_micros()).unwrap_or(i64::MAX);
        let lacks = wait.max(0).saturating_mul(rate(per_second));
        // It lacks more than its capacity only when the clock was put back. A small difference is waited for, a large one
        // leaves one token.
        let capacity = capacity(per_second);
        if lacks <= 2 * capacity { lacks.min(capacity) } else { capacity - TOKEN }
    }
}

fn after(now: Timestamp, micros: i64) -> Timestamp {
    now.saturating_add(SignedDuration::from_micros(micros)).unwrap_or(Timestamp::MAX)
}

/// Millionths per microsecond.
fn rate(per_second: u32) -> i64 {
    per_second.max(1).into()
}

fn capacity(per_second: u32) -> i64 {
    (rate(per_second) * TOKEN / 5).max(TOKEN)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Timestamp = Timestamp::UNIX_EPOCH;

    /// Takes up to `wanted` tokens, and returns their number.
    fn take(limit: &mut RateLimit, rate: u32, now: Timestamp, wanted: u64) -> u64 {
        let taken = wanted.min(limit.holds(rate, now));
        if taken > 0 {
            *limit = limit.without(taken, rate, now);
        }
        taken
    }

    fn at_ms(ms: u64) -> Timestamp {
        START + SignedDuration::from_millis(i64::try_from(ms).expect("a short time"))
    }

    #[test]
    fn low_rate_allows_one_now_and_one_each_second() {
        let mut limit = RateLimit::new(1, START);
        let mut at = |ms| take(&mut limit, 1, at_ms(ms), 100);
        assert_eq!([at(0), at(500), at(999), at(1_000), at(1_001), at(60_000)], [1, 0, 0, 1, 0, 1]);
    }

    #[test]
    fn high_rate_is_reached_and_pause_earns_a_fifth_of_a_second() {
        let mut limit = RateLimit::new(1_000, START);
        let mut at = |ms| take(&mut limit, 1_000, at_ms(ms), 500);
        assert_eq!([at(0), at(100), at(200), at(300)], [1, 100, 100, 100]);
        assert_eq!([at(60_000), at(60_000)], [200, 0], "nobody is flooded after a pause");
        // A clock that goes back a little earns nothing twice, one that goes back far blocks nothing.
        assert_eq!([at(59_999), at(60_001)], [0, 1]);
        assert_eq!([at(1_000), at(1_000), at(1_100)], [1, 0, 100]);
    }

    #[test]
    fn token_is_not_earned_early() {
        let limit = RateLimit::new(3, START).without(1, 3, START);
        let holds = |micros| limit.holds(3, START + SignedDuration::from_micros(micros));
        assert_eq!([holds(333_333), holds(333_334)], [0, 1]);
    }

    #[test]
    fn unused_tokens_stay() {
        let (mut limit, second) = (RateLimit::new(1_000, START), at_ms(1_000));
        assert_eq!([take(&mut limit, 1_000, second, 150), take(&mut limit, 1_000, second, 500)], [150, 50]);
    }

    #[test]
    fn taking_too_many_leaves_it_empty() {
        let limit = RateLimit::new(10, START).without(u64::MAX, 10, START);
        assert_eq!(
            [limit.holds(10, at_ms(99)), limit.holds(10, at_ms(100)), limit.holds(10, at_ms(200))],
            [0, 1, 2]
        );
    }

    proptest! {
        #[test]
        fn new_limit_has_one_token_and_empty_one_fills(rate in 1_u32..10_000, at in 0_u64..10_000) {
            let limit = RateLimit::new(rate, at_ms(at));
            prop_assert_eq!(limit.holds(rate, at_ms(at)), 1);
            let empty = limit.without(1, rate, at_ms(at));
            prop_assert!(empty.holds(rate, at_ms(at)) == 0 && empty.holds(rate, at_ms(at + 1_000)) > 0);
        }

        #[test]
        fn rate_is_never_exceeded(
            rate in 1_u32..10_000, pauses in prop::collection::vec(0_u64..400, 1..60), wanted in 1_u64..500,
        ) {
            let mut limit = RateLimit::new(rate, START);
            let (mut now, mut sent) = (0, 0);
            for pause in pauses {
                now += pause;
                sent += take(&mut limit, rate, at_ms(now), wanted);
            }
            let earned = u128::from(now) * u128::from(rate) / 1_000;
            prop_assert!(u128::from(sent) <= earned + 1);
        }
    }
}
