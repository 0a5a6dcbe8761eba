//! Pure: percentiles of latencies.

use std::time::Duration;

use anyhow::Context as _;
use hdrhistogram::Histogram;
use serde::Serialize;

use cli::table::{Column, left, right, table};
use cli::view::View;

/// Upper bound of the histogram: ten minutes.
const MAX_US: u64 = 600_000_000;

/// Histogram of latencies with three significant digits.
pub struct Latencies(Histogram<u64>);

impl Latencies {
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self(Histogram::new_with_bounds(1, MAX_US, 3).context("no histogram")?))
    }

    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
    }

    /// Number of latencies above a limit.
    pub fn beyond(&self, limit: Duration) -> u64 {
        let limit = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        self.0.len() - self.0.count_between(0, limit)
    }

    pub fn clear(&mut self) {
        self.0.reset();
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    #[expect(
        clippy::float_arithmetic,
        clippy::cast_precision_loss,
        reason = "shown to people, far below 2^52"
    )]
    pub fn percentiles(&self) -> Percentiles {
        let ms = |us: u64| us as f64 / 1_000.0;
        let at = |quantile| ms(self.0.value_at_quantile(quantile));
        Percentiles { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: ms(self.0.max()) }
    }
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Percentiles {
    pub p50: f64,
    p90: f64,
    pub p99: f64,
    p999: f64,
    max: f64,
}

impl Percentiles {
    pub fn summary(&self) -> String {
        format!("p50 {:.1} ms, p99 {:.1} ms", self.p50, self.p99)
    }
}

const COLUMNS: [Column<(&str, Percentiles)>; 6] = [
    left("ms", |(name, _)| (*name).to_owned()),
    right("p50", |(_, of)| format!("{:.1}", of.p50)),
    right("p90", |(_, of)| format!("{:.1}", of.p90)),
    right("p99", |(_, of)| format!("{:.1}", of.p99)),
    right("p99.9", |(_, of)| format!("{:.1}", of.p999)),
    right("max", |(_, of)| format!("{:.1}", of.max)),
];

pub fn percentile_table(rows: &[(&'static str, Percentiles)], view: &View) -> String {
    table(&COLUMNS, rows, view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_in_milliseconds_to_three_digits() {
        let mut latencies = Latencies::new().expect("a histogram");
        (1..=1_000).for_each(|tenth| latencies.record(Duration::from_micros(tenth * 100)));
        assert_eq!(latencies.count(), 1_000);
        let Percentiles { p50, p90, p99, p999, max } = latencies.percentiles();
        for (found, expected) in [(p50, 50.0), (p90, 90.0), (p99, 99.0), (p999, 99.9), (max, 100.0)] {
            assert!((expected..expected * 1.002).contains(&found), "{found} for {expected}");
        }
        assert_eq!(latencies.beyond(Duration::from_millis(60)), 400, "to three digits");
        latencies.record(Duration::from_hours(3));
        assert!(latencies.percentiles().max >= 600_000.0, "bounded");
        let shown = percentile_table(
            &[("to the end", Percentiles { p50: 1.25, ..latencies.percentiles() })],
            &View::FILE,
        );
        latencies.clear();
        assert_eq!(latencies.count(), 0);
        assert!(shown.contains("to the end") && shown.contains("1.2") && shown.contains("p99.9"), "{shown}");
    }
}
