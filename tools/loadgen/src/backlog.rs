//! Pure: growth of the number of orders in flight during a run.

use std::time::Duration;

/// Samples of the number of orders in flight.
#[derive(Debug, Default)]
pub struct Backlog {
    samples: Vec<(Duration, u64)>,
}

impl Backlog {
    pub fn sample(&mut self, at: Duration, in_flight: u64) {
        self.samples.push((at, in_flight));
    }

    /// Compares the last quarter of `from..until` with the second; the first is still warming up. Returns `true` if it is
    /// more than half as high again *and* by more than a quarter of a second's arrivals: small differences mean nothing.
    pub fn grew(&self, from: Duration, until: Duration, rate: u32) -> bool {
        let quarter = until.saturating_sub(from) / 4;
        let second = self.mean_thousandths(from + quarter, from + quarter * 2);
        let last = self.mean_thousandths(until.saturating_sub(quarter), until);
        // A peak that is over when the last order is sent is no backlog.
        let end = self.mean_thousandths(until.saturating_sub(quarter * 2 / 5), until);
        let (Some(second), Some(last)) = (second, last) else { return false };
        let most = second + u64::from(rate) * 250;
        last * 2 > second * 3 && last > most && end.is_none_or(|end| end > most)
    }

    fn mean_thousandths(&self, from: Duration, until: Duration) -> Option<u64> {
        let within = self.samples.iter().filter(|(at, _)| (from..until).contains(at));
        let (count, sum) = within.fold((0, 0), |(count, sum), (_, in_flight)| (count + 1, sum + in_flight));
        (sum * 1_000).checked_div(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grew(in_flight: impl Fn(u64) -> u64) -> bool {
        let mut backlog = Backlog::default();
        (0..600).for_each(|sample| backlog.sample(Duration::from_millis(sample * 100), in_flight(sample)));
        backlog.grew(Duration::ZERO, Duration::from_secs(60), 1000)
    }

    #[test]
    fn steady_backlog_has_not_grown() {
        assert!(!grew(|_| 15));
        assert!(!grew(|sample| if sample > 500 { 200 } else { 10 }));
        assert!(!grew(|sample| 5_000 + sample));
    }

    #[test]
    fn steady_growth_is_detected() {
        assert!(grew(|sample| 10 + sample * 10));
    }

    /// Peak such as after the restart of a broker.
    #[test]
    fn peak_that_is_over_at_the_end_is_no_growth() {
        assert!(grew(|sample| if sample > 460 { 2_000 } else { 10 }));
        assert!(!grew(|sample| if (460..530).contains(&sample) { 2_000 } else { 10 }));
    }

    #[test]
    fn growth_compares_second_and_last_quarter_and_needs_both_limits() {
        for (second, last, rate, has_grown) in [
            (10, 15, 1, false),
            (10, 16, 1, true),
            (10, 16, 23, true),
            (10, 16, 24, false),
            (1, 2, 3, true),
            (1, 2, 4, false),
        ] {
            let mut backlog = Backlog::default();
            let tenths = [
                (99, 500),
                (100, second - 1),
                (119, second + 1),
                (120, 900),
                (139, 1),
                (140, last - 1),
                (159, last + 1),
                (160, 7),
            ];
            for (tenth, in_flight) in tenths {
                backlog.sample(Duration::from_millis(tenth * 100), in_flight);
            }
            let grew = backlog.grew(Duration::from_secs(8), Duration::from_secs(16), rate);
            assert_eq!(grew, has_grown, "from {second} to {last} at {rate} per second");
        }
        assert!(!Backlog::default().grew(Duration::ZERO, Duration::from_secs(8), 1), "no samples");
    }
}
