//! Pure: measurements of a run. Times count from its start.

use std::collections::VecDeque;
use std::time::Duration;

use contract::saga_fact::SagaFact;
use uuid::Uuid;

use super::backlog::Backlog;
use super::ledger::{Ended, Ledger};
use super::options::Kind;
use super::percentiles::Latencies;
use super::schedule::Schedule;
use super::timeline::Timeline;

/// Delay between the answer to an order and its cancellation by the customer.
const CANCEL_DELAY: Duration = Duration::from_millis(50);

/// Reason for a rejected order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Short text by which rejections are counted.
    pub reason: String,
    /// True if the answer had a `Retry-After`.
    pub may_retry: bool,
}

impl Rejected {
    /// Failure that is no answer of the service.
    pub fn failure(reason: &str) -> Self {
        Self { reason: reason.to_owned(), may_retry: false }
    }
}

pub struct Measurements {
    pub schedule: Schedule,
    pub ledger: Ledger,
    /// From due time to end.
    pub latencies: Latencies,
    /// From due time to answer.
    pub http_latencies: Latencies,
    /// From due time to request: delay of the generator.
    pub late: Latencies,
    /// From request to rejection with a `Retry-After`.
    pub rejections: Latencies,
    pub backlog: Backlog,
    /// End of the first and of the last measured order.
    pub ends: Option<(Duration, Duration)>,
    /// Measured orders that ended before the run was over.
    pub ended_in_time: u64,
    /// Values of each second, on request.
    pub timeline: Option<Timeline>,
    /// Orders to be cancelled by their customers, with the time of that.
    cancels: VecDeque<(Duration, u64, Uuid)>,
}

impl Measurements {
    pub fn new(schedule: Schedule, timeline: Option<Timeline>) -> anyhow::Result<Self> {
        Ok(Self {
            ledger: Ledger::new(schedule.clone()),
            schedule,
            latencies: Latencies::new()?,
            http_latencies: Latencies::new()?,
            late: Latencies::new()?,
            rejections: Latencies::new()?,
            backlog: Backlog::default(),
            ends: None,
            ended_in_time: 0,
            timeline,
            cancels: VecDeque::new(),
        })
    }

    /// Records an order that is sent now.
    pub fn start(&mut self, number: u64, due: Duration, now: Duration) {
        self.ledger.start(number, due);
        if due >= self.schedule.measured_from() {
            self.late.record(now.saturating_sub(due));
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.sent();
        }
    }

    pub fn answered(&mut self, number: u64, order: Uuid, now: Duration) {
        let (due, ended) = self.ledger.answered(number, order, now);
        if let Some(due) = due {
            self.http_latencies.record(now.saturating_sub(due));
        }
        if self.schedule.kind(number) == Kind::Cancelled {
            self.cancels.push_back((now + CANCEL_DELAY, number, order));
        }
        self.record_end(ended);
    }

    /// Records a rejected order or cancellation that was sent at `sent`.
    pub fn rejected(&mut self, number: u64, rejected: Rejected, sent: Duration, now: Duration) {
        let took = now.saturating_sub(sent);
        let due = self.ledger.reject(number, rejected.reason);
        if due.is_some() && rejected.may_retry {
            self.rejections.record(took);
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.rejected(took);
        }
    }

    pub fn on_confirmed(&mut self, order: Uuid, now: Duration) {
        let ended = self.ledger.on_confirmed(order, now);
        self.record_end(ended);
    }

    pub fn on_fact(&mut self, order: Uuid, fact: &SagaFact, now: Duration) {
        let ended = self.ledger.on_fact(order, fact, now);
        self.record_end(ended);
    }

