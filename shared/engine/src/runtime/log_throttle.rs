//! Pure: measures the input rate, and tells when a log line for each input would be too much.

use std::time::Duration;

/// Inputs per second from which writing a log line for each costs more than the lines are worth.
const BUSY_RATE: u64 = 500;
/// Minimum time between two measurements of the rate.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// Pause after which the rate before it no longer counts.
const REST: Duration = Duration::from_millis(500);

/// Input rate of the last moments. Times are on a monotonic clock.
#[derive(Debug, Default)]
pub(super) struct LogThrottle {
    rate: u64,
    /// Inputs since the last measurement.
    count: u64,
    measured_at: Duration,
}

impl LogThrottle {
    /// Counts inputs that arrived at `at`.
    pub(super) fn record(&mut self, inputs: usize, at: Duration) {
        self.count += inputs as u64;
        let since = at.saturating_sub(self.measured_at);
        if since < SAMPLE_EVERY {
            return;
        }
        let micros = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        let rate = self.count.saturating_mul(1_000_000) / micros;
        self.rate = if since >= REST { rate } else { (self.rate + rate) / 2 };
        (self.count, self.measured_at) = (0, at);
    }

    /// True while inputs arrive at [`BUSY_RATE`] or faster.
    pub(super) const fn is_active(&self) -> bool {
        self.rate >= BUSY_RATE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttle_is_active_under_load_and_inactive_after_a_pause() {
        let mut throttle = LogThrottle::default();
        throttle.record(1_000, Duration::from_millis(100));
        assert!(throttle.is_active());
        throttle.record(1, Duration::from_secs(2));
        assert!(!throttle.is_active());
    }
}
