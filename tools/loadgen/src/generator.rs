//! Shell: the run: sends every order when it is due, and takes in what comes back.

use std::collections::BTreeMap;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep_until};

use super::cost::{Cost, Spent};
use super::facts::Heard;
use super::measured::{Measured, Refused};
use super::options::LoadOptions;
use super::progress::Progress;
use super::report::{self, Report, Tolerance};
use super::schedule::Schedule;
use super::sender::{Answer, Request, Sender};
use super::timeline::{Memory, Timeline};
use super::{books, facts, shelf};
use cli::exit::{self, Refusal};
use client::http::Http;
use devstack::{Member, Reach, Usage};

/// Orders sent in one go when the generator has fallen behind, before it listens again.
const BURST: u64 = 64;
/// What is in flight is looked at this often.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// What nobody of this run answers for is forgotten, and a second of the timeline closed, every so many looks.
const LOOKS_PER_SECOND: u32 = 10;

/// `sagactl load --rate …` and `--clients …`.
///
/// `look` says what each process of the system holds and has used, as far as that is to be seen.
pub async fn run(
    reach: &Reach,
    look: impl Fn() -> BTreeMap<Member, Usage>,
    options: &LoadOptions,
) -> anyhow::Result<ExitCode> {
    let schedule = schedule_of(options);
    let http = Http::new()?;
    shelf::fill(&http, reach, schedule.most_orders()).await?;
    let facts = facts::listen(reach).await?;
    let (warmup, end) = (schedule.measured_from(), schedule.end());
    let timeline = options.timeline.then(Timeline::new).transpose()?;
    let shared = Arc::new(Shared {
        measured: Mutex::new(Measured::new(schedule, timeline)?),
        began: Instant::now(),
        has_ended: Notify::new(),
    });
    let of_facts = shared.clone();
    facts.tell(move |order, heard| of_facts.take_fact(order, &heard));
    let of_answers = shared.clone();
    let mut run = Run {
        progress: Progress::new(warmup, end, options.drain, options.json),
        sender: Sender::new(reach, move |answer| of_answers.take_answer(answer)),
        shared,
        look,
        before: None,
        looks: 0,
        drain_within: options.drain,
    };
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    let outcome = tokio::select! {
        cost = run.until_it_ends() => Some(cost),
        _ = &mut interrupted => None,
    };
    run.progress.finish();
    let so_far = |books| Refusal::new(exit::INTERRUPTED, run.shared.so_far(books));
    let Some(cost) = outcome else {
        return Err(so_far("were not asked").into());
    };
    let usage = (run.look)();
    let rss_mib = usage.into_iter().map(|(member, usage)| (member, usage.rss_mib)).collect();
    let reconciliation = tokio::select! {
        answer = books::ask(reach, options.json) => answer?,
        _ = interrupted => return Err(so_far("have not answered").into()),
    };
    let tolerance = Tolerance { may_shed: options.may_shed };
    let report = Report::of(&run.shared.measured(), tolerance, &cost, rss_mib, reconciliation);
    report::print(&report, options.json)?;
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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

/// What the sending, the answers and the facts have in common.
struct Shared {
    measured: Mutex<Measured>,
    began: Instant,
    /// A client's order has ended.
    has_ended: Notify,
}

impl Shared {
    fn measured(&self) -> MutexGuard<'_, Measured> {
        self.measured.lock()
    }

    fn take_fact(&self, order: uuid::Uuid, heard: &Heard) {
        let (now, mut measured) = (self.began.elapsed(), self.measured());
        match heard {
            Heard::Confirmed => measured.confirmed(order, now),
            Heard::Other(fact) => measured.hear(order, fact, now),
        }
        self.has_ended.notify_one();
    }

    fn take_answer(&self, Answer { number, sent, outcome, is_placing }: Answer) {
        let (now, mut measured) = (self.began.elapsed(), self.measured());
        match outcome {
            Ok(order) if is_placing => measured.answered(number, order, now),
            // The facts tell what becomes of it.
            Ok(_cancelled) => {}
            Err(refused) => {
                let reason = if is_placing { refused.reason } else { format!("cancel: {}", refused.reason) };
                let refused = Refused { reason, ..refused };
                measured.refused(number, refused, sent.saturating_duration_since(self.began), now);
            }
        }
    }

    /// What is known of a run that somebody ended.
    fn so_far(&self, books: &str) -> String {
        let measured = self.measured();
        let (counts, open) = (measured.ledger.counts(), measured.ledger.in_flight());
        let errors: u64 = counts.errors.values().sum();
        format!(
            "ended after {}s: {} started: {} completed, {} compensated, {open} in flight; {errors} errors; the books {books} \
             (sagactl audit)",
            self.began.elapsed().as_secs(),
            counts.started,
            counts.completed,
            counts.compensated,
        )
    }
}

