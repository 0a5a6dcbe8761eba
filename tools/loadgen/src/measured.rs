//! Pure: what a run measures. Times are counted from its start.

use std::collections::VecDeque;
use std::time::Duration;

use contract::heard_fact::HeardFact;
use uuid::Uuid;

use super::backlog::Backlog;
use super::ledger::{Ended, Ledger};
use super::options::Kind;
use super::percentiles::Latencies;
use super::schedule::Schedule;
use super::timeline::Timeline;

/// A customer who cancels does so this long after the answer.
const THINKS_FOR: Duration = Duration::from_millis(50);

/// Why an order was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Short enough to be counted by.
    pub reason: String,
    /// Whether it was told when to come again.
    pub may_come_again: bool,
}

impl Refused {
    /// For a reason that is none of the service's.
    pub fn broken(reason: &str) -> Self {
        Self { reason: reason.to_owned(), may_come_again: false }
    }
}

/// Everything that the report is made of.
pub struct Measured {
    pub schedule: Schedule,
    pub ledger: Ledger,
    /// From due to ended.
    pub latencies: Latencies,
    /// From due to answered.
    pub http_latencies: Latencies,
    /// From due to sent: what the generator is late.
    pub late: Latencies,
    /// From sent to refused, of those who may come again.
    pub refusals: Latencies,
    pub backlog: Backlog,
    /// When the first and the last measured order ended.
    pub ends: Option<(Duration, Duration)>,
    /// Measured orders that ended before the run was over; the rest came later.
    pub ended_in_time: u64,
    /// Second by second, when that is wanted.
    pub timeline: Option<Timeline>,
    /// Orders that their customers will cancel, and when.
    cancels: VecDeque<(Duration, u64, Uuid)>,
}

impl Measured {
    pub fn new(schedule: Schedule, timeline: Option<Timeline>) -> anyhow::Result<Self> {
        Ok(Self {
            ledger: Ledger::new(schedule.clone()),
            schedule,
            latencies: Latencies::new()?,
            http_latencies: Latencies::new()?,
            late: Latencies::new()?,
            refusals: Latencies::new()?,
            backlog: Backlog::default(),
            ends: None,
            ended_in_time: 0,
            timeline,
            cancels: VecDeque::new(),
        })
    }

    /// An order that was due then is sent now.
    pub fn start(&mut self, number: u64, due: Duration, now: Duration) {
        self.ledger.start(number, due);
        if due >= self.schedule.measured_from() {
            self.late.record(now.saturating_sub(due));
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.sent();
        }
    }

    /// An order was taken.
    pub fn answered(&mut self, number: u64, order: Uuid, now: Duration) {
        let (due, ended) = self.ledger.answered(number, order, now);
        if let Some(due) = due {
            self.http_latencies.record(now.saturating_sub(due));
        }
        if self.schedule.kind(number) == Kind::Cancelled {
            self.cancels.push_back((now + THINKS_FOR, number, order));
        }
        self.note(ended);
    }

    /// An order was not taken, or could not be cancelled, as was asked for at `sent`.
    pub fn refused(&mut self, number: u64, refused: Refused, sent: Duration, now: Duration) {
        let took = now.saturating_sub(sent);
        let due = self.ledger.refuse(number, refused.reason);
        if due.is_some() && refused.may_come_again {
            self.refusals.record(took);
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.refused(took);
        }
    }

    /// An order was confirmed.
    pub fn confirmed(&mut self, order: Uuid, now: Duration) {
        let ended = self.ledger.confirmed(order, now);
        self.note(ended);
    }

    /// Another fact was heard.
    pub fn hear(&mut self, order: Uuid, fact: &HeardFact, now: Duration) {
        let ended = self.ledger.hear(order, fact, now);
        self.note(ended);
    }

    fn note(&mut self, ended: Option<Ended>) {
        let Some(Ended { latency, at }) = ended else { return };
        if let Some(latency) = latency {
            self.latencies.record(latency);
            if let Some(timeline) = &mut self.timeline {
                timeline.ended(latency);
            }
        }
        self.ended_in_time += u64::from(at <= self.schedule.end());
        let (first, last) = self.ends.unwrap_or((at, at));
        self.ends = Some((first.min(at), last.max(at)));
    }

    /// An order that its customer cancels by now.
    pub fn next_to_cancel(&mut self, now: Duration) -> Option<(u64, Uuid)> {
        let (at, number, order) = *self.cancels.front()?;
        if at > now {
            return None;
        }
        self.cancels.pop_front();
        Some((number, order))
    }

