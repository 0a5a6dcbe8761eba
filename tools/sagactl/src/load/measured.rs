//! Pure: what a run measures. Times are counted from its start.

use std::time::Duration;

use contract::heard_fact::HeardFact;
use uuid::Uuid;

use super::backlog::Backlog;
use super::ledger::Ledger;
use super::percentiles::Latencies;
use super::schedule::Schedule;

/// What comes back during a run.
pub enum Arrival {
    /// A fact of a saga was heard.
    Fact(Uuid, Box<HeardFact>),
    /// An order was answered at this time, or not taken for this reason.
    Answer(u64, Result<Duration, String>),
}

/// Everything that the report is made of.
pub struct Measured {
    pub schedule: Schedule,
    pub ledger: Ledger,
    /// From due to ended.
    pub latencies: Latencies,
    /// From due to answered.
    pub http_latencies: Latencies,
    pub backlog: Backlog,
    /// When the first and the last measured order ended.
    pub ends: Option<(Duration, Duration)>,
    /// Measured orders that ended before the run was over; the rest came later.
    pub ended_in_time: u64,
}

impl Measured {
    pub fn new(schedule: Schedule) -> anyhow::Result<Self> {
        Ok(Self {
            ledger: Ledger::new(schedule.clone()),
            schedule,
            latencies: Latencies::new()?,
            http_latencies: Latencies::new()?,
            backlog: Backlog::default(),
            ends: None,
            ended_in_time: 0,
        })
    }

    pub fn take_in(&mut self, arrival: Arrival, now: Duration) {
        match arrival {
            Arrival::Fact(order, fact) => {
                if let Some(ended) = self.ledger.hear(order, &fact, now) {
                    self.latencies.record(ended.latency);
                    self.ended_in_time += u64::from(ended.at <= self.schedule.end());
                    let (first, last) = self.ends.unwrap_or((ended.at, ended.at));
                    self.ends = Some((first.min(ended.at), last.max(ended.at)));
                }
            }
            Arrival::Answer(number, Ok(at)) => {
                if number >= self.schedule.first_measured {
                    self.http_latencies.record(at.saturating_sub(self.schedule.due(number)));
                }
            }
            Arrival::Answer(number, Err(reason)) => self.ledger.refuse(number, reason),
        }
    }

    /// Looks at what is in flight, from time to time.
    pub fn sample(&mut self, now: Duration) {
        self.backlog.note(now, self.ledger.in_flight());
        self.ledger.drop_strangers(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred orders per second, the first ten as warm-up, sent far too late: who waits counts from when it was due.
    #[test]
    fn answers_are_timed_from_when_their_orders_were_due_and_not_during_the_warm_up() {
        let mix = "happy=100".parse().expect("a mix");
        let schedule = Schedule::new(100, Duration::from_millis(100), Duration::from_secs(1), mix, "run");
        let mut measured = Measured::new(schedule).expect("a histogram");
        (0..110).for_each(|number| measured.ledger.start(number));
        let answered_at = |ms| Ok(Duration::from_millis(ms));
        measured.take_in(Arrival::Answer(9, answered_at(5_000)), Duration::from_secs(5));
        assert_eq!(measured.http_latencies.count(), 0, "it belongs to the warm-up");
        measured.take_in(Arrival::Answer(50, answered_at(1_500)), Duration::from_secs(5));
        let shown = serde_json::to_value(measured.http_latencies.percentiles()).expect("JSON");
        assert!(shown["max"].as_f64().is_some_and(|max| (1_000.0..1_001.0).contains(&max)), "{shown}");
    }

    #[test]
    fn a_run_lasts_from_its_first_end_to_its_last_and_is_looked_at_meanwhile() {
        let mix = "happy=100".parse().expect("a mix");
        let schedule = Schedule::new(100, Duration::from_millis(100), Duration::from_secs(1), mix, "run");
        let mut measured = Measured::new(schedule).expect("a histogram");
        (0..110).for_each(|number| measured.ledger.start(number));
        assert_eq!(measured.ends, None);
        let second = Duration::from_secs;
        // Those of the warm-up, the ninth, do not count; the tenth is the first that does.
        for (number, at) in [(9, 1), (10, 4), (11, 2), (12, 3)] {
            for (said, customer) in
                [("OrderCreated", Some(format!("load-run-{number}"))), ("OrderConfirmed", None)]
            {
                let fact = HeardFact {
                    message_id: Uuid::new_v5(&Uuid::from_u128(number), said.as_bytes()),
                    message_type: said.to_owned(),
                    producer: "test".to_owned(),
                    causation_id: Uuid::nil(),
                    occurred_at: jiff::Timestamp::UNIX_EPOCH,
                    detail: contract::heard_fact::FactDetail { customer, ..Default::default() },
                };
                measured.take_in(Arrival::Fact(Uuid::from_u128(number), Box::new(fact)), second(at));
            }
            measured.take_in(Arrival::Answer(number as u64, Ok(second(at))), second(at));
        }
        assert_eq!(measured.ends, Some((second(2), second(4))));
        assert_eq!((measured.latencies.count(), measured.http_latencies.count()), (3, 3));
        measured.take_in(Arrival::Answer(13, Err("503".to_owned())), second(4));
        assert_eq!(measured.ledger.counts().errors["503"], 1);
        let Measured { ledger, .. } = &mut measured;
        ledger.hear(Uuid::from_u128(99), &stranger(), Duration::ZERO);
        for at in [0, 500, 1_000] {
            measured.sample(Duration::from_millis(100 + at));
        }
        measured.sample(second(600));
        let until = second(601);
        assert!(!measured.backlog.grew(Duration::ZERO, until, 0), "it was looked at, and had not grown");
        (200..300).for_each(|number| measured.ledger.start(number));
        let quarter = Duration::from_secs(150);
        measured.sample(quarter + second(1));
        (300..900).for_each(|number| measured.ledger.start(number));
        measured.sample(quarter * 4 - second(1));
        assert!(measured.backlog.grew(Duration::ZERO, quarter * 4, 0));
    }

    fn stranger() -> HeardFact {
        HeardFact {
            message_id: Uuid::nil(),
            message_type: "StockReserved".to_owned(),
            producer: "test".to_owned(),
            causation_id: Uuid::nil(),
            occurred_at: jiff::Timestamp::UNIX_EPOCH,
            detail: contract::heard_fact::FactDetail::default(),
        }
    }
}
