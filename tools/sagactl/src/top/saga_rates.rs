//! Pure: how fast sagas begin and end, and how long they take: the differences of looks.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use admin_api::overview::SagaSummary;
use contract::saga::SagaStatus;

use super::metrics::Reading;
use super::quantile::{Bound, Buckets, Quantile, add, increase, quantile};

/// What is told is of so long at most, unless there was no look for longer.
const WINDOW: Duration = Duration::from_secs(10);

/// So many outcomes are shown, and remembered.
const MOST_OUTCOMES: usize = 12;

/// How sagas usually end.
pub const USUAL: [&str; 2] = ["completed", "compensated"];

/// What one look counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counted {
    /// Admin's counters, which begin at 0 when it starts.
    Counters(Reading),
    /// How many sagas stand where: of an admin that has no such counters.
    Standing { started: u64, ended: BTreeMap<String, u64> },
}

impl Counted {
    /// The better of what there is; `None` when there is nothing.
    pub fn of(reading: Option<Reading>, sagas: Option<&SagaSummary>) -> Option<Self> {
        if let Some(reading) = reading.filter(Reading::says_something) {
            return Some(Self::Counters(reading));
        }
        let by_status = &sagas.filter(|sagas| sagas.ended_counted)?.by_status;
        let count = |status: &SagaStatus| by_status.get(status.as_str()).copied().unwrap_or(0);
        let ends = SagaStatus::ALL.iter().filter(|status| status.is_terminal());
        Some(Self::Standing {
            started: by_status.values().copied().fold(0, u64::saturating_add),
            ended: ends.map(|status| (status.as_str().to_lowercase(), count(status))).collect(),
        })
    }
}

/// What was counted between two looks.
#[derive(Debug, Clone, Default)]
struct Span {
    over: Duration,
    started: Option<u64>,
    ended: BTreeMap<String, u64>,
    durations: BTreeMap<String, Buckets>,
}

impl Span {
    /// `None` when the two count different things.
    fn between(before: &Counted, now: &Counted, over: Duration) -> Option<Self> {
        match (before, now) {
            (Counted::Counters(before), Counted::Counters(now)) => Some(Self::counted(before, now, over)),
            (
                Counted::Standing { started: started_before, ended: before },
                Counted::Standing { started, ended },
            ) => {
                let new = |(outcome, count): (&String, &u64)| {
                    let before = before.get(outcome).copied().unwrap_or(0);
                    (outcome.clone(), count.saturating_sub(before))
                };
                let started = Some(started.saturating_sub(*started_before));
                Some(Self {
                    over,
                    started,
                    ended: ended.iter().map(new).collect(),
                    durations: BTreeMap::new(),
                })
            }
            (Counted::Counters(_), Counted::Standing { .. })
            | (Counted::Standing { .. }, Counted::Counters(_)) => None,
        }
    }

    fn counted(before: &Reading, now: &Reading, over: Duration) -> Self {
        let nothing = Buckets::new();
        let durations = now.durations.iter().take(MOST_OUTCOMES).map(|(outcome, buckets)| {
            let before = before.durations.get(outcome).unwrap_or(&nothing);
            (outcome.clone(), increase(before, buckets))
        });
        let durations: BTreeMap<_, _> = durations.collect();
        let all = |buckets: &Buckets| buckets.get(&Bound::Any).copied().unwrap_or(0);
        let ended = durations.iter().map(|(outcome, buckets)| (outcome.clone(), all(buckets))).collect();
        let started = now.started.map(|now| counter(before.started.unwrap_or(0), now));
        Self { over, started, ended, durations }
    }
}

/// By how much a counter grew; it begins anew at 0 when its service does.
const fn counter(before: u64, now: u64) -> u64 {
    if now < before { now } else { now - before }
}

/// The looks of the last seconds.
#[derive(Debug, Default)]
pub struct Pace {
    /// When the last look was, on a clock that never goes back, and what it counted.
    last: Option<(Duration, Counted)>,
    spans: VecDeque<Span>,
}

