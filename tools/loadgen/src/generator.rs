//! Shell: the run: sends every order when it is due, and processes answers and facts.

use std::collections::BTreeMap;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep_until};

use super::cost::{Cost, CpuTime};
use super::measurements::{Measurements, Rejected};
use super::options::LoadOptions;
use super::progress::Progress;
use super::report::{self, Report};
use super::schedule::Schedule;
use super::sender::{Answer, Request, Sender};
use super::subscription::EndingFact;
use super::timeline::{Memory, Timeline};
use super::{products, reconcile, subscription};
use cli::exit::{self, ExitError};
use cli::{print, print_json, view};
use client::http::Http;
use devstack::{Component, Endpoints, Usage};

/// Maximum number of late orders that are sent before answers are processed again.
const MAX_BURST: u64 = 64;
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
const SAMPLES_PER_SECOND: u32 = 10;

/// `sagactl load --rate …` and `--clients …`. `usage` measures the processes of a local system.
pub async fn run(
    endpoints: &Endpoints,
    usage: impl Fn() -> BTreeMap<Component, Usage>,
    options: &LoadOptions,
) -> anyhow::Result<ExitCode> {
    let schedule = schedule_of(options);
    let http = Http::with_access(&endpoints.access)?;
    products::ensure(&http, endpoints, schedule.max_orders()).await?;
    let subscription = subscription::begin(endpoints).await?;
    let (warmup, end) = (schedule.measured_from(), schedule.end());
    let timeline = options.timeline.then(Timeline::new).transpose()?;
    let shared = Arc::new(Shared {
        measured: Mutex::new(Measurements::new(schedule, timeline)?),
        began: Instant::now(),
        has_ended: Notify::new(),
    });
    let of_facts = shared.clone();
    subscription.deliver(move |order, fact| of_facts.on_fact(order, &fact));
    let of_answers = shared.clone();
    let mut run = Run {
        progress: Progress::new(warmup, end, options.drain, options.json),
        sender: Sender::new(endpoints, move |answer| of_answers.on_answer(answer)),
        shared,
        usage,
        before: None,
        samples: 0,
        drain_within: options.drain,
    };
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    let outcome = tokio::select! {
        cost = run.until_it_ends() => Some(cost),
        _ = &mut interrupted => None,
    };
    run.progress.finish();
    let so_far = |reconciliation| ExitError::new(exit::INTERRUPTED, run.shared.so_far(reconciliation));
    let Some(cost) = outcome else {
        return Err(so_far("was not run").into());
    };
    let usage = (run.usage)();
    let rss_mib = usage.into_iter().map(|(component, usage)| (component, usage.rss_mib)).collect();
    let reconciliation = tokio::select! {
        answer = reconcile::run(endpoints, options.json) => answer?,
        _ = interrupted => return Err(so_far("has no result").into()),
    };
    let report = Report::of(&run.shared.measured(), options.may_shed, &cost, rss_mib, reconciliation);
    if options.json {
        print_json(&serde_json::to_value(&report)?);
    } else {
        print(&report::shown(&report, &view()));
    }
    Ok(if report.valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn schedule_of(options: &LoadOptions) -> Schedule {
    let run_id = format!("{:08x}", fastrand::u32(..));
    if let Some(clients) = options.clients {
        return Schedule::of_clients(clients, options.warmup, options.duration, options.mix, &run_id);
    }
    let rate = options.rate.unwrap_or(1);
    let schedule = Schedule::at_rate(rate, options.warmup, options.duration, options.mix, &run_id);
    options.then.iter().fold(schedule, |schedule, (rate, length)| schedule.then(*rate, *length))
}

/// State that requests, answers and facts share.
struct Shared {
    measured: Mutex<Measurements>,
    began: Instant,
    /// Wakes the loop when an order has ended.
    has_ended: Notify,
}

impl Shared {
    fn measured(&self) -> MutexGuard<'_, Measurements> {
        self.measured.lock()
    }

    fn on_fact(&self, order: uuid::Uuid, fact: &EndingFact) {
        let (now, mut measured) = (self.began.elapsed(), self.measured());
        match fact {
            EndingFact::Confirmed => measured.on_confirmed(order, now),
            EndingFact::Other(fact) => measured.on_fact(order, fact, now),
        }
        self.has_ended.notify_one();
    }

    fn on_answer(&self, Answer { number, sent, outcome, is_placing }: Answer) {
        let (now, mut measured) = (self.began.elapsed(), self.measured());
        match outcome {
            Ok(order) if is_placing => measured.answered(number, order, now),
            Ok(_cancelled) => {}
            Err(rejected) => {
                let reason =
                    if is_placing { rejected.reason } else { format!("cancel: {}", rejected.reason) };
                let rejected = Rejected { reason, ..rejected };
                measured.rejected(number, rejected, sent.saturating_duration_since(self.began), now);
            }
        }
    }

    /// Result of an interrupted run.
    fn so_far(&self, reconciliation: &str) -> String {
        let measured = self.measured();
        let (counts, open) = (measured.ledger.counts(), measured.ledger.in_flight());
        let errors: u64 = counts.errors_by_reason.values().sum();
        format!(
            "ended after {}s: {} started: {} completed, {} compensated, {open} in flight; {errors} errors; the reconciliation \
             {reconciliation} (sagactl reconcile)",
            self.began.elapsed().as_secs(),
            counts.started,
            counts.completed,
            counts.compensated,
        )
    }
}

struct Run<L> {
    shared: Arc<Shared>,
    sender: Sender,
    progress: Progress,
    usage: L,
    /// Processor time at the end of the warm-up.
    before: Option<CpuTime>,
    samples: u32,
    drain_within: Duration,
}

impl<L: Fn() -> BTreeMap<Component, Usage>> Run<L> {
    /// Runs to the end. Returns the processor time while measured orders were sent.
    async fn until_it_ends(&mut self) -> Cost {
        let (end, warmup, is_closed) = {
            let schedule = &self.shared.measured().schedule;
            (schedule.end(), schedule.measured_from(), schedule.clients().is_some())
        };
        let mut sample = interval(SAMPLE_EVERY);
        sample.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut next = 0;
        loop {
            let now = self.shared.began.elapsed();
            if now >= warmup && self.before.is_none() {
                self.before = Some(CpuTime::now((self.usage)()));
            }
            let due = self.send(&mut next, now);
            if now >= end && due.is_none() {
                break;
            }
            let until = self.shared.began + due.unwrap_or(end).min(end);
            tokio::select! {
                () = sleep_until(until.into()) => {}
                () = self.shared.has_ended.notified(), if is_closed => {}
                _ = sample.tick() => self.sample(),
            }
        }
        let after = CpuTime::now((self.usage)());
        let cost = self.before.as_ref().map(|before| after.since(before)).unwrap_or_default();
        self.drain(&mut sample).await;
        cost
    }

    /// Sends due orders and cancellations. Returns the due time of the next order.
    fn send(&self, next: &mut u64, now: Duration) -> Option<Duration> {
        self.cancel(now);
        let (first, mut due) = (*next, self.due(*next, now));
        while due.is_some_and(|due| due <= now) && *next < first + MAX_BURST {
            self.place(*next, due.unwrap_or(now), now);
            *next += 1;
            due = self.due(*next, now);
        }
        due
    }

    /// Due time of an order: in an open loop by the clock, in a closed loop as soon as a client is free.
    fn due(&self, number: u64, now: Duration) -> Option<Duration> {
        let measured = self.shared.measured();
        let schedule = &measured.schedule;
        match schedule.clients() {
            None => schedule.due(number),
            Some(_) if now >= schedule.end() => None,
            Some(clients) if measured.ledger.in_flight() < clients => Some(now),
            Some(_) => Some(schedule.end()),
        }
    }

    /// Sends an order. Its latency counts from its due time.
    fn place(&self, number: u64, due: Duration, now: Duration) {
        let body = {
            let mut measured = self.shared.measured();
            measured.start(number, due, now);
            measured.schedule.body(number)
        };
        self.dispatch(number, Request::Place(body), now);
    }

    fn dispatch(&self, number: u64, request: Request, now: Duration) {
        if !self.sender.send(number, request) {
            self.shared.measured().rejected(number, Rejected::failure("dropped by the generator"), now, now);
        }
    }

    fn cancel(&self, now: Duration) {
        loop {
            let next = self.shared.measured().next_to_cancel(now);
            let Some((number, order)) = next else { return };
            self.dispatch(number, Request::Cancel(order), now);
        }
    }

    fn sample(&mut self) {
        let now = self.shared.began.elapsed();
        self.shared.measured().sample(now);
        self.samples += 1;
        if self.samples.is_multiple_of(SAMPLES_PER_SECOND) {
            self.shared.measured().ledger.drop_unknown(now);
            self.close_second();
        }
        self.progress.show(now, &self.shared.measured().ledger);
    }

    fn close_second(&self) {
        let measured = &mut *self.shared.measured();
        let in_flight = measured.ledger.in_flight();
        if let Some(timeline) = &mut measured.timeline {
            close_second(timeline, in_flight, &(self.usage)());
        }
    }

    async fn drain(&mut self, sample: &mut tokio::time::Interval) {
        let until = Instant::now() + self.drain_within;
        while self.shared.measured().ledger.in_flight() > 0 && Instant::now() < until {
            tokio::select! {
                () = self.shared.has_ended.notified() => {}
                _ = sample.tick() => {
                    self.cancel(self.shared.began.elapsed());
                    self.sample();
                    let measured = self.shared.measured();
                    if measured.ledger.in_flight() == measured.ledger.failed() {
                        break;
                    }
                }
            }
        }
        // The last second is shorter.
        self.close_second();
    }
}

#[expect(clippy::float_arithmetic, reason = "shown to people")]
fn close_second(timeline: &mut Timeline, in_flight: u64, usage: &BTreeMap<Component, Usage>) {
    let all: f64 = usage.values().map(|usage| usage.rss_mib).sum();
    let of = |component| usage.get(&component).map_or(0.0, |usage| usage.rss_mib);
    let (broker, order) = (of(Component::NATS), of(Component::ORDER));
    timeline.close(in_flight, Memory { all: (all * 10.0).round() / 10.0, broker, order });
}
