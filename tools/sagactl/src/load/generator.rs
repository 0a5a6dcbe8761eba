//! Shell: the run: sends every order when it is due, and takes in what comes back.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use shared::saga::HeardFact;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{MissedTickBehavior, interval, sleep_until};
use uuid::Uuid;

use super::LoadOptions;
use super::backlog::Backlog;
use super::facts;
use super::ledger::Ledger;
use super::plan::Plan;
use super::progress::Progress;
use super::report::{self, Report};
use super::sender::Sender;
use super::shelf;
use crate::http::Http;
use crate::local::status;
use crate::local::{Member, System};
use crate::reconciliation;

/// Requests that wait for an answer at the same time; an order that comes due beyond is shed.
const REQUESTS: usize = 2_000;
/// Orders sent in one go when the generator has fallen behind, before it listens again.
const BURST: u64 = 64;
/// What came back and waits to be counted.
const QUEUE: usize = 16_384;
/// Taken from the queue in one go.
const GULP: usize = 256;
/// What is in flight is looked at this often.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// After the last order the system gets this long to finish.
const DRAIN_WITHIN: Duration = Duration::from_secs(30);
/// The audit waits this long for quiet.
const AUDIT_WAIT: Duration = Duration::from_secs(30);

/// Something came back.
pub enum Happening {
    /// A fact of a saga was heard.
    Heard(Uuid, Box<HeardFact>),
    /// An order was answered at this time, or not taken for this reason.
    Answered(u64, Result<Instant, String>),
}

/// `sagactl load --rate …`.
pub async fn run(system: &System, options: &LoadOptions) -> anyhow::Result<ExitCode> {
    let rate = options.rate.unwrap_or(1);
    let run_id = format!("{:08x}", fastrand::u32(..));
    let plan = Plan::new(rate, options.warmup, options.duration, options.mix, &run_id);
    let http = Http::new()?;
    shelf::fill(&http, system, plan.orders).await?;
    let (to, mut happenings) = mpsc::channel(QUEUE);
    facts::listen(system, &to).await?;
    let mut run = Run::new(plan, Sender::new(system)?, to)?;
    let length = run.plan.due(run.plan.orders);
    let progress = Progress::new(run.plan.due(run.plan.first_measured), length, options.json);
    run.send_all(&mut happenings, &progress).await;
    run.drain(&mut happenings, &progress).await;
    progress.finish();
    let rss_mib = status::memory(system);
    let audit = reconciliation::ask(&http, &system.url_of(Member::Admin), AUDIT_WAIT).await?;
    let report = Report::of(&run, rate, rss_mib, audit);
    report::print(&report, options.json)?;
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A run under way.
pub struct Run {
    /// What is sent when.
    pub plan: Plan,
    /// What became of it.
    pub ledger: Ledger,
    /// Microseconds from due to ended.
    pub latency_us: Histogram<u64>,
    /// Microseconds from due to answered.
    pub http_latency_us: Histogram<u64>,
    /// What was in flight.
    pub backlog: Backlog,
    /// When the first and the last measured order ended, from the start.
    pub ends: Option<(Duration, Duration)>,
    began: Instant,
    sender: Sender,
    requests: Arc<Semaphore>,
    to: mpsc::Sender<Happening>,
}

impl Run {
    fn new(plan: Plan, sender: Sender, to: mpsc::Sender<Happening>) -> anyhow::Result<Self> {
        Ok(Self {
            ledger: Ledger::new(plan.clone()),
            plan,
            latency_us: report::histogram()?,
            http_latency_us: report::histogram()?,
            backlog: Backlog::default(),
            ends: None,
            began: Instant::now(),
            sender,
            requests: Arc::new(Semaphore::new(REQUESTS)),
            to,
        })
    }

    async fn send_all(&mut self, happenings: &mut mpsc::Receiver<Happening>, progress: &Progress) {
        self.began = Instant::now();
        let end = self.plan.due(self.plan.orders);
        let mut next = 0;
        let mut sample = interval(SAMPLE_EVERY);
        sample.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut gulp = Vec::with_capacity(GULP);
        while self.began.elapsed() < end || next < self.plan.orders {
            let due = (self.began + self.plan.due(next)).into();
            tokio::select! {
                () = sleep_until(due) => next = self.send_due(next),
                _ = happenings.recv_many(&mut gulp, GULP) => self.take_in(&mut gulp),
                _ = sample.tick() => self.sample(progress),
            }
        }
    }

    /// Sends what is due. An order that comes late is sent at once, and its lateness counts.
    fn send_due(&mut self, from: u64) -> u64 {
        let now = self.began.elapsed();
        let until = self.plan.orders.min(from + BURST);
        let mut number = from;
        while number < until && self.plan.due(number) <= now {
            self.ledger.start(number);
            self.send(number);
            number += 1;
        }
        number
    }

    fn send(&mut self, number: u64) {
        let Ok(place) = self.requests.clone().try_acquire_owned() else {
            return self.ledger.refuse(number, "shed by the generator".to_owned());
        };
        let (sender, to, body) = (self.sender.clone(), self.to.clone(), self.plan.body(number));
        tokio::spawn(async move {
            let answer = sender.post(body).await;
            drop(place);
            // The run is over when nobody listens.
            let _ = to.send(Happening::Answered(number, answer.map(|()| Instant::now()))).await;
        });
    }

    fn take_in(&mut self, gulp: &mut Vec<Happening>) {
        let now = self.began.elapsed();
        for happening in gulp.drain(..) {
            match happening {
                Happening::Heard(order, fact) => {
                    if let Some(ended) = self.ledger.hear(order, &fact, now) {
                        self.latency_us.saturating_record(micros(ended.latency));
                        let (first, last) = self.ends.unwrap_or((ended.at, ended.at));
                        self.ends = Some((first.min(ended.at), last.max(ended.at)));
                    }
                }
                Happening::Answered(number, Ok(at)) => {
                    if number >= self.plan.first_measured {
                        let latency = at.saturating_duration_since(self.began + self.plan.due(number));
                        self.http_latency_us.saturating_record(micros(latency));
                    }
                }
                Happening::Answered(number, Err(reason)) => self.ledger.refuse(number, reason),
            }
        }
    }

    fn sample(&mut self, progress: &Progress) {
        let now = self.began.elapsed();
        self.backlog.note(now, self.ledger.in_flight());
        self.ledger.drop_strangers(now);
        progress.show(now, &self.ledger);
    }

    async fn drain(&mut self, happenings: &mut mpsc::Receiver<Happening>, progress: &Progress) {
        let until = Instant::now() + DRAIN_WITHIN;
        let mut sample = interval(SAMPLE_EVERY);
        let mut gulp = Vec::with_capacity(GULP);
        while self.ledger.in_flight() > 0 && Instant::now() < until {
            tokio::select! {
                _ = happenings.recv_many(&mut gulp, GULP) => self.take_in(&mut gulp),
                _ = sample.tick() => {
                    progress.show(self.began.elapsed(), &self.ledger);
                    if self.ledger.in_flight() == self.ledger.failed() {
                        break;
                    }
                }
            }
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
