//! Shell: what a service measures, as OpenMetrics 1.0. [`names`] has every metric that each service has.

pub mod names;
mod process;
mod series;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use saga_core::admission::CallEnd;
use saga_core::breaker::State;
use saga_core::machinery::Stats;
use saga_core::metric::{Measured, Measurement, Metric};
use saga_core::trace::TraceContext;

use self::process::Process;
use self::series::Series;
use crate::runtime::admission::BreakerView;
use crate::runtime::observer::{InputSettled, Observer};

/// What can become of the message of a step, and is shown from the start.
const OUTCOMES_OF_STEPS: [&str; 5] = ["done", "duplicate", "rejected", "retried", "dead"];

/// Everything that a service measures. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    all: Arc<[Series]>,
    /// What is measured all the time.
    often: Often,
    latest: Arc<Mutex<Stats>>,
}

/// Series that every input adds to: found once.
#[derive(Debug, Clone)]
struct Often {
    inputs: Series,
    step_duration: Series,
    commit_duration: Series,
    batch_inputs: Series,
    written: Series,
    queue: Series,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new("unknown", &[])
    }
}

impl Metrics {
    /// Those that each service has, and these, of this service's own.
    #[must_use]
    pub fn new(service: &'static str, own: &[&'static Metric]) -> Self {
        let mut registry = Registry::default();
        let all: Arc<[Series]> =
            names::ALL.iter().chain(own).map(|metric| Series::of(metric, &mut registry)).collect();
        registry.register_collector(Box::new(Process::default()));
        let of = |metric: &Metric| found(&all, metric).clone();
        let often = Often {
            inputs: of(&names::INPUTS),
            step_duration: of(&names::STEP_DURATION),
            commit_duration: of(&names::COMMIT_DURATION),
            batch_inputs: of(&names::BATCH_INPUTS),
            written: of(&names::WRITTEN),
            queue: of(&names::QUEUE),
        };
        let metrics = Self { registry: Arc::new(registry), all, often, latest: Arc::default() };
        metrics.set(&names::BUILD, &[service, env!("CARGO_PKG_VERSION")], 1.0);
        metrics
    }

    /// Shows what there is to measure of these steps and tasks before anything happens there.
    pub fn expect(&self, steps: &[&str], tasks: &[&str]) {
        for step in steps {
            OUTCOMES_OF_STEPS.iter().for_each(|outcome| self.often.inputs.show(&[step, outcome]));
            self.of(&names::FOREIGN).show(&[step]);
        }
        for task in tasks {
            let ends = [CallEnd::Answered, CallEnd::Refused, CallEnd::Failed];
            ends.iter().for_each(|end| self.of(&names::CALLS).show(&[task, end.as_str()]));
        }
    }

    fn of(&self, metric: &Metric) -> &Series {
        found(&self.all, metric)
    }

    /// Shows this series of a counter or a histogram before anything happens there.
    pub fn show(&self, metric: &Metric, labels: &[&str]) {
        self.of(metric).show(labels);
    }

    /// Sets a gauge. `labels` are the values of the metric's labels.
    pub fn set(&self, metric: &Metric, labels: &[&str], value: f64) {
        self.of(metric).set(labels, value);
    }

    /// Sets all that there is of a gauge: whatever is not named is gone.
    pub fn replace(&self, metric: &Metric, all: &[(Vec<String>, f64)]) {
        self.of(metric).replace(all);
    }

    /// Counts so many more.
    pub fn add(&self, metric: &Metric, labels: &[&str], more: u64) {
        self.of(metric).add(labels, more);
    }

    /// Takes note of how long something took.
    pub fn took(&self, metric: &Metric, labels: &[&str], took: Duration, trace: Option<TraceContext>) {
        self.of(metric).observe(labels, took.as_secs_f64(), trace);
    }

    /// Takes over what the store says of itself.
    pub fn take_stats(&self, stats: Stats, now: Timestamp) {
        let age =
            |since: Option<Timestamp>| since.map_or(0.0, |since| now.duration_since(since).as_secs_f64());
        for (metric, value) in [
            (&names::PENDING, count(stats.outbox_pending)),
            (&names::FAILED, count(stats.outbox_failed)),
            (&names::LAG, age(stats.outbox_oldest)),
            (&names::RETRIES, count(stats.retries)),
            (&names::TASKS, count(stats.tasks)),
            (&names::TASK_AGE, age(stats.task_oldest)),
            (&names::DEAD_LETTERS, count(stats.dead_letters)),
        ] {
            self.set(metric, &[], value);
        }
        *self.latest.lock() = stats;
    }

    /// Takes over how far the machine's clock is ahead of the broker's.
    pub fn take_clock_offset(&self, offset: SignedDuration) {
        self.set(&names::CLOCK_OFFSET, &[], offset.as_secs_f64());
    }

    /// Takes over what a breaker says of itself.
    pub fn take_breaker(&self, view: &BreakerView) {
        let name = view.name.as_str();
        let state = match view.state {
            State::Closed | State::ForcedClosed => 0.0,
            State::HalfOpen => 1.0,
            State::Open | State::ForcedOpen => 2.0,
        };
        self.set(&names::BREAKER_STATE, &[name], state);
        self.set(&names::BREAKER_FAILURE_RATIO, &[name], ratio(view.failure_rate.unwrap_or(0)));
        self.of(&names::BREAKER_NOT_PERMITTED).come_to(&[name], view.refused);
        let recorded = &view.recorded;
        for (outcome, count) in
            [("success", recorded.successes), ("failure", recorded.failures), ("ignored", recorded.ignored)]
        {
            self.of(&names::BREAKER_CALLS).come_to(&[name, outcome], count);
        }
    }

    /// What the store last said of itself.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.latest.lock().clone()
    }

    /// The text that `/metrics` answers (OpenMetrics 1.0).
    ///
    /// # Errors
    /// None in practice: writing to a string does not fail.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl Observer for Metrics {
    fn input_settled(&self, settled: &InputSettled<'_>) {
        let InputSettled { source, outcome, took, trace } = *settled;
        self.often.inputs.add(&[source, outcome], 1);
        self.often.step_duration.observe(&[source], took.as_secs_f64(), trace);
    }

    fn measured(&self, measurement: &Measurement, trace: Option<TraceContext>) {
        let labels: Vec<&str> = measurement.labels.iter().map(String::as_str).collect();
        match measurement.measured {
            Measured::More(more) => self.add(measurement.metric, &labels, more),
            Measured::Took(took) => self.took(measurement.metric, &labels, took, trace),
        }
    }

    fn foreign_parked(&self, step: &str) {
        self.add(&names::FOREIGN, &[step], 1);
    }

    fn call_ended(&self, kind: &str, end: CallEnd, took: Duration, trace: Option<TraceContext>) {
        self.add(&names::CALLS, &[kind, end.as_str()], 1);
        self.took(&names::CALL_DURATION, &[kind], took, trace);
    }

    fn batch_committed(&self, inputs: usize, waiting: usize, took: Duration) {
        self.often.commit_duration.observe(&[], took.as_secs_f64(), None);
        self.often.batch_inputs.observe(&[], size(inputs), None);
        self.often.queue.set(&[], size(waiting));
    }

    fn batch_not_stored(&self) {
        self.add(&names::STORE_FAULTS, &[], 1);
    }

    fn promised(&self, messages: usize) {
        self.often.written.add(&[], messages as u64);
    }

    fn published(&self, messages: usize, refused: usize, took: Duration) {
        self.of(&names::PUBLISH_MESSAGES).observe(&[], size(messages), None);
        self.took(&names::PUBLISH_DURATION, &[], took, None);
        self.add(&names::PUBLISHED, &[], messages as u64);
        self.add(&names::REFUSED, &[], refused as u64);
    }

    fn delivered_again(&self, consumer: &str) {
        self.add(&names::REDELIVERIES, &[consumer], 1);
    }

    fn lagging(&self, consumer: &str, messages: u64) {
        self.set(&names::CONSUMER_LAG, &[consumer], count(messages));
    }
}

/// # Panics
/// When nobody has declared it.
fn found<'a>(all: &'a [Series], metric: &Metric) -> &'a Series {
    match all.iter().find(|series| series.is_of(metric)) {
        Some(series) => series,
        None => panic!("the metric {} is not declared by this service", metric.name),
    }
}

#[expect(clippy::float_arithmetic, reason = "Prometheus shows parts of one")]
fn ratio(percent: u8) -> f64 {
    f64::from(percent) / 100.0
}

fn count(count: u64) -> f64 {
    size(usize::try_from(count).unwrap_or(usize::MAX))
}

fn size(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
