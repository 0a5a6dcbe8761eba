//! Pure: sagas by second for the last ten minutes, and their durations by minute for the last hour.

use std::collections::BTreeMap;
use std::time::Duration;

use admin_api::live::{SagaDurations, SecondCounts};
use contract::metrics as names;
use saga_core::metric::{Measured, Measurement};

/// Number of seconds that are kept.
const SECONDS: i64 = 600;
/// Minutes of durations that are kept: an hour ago is the whole minute before the 60 last.
const MINUTES: i64 = 62;
/// Buckets for each power of two of a duration: each is 3 % of it wide.
const BUCKETS: u64 = 32;

/// Counts and durations of the sagas that this process has seen.
#[derive(Debug)]
pub(super) struct Rates {
    /// Second of the first count: before it, nothing is known.
    since: i64,
    seconds: BTreeMap<i64, SecondCounts>,
    minutes: BTreeMap<i64, Durations>,
}

impl Rates {
    /// Starts to count at `now`, in seconds since 1970.
    pub(super) fn new(now: i64) -> Self {
        Self { since: now, seconds: BTreeMap::new(), minutes: BTreeMap::new() }
    }

    /// Counts a measurement, if it is of a saga.
    pub(super) fn record(&mut self, measurement: &Measurement, now: i64) {
        let name = measurement.metric.name;
        match measurement.measured {
            Measured::More(more) => {
                let count: fn(&mut SecondCounts) -> &mut u64 = match name {
                    _ if name == names::STARTED.name => |counts| &mut counts.started,
                    _ if name == names::COMPLETED.name => |counts| &mut counts.completed,
                    _ if name == names::CANCELLED.name => |counts| &mut counts.cancelled,
                    _ if name == names::COMPENSATED.name => |counts| &mut counts.compensated,
                    _ => return,
                };
                *count(of_period(&mut self.seconds, now, SECONDS)) += more;
            }
            Measured::Took(took) if name == names::DURATION.name => {
                if measurement.labels.first().is_some_and(|outcome| outcome == "completed") {
                    of_period(&mut self.minutes, now / 60, MINUTES).record(took);
                }
            }
            Measured::Took(_) => {}
        }
    }

    /// Counts of the seconds after `after` that have ended at `now`. Without `after`, those of the last ten minutes.
    pub(super) fn ended_seconds(&self, after: Option<i64>, now: i64) -> Vec<SecondCounts> {
        let first =
            after.map_or(self.since, |after| after.saturating_add(1)).max(self.since).max(now - SECONDS);
        let counts = |second| self.seconds.get(&second).copied().unwrap_or_default();
        (first..now).map(|second| SecondCounts { second, ..counts(second) }).collect()
    }

    /// Durations of the last minute, and of the same time an hour ago.
    pub(super) fn durations(&self, now: i64) -> [Option<SagaDurations>; 2] {
        [now / 60, now / 60 - 60].map(|minute| {
            let mut both = Durations::default();
            [minute - 1, minute]
                .iter()
                .filter_map(|minute| self.minutes.get(minute))
                .for_each(|one| both.add(one));
            both.percentiles()
        })
    }
}

/// Returns the entry of a period. When a period begins, forgets those before the `kept` last.
fn of_period<T: Default>(periods: &mut BTreeMap<i64, T>, period: i64, kept: i64) -> &mut T {
    if !periods.contains_key(&period) {
        *periods = periods.split_off(&(period - kept));
    }
    periods.entry(period).or_default()
}

/// Number of durations in each bucket, which [`bucket_of`] numbers.
#[derive(Debug, Default)]
struct Durations(BTreeMap<u64, u64>);

impl Durations {
    fn record(&mut self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        *self.0.entry(bucket_of(micros)).or_default() += 1;
    }

    fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|(bucket, number)| *self.0.entry(*bucket).or_default() += number);
    }

    fn percentiles(&self) -> Option<SagaDurations> {
        let sagas: u64 = self.0.values().sum();
        (sagas > 0).then(|| SagaDurations {
            sagas,
            p50_us: self.at(sagas.div_ceil(2)),
            p99_us: self.at((sagas * 99).div_ceil(100)),
        })
    }

    /// Duration of the saga at a rank, from 1, in microseconds.
    fn at(&self, rank: u64) -> u64 {
        let mut seen = 0;
        let reached = |(_, number): &(&u64, &u64)| {
            seen += **number;
            seen >= rank
        };
        self.0.iter().find(reached).map_or(0, |(bucket, _)| middle_of(*bucket))
    }
}

