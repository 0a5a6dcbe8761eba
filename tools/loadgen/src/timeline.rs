//! Pure: what happened in each second of a run. Times are counted from its start.

use std::time::Duration;

use serde::Serialize;

use super::percentiles::Latencies;

/// One second of a run, warm-up and draining included.
#[derive(Debug, Clone, Serialize)]
pub struct Second {
    /// Which one, from the start of the run.
    at: u64,
    sent: u64,
    ended: u64,
    refused: u64,
    in_flight: u64,
    /// Of the orders that ended in it, from due to ended.
    p50_ms: f64,
    p99_ms: f64,
    /// Of the orders that were refused in it, from sent to refused.
    refusal_p99_ms: f64,
    /// What all processes of the system hold, as far as that can be seen.
    rss_mib: f64,
    /// Of these, the broker's and the order service's.
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

/// All seconds of a run, when they are wanted.
pub struct Timeline {
    seconds: Vec<Second>,
    sent: u64,
    refused: u64,
    latencies: Latencies,
    refusals: Latencies,
}

impl Timeline {
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self {
            seconds: Vec::new(),
            sent: 0,
            refused: 0,
            latencies: Latencies::new()?,
            refusals: Latencies::new()?,
        })
    }

    pub const fn sent(&mut self) {
        self.sent += 1;
    }

    pub fn ended(&mut self, latency: Duration) {
        self.latencies.record(latency);
    }

    pub fn refused(&mut self, took: Duration) {
        self.refused += 1;
        self.refusals.record(took);
    }

    /// A second is over.
    pub fn close(&mut self, in_flight: u64, memory: Memory) {
        let (ends, refusals) = (self.latencies.percentiles(), self.refusals.percentiles());
        self.seconds.push(Second {
            at: self.seconds.len() as u64,
            sent: self.sent,
            ended: self.latencies.count(),
            refused: self.refused,
            in_flight,
            p50_ms: ends.p50,
            p99_ms: ends.p99,
            refusal_p99_ms: refusals.p99,
            rss_mib: memory.all,
            broker_rss_mib: memory.broker,
            order_rss_mib: memory.order,
        });
        (self.sent, self.refused) = (0, 0);
        self.latencies.clear();
        self.refusals.clear();
    }

    pub fn seconds(&self) -> &[Second] {
        &self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_counts_for_itself() {
        let mut timeline = Timeline::new().expect("histograms");
        (0..3).for_each(|_| timeline.sent());
        timeline.ended(Duration::from_millis(10));
        timeline.refused(Duration::from_millis(2));
        timeline.close(1, Memory::default());
        timeline.close(1, Memory { all: 101.0, broker: 50.0, order: 21.0 });
        let shown = serde_json::to_value(timeline.seconds()).expect("JSON");
        let of =
            |at: usize| ["at", "sent", "ended", "refused", "in_flight"].map(|name| shown[at][name].clone());
        assert_eq!(of(0), [0, 3, 1, 1, 1].map(Into::<serde_json::Value>::into));
        assert_eq!(of(1), [1, 0, 0, 0, 1].map(Into::<serde_json::Value>::into));
        assert!(shown[0]["p99_ms"].as_f64() >= Some(10.0) && shown[1]["p99_ms"] == 0.0, "{shown:#}");
        assert_eq!(shown[0]["refusal_p99_ms"], 2.0);
        let memory = ["rss_mib", "broker_rss_mib", "order_rss_mib"].map(|of| shown[1][of].as_f64());
        assert_eq!(memory, [101.0, 50.0, 21.0].map(Some));
    }
}
