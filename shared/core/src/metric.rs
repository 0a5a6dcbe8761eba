//! Pure: what is measured: how a metric is declared, and one measurement of it.

use std::time::Duration;

use jiff::SignedDuration;

/// A metric, declared once with everything that whoever reads it must know.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// As Prometheus shows it, its unit last: `saga_started_total`, `store_commit_duration_seconds`.
    pub name: &'static str,
    /// What it says, in one sentence without a full stop.
    pub help: &'static str,
    /// How it is measured.
    pub kind: MetricKind,
    /// Names of its labels. Each has few values, all known beforehand: never an id.
    pub labels: &'static [&'static str],
    /// Values of them that are shown from the start, though nothing has happened yet: what is not there cannot be seen to
    /// grow.
    pub known: &'static [&'static [&'static str]],
}

/// How a metric is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MetricKind {
    /// Grows with each thing that happens; begins at 0 with each start. Its name ends with `_total`.
    Counter,
    /// Is what it is now.
    Gauge,
    /// How many were at most so large: the upper bounds of its buckets, ascending.
    Histogram(&'static [f64]),
}

impl Metric {
    /// Counts what happens.
    #[must_use]
    pub const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, help, kind: MetricKind::Counter, labels, known: &[] }
    }

    /// The same, of which these are shown from the start.
    #[must_use]
    pub const fn knowing(self, known: &'static [&'static [&'static str]]) -> Self {
        Self { known, ..self }
    }

    /// Tells what is so now.
    #[must_use]
    pub const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, help, kind: MetricKind::Gauge, labels, known: &[] }
    }

    /// Tells how many were how large.
    #[must_use]
    pub const fn histogram(
        name: &'static str,
        labels: &'static [&'static str],
        bounds: &'static [f64],
        help: &'static str,
    ) -> Self {
        Self { name, help, kind: MetricKind::Histogram(bounds), labels, known: &[] }
    }
}

/// One measurement, that counts once what it belongs to is durable.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// What was measured.
    pub metric: &'static Metric,
    /// The values of its labels, in their order.
    pub labels: Vec<String>,
    /// What came out.
    pub measured: Measured,
}

impl Measurement {
    /// So much more of a counter. `labels` are the values of the metric's labels.
    #[must_use]
    pub fn more(metric: &'static Metric, labels: &[&str], more: u64) -> Self {
        Self::of(metric, labels, Measured::More(more))
    }

    /// How long something took, for a histogram. Less than nothing is nothing: clocks differ.
    #[must_use]
    pub fn took(metric: &'static Metric, labels: &[&str], took: SignedDuration) -> Self {
        Self::of(metric, labels, Measured::Took(took.try_into().unwrap_or_default()))
    }

    /// Whether it is of its metric's kind, and has as many labels.
    #[must_use]
    pub const fn is_as_declared(&self) -> bool {
        let is_its_kind = match self.measured {
            Measured::More(_) => matches!(self.metric.kind, MetricKind::Counter),
            Measured::Took(_) => matches!(self.metric.kind, MetricKind::Histogram(_)),
        };
        is_its_kind && self.labels.len() == self.metric.labels.len()
    }

    fn of(metric: &'static Metric, labels: &[&str], measured: Measured) -> Self {
        Self { metric, labels: labels.iter().map(|&label| label.to_owned()).collect(), measured }
    }
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measured {
    /// So much more, of a counter.
    More(u64),
    /// It took so long, of a histogram.
    Took(Duration),
}