/// Number of the bucket of a duration in microseconds. Buckets double in width with each power of two.
fn bucket_of(micros: u64) -> u64 {
    let shift = micros.checked_ilog2().map_or(0, u64::from).saturating_sub(BUCKETS.ilog2().into());
    shift * BUCKETS + (micros >> shift)
}

/// Middle of a bucket, in microseconds.
fn middle_of(bucket: u64) -> u64 {
    let shift = (bucket / BUCKETS).saturating_sub(1);
    let width = 1 << shift;
    (bucket - shift * BUCKETS) * width + width / 2
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn started(rates: &mut Rates, now: i64, number: u64) {
        rates.record(&Measurement::more(&names::STARTED, &[], number), now);
    }

    fn took(rates: &mut Rates, now: i64, millis: i64) {
        let took = SignedDuration::from_millis(millis);
        rates.record(&Measurement::took(&names::DURATION, &["completed"], took), now);
    }

    #[test]
    fn a_page_gets_each_ended_second_once_with_zeros_between() {
        let mut rates = Rates::new(NOW);
        started(&mut rates, NOW, 2);
        started(&mut rates, NOW, 1);
        started(&mut rates, NOW + 2, 5);
        rates.record(&Measurement::more(&names::CANCELLED, &["timed_out"], 4), NOW + 2);
        let seen = |after, now| {
            let seconds = rates.ended_seconds(after, now);
            seconds.iter().map(|one| (one.second - NOW, one.started, one.cancelled)).collect::<Vec<_>>()
        };
        assert_eq!(seen(None, NOW), []);
        assert_eq!(seen(None, NOW + 3), [(0, 3, 0), (1, 0, 0), (2, 5, 4)]);
        assert_eq!(seen(Some(NOW + 1), NOW + 3), [(2, 5, 4)]);
        assert_eq!(seen(Some(NOW + 2), NOW + 3), []);
        // Clients give the last second, which may be anything.
        assert_eq!(seen(Some(i64::MAX), NOW + 3), []);
        assert_eq!(seen(Some(i64::MIN), NOW + 3).len(), 3);
    }

    #[test]
    fn ten_minutes_are_kept() {
        let mut rates = Rates::new(NOW);
        (0..2 * SECONDS).for_each(|second| started(&mut rates, NOW + second, 1));
        let kept = rates.ended_seconds(Some(NOW), NOW + 2 * SECONDS);
        assert_eq!(kept.len(), 600);
        assert_eq!(kept.iter().map(|one| one.started).sum::<u64>(), 600);
        assert!(rates.seconds.len() <= 601, "{}", rates.seconds.len());
    }

    #[test]
    fn middle_of_a_bucket_differs_by_two_percent_from_each_of_its_durations() {
        for micros in (0..100_000).chain([1 << 30, (1 << 40) - 1, (1 << 40) + 12_345]) {
            let middle = middle_of(bucket_of(micros));
            assert!(middle.abs_diff(micros) * 50 <= micros, "{micros}: {middle}");
        }
    }

    #[test]
    fn durations_are_those_of_this_minute_and_of_an_hour_ago_within_five_percent() {
        let mut rates = Rates::new(NOW);
        (1..=100).for_each(|millis| took(&mut rates, NOW, millis));
        let [now, hour_ago] = rates.durations(NOW);
        let now = now.expect("sagas");
        assert_eq!((now.sagas, hour_ago), (100, None));
        assert!((47_500..52_500).contains(&now.p50_us), "{now:?}");
        assert!((94_000..104_000).contains(&now.p99_us), "{now:?}");
        took(&mut rates, NOW + 3_600, 1);
        let [later, hour_ago] = rates.durations(NOW + 3_600);
        assert_eq!((later.map(|one| one.sagas), hour_ago), (Some(1), Some(now)));
        took(&mut rates, NOW + 7_200, 1);
        assert!(rates.minutes.len() <= 2, "{}", rates.minutes.len());
    }
}
