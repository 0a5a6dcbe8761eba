//! Pure: what admin's `/metrics` says of sagas (the text format of Prometheus, and OpenMetrics).

use std::collections::BTreeMap;
use std::time::Duration;

use contract::metrics::{DURATION, STARTED};

use super::quantile::{Bound, Buckets};

/// What was counted since admin started, as far as it counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Sagas that began; absent from an admin that does not count them.
    pub started: Option<u64>,
    /// How long those took that ended, by outcome.
    pub durations: BTreeMap<String, Buckets>,
}

impl Reading {
    /// Reads a whole text. What is none of these, or cannot be read, is passed over.
    pub fn of(text: &str) -> Self {
        let mut reading = Self::default();
        for Sample { name, labels, value } in text.lines().filter_map(sample) {
            let label =
                |wanted: &str| labels.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value);
            if name == STARTED.name {
                more(reading.started.get_or_insert_default(), value);
            } else if name.strip_suffix("_bucket") == Some(DURATION.name) {
                let Some(bound) = label("le").and_then(|le| Bound::of(le)) else { continue };
                let outcome = label("outcome").cloned().unwrap_or_default();
                more(reading.durations.entry(outcome).or_default().entry(bound).or_default(), value);
            }
        }
        reading
    }

    /// Whether it tells how sagas end: admin does not count them, or none has ended since it started.
    pub fn says_something(&self) -> bool {
        !self.durations.is_empty()
    }
}

/// A name that stands there twice, with other labels, is one here.
const fn more(count: &mut u64, value: u64) {
    *count = count.saturating_add(value);
}

/// The bound of a bucket, in seconds.
impl Bound {
    fn of(le: &str) -> Option<Self> {
        let seconds: f64 = le.parse().ok()?;
        if seconds == f64::INFINITY {
            return Some(Self::Any);
        }
        Duration::try_from_secs_f64(seconds).ok().map(Self::Within)
    }
}

/// A line of the text.
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
    // What follows the value is a time or an example.
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    // Counts beyond 2^53 are not exact in this format either.
    let value = (value.is_finite() && value >= 0.0).then_some(value as u64)?;
    Some(Sample { name, labels, value })
}

/// The labels up to the closing brace, and what is behind it.
fn labels_of(mut rest: &str) -> Option<(Vec<(&str, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(behind) = rest.strip_prefix('}') {
            return Some((labels, behind));
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
    fn sagas_are_read_and_all_else_is_passed_over() {
        let text = "# HELP saga_started Sagas that began.\n# TYPE saga_started counter\nsaga_started_total 12.0 1700000000\n\
                    # TYPE saga_duration_seconds histogram\nsaga_duration_seconds_sum{outcome=\"completed\"} 1.5\n\
                    saga_duration_seconds_count{outcome=\"completed\"} 9\n\
                    saga_duration_seconds_bucket{outcome=\"completed\",le=\"0.05\"} 4\n\
                    saga_duration_seconds_bucket{le=\"1\",outcome=\"completed\"} 9 # {trace_id=\"a b\"} 0.3 1.5\n\
                    saga_duration_seconds_bucket{outcome=\"completed\", le=\"+Inf\"} 9\n\
                    outbox_pending 7\nsaga_duration_seconds_bucket{outcome=\"odd\n# EOF\n";
        let reading = Reading::of(text);
        let within = |ms| Bound::Within(Duration::from_millis(ms));
        let completed = Buckets::from([(within(50), 4), (within(1_000), 9), (Bound::Any, 9)]);
        let wanted = Reading { started: Some(12), durations: [("completed".to_owned(), completed)].into() };
        assert_eq!(reading, wanted);
        assert!(reading.says_something());
    }

    #[test]
    fn an_admin_that_counts_no_sagas_says_nothing() {
        let reading = Reading::of("# TYPE outbox_pending gauge\noutbox_pending 7\n# EOF\n");
        assert_eq!(reading, Reading::default());
        assert!(!reading.says_something());
    }

    #[test]
    fn what_is_damaged_is_passed_over() {
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
            "",
        ] {
            assert_eq!(Reading::of(line), Reading::default(), "{line}");
        }
    }

    #[test]
    fn a_label_may_hold_anything() {
        let reading =
            Reading::of(r#"saga_duration_seconds_bucket{le="1",a="}",outcome="a \"b\" \\ c, d=\"e\"\n"} 3"#);
        assert_eq!(reading.durations.keys().collect::<Vec<_>>(), ["a \"b\" \\ c, d=\"e\"\n"]);
    }
}
