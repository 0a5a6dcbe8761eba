//! Pure: how long most take, from a histogram that counts how many were done within which time.

use std::collections::BTreeMap;
use std::time::Duration;

/// The upper bound of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// Done within this.
    Within(Duration),
    /// However long it took.
    Any,
}

/// How many were done within each bound: each counts what is in those before it too.
pub type Buckets = BTreeMap<Bound, u64>;

/// How long the given part takes at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantile {
    /// About so long.
    About(Duration),
    /// Longer than this: beyond it nobody measures.
    Beyond(Duration),
}

/// How long so many of a hundred take at most, or `None` when there were none. As `histogram_quantile` of PromQL has it: what a
/// bucket holds is taken to lie evenly between its bounds
/// (<https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile>).
pub fn quantile(buckets: &Buckets, percent: u32) -> Option<Quantile> {
    let total = u128::from(*buckets.get(&Bound::Any)?);
    let rank = u128::from(percent) * total;
    let (mut lower, mut before) = (Duration::ZERO, 0);
    for (bound, count) in buckets {
        // Counted while others were: a bucket never holds less than those before it.
        let count = u128::from(*count).max(before);
        match bound {
            Bound::Within(upper) if total > 0 && count > 0 && count * 100 >= rank => {
                let (part, whole) = (rank.saturating_sub(before * 100), (count - before) * 100);
                let width = (*upper - lower).as_nanos();
                let into = (width * part).checked_div(whole).unwrap_or(width);
                let into = Duration::from_nanos(u64::try_from(into).unwrap_or(u64::MAX));
                return Some(Quantile::About(lower + into));
            }
            Bound::Within(upper) => (lower, before) = (*upper, count),
            Bound::Any => {}
        }
    }
    (total > 0 && lower > Duration::ZERO).then_some(Quantile::Beyond(lower))
}

/// What was counted between two looks. Whoever has restarted meanwhile counts from 0 again: then all of it is new.
pub fn increase(before: &Buckets, now: &Buckets) -> Buckets {
    let has_begun_anew =
        now.keys().ne(before.keys()) || now.iter().any(|(bound, count)| *count < before[bound]);
    if has_begun_anew {
        return now.clone();
    }
    now.iter().map(|(bound, count)| (*bound, count - before[bound])).collect()
}

/// Both together.
pub fn add(sum: &mut Buckets, more: &Buckets) {
    if sum.keys().ne(more.keys()) {
        // Bounds that differ cannot be added up: what is newer counts.
        sum.clone_from(more);
        return;
    }
    for (bound, count) in more {
        let so_far = sum.entry(*bound).or_default();
        *so_far = so_far.saturating_add(*count);
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
        [within(100), within(200), within(1_000), Bound::Any].into_iter().zip(counts).collect()
    }

    #[test]
    fn between_two_bounds_what_was_counted_lies_evenly() {
        let all_in_the_second = buckets([0, 10, 10, 10]);
        assert_eq!(quantile(&all_in_the_second, 50), about(150));
        assert_eq!(quantile(&all_in_the_second, 100), about(200));
        let spread = buckets([50, 75, 100, 100]);
        assert_eq!(quantile(&spread, 50), about(100));
        assert_eq!(quantile(&spread, 25), about(50), "the first begins at nothing");
        assert_eq!(quantile(&spread, 99), about(968));
    }

    #[test]
    fn what_no_bound_holds_took_longer_than_the_last() {
        let half = buckets([0, 0, 50, 100]);
        assert_eq!(quantile(&half, 50), about(1_000));
        assert_eq!(quantile(&half, 99), Some(Quantile::Beyond(Duration::from_secs(1))));
    }

    #[test]
    fn of_nothing_nothing_is_known() {
        assert_eq!(quantile(&buckets([0; 4]), 50), None);
        assert_eq!(quantile(&Buckets::new(), 50), None);
        assert_eq!(quantile(&[(Bound::Any, 7)].into(), 50), None, "no bound at all");
        assert_eq!(quantile(&[(within(100), 7)].into(), 50), None, "how many there are is not said");
    }

    #[test]
    fn counts_that_contradict_each_other_harm_nobody() {
        assert_eq!(quantile(&buckets([10, 3, 3, 10]), 50), about(50));
        let most = buckets([u64::MAX; 4]);
        assert_eq!(quantile(&most, 50), about(50));
    }

    #[test]
    fn whoever_restarts_counts_from_nothing() {
        let (before, now) = (buckets([5, 7, 9, 9]), buckets([6, 9, 12, 13]));
        assert_eq!(increase(&before, &now), buckets([1, 2, 3, 4]));
        assert_eq!(increase(&before, &before), buckets([0; 4]));
        let anew = buckets([1, 1, 1, 2]);
        assert_eq!(increase(&before, &anew), anew);
        let others = Buckets::from([(within(1), 100), (Bound::Any, 100)]);
        assert_eq!(increase(&before, &others), others, "another build, with other bounds");
        assert_eq!(increase(&Buckets::new(), &now), now, "the first of this outcome");
    }

    #[test]
    fn what_cannot_be_added_up_is_replaced() {
        let mut sum = buckets([1; 4]);
        add(&mut sum, &buckets([1, 2, 3, 4]));
        assert_eq!(sum, buckets([2, 3, 4, 5]));
        let others = Buckets::from([(Bound::Any, 1)]);
        add(&mut sum, &others);
        assert_eq!(sum, others);
    }
}
