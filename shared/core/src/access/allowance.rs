//! Pure: how often one may ask: so many times in a second on average, and somewhat more at once.

use std::num::NonZeroU32;
use std::time::Duration;

/// How often one may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests in a second, in the long run.
    pub per_second: NonZeroU32,
    /// Requests at once by who has not asked for a while.
    pub burst: NonZeroU32,
}

/// What is left to one who asks: a token bucket, kept as the time at which it is full again (the generic cell rate
/// algorithm, ITU-T I.371). Times are counted from any moment that stays the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowance {
    full_at: Duration,
}

impl Allowance {
    /// Takes one request from it.
    ///
    /// # Errors
    /// After how long there is one again.
    pub fn take(&mut self, now: Duration, rate: Rate) -> Result<(), Duration> {
        let each = Duration::from_secs(1) / rate.per_second.get();
        // All but the one that is asked for now.
        let ahead = each.saturating_mul(rate.burst.get() - 1);
        let full_at = self.full_at.max(now);
        match full_at.checked_sub(now.saturating_add(ahead)) {
            Some(wait) if !wait.is_zero() => Err(wait),
            Some(_) | None => {
                self.full_at = full_at.saturating_add(each);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(per_second: u32, burst: u32) -> Rate {
        let number = |number| NonZeroU32::new(number).expect("not zero");
        Rate { per_second: number(per_second), burst: number(burst) }
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_burst_is_taken_at_once_and_then_one_after_the_other() {
        let (mut left, rate) = (Allowance::default(), rate(10, 3));
        let taken: Vec<_> = [0, 0, 0, 0, 50, 100, 100, 199, 200, 10_000, 10_000, 10_000, 10_000]
            .into_iter()
            .map(|now| left.take(ms(now), rate).err().map(|wait| wait.as_millis()))
            .collect();
        let some = |wait| Some(wait);
        let none = None;
        assert_eq!(
            taken,
            [
                none,
                none,
                none,
                some(100),
                some(50),
                none,
                some(100),
                some(1),
                none,
                none,
                none,
                none,
                some(100)
            ]
        );
    }

    #[test]
    fn who_may_ask_for_one_at_a_time_waits_for_each() {
        let (mut left, rate) = (Allowance::default(), rate(1, 1));
        assert_eq!(left.take(ms(0), rate), Ok(()));
        assert_eq!(left.take(ms(1), rate), Err(ms(999)));
        assert_eq!(left.take(ms(1_000), rate), Ok(()));
    }

    proptest! {
        /// Whatever the moments: never more than the burst and what the time gives.
        #[test]
        fn nobody_gets_more_than_is_allowed(
            per_second in 1_u32..1_000, burst in 1_u32..50, mut moments in prop::collection::vec(0_u64..5_000, 1..300),
        ) {
            moments.sort_unstable();
            let (mut left, rate) = (Allowance::default(), rate(per_second, burst));
            let first = moments[0];
            let mut taken = 0_u64;
            for now in moments {
                taken += u64::from(left.take(ms(now), rate).is_ok());
                let most = u64::from(burst) + (now - first) * u64::from(per_second) / 1_000 + 1;
                prop_assert!(taken <= most, "{taken} of {most} at {now}");
            }
        }
    }
}
