//! Pure: the text format 0.0.4 of Prometheus, from OpenMetrics.

/// Converts metrics from OpenMetrics 1.0 to the text format 0.0.4.
///
/// There a family has the name of its samples, so a counter ends with `_total`. Units and exemplars do not exist.
pub(super) fn from_open_metrics(text: &str) -> String {
    let counters: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut converted = String::with_capacity(text.len());
    for line in text.lines().filter(|line| !line.starts_with("# UNIT ") && *line != "# EOF") {
        match line.strip_prefix("# ").and_then(|line| line.split_once(' ')) {
            Some((keyword, rest)) => {
                let (family, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                let suffix = if counters.contains(&family) { "_total" } else { "" };
                converted.push_str(&format!("# {keyword} {family}{suffix} {rest}\n"));
            }
            None => {
                // Only buckets have exemplars, and their labels are bounds and names of steps.
                let sample = line.contains("_bucket{").then(|| line.split_once(" # {")).flatten();
                converted.push_str(sample.map_or(line, |(sample, _exemplar)| sample));
                converted.push('\n');
            }
        }
    }
    converted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_keep_their_suffix_and_units_and_exemplars_are_left_out() {
        let text = "# HELP parcel Parcels.\n# TYPE parcel counter\nparcel_total{way=\"in # {\"} 3\n\
                    # HELP parcel_weighing_seconds Time to weigh.\n# TYPE parcel_weighing_seconds histogram\n\
                    # UNIT parcel_weighing_seconds seconds\n\
                    parcel_weighing_seconds_bucket{le=\"1.0\"} 2 # {trace_id=\"4bf9\"} 0.004\n# EOF\n";
        let expected = "# HELP parcel_total Parcels.\n# TYPE parcel_total counter\nparcel_total{way=\"in # {\"} 3\n\
                        # HELP parcel_weighing_seconds Time to weigh.\n# TYPE parcel_weighing_seconds histogram\n\
                        parcel_weighing_seconds_bucket{le=\"1.0\"} 2\n";
        assert_eq!(from_open_metrics(text), expected);
    }
}
