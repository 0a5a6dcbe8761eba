//! Pure: samples for tests.

use std::collections::BTreeMap;
use std::time::Duration;

use admin_api::overview::{DeadLetterSummary, OutboxSummary, Overview, SagaSummary, ServiceStatus};
use jiff::{SignedDuration, Timestamp};

use super::metrics::SagaMetrics;
use super::state::Sample;
use devstack::processes::{ProcessStatus, Processes};

/// Time of the first sample.
pub fn start() -> Timestamp {
    "2026-11-20T14:24:40Z".parse().expect("a time")
}

impl Sample {
    pub fn at(second: u32) -> Self {
        let at = start() + SignedDuration::from_secs(second.into());
        let elapsed = Duration::from_secs(second.into());
        Self { at, elapsed, overview: Err(anyhow::anyhow!("no answer")), metrics: None, processes: None }
    }

    pub fn with_overview(self, overview: Overview) -> Self {
        Self { overview: Ok(overview), ..self }
    }

    pub fn with_problem(self, problem: &str) -> Self {
        Self { overview: Err(anyhow::anyhow!("{problem}")), ..self }
    }

    pub fn with_metrics(self, text: &str) -> Self {
        Self { metrics: Some(SagaMetrics::parse(text)), ..self }
    }

    pub fn with_processes(self, each: impl IntoIterator<Item = ProcessStatus>) -> Self {
        let each = each.into_iter().collect();
        let processes =
            Processes { data: "/data".to_owned(), ready: true, rss_mib: 123.4, urls: [].into(), each };
        Self { processes: Some(processes), ..self }
    }
}

pub fn process(name: &str, pid: Option<u32>, cpu_ms: u64) -> ProcessStatus {
    ProcessStatus {
        leads: vec![],
        name: name.parse().expect("a component"),
        pid,
        port: 8_080,
        url: "http://127.0.0.1:8080".to_owned(),
        ready: pid.is_some(),
        degraded: false,
        why_down: None,
        checks: serde_json::Value::Null,
        complaints: vec![],
        rss_mib: pid.map(|_| 20.6),
        cpu_ms: pid.map(|_| cpu_ms),
        uptime_s: pid.map(|_| 60),
    }
}

fn service(name: &str) -> ServiceStatus {
    ServiceStatus {
        service: name.to_owned(),
        ready: true,
        outbox: Some(OutboxSummary { pending: 0, oldest: None, failed: 0 }),
        retries: Some(0),
        ..ServiceStatus::default()
    }
}

/// Overview without findings.
pub fn overview() -> Overview {
    let by_status = BTreeMap::from([("COMPLETED".to_owned(), 1_234), ("IN_PROGRESS".to_owned(), 40)]);
    Overview {
        at: start(),
        needs_human: false,
        findings: vec![],
        services: ["admin", "order", "inventory", "payment", "bank"].map(service).into(),
        sagas: Some(SagaSummary { by_status, ended_counted: true, ..SagaSummary::default() }),
        dead_letters: Some(DeadLetterSummary::default()),
        reconciliation: None,
        unconsumed: Some(0),
        unavailable: vec![],
    }
}
