//! Pure: values of each second of a run.

use std::time::Duration;

use serde::Serialize;

use super::percentiles::Latencies;

/// Values of a second, including warm-up and drain.
#[derive(Debug, Clone, Serialize)]
pub struct Second {
    /// Number of the second, from the start of the run.
    at: u64,
    sent: u64,
    ended: u64,
    rejected: u64,
    in_flight: u64,
    /// Latency of the orders that ended in it.
    p50_ms: f64,
    p99_ms: f64,
    /// Latency of the rejections in it.
    rejection_p99_ms: f64,
    /// Memory of all processes of a local system.
    rss_mib: f64,
    broker_rss_mib: f64,
    order_rss_mib: f64,
}

/// Memory of the processes of a system, in MiB.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    pub all: f64,
    pub broker: f64,
    pub order: f64,
}

/// Seconds of a run so far.
pub struct Timeline {
    seconds: Vec<Second>,
    sent: u64,
    rejected: u64,
    latencies: Latencies,
    rejections: Latencies,
}

impl Timeline {
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self {
            seconds: Vec::new(),
            sent: 0,
            rejected: 0,
            latencies: Latencies::new()?,
            rejections: Latencies::new()?,
        })
    }

    pub const fn sent(&mut self) {
        self.sent += 1;
    }

    pub fn ended(&mut self, latency: Duration) {
        self.latencies.record(latency);
    }

    pub fn rejected(&mut self, took: Duration) {
        self.rejected += 1;
        self.rejections.record(took);
    }

    pub fn close(&mut self, in_flight: u64, memory: Memory) {
        let (ends, rejections) = (self.latencies.percentiles(), self.rejections.percentiles());
        self.seconds.push(Second {
            at: self.seconds.len() as u64,
            sent: self.sent,
            ended: self.latencies.count(),
            rejected: self.rejected,
            in_flight,
            p50_ms: ends.p50,
            p99_ms: ends.p99,
            rejection_p99_ms: rejections.p99,
            rss_mib: memory.all,
            broker_rss_mib: memory.broker,
            order_rss_mib: memory.order,
        });
        (self.sent, self.rejected) = (0, 0);
        self.latencies.clear();
        self.rejections.clear();
    }

    pub fn seconds(&self) -> &[Second] {
        &self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_reset_each_second() {
        let mut timeline = Timeline::new().expect("histograms");
        (0..3).for_each(|_| timeline.sent());
        timeline.ended(Duration::from_millis(10));
        timeline.rejected(Duration::from_millis(2));
        timeline.close(1, Memory::default());
        timeline.close(1, Memory { all: 101.0, broker: 50.0, order: 21.0 });
        let shown = serde_json::to_value(timeline.seconds()).expect("JSON");
        let of =
            |at: usize| ["at", "sent", "ended", "rejected", "in_flight"].map(|name| shown[at][name].clone());
        assert_eq!(of(0), [0, 3, 1, 1, 1].map(Into::<serde_json::Value>::into));
        assert_eq!(of(1), [1, 0, 0, 0, 1].map(Into::<serde_json::Value>::into));
        assert!(shown[0]["p99_ms"].as_f64() >= Some(10.0) && shown[1]["p99_ms"] == 0.0, "{shown:#}");
        assert_eq!(shown[0]["rejection_p99_ms"], 2.0);
        let memory = ["rss_mib", "broker_rss_mib", "order_rss_mib"].map(|of| shown[1][of].as_f64());
        assert_eq!(memory, [101.0, 50.0, 21.0].map(Some));
    }
}
