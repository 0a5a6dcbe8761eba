//! Pure: what a run measures. Times are counted from its start.

use std::time::Duration;

use contract::saga_view::HeardFact;
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
        })
    }

    pub fn take_in(&mut self, arrival: Arrival, now: Duration) {
        match arrival {
            Arrival::Fact(order, fact) => {
                if let Some(ended) = self.ledger.hear(order, &fact, now) {
                    self.latencies.record(ended.latency);
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