    fn record_end(&mut self, ended: Option<Ended>) {
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

    /// Next order that its customer cancels by now.
    pub fn next_to_cancel(&mut self, now: Duration) -> Option<(u64, Uuid)> {
        let (at, number, order) = *self.cancels.front()?;
        if at > now {
            return None;
        }
        self.cancels.pop_front();
        Some((number, order))
    }

    /// Samples the orders in flight.
    pub fn sample(&mut self, now: Duration) {
        self.backlog.sample(now, self.ledger.in_flight());
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
    fn measured(mix: &str) -> Measurements {
        let mix = mix.parse().expect("a mix");
        let schedule = Schedule::at_rate(100, ms(100), ms(1_000), mix, "run");
        let timeline = Timeline::new().expect("histograms");
        let mut measured = Measurements::new(schedule, Some(timeline)).expect("histograms");
        for number in 0..110 {
            let due = measured.schedule.due(number).expect("it is due");
            measured.start(number, due, due + ms(1));
        }
        measured
    }

    #[expect(clippy::float_arithmetic, reason = "a histogram has three digits")]
    #[track_caller]
    fn assert_about(shown: f64, expected: f64) {
        assert!((expected..expected * 1.002).contains(&shown), "{shown} for {expected}");
    }

    #[test]
    fn answer_latency_counts_from_due_time_without_warm_up() {
        let mut measured = measured("happy=100");
        measured.answered(9, order(9), ms(5_000));
        assert_eq!(measured.http_latencies.count(), 0, "it belongs to the warm-up");
        measured.answered(50, order(50), ms(1_500));
        assert_about(measured.http_latencies.percentiles().p99, 1_000.0);
        assert_about(measured.late.percentiles().p50, 1.0);
        assert_eq!(measured.late.count(), 100);
    }

    #[test]
    fn ends_are_tracked_without_warm_up_and_backlog_is_sampled() {
        let mut measured = measured("happy=100");
        assert_eq!(measured.ends, None);
        // Those of the warm-up, the ninth, do not count; the tenth is the first that does.
        for (number, at) in [(9, 1_000), (10, 4_000), (11, 500), (12, 3_000)] {
            measured.answered(number, order(number), ms(at));
            measured.on_confirmed(order(number), ms(at));
        }
        assert_eq!((measured.ends, measured.ended_in_time), (Some((ms(500), ms(4_000))), 1));
        assert_eq!((measured.latencies.count(), measured.http_latencies.count()), (3, 3));
        for at in [100, 600, 1_100, 600_000] {
            measured.sample(ms(at));
        }
        assert!(!measured.backlog.grew(Duration::ZERO, ms(601_000), 0), "sampled, without growth");
        measured.sample(ms(151_000));
        (200..900).for_each(|number| measured.ledger.start(number, ms(200)));
        measured.sample(ms(599_000));
        assert!(measured.backlog.grew(Duration::ZERO, ms(600_000), 0));
    }

    #[test]
    fn latency_of_rejections_counts_only_those_with_retry_after() {
        let mut measured = measured("happy=100");
        let shed = Rejected { reason: "503".to_owned(), may_retry: true };
        measured.rejected(3, shed.clone(), ms(30), ms(40));
        measured.rejected(13, shed, ms(150), ms(154));
        measured.rejected(14, Rejected::failure("connection broke"), ms(150), ms(190));
        assert_eq!(measured.rejections.count(), 1);
        assert_about(measured.rejections.percentiles().p99, 4.0);
        assert_eq!(
            measured.ledger.counts().errors_by_reason,
            [("503".into(), 2), ("connection broke".into(), 1)].into()
        );
    }

    #[test]
    fn customers_cancel_in_order_after_a_delay() {
        let mut measured = measured("happy=50,cancelled=50");
        let cancelled: Vec<_> =
            (10..110).filter(|number| measured.schedule.kind(*number) == Kind::Cancelled).collect();
        (10..110).for_each(|number| measured.answered(number, order(number), ms(number)));
        let first = ms(cancelled[0]) + CANCEL_DELAY;
        assert_eq!(measured.next_to_cancel(first - ms(1)), None);
        assert_eq!(measured.next_to_cancel(first), Some((cancelled[0], order(cancelled[0]))));
        assert_eq!(measured.next_to_cancel(first), None);
        let rest: Vec<_> = std::iter::from_fn(|| measured.next_to_cancel(ms(9_000))).collect();
        assert_eq!(rest.len(), cancelled.len() - 1);
    }
}
