//! Pure: rates and durations of sagas: the differences of samples.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::metrics::SagaMetrics;
use super::quantile::{Bound, Buckets, Quantile, add, increase, quantile};

/// Period of a report, unless no sample was taken for longer.
const PERIOD: Duration = Duration::from_secs(10);

/// Outcomes that are kept.
const MAX_OUTCOMES: usize = 12;

/// Outcomes that are always shown.
pub const USUAL_OUTCOMES: [&str; 2] = ["completed", "compensated"];

/// Counts between two samples.
#[derive(Debug, Clone)]
struct Interval {
    length: Duration,
    started: Option<u64>,
    durations: BTreeMap<String, Buckets>,
}

impl Interval {
    fn between(before: &SagaMetrics, now: &SagaMetrics, length: Duration) -> Self {
        let empty = Buckets::new();
        let durations = now.durations.iter().take(MAX_OUTCOMES).map(|(outcome, buckets)| {
            let before = before.durations.get(outcome).unwrap_or(&empty);
            (outcome.clone(), increase(before, buckets))
        });
        // A counter starts again at 0 when its service does.
        let started = now.started.map(|now| now.checked_sub(before.started.unwrap_or(0)).unwrap_or(now));
        Self { length, started, durations: durations.collect() }
    }
}

/// Counts of the last seconds.
#[derive(Debug, Default)]
pub struct SagaRates {
    /// Monotonic time and content of the last sample.
    last: Option<(Duration, SagaMetrics)>,
    intervals: VecDeque<Interval>,
}

impl SagaRates {
    /// Adds a sample. One without metrics is skipped: the next covers both.
    pub fn add(&mut self, at: Duration, metrics: Option<SagaMetrics>) {
        let Some(metrics) = metrics else { return };
        if let Some((before, last)) = &self.last {
            let length = at.saturating_sub(*before);
            if length.is_zero() {
                return;
            }
            self.intervals.push_back(Interval::between(last, &metrics, length));
        }
        self.last = Some((at, metrics));
        let mut total: Duration = self.intervals.iter().map(|interval| interval.length).sum();
        while let Some(first) = self.intervals.front()
            && total - first.length >= PERIOD
        {
            total -= first.length;
            self.intervals.pop_front();
        }
    }

    /// Reports the rates; `None` before the second sample.
    pub fn report(&self) -> Option<RateReport> {
        let period: Duration = self.intervals.iter().map(|interval| interval.length).sum();
        if period.is_zero() {
            return None;
        }
        let started = self.intervals.iter().map(|interval| interval.started);
        let started = started.reduce(|sum, more| Some(sum?.saturating_add(more?))).flatten();
        let usual = USUAL_OUTCOMES.map(|outcome| (outcome.to_owned(), Buckets::new()));
        let mut durations = BTreeMap::from(usual);
        for (outcome, buckets) in self.intervals.iter().flat_map(|interval| &interval.durations) {
            add(durations.entry(outcome.clone()).or_default(), buckets);
        }
        let ended = durations.into_iter().map(|(outcome, buckets)| {
            let count = buckets.get(&Bound::Infinite).copied().unwrap_or(0);
            let (p50, p99) = (quantile(&buckets, 50), quantile(&buckets, 99));
            (outcome, EndedRate { rate: Rate::per_second(count, period), p50, p99 })
        });
        let started = started.map(|started| Rate::per_second(started, period));
        Some(RateReport { period, started, ended: ended.collect() })
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct RateReport {
    pub period: Duration,
    /// Sagas started; `None` if they are not counted.
    pub started: Option<Rate>,
    /// Sagas ended, by outcome.
    pub ended: BTreeMap<String, EndedRate>,
}

/// Sagas with one outcome.
#[derive(Debug, PartialEq, Eq)]
pub struct EndedRate {
    pub rate: Rate,
    /// Quantiles of their durations; `None` if none ended.
    pub p50: Option<Quantile>,
    pub p99: Option<Quantile>,
}

/// A number per second, or a percentage, in tenths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub tenths: u64,
}

impl Rate {
    pub fn per_second(count: u64, period: Duration) -> Self {
        Self::ratio(u128::from(count) * 1_000, period)
    }

