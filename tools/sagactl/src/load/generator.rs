//! Shell: the run: sends every order when it is due, and takes in what comes back.

use std::collections::BTreeMap;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc};
use tokio::time::{MissedTickBehavior, interval, sleep_until};

use super::measured::{Arrival, Measured};
use super::options::LoadOptions;
use super::progress::Progress;
use super::report::{self, Report};
use super::schedule::Schedule;
use super::sender::Sender;
use super::{books, facts, shelf};
use crate::http::Http;
use crate::local::{Member, Reach};
use crate::output::exit::{self, Refusal};

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

/// `sagactl load --rate …`.
///
/// `memory` says what each process of the system holds when the run is over, as far as that is to be seen.
pub async fn run(
    reach: &Reach,
    memory: impl FnOnce() -> BTreeMap<Member, f64>,
    options: &LoadOptions,
) -> anyhow::Result<ExitCode> {
    let rate = options.rate.unwrap_or(1);
    let run_id = format!("{:08x}", fastrand::u32(..));
    let schedule = Schedule::new(rate, options.warmup, options.duration, options.mix, &run_id);
    let http = Http::new()?;
    shelf::fill(&http, reach, schedule.orders).await?;
    let (to, arrivals) = mpsc::channel(QUEUE);
    facts::listen(reach, &to).await?;
    let mut run = Run {
        progress: Progress::new(
            schedule.due(schedule.first_measured),
            schedule.end(),
            DRAIN_WITHIN,
            options.json,
        ),
        measured: Measured::new(schedule)?,
        began: Instant::now(),
        sender: Sender::new(reach)?,
        requests: Arc::new(Semaphore::new(REQUESTS)),
        to,
        arrivals,
    };
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    let is_interrupted = tokio::select! {
        () = run.until_it_ends() => false,
        _ = &mut interrupted => true,
    };
    run.progress.finish();
    let so_far = |books| Refusal::new(exit::INTERRUPTED, run.so_far(books));
    if is_interrupted {
        return Err(so_far("were not asked").into());
    }
    let rss_mib = memory();
    let reconciliation = tokio::select! {
        answer = books::ask(reach, options.json) => answer?,
        _ = interrupted => return Err(so_far("have not answered").into()),
    };
    let report = Report::of(&run.measured, rate, rss_mib, reconciliation);
    report::print(&report, options.json)?;
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A run under way.
struct Run {
    measured: Measured,
    began: Instant,
    sender: Sender,
    requests: Arc<Semaphore>,
    to: mpsc::Sender<Arrival>,
    arrivals: mpsc::Receiver<Arrival>,
    progress: Progress,
}

impl Run {
    async fn until_it_ends(&mut self) {
        self.send_all().await;
        self.drain().await;
    }

    /// What is known of a run that somebody ended.
    fn so_far(&self, books: &str) -> String {
        let (counts, open) = (self.measured.ledger.counts(), self.measured.ledger.in_flight());
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

    async fn send_all(&mut self) {
        self.began = Instant::now();
        let (end, orders) = (self.measured.schedule.end(), self.measured.schedule.orders);
        let mut next = 0;
        let mut sample = interval(SAMPLE_EVERY);
        sample.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut gulp = Vec::with_capacity(GULP);
        while self.began.elapsed() < end || next < orders {
            let due = (self.began + self.measured.schedule.due(next)).into();
            tokio::select! {
                () = sleep_until(due) => next = self.send_due(next),
                _ = self.arrivals.recv_many(&mut gulp, GULP) => self.take_in(&mut gulp),
                _ = sample.tick() => self.sample(),
            }
        }
    }

    /// Sends what is due. An order that comes late is sent at once, and its lateness counts.
    fn send_due(&mut self, from: u64) -> u64 {
        let now = self.began.elapsed();
        let until = self.measured.schedule.orders.min(from + BURST);
        let mut number = from;
        while number < until && self.measured.schedule.due(number) <= now {
            self.measured.ledger.start(number);
            self.send(number);
            number += 1;
        }
        number
    }

    fn send(&mut self, number: u64) {
        let Ok(permit) = self.requests.clone().try_acquire_owned() else {
            return self.measured.ledger.refuse(number, "shed by the generator".to_owned());
        };
        let (sender, to, began) = (self.sender.clone(), self.to.clone(), self.began);
        let body = self.measured.schedule.body(number);
        tokio::spawn(async move {
            let answer = sender.post(body).await;
            drop(permit);
            // The run is over when nobody listens.
            let _ = to.send(Arrival::Answer(number, answer.map(|()| began.elapsed()))).await;
        });
    }

    fn take_in(&mut self, gulp: &mut Vec<Arrival>) {
        let now = self.began.elapsed();
        gulp.drain(..).for_each(|arrival| self.measured.take_in(arrival, now));
    }

    fn sample(&mut self) {
        let now = self.began.elapsed();
        self.measured.sample(now);
        self.progress.show(now, &self.measured.ledger);
    }

    async fn drain(&mut self) {
        let until = Instant::now() + DRAIN_WITHIN;
        let mut sample = interval(SAMPLE_EVERY);
        let mut gulp = Vec::with_capacity(GULP);
        while self.measured.ledger.in_flight() > 0 && Instant::now() < until {
            tokio::select! {
                _ = self.arrivals.recv_many(&mut gulp, GULP) => self.take_in(&mut gulp),
                _ = sample.tick() => {
                    self.progress.show(self.began.elapsed(), &self.measured.ledger);
                    if self.measured.ledger.in_flight() == self.measured.ledger.failed() {
                        break;
                    }
                }
            }
        }
    }
}