impl Pace {
    /// Takes what a look at this time counted. One that could count nothing is passed over: the next tells of both.
    pub fn take(&mut self, at: Duration, counted: Option<Counted>) {
        let Some(counted) = counted else { return };
        if let Some((before, last)) = &self.last {
            let over = at.saturating_sub(*before);
            if over.is_zero() {
                return;
            }
            match Span::between(last, &counted, over) {
                Some(span) => self.spans.push_back(span),
                None => self.spans.clear(),
            }
        }
        self.last = Some((at, counted));
        let mut over: Duration = self.spans.iter().map(|span| span.over).sum();
        while let Some(first) = self.spans.front()
            && over - first.over >= WINDOW
        {
            over -= first.over;
            self.spans.pop_front();
        }
    }

    /// What they tell together; `None` as long as there is nothing to compare.
    pub fn told(&self) -> Option<Told> {
        let (over, started) = self.spans.iter().fold((Duration::ZERO, Some(0)), |(over, started), span| {
            let started = started.zip(span.started).map(|(started, more)| u64::saturating_add(started, more));
            (over + span.over, started)
        });
        if over.is_zero() {
            return None;
        }
        let mut ended: BTreeMap<String, u64> = BTreeMap::new();
        let mut durations: BTreeMap<String, Buckets> = BTreeMap::new();
        for span in &self.spans {
            for (outcome, count) in &span.ended {
                let so_far = ended.entry(outcome.clone()).or_default();
                *so_far = so_far.saturating_add(*count);
            }
            for (outcome, buckets) in &span.durations {
                add(
                    durations
                        .entry(outcome.clone())
                        .or_insert_with(|| buckets.keys().map(|it| (*it, 0)).collect()),
                    buckets,
                );
            }
        }
        // That none ended so is something to be seen.
        for outcome in USUAL {
            ended.entry(outcome.to_owned()).or_default();
        }
        let ended = ended.into_iter().map(|(outcome, count)| {
            let at = |percent| quantile(durations.get(&outcome)?, percent);
            let told = Ended { rate: Rate::of(count, over), p50: at(50), p99: at(99) };
            (outcome, told)
        });
        Some(Told { over, started: started.map(|started| Rate::of(started, over)), ended: ended.collect() })
    }
}

/// How fast it goes.
#[derive(Debug, PartialEq, Eq)]
pub struct Told {
    /// In how long this was counted.
    pub over: Duration,
    /// Sagas that began; absent when that is not counted.
    pub started: Option<Rate>,
    /// Those that ended, by outcome.
    pub ended: BTreeMap<String, Ended>,
}

/// Sagas that ended in one way.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    pub rate: Rate,
    /// How long half of them, and 99 of 100, took at most; absent when none ended, or nobody measures it.
    pub p50: Option<Quantile>,
    pub p99: Option<Quantile>,
}

/// So many in a second, or in a hundred: in tenths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub tenths: u64,
}

impl Rate {
    /// How often something happens in a second.
    pub fn of(count: u64, over: Duration) -> Self {
        Self::ratio(u128::from(count) * 1_000, over)
    }

    /// Which part of a processor's time was taken, in percent.
    pub fn percent(cpu_ms: u64, over: Duration) -> Self {
        Self::ratio(u128::from(cpu_ms) * 100, over)
    }

