//! Pure: quantiles of cumulative histograms.

use std::collections::BTreeMap;
use std::time::Duration;

/// Upper bound of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    Within(Duration),
    Infinite,
}

/// Cumulative counts by upper bound.
pub type Buckets = BTreeMap<Bound, u64>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantile {
    About(Duration),
    /// Beyond the last finite bound.
    Beyond(Duration),
}

/// Estimates a quantile as `histogram_quantile` of PromQL does: counts are spread evenly within a bucket
/// (<https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile>). `None` without counts.
pub fn quantile(buckets: &Buckets, percent: u32) -> Option<Quantile> {
    let total = u128::from(*buckets.get(&Bound::Infinite)?);
    let rank = u128::from(percent) * total;
    let (mut lower, mut before) = (Duration::ZERO, 0);
    for (bound, count) in buckets {
        // Buckets are not read at one instant: a later one may lag behind.
        let count = u128::from(*count).max(before);
        match bound {
            Bound::Within(upper) if total > 0 && count > 0 && count * 100 >= rank => {
                let (part, bucket) = (rank.saturating_sub(before * 100), (count - before) * 100);
                let width = (*upper - lower).as_nanos();
                let offset = (width * part).checked_div(bucket).unwrap_or(width);
                let offset = Duration::from_nanos(u64::try_from(offset).unwrap_or(u64::MAX));
                return Some(Quantile::About(lower + offset));
            }
            Bound::Within(upper) => (lower, before) = (*upper, count),
            Bound::Infinite => {}
        }
    }
    (total > 0 && lower > Duration::ZERO).then_some(Quantile::Beyond(lower))
}

/// Counts between two samples. After a restart all counts are new.
pub fn increase(before: &Buckets, now: &Buckets) -> Buckets {
    let has_restarted =
        now.keys().ne(before.keys()) || now.iter().any(|(bound, count)| *count < before[bound]);
    if has_restarted {
        return now.clone();
    }
    now.iter().map(|(bound, count)| (*bound, count - before[bound])).collect()
}

/// Adds counts. Counts with other bounds replace the sum.
pub fn add(sum: &mut Buckets, more: &Buckets) {
    if sum.keys().ne(more.keys()) {
        sum.clone_from(more);
        return;
    }
    for (bound, count) in more {
        let total = sum.entry(*bound).or_default();
        *total = total.saturating_add(*count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn within(ms: u64) -> Bound {
        Bound::Within(Duration::from_millis(ms))
    }

    const fn about(ms: u64) -> Option<Quantile> {
        Some(Quantile::About(Duration::from_millis(ms)))
    }

    fn buckets(counts: [u64; 4]) -> Buckets {
        [within(100), within(200), within(1_000), Bound::Infinite].into_iter().zip(counts).collect()
    }

    #[test]
    fn quantile_is_interpolated_within_its_bucket() {
        let all_in_the_second = buckets([0, 10, 10, 10]);
        assert_eq!(quantile(&all_in_the_second, 50), about(150));
        assert_eq!(quantile(&all_in_the_second, 100), about(200));
        let spread = buckets([50, 75, 100, 100]);
        assert_eq!(quantile(&spread, 50), about(100));
        assert_eq!(quantile(&spread, 25), about(50), "the first bucket begins at zero");
        assert_eq!(quantile(&spread, 99), about(968));
    }

    #[test]
    fn quantile_in_the_infinite_bucket_is_beyond_the_last_bound() {
        let half = buckets([0, 0, 50, 100]);
        assert_eq!(quantile(&half, 50), about(1_000));
        assert_eq!(quantile(&half, 99), Some(Quantile::Beyond(Duration::from_secs(1))));
    }

    #[test]
    fn quantile_of_empty_or_incomplete_buckets_is_none() {
        assert_eq!(quantile(&buckets([0; 4]), 50), None);
        assert_eq!(quantile(&Buckets::new(), 50), None);
        assert_eq!(quantile(&[(Bound::Infinite, 7)].into(), 50), None, "no finite bound");
        assert_eq!(quantile(&[(within(100), 7)].into(), 50), None, "no total");
    }

    #[test]
    fn inconsistent_or_huge_counts_do_not_panic() {
        assert_eq!(quantile(&buckets([10, 3, 3, 10]), 50), about(50));
        assert_eq!(quantile(&buckets([u64::MAX; 4]), 50), about(50));
    }

    #[test]
    fn increase_after_a_restart_or_with_other_bounds_is_everything() {
        let (before, now) = (buckets([5, 7, 9, 9]), buckets([6, 9, 12, 13]));
        assert_eq!(increase(&before, &now), buckets([1, 2, 3, 4]));
        assert_eq!(increase(&before, &before), buckets([0; 4]));
        let restarted = buckets([1, 1, 1, 2]);
        assert_eq!(increase(&before, &restarted), restarted);
        let others = Buckets::from([(within(1), 100), (Bound::Infinite, 100)]);
        assert_eq!(increase(&before, &others), others);
        assert_eq!(increase(&Buckets::new(), &now), now);
    }

    #[test]
    fn counts_with_other_bounds_replace_the_sum() {
        let mut sum = buckets([1; 4]);
        add(&mut sum, &buckets([1, 2, 3, 4]));
        assert_eq!(sum, buckets([2, 3, 4, 5]));
        let others = Buckets::from([(Bound::Infinite, 1)]);
        add(&mut sum, &others);
        assert_eq!(sum, others);
    }
}
