//! Pure: rate limiting with bursts.

use std::num::NonZeroU32;
use std::time::Duration;

/// Rate limit of one caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests a second, in the long run.
    pub per_second: NonZeroU32,
    /// Requests at once after a pause.
    pub burst: NonZeroU32,
}

/// Remaining requests of one caller: a token bucket, stored as the time at which it is full again (generic cell
/// rate algorithm, ITU-T I.371). Times count from any fixed origin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowance {
    full_at: Duration,
}

impl Allowance {
    /// Takes one request.
    ///
    /// # Errors
    /// Time until the next request is allowed.
    pub fn take(&mut self, now: Duration, rate: Rate) -> Result<(), Duration> {
        let each = Duration::from_secs(1) / rate.per_second.get();
        // All but the current request.
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
    fn burst_is_allowed_at_once_then_requests_are_spaced() {
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
    fn burst_of_one_spaces_every_request() {
        let (mut left, rate) = (Allowance::default(), rate(1, 1));
        assert_eq!(left.take(ms(0), rate), Ok(()));
        assert_eq!(left.take(ms(1), rate), Err(ms(999)));
        assert_eq!(left.take(ms(1_000), rate), Ok(()));
    }

    proptest! {
        /// At any times: never more than the burst and the rate allow.
        #[test]
        fn allowance_never_exceeds_burst_and_rate(
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
