//! Shell: what a service counts, in the Prometheus text format.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use saga_core::breaker::State;
use saga_core::machinery::Stats;

use crate::runtime::admission::BreakerView;
use crate::runtime::observer::Observer;

/// Name and outcome of something counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutcomeLabels {
    /// The step, task kind or "command".
    pub step: String,
    /// What became of it.
    pub outcome: &'static str,
}

/// Name of a step.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StepLabels {
    /// The step.
    pub step: String,
}

/// Name of a breaker.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct BreakerLabels {
    /// The step or dependency.
    pub breaker: String,
}

/// All counters of a service. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    inputs: Family<OutcomeLabels, Counter>,
    foreign: Family<StepLabels, Counter>,
    calls: Family<OutcomeLabels, Counter>,
    store_faults: Counter,
    published: Counter,
    commit_seconds: Histogram,
    batch_inputs: Histogram,
    publish_messages: Histogram,
    outbox_pending: Gauge,
    outbox_failed: Gauge,
    outbox_age: Gauge<f64, AtomicU64>,
    clock_offset: Gauge<f64, AtomicU64>,
    retries: Gauge,
    tasks: Gauge,
    task_age: Gauge<f64, AtomicU64>,
    dead_letters: Gauge,
    lost_lines: Counter,
    breaker_states: Family<BreakerLabels, Gauge>,
    breaker_refused: Family<BreakerLabels, Gauge>,
    latest: Arc<Mutex<Stats>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let sizes = || Histogram::new([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0]);
        let metrics = Self {
            registry: Arc::default(),
            inputs: Family::default(),
            foreign: Family::default(),
            calls: Family::default(),
            store_faults: Counter::default(),
            published: Counter::default(),
            commit_seconds: Histogram::new([
                0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0,
            ]),
            batch_inputs: sizes(),
            publish_messages: sizes(),
            outbox_pending: Gauge::default(),
            outbox_failed: Gauge::default(),
            outbox_age: Gauge::default(),
            clock_offset: Gauge::default(),
            retries: Gauge::default(),
            tasks: Gauge::default(),
            task_age: Gauge::default(),
            dead_letters: Gauge::default(),
            lost_lines: Counter::default(),
            breaker_states: Family::default(),
            breaker_refused: Family::default(),
            latest: Arc::default(),
        };
        registry.register("saga_input", "Inputs settled, by step and outcome", metrics.inputs.clone());
        registry.register(
            "message_foreign",
            "Messages parked that nobody of this system sent, by step",
            metrics.foreign.clone(),
        );
        registry.register("saga_call", "Calls to the outside, by task and outcome", metrics.calls.clone());
        registry.register("store_faults", "Batches that could not be stored", metrics.store_faults.clone());
        registry.register("outbox_published", "Messages published", metrics.published.clone());
        registry.register("store_commit_seconds", "Time of one commit", metrics.commit_seconds.clone());
        registry.register("engine_batch_inputs", "Inputs per transaction", metrics.batch_inputs.clone());
        registry.register(
            "outbox_publish_messages",
            "Messages per publish",
            metrics.publish_messages.clone(),
        );
        registry.register(
            "outbox_pending",
            "Entries that wait to be published",
            metrics.outbox_pending.clone(),
        );
        registry.register("outbox_failed", "Entries that the broker refused", metrics.outbox_failed.clone());
        registry.register(
            "outbox_oldest_pending_age_seconds",
            "Age of the oldest entry that waits to be published",
            metrics.outbox_age.clone(),
        );
        registry.register(
            "clock_offset_seconds",
            "How far this machine's clock is ahead of the broker's",
            metrics.clock_offset.clone(),
        );
        registry.register(
            "log_lost_lines",
            "Lines that the log could not take, as it did not keep up",
            metrics.lost_lines.clone(),
        );
        registry.register("retry_waiting", "Messages that wait for another try", metrics.retries.clone());
        registry.register("task_open", "Open tasks", metrics.tasks.clone());
        registry.register(
            "task_oldest_open_age_seconds",
            "Age of the oldest open task",
            metrics.task_age.clone(),
        );
        registry.register(
            "dead_letter_unresolved",
            "Dead letters that wait for a human or are being replayed",
            metrics.dead_letters.clone(),
        );
        registry.register(
            "breaker_state",
            "0 closed, 1 half-open, 2 open; forced states count like the others",
            metrics.breaker_states.clone(),
        );
        registry.register(
            "breaker_refused",
            "Calls that the breaker refused since the start",
            metrics.breaker_refused.clone(),
        );
        Self { registry: Arc::new(registry), ..metrics }
    }
}

impl Observer for Metrics {
    fn input_settled(&self, source: &str, outcome: &'static str) {
        self.inputs.get_or_create(&OutcomeLabels { step: source.to_owned(), outcome }).inc();
    }

    fn foreign_parked(&self, step: &str) {
        self.foreign.get_or_create(&StepLabels { step: step.to_owned() }).inc();
    }

    fn call_ended(&self, kind: &str, end: &'static str) {
        self.calls.get_or_create(&OutcomeLabels { step: kind.to_owned(), outcome: end }).inc();
    }

    fn batch_committed(&self, inputs: usize, took: Duration) {
        self.commit_seconds.observe(took.as_secs_f64());
        self.batch_inputs.observe(size(inputs));
    }

    fn batch_not_stored(&self) {
        self.store_faults.inc();
    }

    fn published(&self, messages: usize) {
        self.publish_messages.observe(size(messages));
        self.published.inc_by(messages as u64);
    }
}

fn size(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

impl Metrics {
    /// Takes over what the store says of itself.
    pub fn take_stats(&self, stats: Stats, now: Timestamp) {
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.outbox_pending.set(gauge(stats.outbox_pending));
        self.outbox_failed.set(gauge(stats.outbox_failed));
        let age =
            |since: Option<Timestamp>| since.map_or(0.0, |since| now.duration_since(since).as_secs_f64());
        self.outbox_age.set(age(stats.outbox_oldest));
        self.task_age.set(age(stats.task_oldest));
        self.retries.set(gauge(stats.retries));
        self.tasks.set(gauge(stats.tasks));
        self.dead_letters.set(gauge(stats.dead_letters));
        *self.latest.lock() = stats;
    }

    /// Takes over how far the machine's clock is ahead of the broker's.
    pub fn take_clock_offset(&self, offset: SignedDuration) {
        self.clock_offset.set(offset.as_secs_f64());
    }

    /// Takes over what a breaker says of itself.
    pub fn take_breaker(&self, view: &BreakerView) {
        let labels = BreakerLabels { breaker: view.name.clone() };
        let state = match view.state {
            State::Closed | State::ForcedClosed => 0,
            State::HalfOpen => 1,
            State::Open | State::ForcedOpen => 2,
        };
        self.breaker_states.get_or_create(&labels).set(state);
        self.breaker_refused.get_or_create(&labels).set(i64::try_from(view.refused).unwrap_or(i64::MAX));
    }

    /// Takes in how many more lines the log has lost.
    pub(super) fn take_lost_lines(&self, count: u64) {
        self.lost_lines.inc_by(count);
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
