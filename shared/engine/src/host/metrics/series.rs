//! Shell: all series of one metric, with any labels.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use saga_core::metric::{Metric, MetricKind};
use saga_core::trace::TraceContext;

type Labels = Vec<(&'static str, String)>;
/// Label of an exemplar that names its trace.
type Exemplar = [(&'static str, String); 1];
type Histogram = HistogramWithExemplars<Exemplar>;
type Value = Gauge<f64, AtomicU64>;

/// All series of one metric. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Series {
    metric: &'static Metric,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Counter(Of<Counter>),
    /// Gauge, with the label sets of the last [`Series::replace`].
    Gauge(Of<Value>, Arc<Mutex<BTreeSet<Vec<String>>>>),
    Histogram(Of<Histogram, Bounds>),
}

/// Single series, or a family with labels. A family without labels would be exported with empty braces.
#[derive(Debug, Clone)]
enum Of<M, C = fn() -> M> {
    Bare(M),
    Labelled(Family<Labels, M, C>),
}

impl<M: Metered, C: MetricConstructor<M> + Clone + Send + Sync + 'static> Of<M, C> {
    fn new(metric: &Metric, stem: &str, make: C, registry: &mut Registry) -> Self {
        if metric.labels.is_empty() {
            let bare = make.new_metric();
            registry.register(stem, metric.help, bare.clone());
            return Self::Bare(bare);
        }
        let family = Family::new_with_constructor(make);
        registry.register(stem, metric.help, family.clone());
        Self::Labelled(family)
    }

    fn with(&self, labels: impl FnOnce() -> Labels, then: impl FnOnce(&M)) {
        match self {
            Self::Bare(bare) => then(bare),
            Self::Labelled(family) => then(&family.get_or_create(&labels())),
        }
    }
}

/// Bound of all metric types that a registry takes.
trait Metered: EncodeMetric + TypedMetric + std::fmt::Debug + Clone + Send + Sync + 'static {}

impl<M: EncodeMetric + TypedMetric + std::fmt::Debug + Clone + Send + Sync + 'static> Metered for M {}

/// Makes a gauge whose value is unknown, which is not 0.
fn unknown() -> Value {
    let gauge = Value::default();
    gauge.set(f64::NAN);
    gauge
}

#[derive(Debug, Clone, Copy)]
struct Bounds(&'static [f64]);

impl MetricConstructor<Histogram> for Bounds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

impl Series {
    /// Registers the series of `metric`.
    pub(super) fn of(metric: &'static Metric, registry: &mut Registry) -> Self {
        let stem = metric.name.strip_suffix("_total").unwrap_or(metric.name);
        let kind = match metric.kind {
            MetricKind::Counter => Kind::Counter(Of::new(metric, stem, Counter::default, registry)),
            MetricKind::Gauge => Kind::Gauge(Of::new(metric, stem, unknown, registry), Arc::default()),
            MetricKind::Histogram(bounds) => Kind::Histogram(Of::new(metric, stem, Bounds(bounds), registry)),
        };
        let series = Self { metric, kind };
        metric.known.iter().for_each(|labels| series.show(labels));
        series
    }

    pub(super) fn is_of(&self, metric: &Metric) -> bool {
        self.metric.name == metric.name
    }

    /// Declares the series with these labels, so that its first increase is visible.
    pub(super) fn show(&self, labels: &[&str]) {
        let labels = || self.labels(labels);
        match &self.kind {
            Kind::Counter(counters) => counters.with(labels, |_| ()),
            Kind::Gauge(gauges, _) => gauges.with(labels, |_| ()),
            Kind::Histogram(histograms) => histograms.with(labels, |_| ()),
        }
    }

    /// Adds `more` to a counter.
    pub(super) fn add(&self, labels: &[&str], more: u64) {
        if let Kind::Counter(counters) = &self.kind {
            counters.with(
                || self.labels(labels),
                |counter| {
                    counter.inc_by(more);
                },
            );
        }
    }

    /// Sets a counter that is counted elsewhere.
    pub(super) fn set_total(&self, labels: &[&str], count: u64) {
        if let Kind::Counter(counters) = &self.kind {
            counters.with(|| self.labels(labels), |counter| counter.inner().store(count, Ordering::Relaxed));
        }
    }

    /// Sets the value of a gauge.
    pub(super) fn set(&self, labels: &[&str], value: f64) {
        if let Kind::Gauge(gauges, _) = &self.kind {
            gauges.with(
                || self.labels(labels),
                |gauge| {
                    gauge.set(value);
                },
            );
        }
    }

    /// Replaces all series of a gauge. Series that are not in `all` are removed; a concurrent scrape sees the others.
    pub(super) fn replace(&self, all: &[(Vec<String>, f64)]) {
        let Kind::Gauge(Of::Labelled(family), replaced) = &self.kind else { return };
        let mut replaced = replaced.lock();
        for (labels, value) in all {
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            self.set(&labels, *value);
        }
        let now: BTreeSet<Vec<String>> = all.iter().map(|(labels, _)| labels.clone()).collect();
        for gone in replaced.difference(&now) {
            let labels: Vec<&str> = gone.iter().map(String::as_str).collect();
            family.remove(&self.labels(&labels));
        }
        *replaced = now;
    }

    /// Records a value in a histogram, with a sampled trace as exemplar.
    pub(super) fn observe(&self, labels: &[&str], value: f64, trace: Option<TraceContext>) {
        if let Kind::Histogram(histograms) = &self.kind {
            let sampled = trace.filter(|trace| trace.is_sampled);
            let exemplar = sampled.map(|trace| [("trace_id", trace.written_id().to_string())]);
            let at = exemplar.as_ref().map(|_| SystemTime::now());
            histograms.with(|| self.labels(labels), |histogram| histogram.observe(value, exemplar, at));
        }
    }

    fn labels(&self, values: &[&str]) -> Labels {
        let names = self.metric.labels;
        debug_assert_eq!(names.len(), values.len(), "{} has labels {names:?}", self.metric.name);
        names.iter().zip(values).map(|(name, value)| (*name, (*value).to_owned())).collect()
    }
}