    /// Looks at what is in flight, from time to time.
    pub fn sample(&mut self, now: Duration) {
        self.backlog.note(now, self.ledger.in_flight());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    const fn order(number: u64) -> Uuid {
        Uuid::from_u128(1_000 + number as u128)
    }

    /// A hundred orders per second, the first ten as warm-up, each sent a millisecond late.
    fn measured(mix: &str) -> Measured {
        let mix = mix.parse().expect("a mix");
        let schedule = Schedule::at_rate(100, ms(100), ms(1_000), mix, "run");
        let timeline = Timeline::new().expect("histograms");
        let mut measured = Measured::new(schedule, Some(timeline)).expect("histograms");
        for number in 0..110 {
            let due = measured.schedule.due(number).expect("it is due");
            measured.start(number, due, due + ms(1));
        }
        measured
    }

    #[expect(clippy::float_arithmetic, reason = "a histogram tells three digits")]
    #[track_caller]
    fn assert_about(shown: f64, wanted: f64) {
        assert!((wanted..wanted * 1.002).contains(&shown), "{shown} for {wanted}");
    }

    /// Who waits counts from when it was due, however late it was sent.
    #[test]
    fn answers_are_timed_from_when_their_orders_were_due_and_not_during_the_warm_up() {
        let mut measured = measured("happy=100");
        measured.answered(9, order(9), ms(5_000));
        assert_eq!(measured.http_latencies.count(), 0, "it belongs to the warm-up");
        measured.answered(50, order(50), ms(1_500));
        assert_about(measured.http_latencies.percentiles().p99, 1_000.0);
        assert_about(measured.late.percentiles().p50, 1.0);
        assert_eq!(measured.late.count(), 100);
    }

    #[test]
    fn a_run_lasts_from_its_first_end_to_its_last_and_is_looked_at_meanwhile() {
        let mut measured = measured("happy=100");
        assert_eq!(measured.ends, None);
        // Those of the warm-up, the ninth, do not count; the tenth is the first that does.
        for (number, at) in [(9, 1_000), (10, 4_000), (11, 500), (12, 3_000)] {
            measured.answered(number, order(number), ms(at));
            measured.confirmed(order(number), ms(at));
        }
        assert_eq!((measured.ends, measured.ended_in_time), (Some((ms(500), ms(4_000))), 1));
        assert_eq!((measured.latencies.count(), measured.http_latencies.count()), (3, 3));
        for at in [100, 600, 1_100, 600_000] {
            measured.sample(ms(at));
        }
        assert!(
            !measured.backlog.grew(Duration::ZERO, ms(601_000), 0),
            "it was looked at, and had not grown"
        );
        measured.sample(ms(151_000));
        (200..900).for_each(|number| measured.ledger.start(number, ms(200)));
        measured.sample(ms(599_000));
        assert!(measured.backlog.grew(Duration::ZERO, ms(600_000), 0));
    }

    #[test]
    fn who_may_come_again_is_told_so_quickly_or_slowly() {
        let mut measured = measured("happy=100");
        let shed = Refused { reason: "503".to_owned(), may_come_again: true };
        measured.refused(3, shed.clone(), ms(30), ms(40));
        measured.refused(13, shed, ms(150), ms(154));
        measured.refused(14, Refused::broken("connection broke"), ms(150), ms(190));
        assert_eq!(measured.refusals.count(), 1);
        assert_about(measured.refusals.percentiles().p99, 4.0);
        assert_eq!(
            measured.ledger.counts().errors,
            [("503".into(), 2), ("connection broke".into(), 1)].into()
        );
    }

    #[test]
    fn customers_cancel_in_their_turn_a_moment_after_the_answer() {
        let mut measured = measured("happy=50,cancelled=50");
        let cancelled: Vec<_> =
            (10..110).filter(|number| measured.schedule.kind(*number) == Kind::Cancelled).collect();
        (10..110).for_each(|number| measured.answered(number, order(number), ms(number)));
        let first = ms(cancelled[0]) + THINKS_FOR;
        assert_eq!(measured.next_to_cancel(first - ms(1)), None);
        assert_eq!(measured.next_to_cancel(first), Some((cancelled[0], order(cancelled[0]))));
        assert_eq!(measured.next_to_cancel(first), None);
        let rest: Vec<_> = std::iter::from_fn(|| measured.next_to_cancel(ms(9_000))).collect();
        assert_eq!(rest.len(), cancelled.len() - 1);
    }
}