/// A run under way.
struct Run<L> {
    shared: Arc<Shared>,
    sender: Sender,
    progress: Progress,
    look: L,
    /// What had been spent when the warm-up was over.
    before: Option<Spent>,
    looks: u32,
    drain_within: Duration,
}

impl<L: Fn() -> BTreeMap<Member, Usage>> Run<L> {
    /// Answers what was spent while orders were sent and measured.
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
                self.before = Some(Spent::now((self.look)()));
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
        let after = Spent::now((self.look)());
        let cost = self.before.as_ref().map(|before| after.since(before)).unwrap_or_default();
        self.drain(&mut sample).await;
        cost
    }

    /// Sends what is due, and cancels what its customers cancel. Answers when the next is due.
    fn send(&self, next: &mut u64, now: Duration) -> Option<Duration> {
        self.cancel(now);
        let (first, mut due) = (*next, self.due(*next, now));
        while due.is_some_and(|due| due <= now) && *next < first + BURST {
            self.place(*next, due.unwrap_or(now), now);
            *next += 1;
            due = self.due(*next, now);
        }
        due
    }

    /// When this order is to be sent: of an open loop by the clock, else as soon as a client is free.
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

    /// Sends an order. One that comes late is sent at once, and its lateness counts.
    fn place(&self, number: u64, due: Duration, now: Duration) {
        let body = {
            let mut measured = self.shared.measured();
            measured.start(number, due, now);
            measured.schedule.body(number)
        };
        if !self.sender.send(number, Request::Place(body)) {
            self.shared.measured().refused(number, Refused::broken("shed by the generator"), now, now);
        }
    }

    fn cancel(&self, now: Duration) {
        loop {
            let next = self.shared.measured().next_to_cancel(now);
            let Some((number, order)) = next else { return };
            if !self.sender.send(number, Request::Cancel(order)) {
                self.shared.measured().refused(number, Refused::broken("shed by the generator"), now, now);
            }
        }
    }

    fn sample(&mut self) {
        let now = self.shared.began.elapsed();
        self.shared.measured().sample(now);
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_PER_SECOND) {
            self.shared.measured().ledger.drop_strangers(now);
            self.close_second();
        }
        self.progress.show(now, &self.shared.measured().ledger);
    }

    fn close_second(&self) {
        let measured = &mut *self.shared.measured();
        let in_flight = measured.ledger.in_flight();
        if let Some(timeline) = &mut measured.timeline {
            close_second(timeline, in_flight, &(self.look)());
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
        // The last second is a part of one.
        self.close_second();
    }
}

#[expect(clippy::float_arithmetic, reason = "shown to people")]
fn close_second(timeline: &mut Timeline, in_flight: u64, usage: &BTreeMap<Member, Usage>) {
    let all: f64 = usage.values().map(|usage| usage.rss_mib).sum();
    let of = |member| usage.get(&member).map_or(0.0, |usage| usage.rss_mib);
    let (broker, order) = (of(Member::NATS), of(Member::ORDER));
    timeline.close(in_flight, Memory { all: (all * 10.0).round() / 10.0, broker, order });
}
