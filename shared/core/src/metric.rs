//! Pure: declarations of metrics, and measurements.

use std::time::Duration;

use jiff::SignedDuration;

/// Declaration of a metric: name, help text, type and labels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// Name in Prometheus, unit last: `saga_started_total`, `store_commit_duration_seconds`.
    pub name: &'static str,
    /// Help text: one sentence without a full stop.
    pub help: &'static str,
    /// Type, with the buckets of a histogram.
    pub kind: MetricKind,
    /// Names of the labels. Each has few values, known in advance: never an id.
    pub labels: &'static [&'static str],
    /// Label values that are exported from the start, with the value 0. A missing series cannot show an increase.
    pub known: &'static [&'static [&'static str]],
}

/// Type of a metric, as in Prometheus.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MetricKind {
    /// Sum since the start of the process. The name ends with `_total`.
    Counter,
    /// Current value, such as a queue length.
    Gauge,
    /// Distribution, with the ascending upper bounds of its buckets.
    Histogram(&'static [f64]),
}

impl Metric {
    /// Declares a counter with these labels.
    #[must_use]
    pub const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, help, kind: MetricKind::Counter, labels, known: &[] }
    }

    /// Sets the label values that are exported from the start.
    #[must_use]
    pub const fn knowing(self, known: &'static [&'static [&'static str]]) -> Self {
        Self { known, ..self }
    }

    /// Declares a gauge with these labels.
    #[must_use]
    pub const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, help, kind: MetricKind::Gauge, labels, known: &[] }
    }

    /// Declares a histogram with these labels and bucket bounds.
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

/// Measurement, which counts once its transaction is durable.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// Declaration of the metric that is measured.
    pub metric: &'static Metric,
    /// Values of its labels, in their order.
    pub labels: Vec<String>,
    /// Measured value, of the metric's type.
    pub measured: Measured,
}

impl Measurement {
    /// Measures an increase of a counter.
    #[must_use]
    pub fn more(metric: &'static Metric, labels: &[&str], more: u64) -> Self {
        Self::of(metric, labels, Measured::More(more))
    }

    /// Records a duration in a histogram. Negative durations count as 0, since clocks differ.
    #[must_use]
    pub fn took(metric: &'static Metric, labels: &[&str], took: SignedDuration) -> Self {
        Self::of(metric, labels, Measured::Took(took.try_into().unwrap_or_default()))
    }

    /// True if the value fits the type of the metric and the labels fit in number.
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

/// Measured value, of the metric's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measured {
    /// Amount by which a counter increases.
    More(u64),
    /// Duration to record in a histogram.
    Took(Duration),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_knows_its_label_values() {
        let known: &[&[&str]] = &[&["tea"]];
        assert_eq!(Metric::counter("sold_total", &["sku"], "Sold pieces.").knowing(known).known, known);
    }
}
