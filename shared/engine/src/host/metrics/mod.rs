//! Shell: metrics of a service in OpenMetrics 1.0. [`names`] declares those that every service has.

pub mod names;
mod process;
mod series;
mod text_format;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use saga_core::admission::CallResult;
use saga_core::breaker::State;
use saga_core::input::{COMMAND, DUE};
use saga_core::metric::{Measured, Measurement, Metric};
use saga_core::outcome::{OF_COMMANDS, OF_DUE_ROWS, OF_MESSAGES};
use saga_core::service_stats::StoreStats;
use saga_core::trace::TraceContext;
use tracing::error;

use self::process::Process;
use self::series::Series;
use crate::runtime::admission::BreakerView;
use crate::runtime::observer::{Observer, ProcessedInput};

/// Metrics of a service. Clones are cheap and share all series.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    all: Vec<Series>,
    hot: HotSeries,
    latest: Mutex<StoreStats>,
    /// Listener to the service's own measurements.
    listener: OnceLock<Listener>,
    /// Metrics with unknown names or wrong labels, which were logged once.
    mismatched: Mutex<BTreeSet<&'static str>>,
}

struct Listener(Box<dyn Fn(&Measurement) + Send + Sync>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// Series that every input or request updates, looked up once.
#[derive(Debug)]
struct HotSeries {
    inputs: Series,
    step_duration: Series,
    commit_duration: Series,
    batch_inputs: Series,
    written: Series,
    publish_messages: Series,
    requests: Series,
    request_duration: Series,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new("unknown", &[])
    }
}