    /// Percentage of one processor.
    pub fn percent(cpu_ms: u64, period: Duration) -> Self {
        Self::ratio(u128::from(cpu_ms) * 100, period)
    }

    fn ratio(amount: u128, period: Duration) -> Self {
        let ms = period.as_millis().max(1);
        Self { tenths: u64::try_from((amount * 10 + ms / 2) / ms).unwrap_or(u64::MAX) }
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.tenths / 10, self.tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn metrics(started: u64, completed: u64) -> Option<SagaMetrics> {
        let buckets = Buckets::from([(Bound::Within(seconds(1)), completed), (Bound::Infinite, completed)]);
        let durations = [("completed".to_owned(), buckets)].into();
        Some(SagaMetrics { started: Some(started), durations })
    }

    fn rates(rates: &SagaRates) -> Option<(Duration, Option<String>, String)> {
        let report = rates.report()?;
        let started = report.started.map(|rate| rate.to_string());
        Some((report.period, started, report.ended["completed"].rate.to_string()))
    }

    #[test]
    fn rates_need_two_samples() {
        let mut sagas = SagaRates::default();
        sagas.add(seconds(0), metrics(100, 90));
        assert_eq!(sagas.report(), None);
        sagas.add(seconds(2), metrics(200, 140));
        assert_eq!(rates(&sagas), Some((seconds(2), Some("50.0".to_owned()), "25.0".to_owned())));
        let report = sagas.report().expect("two samples");
        assert_eq!(report.ended["completed"].p50, Some(Quantile::About(Duration::from_millis(500))));
        assert_eq!(report.ended["compensated"], EndedRate { rate: Rate { tenths: 0 }, p50: None, p99: None });
    }

    #[test]
    fn samples_older_than_the_period_are_dropped() {
        let mut sagas = SagaRates::default();
        sagas.add(seconds(0), metrics(0, 0));
        sagas.add(seconds(1), metrics(1_000, 1_000));
        for at in 2..100 {
            sagas.add(seconds(at), metrics(1_000, 1_000));
            assert!(sagas.intervals.len() <= 10, "{at}");
        }
        assert_eq!(rates(&sagas), Some((seconds(10), Some("0.0".to_owned()), "0.0".to_owned())));
        assert_eq!(sagas.report().expect("many samples").ended["completed"].p99, None, "none ended");
    }

    #[test]
    fn rates_survive_a_restart_and_silence_of_admin() {
        let mut sagas = SagaRates::default();
        sagas.add(seconds(0), metrics(1_000, 1_000));
        sagas.add(seconds(1), None);
        sagas.add(seconds(20), None);
        sagas.add(seconds(40), metrics(80, 40));
        let wanted = Some((seconds(40), Some("2.0".to_owned()), "1.0".to_owned()));
        assert_eq!(rates(&sagas), wanted);
        // A sample of the same time or an earlier one is ignored.
        sagas.add(seconds(40), metrics(9_999, 9_999));
        sagas.add(seconds(39), metrics(9_999, 9_999));
        assert_eq!(rates(&sagas), wanted);
    }

    #[test]
    fn rate_is_rounded_to_a_tenth() {
        for (count, ms, text) in
            [(0, 1_000, "0.0"), (1, 3_000, "0.3"), (2, 3_000, "0.7"), (50, 1_004, "49.8"), (7, 0, "7000.0")]
        {
            assert_eq!(Rate::per_second(count, Duration::from_millis(ms)).to_string(), text);
        }
        assert_eq!(Rate::percent(30, seconds(1)).to_string(), "3.0");
        assert_eq!(Rate::per_second(u64::MAX, Duration::from_millis(1)).tenths, u64::MAX);
    }
}