    fn ratio(what: u128, over: Duration) -> Self {
        let ms = over.as_millis().max(1);
        Self { tenths: u64::try_from((what * 10 + ms / 2) / ms).unwrap_or(u64::MAX) }
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

    const fn second(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn counters(started: u64, completed: u64) -> Option<Counted> {
        let buckets = Buckets::from([(Bound::Within(second(1)), completed), (Bound::Any, completed)]);
        Some(Counted::Counters(Reading {
            started: Some(started),
            durations: [("completed".to_owned(), buckets)].into(),
        }))
    }

    fn standing(completed: u64, under_way: u64, ended_counted: bool) -> Option<Counted> {
        let by_status = [("COMPLETED".to_owned(), completed), ("IN_PROGRESS".to_owned(), under_way)];
        let sagas = SagaSummary { by_status: by_status.into(), ended_counted, ..SagaSummary::default() };
        Counted::of(Some(Reading::default()), Some(&sagas))
    }

    fn rates(pace: &Pace) -> Option<(Duration, Option<String>, String)> {
        let told = pace.told()?;
        Some((told.over, told.started.map(|rate| rate.to_string()), told.ended["completed"].rate.to_string()))
    }

    #[test]
    fn one_look_tells_no_rate_and_two_do() {
        let mut pace = Pace::default();
        pace.take(second(0), counters(100, 90));
        assert_eq!(pace.told(), None);
        pace.take(second(2), counters(200, 140));
        assert_eq!(rates(&pace), Some((second(2), Some("50.0".to_owned()), "25.0".to_owned())));
        let told = pace.told().expect("two looks");
        assert_eq!(told.ended["completed"].p50, Some(Quantile::About(Duration::from_millis(500))));
        assert_eq!(told.ended["compensated"], Ended { rate: Rate { tenths: 0 }, p50: None, p99: None });
    }

    #[test]
    fn what_is_long_ago_is_forgotten() {
        let mut pace = Pace::default();
        pace.take(second(0), counters(0, 0));
        pace.take(second(1), counters(1_000, 1_000));
        for at in 2..100 {
            pace.take(second(at), counters(1_000, 1_000));
            assert!(pace.spans.len() <= 10, "{at}");
        }
        assert_eq!(rates(&pace), Some((second(10), Some("0.0".to_owned()), "0.0".to_owned())));
        let told = pace.told().expect("many looks");
        assert_eq!(told.ended["completed"].p99, None, "none ended");
    }

    #[test]
    fn an_admin_that_restarts_counts_from_nothing_and_one_that_is_away_is_caught_up_with() {
        let mut pace = Pace::default();
        pace.take(second(0), counters(1_000, 1_000));
        pace.take(second(1), None);
        pace.take(second(20), None);
        pace.take(second(40), counters(80, 40));
        assert_eq!(rates(&pace), Some((second(40), Some("2.0".to_owned()), "1.0".to_owned())));
        // A look of the same moment, or of one before, tells nothing.
        pace.take(second(40), counters(9_999, 9_999));
        pace.take(second(39), counters(9_999, 9_999));
        assert_eq!(rates(&pace), Some((second(40), Some("2.0".to_owned()), "1.0".to_owned())));
    }

    #[test]
    fn without_counters_it_is_told_by_where_sagas_stand_as_long_as_those_that_ended_are_counted() {
        let mut pace = Pace::default();
        pace.take(second(0), standing(10, 5, true));
        pace.take(second(1), standing(30, 5, true));
        assert_eq!(rates(&pace), Some((second(1), Some("20.0".to_owned()), "20.0".to_owned())));
        assert_eq!(pace.told().expect("two looks").ended["completed"].p50, None);
        // Those that go, as when they are forgotten, are not new.
        pace.take(second(2), standing(10, 5, true));
        assert_eq!(rates(&pace), Some((second(2), Some("10.0".to_owned()), "10.0".to_owned())));
        pace.take(second(3), standing(0, 5, false));
        assert_eq!(rates(&pace).map(|(over, ..)| over), Some(second(2)), "passed over");
        assert_eq!(Counted::of(None, None), None);
    }

    #[test]
    fn what_cannot_be_compared_begins_anew() {
        let mut pace = Pace::default();
        pace.take(second(0), standing(10, 5, true));
        pace.take(second(1), standing(30, 5, true));
        pace.take(second(2), counters(5, 5));
        assert_eq!(pace.told(), None);
        pace.take(second(3), counters(6, 6));
        assert_eq!(rates(&pace), Some((second(1), Some("1.0".to_owned()), "1.0".to_owned())));
    }

    #[test]
    fn a_rate_is_told_to_a_tenth() {
        for (count, ms, told) in
            [(0, 1_000, "0.0"), (1, 3_000, "0.3"), (2, 3_000, "0.7"), (50, 1_004, "49.8"), (7, 0, "7000.0")]
        {
            assert_eq!(Rate::of(count, Duration::from_millis(ms)).to_string(), told);
        }
        assert_eq!(Rate::percent(30, second(1)).to_string(), "3.0");
        assert_eq!(Rate::of(u64::MAX, Duration::from_millis(1)).tenths, u64::MAX);
    }
}