impl Metrics {
    /// Registers the metrics of every service, and `own`.
    #[must_use]
    pub fn new(service: &'static str, own: &[&'static Metric]) -> Self {
        let mut registry = Registry::default();
        let mut all: Vec<Series> =
            names::ALL.iter().chain(own).map(|metric| Series::of(metric, &mut registry)).collect();
        registry.register_collector(Box::new(Process::default()));
        let mut of = |metric: &'static Metric| match all.iter().find(|series| series.is_of(metric)) {
            Some(series) => series.clone(),
            None => {
                let series = Series::of(metric, &mut registry);
                all.push(series.clone());
                series
            }
        };
        let hot = HotSeries {
            inputs: of(&names::INPUTS),
            step_duration: of(&names::STEP_DURATION),
            commit_duration: of(&names::COMMIT_DURATION),
            batch_inputs: of(&names::BATCH_INPUTS),
            written: of(&names::OUTBOX_WRITTEN),
            publish_messages: of(&names::PUBLISH_MESSAGES),
            requests: of(&names::HTTP_REQUESTS),
            request_duration: of(&names::HTTP_REQUEST_DURATION),
        };
        let (latest, mismatched) = (Mutex::default(), Mutex::default());
        let metrics =
            Self(Arc::new(Inner { registry, all, hot, latest, mismatched, listener: OnceLock::new() }));
        metrics.set(&names::BUILD, &[service, names::VERSION], 1.0);
        metrics
    }

    /// Declares the series of steps and tasks, which start at 0.
    pub fn declare(&self, steps: &[&str], tasks: &[&str]) {
        let of_messages = steps.iter().chain(tasks).map(|source| (*source, &OF_MESSAGES[..]));
        for (source, outcomes) in of_messages.chain([(COMMAND, &OF_COMMANDS[..]), (DUE, &OF_DUE_ROWS)]) {
            outcomes.iter().for_each(|outcome| self.0.hot.inputs.show(&[source, outcome]));
        }
        for step in steps {
            self.show(&names::FOREIGN_MESSAGES, &[step]);
        }
        for task in tasks {
            let ends = [CallResult::Answered, CallResult::Rejected, CallResult::Failed];
            ends.iter().for_each(|end| self.show(&names::TASK_CALLS, &[task, end.as_str()]));
        }
    }

    /// Sets the listener to the service's own measurements, which is called once they are durable. The first one stays.
    pub fn listen(&self, listener: impl Fn(&Measurement) + Send + Sync + 'static) {
        let _ = self.0.listener.set(Listener(Box::new(listener)));
    }

    /// Finds the series of a metric. Logs once, and returns `None`, for an unknown metric or a wrong number of labels:
    /// a wrong metric must not end the service.
    fn of(&self, metric: &Metric, labels: usize) -> Option<&Series> {
        let series = self.0.all.iter().find(|series| series.is_of(metric));
        let fitting = series.filter(|_| labels == metric.labels.len());
        if fitting.is_none() && self.0.mismatched.lock().insert(metric.name) {
            let why = match series {
                Some(_) => format!("it has the labels {:?}, and was given {labels}", metric.labels),
                None => "this service does not list it among those that it measures".to_owned(),
            };
            error!(metric = metric.name, "a metric is not measured: {why}");
        }
        fitting
    }

    /// Declares a series before its first value: a counter or histogram at 0, or a gauge at NaN.
    pub fn show(&self, metric: &Metric, labels: &[&str]) {
        if let Some(series) = self.of(metric, labels.len()) {
            series.show(labels);
        }
    }

    /// Sets a gauge, to NaN while its value is unknown. `labels` are the values of the metric's labels.
    pub fn set(&self, metric: &Metric, labels: &[&str], value: f64) {
        if let Some(series) = self.of(metric, labels.len()) {
            series.set(labels, value);
        }
    }

    /// Replaces all series of a gauge. Series that are not in `all` disappear; the others stay visible throughout.
    pub fn replace(&self, metric: &Metric, all: &[(Vec<String>, f64)]) {
        let is_fit = |(labels, _): &(Vec<String>, f64)| self.of(metric, labels.len()).is_some();
        if let Some(series) = self.of(metric, metric.labels.len()).filter(|_| all.iter().all(is_fit)) {
            series.replace(all);
        }
    }

    /// Adds `more` to a counter.
    pub fn add(&self, metric: &Metric, labels: &[&str], more: u64) {
        if let Some(series) = self.of(metric, labels.len()) {
            series.add(labels, more);
        }
    }

    /// Records a duration in a histogram, with its trace as exemplar.
    pub fn observe_duration(
        &self,
        metric: &Metric,
        labels: &[&str],
        took: Duration,
        trace: Option<TraceContext>,
    ) {
        if let Some(series) = self.of(metric, labels.len()) {
            series.observe(labels, took.as_secs_f64(), trace);
        }
    }

    /// Records an answered or abandoned request.
    pub(super) fn record_request(
        &self,
        (method, route, status): (&str, &str, &str),
        took: Duration,
        trace: Option<TraceContext>,
    ) {
        self.0.hot.requests.add(&[method, route, status], 1);
        self.0.hot.request_duration.observe(&[method, route], took.as_secs_f64(), trace);
    }

    /// Records statistics of the store; `None` while the store does not answer.
    pub fn record_stats(&self, stats: Option<StoreStats>, now: Timestamp) {
        let age =
            |since: Option<Timestamp>| since.map_or(0.0, |since| now.duration_since(since).as_secs_f64());
        let of = |value: &dyn Fn(&StoreStats) -> f64| stats.as_ref().map_or(f64::NAN, value);
        for (metric, value) in [
            (&names::OUTBOX_PENDING, of(&|stats| count(stats.outbox_pending))),
            (&names::OUTBOX_FAILED, of(&|stats| count(stats.outbox_failed))),
            (&names::OUTBOX_OLDEST_AGE, of(&|stats| age(stats.outbox_oldest))),
            (&names::RETRIES_WAITING, of(&|stats| count(stats.retries))),
            (&names::TASKS_OPEN, of(&|stats| count(stats.tasks))),
            (&names::TASK_OLDEST_AGE, of(&|stats| age(stats.task_oldest))),
            (&names::DEAD_LETTERS_UNRESOLVED, of(&|stats| count(stats.dead_letters))),
            (&names::STORE_FREE_BYTES, of(&|stats| stats.free_bytes.map_or(f64::NAN, count))),
            (&names::STORE_LOG_BYTES, of(&|stats| stats.log_bytes.map_or(f64::NAN, count))),
        ] {
            self.set(metric, &[], value);
        }
        if let Some(stats) = stats {
            *self.0.latest.lock() = stats;
        }
    }

    /// Records the number of sagas that have begun and not ended.
    pub fn record_in_flight(&self, sagas: u64) {
        self.set(&names::IN_FLIGHT, &[], count(sagas));
    }

    /// Records the number of inputs that wait for a transaction.
    pub fn record_queue(&self, inputs: usize) {
        self.set(&names::ENGINE_QUEUE, &[], size(inputs));
    }

    /// Records the offset of the machine's clock from the broker's; `None` while it is unknown.
    pub fn record_clock_offset(&self, offset: Option<SignedDuration>) {
        self.set(&names::CLOCK_OFFSET, &[], offset.map_or(f64::NAN, |offset| offset.as_secs_f64()));
    }

    /// Records state and counters of a breaker.
    pub fn record_breaker(&self, view: &BreakerView) {
        let name = view.name.as_str();
        let state = match view.state {
            State::Closed | State::ForcedClosed => 0.0,
            State::HalfOpen => 1.0,
            State::Open | State::ForcedOpen => 2.0,
        };
        self.set(&names::BREAKER_STATE, &[name], state);
        self.set(&names::BREAKER_FAILURE_RATIO, &[name], ratio(view.failure_rate.unwrap_or(0)));
        self.set_total(&names::BREAKER_NOT_PERMITTED, &[name], view.rejected);
        let recorded = &view.recorded;
        for (outcome, count) in
            [("success", recorded.successes), ("failure", recorded.failures), ("ignored", recorded.ignored)]
        {
            self.set_total(&names::BREAKER_CALLS, &[name, outcome], count);
        }
    }

    fn set_total(&self, metric: &Metric, labels: &[&str], count: u64) {
        if let Some(series) = self.of(metric, labels.len()) {
            series.set_total(labels, count);
        }
    }

    /// Returns the latest statistics of the store.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        self.0.latest.lock().clone()
    }

    /// Renders all metrics in OpenMetrics 1.0.
    ///
    /// # Errors
    /// None in practice: writing to a string does not fail.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.0.registry)?;
        Ok(text)
    }

    /// Renders all metrics in the text format 0.0.4 of Prometheus.
    ///
    /// # Errors
    /// None in practice: writing to a string does not fail.
    pub fn prometheus_text(&self) -> Result<String, std::fmt::Error> {
        Ok(text_format::from_open_metrics(&self.text()?))
    }
}

