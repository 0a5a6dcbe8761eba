//! Shell: the result of a run, for people and for programs.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::Value;

use super::generator::Run;
use crate::local::Member;
use crate::output::plain_table as table;
use crate::reconciliation::Reconciliation;

/// Longest latency told apart from longer ones: ten minutes, in microseconds.
const LONGEST_US: u64 = 600_000_000;

/// A histogram of microseconds, to three digits.
pub fn histogram() -> anyhow::Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LONGEST_US, 3).context("no histogram")
}

/// Percentiles in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Percentiles {
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

impl Percentiles {
    /// Of a histogram of microseconds.
    #[expect(
        clippy::float_arithmetic,
        clippy::cast_precision_loss,
        reason = "shown to people, far below 2^52"
    )]
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let ms = |us: u64| us as f64 / 1_000.0;
        let at = |quantile| ms(histogram.value_at_quantile(quantile));
        Self { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: ms(histogram.max()) }
    }

    /// As a row of a table.
    pub fn row(&self, name: &str) -> [String; 6] {
        let ms = |ms: f64| format!("{ms:.1}");
        [name.to_owned(), ms(self.p50), ms(self.p90), ms(self.p99), ms(self.p999), ms(self.max)]
    }
}

/// A table of percentiles.
pub fn percentile_table(rows: impl IntoIterator<Item = [String; 6]>) -> String {
    table(["ms", "p50", "p90", "p99", "p99.9", "max"], rows, &[1, 2, 3, 4, 5])
}

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
    books_balanced: bool,
    audit: Value,
    rss_mib: BTreeMap<Member, f64>,
    rss_mib_total: f64,
}

impl Report {
    /// Sums up.
    #[expect(clippy::float_arithmetic, reason = "shown to people")]
    pub fn of(run: &Run, rate_wanted: u32, rss_mib: BTreeMap<Member, f64>, audit: Reconciliation) -> Self {
        let counts = run.ledger.counts();
        let (from, until) = (run.plan.due(run.plan.first_measured), run.plan.due(run.plan.orders));
        let failed = run.ledger.failed();
        let ending = run.ends.map_or(Duration::ZERO, |(first, last)| last - first);
        Self {
            rate_wanted,
            rate_achieved: per_second(counts.completed + counts.compensated, ending.max(until - from)),
            duration_s: (until - from).as_secs_f64(),
            warmup_orders: run.plan.first_measured,
            started: counts.started,
            completed: counts.completed,
            compensated: counts.compensated,
            failed,
            unfinished: run.ledger.in_flight().saturating_sub(failed),
            errors: counts.errors.values().sum(),
            errors_by_reason: counts.errors.clone(),
            latency_ms: Percentiles::of(&run.latency_us),
            http_latency_ms: Percentiles::of(&run.http_latency_us),
            backlog_grew: run.backlog.grew(from, until, rate_wanted),
            books_balanced: audit.balanced,
            audit: audit.report,
            rss_mib_total: (rss_mib.values().sum::<f64>() * 10.0).round() / 10.0,
            rss_mib,
        }
    }

    /// Whether everything ended and the books balance.
    pub const fn is_good(&self) -> bool {
        self.books_balanced && self.unfinished == 0 && self.failed == 0
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
    let rows = [report.latency_ms.row("to the end"), report.http_latency_ms.row("to the answer")];
    println!("{}", percentile_table(rows));
    println!("backlog {}", if report.backlog_grew { "GREW" } else { "did not grow" });
    let memory: Vec<_> = report.rss_mib.iter().map(|(member, mib)| format!("{member} {mib:.0}")).collect();
    println!("memory  {} = {:.0} MiB", memory.join(" + "), report.rss_mib_total);
    print_verdict(report.books_balanced, &report.audit);
    Ok(())
}

/// Says whether the books balance, and if not, what does not add up.
pub fn print_verdict(balanced: bool, audit: &Value) {
    if balanced {
        println!("books   balance");
    } else {
        println!("books   DO NOT BALANCE; see sagactl audit\n{audit:#}");
    }
}
