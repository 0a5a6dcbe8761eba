//! Pure: saga metrics in admin's `/metrics` (text format of Prometheus, and OpenMetrics).

use std::collections::BTreeMap;
use std::time::Duration;

use contract::metrics::{DURATION, STARTED};

use super::quantile::{Bound, Buckets};

/// Counts since admin started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SagaMetrics {
    /// Sagas started, if they are counted.
    pub started: Option<u64>,
    /// Durations of ended sagas, by outcome.
    pub durations: BTreeMap<String, Buckets>,
}

impl SagaMetrics {
    /// Parses a text. Other or invalid lines are skipped.
    pub fn parse(text: &str) -> Self {
        let mut metrics = Self::default();
        for Sample { name, labels, value } in text.lines().filter_map(sample) {
            let label =
                |wanted: &str| labels.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value);
            if name == STARTED.name {
                increment(metrics.started.get_or_insert_default(), value);
            } else if name.strip_suffix("_bucket") == Some(DURATION.name) {
                let Some(bound) = label("le").and_then(|le| Bound::parse(le)) else { continue };
                let outcome = label("outcome").cloned().unwrap_or_default();
                increment(metrics.durations.entry(outcome).or_default().entry(bound).or_default(), value);
            }
        }
        metrics
    }
}

/// Adds up samples of one name with other labels.
const fn increment(count: &mut u64, value: u64) {
    *count = count.saturating_add(value);
}

impl Bound {
    /// Parses the bound of a bucket, in seconds.
    fn parse(le: &str) -> Option<Self> {
        let seconds: f64 = le.parse().ok()?;
        if seconds == f64::INFINITY {
            return Some(Self::Infinite);
        }
        Duration::try_from_secs_f64(seconds).ok().map(Self::Within)
    }
}

struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: u64,
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let line = line.trim_start().strip_prefix("saga_").map(|_| line.trim_start())?;
    let end = line.find(|character: char| character == '{' || character.is_whitespace())?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => labels_of(inside)?,
        None => (vec![], rest),
    };
    // A timestamp or an exemplar may follow.
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    // The format itself is inexact beyond 2^53.
    let value = (value.is_finite() && value >= 0.0).then_some(value as u64)?;
    Some(Sample { name, labels, value })
}

/// Parses labels up to the closing brace. Returns them with the rest of the line.
fn labels_of(mut rest: &str) -> Option<(Vec<(&str, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, quoted) = rest.split_once("=\"")?;
        let (mut value, mut end, mut is_escaped) = (String::new(), None, false);
        for (index, character) in quoted.char_indices() {
            match (is_escaped, character) {
                (false, '"') => {
                    end = Some(index + 1);
                    break;
                }
                (false, '\\') => is_escaped = true,
                (was_escaped, character) => {
                    value.push(if was_escaped && character == 'n' { '\n' } else { character });
                    is_escaped = false;
                }
            }
        }
        labels.push((name.trim(), value));
        rest = &quoted[end?..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saga_metrics_are_parsed_and_other_lines_skipped() {
        let text = "# HELP saga_started Sagas that began.\n# TYPE saga_started counter\nsaga_started_total 12.0 1700000000\n\
                    # TYPE saga_duration_seconds histogram\nsaga_duration_seconds_sum{outcome=\"completed\"} 1.5\n\
                    saga_duration_seconds_count{outcome=\"completed\"} 9\n\
                    saga_duration_seconds_bucket{outcome=\"completed\",le=\"0.05\"} 4\n\
                    saga_duration_seconds_bucket{le=\"1\",outcome=\"completed\"} 9 # {trace_id=\"a b\"} 0.3 1.5\n\
                    saga_duration_seconds_bucket{outcome=\"completed\", le=\"+Inf\"} 9\n\
                    outbox_pending 7\nsaga_duration_seconds_bucket{outcome=\"odd\n# EOF\n";
        let metrics = SagaMetrics::parse(text);
        let within = |ms| Bound::Within(Duration::from_millis(ms));
        let completed = Buckets::from([(within(50), 4), (within(1_000), 9), (Bound::Infinite, 9)]);
        let wanted =
            SagaMetrics { started: Some(12), durations: [("completed".to_owned(), completed)].into() };
        assert_eq!(metrics, wanted);
    }

    #[test]
    fn invalid_lines_are_skipped() {
        for line in [
            "saga_started_total",
            "saga_started_total many",
            "saga_started_total -1",
            "saga_started_total NaN",
            "saga_started_total +Inf",
            "saga_duration_seconds_bucket{outcome} 1",
            "saga_duration_seconds_bucket{outcome=\"\\",
            "saga_duration_seconds_bucket{outcome=\"a\"",
            "saga_duration_seconds_bucket{outcome=\"completed\"} 4",
            "saga_duration_seconds_bucket{le=\"-1\"} 4",
            "saga_duration_seconds_bucket{le=\"soon\"} 4",
            "saga_",
            "outbox_pending 7",
            "",
        ] {
            assert_eq!(SagaMetrics::parse(line), SagaMetrics::default(), "{line}");
        }
    }

    #[test]
    fn label_may_contain_any_character() {
        let metrics = SagaMetrics::parse(
            r#"saga_duration_seconds_bucket{le="1",a="}",outcome="a \"b\" \\ c, d=\"e\"\n"} 3"#,
        );
        assert_eq!(metrics.durations.keys().collect::<Vec<_>>(), ["a \"b\" \\ c, d=\"e\"\n"]);
    }
}
