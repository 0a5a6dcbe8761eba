//! Shell: the result of a run, for people and for programs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::measured::Measured;
use super::percentiles::{Percentiles, percentile_table};
use crate::local::Member;
use crate::reconciliation::Reconciliation;

/// What a run showed.
#[derive(Debug, Serialize)]
pub struct Report {
    rate_wanted: u32,
    /// Orders that ended, per second from the first one's end to the last one's, and no shorter than the run.
    rate_achieved: f64,
    duration_s: f64,
    warmup_orders: u64,
    started: u64,
    completed: u64,
    compensated: u64,
    failed: u64,
    unfinished: u64,
    errors: u64,
    errors_by_reason: BTreeMap<String, u64>,
    latency_ms: Percentiles,
    http_latency_ms: Percentiles,
    backlog_grew: bool,
    #[serde(flatten)]
    reconciliation: Reconciliation,
    rss_mib: BTreeMap<Member, f64>,
    rss_mib_total: f64,
}

impl Report {
    #[expect(clippy::float_arithmetic, reason = "shown to people")]
    pub fn of(
        run: &Measured,
        rate_wanted: u32,
        rss_mib: BTreeMap<Member, f64>,
        reconciliation: Reconciliation,
    ) -> Self {
        let counts = run.ledger.counts();
        let (from, until) = (run.schedule.due(run.schedule.first_measured), run.schedule.end());
        let failed = run.ledger.failed();
        let ending = run.ends.map_or(Duration::ZERO, |(first, last)| last - first);
        Self {
            rate_wanted,
            rate_achieved: per_second(counts.completed + counts.compensated, ending.max(until - from)),
            duration_s: (until - from).as_secs_f64(),
            warmup_orders: run.schedule.first_measured,
            started: counts.started,
            completed: counts.completed,
            compensated: counts.compensated,
            failed,
            unfinished: run.ledger.in_flight().saturating_sub(failed),
            errors: counts.errors.values().sum(),
            errors_by_reason: counts.errors.clone(),
            latency_ms: run.latencies.percentiles(),
            http_latency_ms: run.http_latencies.percentiles(),
            backlog_grew: run.backlog.grew(from, until, rate_wanted),
            reconciliation,
            rss_mib_total: (rss_mib.values().sum::<f64>() * 10.0).round() / 10.0,
            rss_mib,
        }
    }

    /// Whether everything ended, and stock, money and messages agree.
    pub const fn is_good(&self) -> bool {
        self.reconciliation.balanced && self.unfinished == 0 && self.failed == 0
    }
}

#[expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "shown to people, far below 2^52")]
fn per_second(count: u64, time: Duration) -> f64 {
    (count as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE) * 10.0).round() / 10.0
}

/// Prints it: one JSON object, or a short table.
pub fn print(report: &Report, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(report)?);
        return Ok(());
    }
    println!(
        "{:.1} orders/s ended of {} wanted, for {}s",
        report.rate_achieved, report.rate_wanted, report.duration_s
    );
    println!(
        "{} started: {} completed, {} compensated, {} failed, {} unfinished; {} errors",
        report.started, report.completed, report.compensated, report.failed, report.unfinished, report.errors
    );
    for (reason, count) in &report.errors_by_reason {
        println!("  {count} × {reason}");
    }
    let latencies = [("to the end", report.latency_ms), ("to the answer", report.http_latency_ms)];
    println!("{}", percentile_table(&latencies));
    println!("backlog {}", if report.backlog_grew { "GREW" } else { "did not grow" });
    let memory: Vec<_> = report.rss_mib.iter().map(|(member, mib)| format!("{member} {mib:.0}")).collect();
    println!("memory  {} = {:.0} MiB", memory.join(" + "), report.rss_mib_total);
    print_verdict(&report.reconciliation);
    Ok(())
}

/// Says whether stock, money and messages agree, and if not, what does not add up.
pub fn print_verdict(reconciliation: &Reconciliation) {
    if reconciliation.balanced {
        println!("books   balance");
    } else {
        println!("books   DO NOT BALANCE; see sagactl audit\n{:#}", reconciliation.report);
    }
}