impl Observer for Metrics {
    fn input_processed(&self, settled: &ProcessedInput<'_>) {
        let ProcessedInput { source, outcome, took, trace } = *settled;
        self.0.hot.inputs.add(&[source, outcome], 1);
        self.0.hot.step_duration.observe(&[source], took.as_secs_f64(), trace);
    }

    fn measured(&self, measurement: &Measurement, trace: Option<TraceContext>) {
        if let Some(Listener(listener)) = self.0.listener.get() {
            listener(measurement);
        }
        let labels: Vec<&str> = measurement.labels.iter().map(String::as_str).collect();
        match measurement.measured {
            Measured::More(more) => self.add(measurement.metric, &labels, more),
            Measured::Took(took) => self.observe_duration(measurement.metric, &labels, took, trace),
        }
    }

    fn foreign_dead_lettered(&self, step: &str) {
        self.add(&names::FOREIGN_MESSAGES, &[step], 1);
    }

    fn call_ended(&self, kind: &str, end: CallResult, took: Duration, trace: Option<TraceContext>) {
        self.add(&names::TASK_CALLS, &[kind, end.as_str()], 1);
        self.observe_duration(&names::TASK_CALL_DURATION, &[kind], took, trace);
    }

    fn batch_committed(&self, inputs: usize, took: Duration) {
        self.0.hot.commit_duration.observe(&[], took.as_secs_f64(), None);
        self.0.hot.batch_inputs.observe(&[], size(inputs), None);
    }

    fn batch_not_stored(&self) {
        self.add(&names::STORE_FAULTS, &[], 1);
    }

    fn outbox_written(&self, messages: usize) {
        self.0.hot.written.add(&[], messages as u64);
    }

    fn published(&self, messages: usize, rejected: usize, took: Duration) {
        // A broker that rejects everything answers at once, which would look like a fast publish.
        if messages > 0 {
            self.0.hot.publish_messages.observe(&[], size(messages), None);
            self.observe_duration(&names::PUBLISH_DURATION, &[], took, None);
        }
        self.add(&names::OUTBOX_PUBLISHED, &[], messages as u64);
        self.add(&names::OUTBOX_REJECTED, &[], rejected as u64);
    }

    fn redelivered(&self, consumer: &str) {
        self.add(&names::REDELIVERIES, &[consumer], 1);
    }

    fn consumer_backlog(&self, consumer: &str, messages: Option<u64>) {
        self.set(&names::CONSUMER_LAG, &[consumer], messages.map_or(f64::NAN, count));
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
