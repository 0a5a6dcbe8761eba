//! Shell: result of a run, for people and for programs.

use std::collections::BTreeMap;
use std::time::Duration;

use admin_api::reconciliation::Verdict;
use serde::Serialize;

use super::cost::Cost;
use super::ledger::Counts;
use super::measurements::Measurements;
use super::percentiles::{Percentiles, percentile_table};
use super::timeline::Second;
use cli::view;
use cli::view::View;
use client::reconciliation::{Reconciliation, report_text};
use devstack::Component;

/// Advice for a reconciliation without a verdict.
const NO_VERDICT: &str =
    "no verdict yet: orders are in flight, or a service does not answer; run sagactl reconcile later";

/// Delay above which an order counts as late.
const LATE: Duration = Duration::from_millis(100);

#[derive(Debug, Serialize)]
pub struct Report {
    /// True if every order was accepted and ended as intended, the system kept up, and the ledgers agree.
    pub valid: bool,
    /// Reasons why the run has failed.
    reasons: Vec<String>,
    /// Orders per second of an open loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    target_rate: Option<u32>,
    /// Clients of a closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    clients: Option<u64>,
    /// Ended orders per second of `ending_s`, or of `duration_s` if that is longer.
    rate_achieved: f64,
    /// Orders that ended while orders were sent, per second of `duration_s`.
    rate_in_time: f64,
    /// Time from the first end to the last one.
    ending_s: f64,
    duration_s: f64,
    #[serde(flatten)]
    counts: Counts,
    failed: u64,
    unfinished: u64,
    errors: u64,
    latency_ms: Percentiles,
    http_latency_ms: Percentiles,
    /// Orders rejected with 503 and `Retry-After`.
    shed: u64,
    shed_latency_ms: Percentiles,
    backlog_grew: bool,
    generator: Generator,
    #[serde(flatten)]
    reconciliation: Reconciliation,
    /// Processor time of each process while measured orders were sent.
    cpu_ms: BTreeMap<Component, u64>,
    cpu_ms_per_order: f64,
    rss_mib: BTreeMap<Component, f64>,
    rss_mib_total: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeline: Option<Vec<Second>>,
}

/// Measurements of the generator itself.
#[derive(Debug, Serialize)]
struct Generator {
    cpu_us_per_order: f64,
    /// From due time to request.
    late_ms: Percentiles,
    late: u64,
}

impl Report {
    #[expect(clippy::float_arithmetic, reason = "shown to people")]
    pub fn of(
        run: &Measurements,
        may_shed: bool,
        cost: &Cost,
        rss_mib: BTreeMap<Component, f64>,
        reconciliation: Reconciliation,
    ) -> Self {
        let counts = run.ledger.counts().clone();
        let (from, until) = (run.schedule.measured_from(), run.schedule.end());
        let failed = run.ledger.failed();
        let ending = run.ends.map_or(Duration::ZERO, |(first, last)| last - first);
        let target_rate = run.schedule.highest_rate();
        let mut report = Self {
            valid: true,
            reasons: vec![],
            target_rate,
            clients: run.schedule.clients(),
            rate_achieved: per_second(counts.completed + counts.compensated, ending.max(until - from)),
            rate_in_time: per_second(run.ended_in_time, until - from),
            ending_s: ending.as_secs_f64(),
            duration_s: (until - from).as_secs_f64(),
            failed,
            unfinished: run.ledger.in_flight().saturating_sub(failed),
            errors: counts.errors_by_reason.values().sum(),
            counts,
            latency_ms: run.latencies.percentiles(),
            http_latency_ms: run.http_latencies.percentiles(),
            shed: run.rejections.count(),
            shed_latency_ms: run.rejections.percentiles(),
            // A closed loop has no backlog.
            backlog_grew: target_rate.is_some_and(|rate| run.backlog.grew(from, until, rate)),
            generator: Generator {
                cpu_us_per_order: per_order(cost.generator, run.late.count()) * 1_000.0,
                late_ms: run.late.percentiles(),
                late: run.late.beyond(LATE),
            },
            reconciliation,
            cpu_ms_per_order: per_order(Duration::from_millis(cost.cpu_ms.values().sum()), run.ended_in_time),
            cpu_ms: cost.cpu_ms.clone(),
            rss_mib_total: (rss_mib.values().sum::<f64>() * 10.0).round() / 10.0,
            rss_mib,
            timeline: run.timeline.as_ref().map(|timeline| timeline.seconds().to_vec()),
        };
        report.reasons = report.failures(may_shed, run.late.count());
        report.valid = report.reasons.is_empty();
        report
    }

    /// Reasons why the run has failed. With `may_shed`, rejections with `Retry-After` are none.
    fn failures(&self, may_shed: bool, sent: u64) -> Vec<String> {
        let tolerated = if may_shed { self.shed } else { 0 };
        let numbers = [
            (self.errors.saturating_sub(tolerated), "orders were rejected"),
            (self.counts.unexpected, "orders ended otherwise than their kind demands"),
            (self.failed, "orders need a human: their compensation is dead-lettered"),
            (self.unfinished, "orders have not ended"),
        ];
        let numbers = numbers.into_iter().filter(|(count, _)| *count > 0);
        let mut failures: Vec<_> = numbers.map(|(count, what)| format!("{count} {what}")).collect();
        if self.backlog_grew {
            failures.push("the backlog grew: the system did not keep up".to_owned());
        }
        match self.reconciliation.report.verdict {
            Verdict::Balanced => {}
            Verdict::InFlight => failures.push(format!("reconciliation: {NO_VERDICT}")),
            Verdict::Unbalanced => failures.push("the books do not balance".to_owned()),
        }
        // With more than a hundredth, latencies are those of the generator rather than of the system.
        let late = self.generator.late;
        if late > sent / 100 {
            failures.push(format!("the generator could not keep its rate: {late} orders were sent too late"));
        }
        failures
    }
}

#[expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "shown to people, far below 2^52")]
fn per_order(time: Duration, orders: u64) -> f64 {
    if orders == 0 {
        return 0.0;
    }
    (time.as_secs_f64() * 1_000_000.0 / orders as f64).round() / 1_000.0
}

#[expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "shown to people, far below 2^52")]
fn per_second(count: u64, time: Duration) -> f64 {
    (count as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE) * 10.0).round() / 10.0
}

/// Short table for people.
pub fn shown(report: &Report, view: &View) -> String {
    let latencies = [("to the end", report.latency_ms), ("to the answer", report.http_latency_ms)];
    let memory: Vec<_> =
        report.rss_mib.iter().map(|(component, mib)| format!("{component} {mib:.0}")).collect();
    let errors = report.counts.errors_by_reason.iter().map(|(reason, count)| format!("  {count} × {reason}"));
    let lines = [
        format!(
            "{:.1} orders/s ended{}, within the {}s of the run{}",
            report.rate_in_time,
            intended(report),
            report.duration_s,
            stragglers(report)
        ),
        format!(
            "{} started: {} completed, {} compensated ({} unexpected), {} failed, {} unfinished; {} errors",
            report.counts.started,
            report.counts.completed,
            report.counts.compensated,
            report.counts.unexpected,
            report.failed,
            report.unfinished,
            report.errors
        ),
    ];
    let rest = [
        percentile_table(&latencies, view),
        backlog(report),
        cost(report),
        format!("memory  {} = {:.0} MiB", memory.join(" + "), report.rss_mib_total),
        verdict(&report.reconciliation),
    ];
    let reasons = report.reasons.iter().map(|reason| format!("✗ {reason}"));
    lines.into_iter().chain(errors).chain(rest).chain(reasons).collect::<Vec<_>>().join("\n")
}

/// Rate of an open loop, or clients of a closed one.
fn intended(report: &Report) -> String {
    let of_rate = report.target_rate.map(|rate| format!(" of {rate} wanted"));
    of_rate.or(report.clients.map(|clients| format!(" for {clients} clients"))).unwrap_or_default()
}

#[expect(clippy::float_arithmetic, reason = "shown to people")]
fn cost(report: &Report) -> String {
    let all: Vec<_> = report.cpu_ms.iter().map(|(component, ms)| format!("{component} {ms}")).collect();
    format!(
        "cpu ms  {}: {:.2} per order; the generator {:.3} more",
        all.join(" + "),
        report.cpu_ms_per_order,
        report.generator.cpu_us_per_order / 1_000.0
    )
}

/// Rate that includes orders that ended after the run, if there are any.
fn stragglers(report: &Report) -> String {
    if report.ending_s <= report.duration_s {
        return String::new();
    }
    format!("; {:.1}/s with those that ended later, over {:.0}s", report.rate_achieved, report.ending_s)
}

fn backlog(report: &Report) -> String {
    let grew = if report.backlog_grew { "GREW" } else { "did not grow while orders were sent" };
    match report.unfinished {
        0 => format!("backlog {grew}"),
        unfinished => format!("backlog {grew}; {unfinished} have not ended"),
    }
}

/// Verdict of the reconciliation, with its discrepancies.
pub fn verdict(reconciliation: &Reconciliation) -> String {
    match reconciliation.report.verdict {
        Verdict::Balanced => "books   balance".to_owned(),
        Verdict::InFlight => format!("books   {NO_VERDICT}"),
        Verdict::Unbalanced => {
            format!(
                "books   DO NOT BALANCE; see sagactl reconcile\n{}",
                report_text(&reconciliation.report, &view())
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::saga_fact::{FactDetail, SagaFact};
    use uuid::Uuid;

    use super::*;
    use crate::measurements::Rejected;
    use crate::options::Mix;
    use crate::schedule::Schedule;

    #[test]
    fn each_failure_is_a_reason() {
        let mut run = run();
        for number in 0..30 {
            run.answered(number, Uuid::from_u128(number.into()), ms(3_000));
            run.on_confirmed(Uuid::from_u128(number.into()), ms(3_000));
        }
        let of = |change: fn(&mut Report)| {
            let reconciliation = reconciliation(Verdict::Balanced);
            let mut report = Report::of(&run, false, &Cost::default(), BTreeMap::new(), reconciliation);
            change(&mut report);
            report.failures(false, 100)
        };
        assert_eq!(of(|_| {}), [""; 0]);
        let failures: [fn(&mut Report); 8] = [
            |report| report.errors = 1,
            |report| report.counts.unexpected = 2,
            |report| report.failed = 1,
            |report| report.unfinished = 1,
            |report| report.backlog_grew = true,
            |report| report.reconciliation.report.verdict = Verdict::InFlight,
            |report| report.reconciliation.report.verdict = Verdict::Unbalanced,
            |report| report.generator.late = 2,
        ];
        for failure in failures {
            assert_eq!(of(failure).len(), 1, "{:?}", of(failure));
        }
        assert_eq!(of(|report| report.generator.late = 1), [""; 0]);
    }

    #[test]
    fn missing_verdict_is_no_discrepancy() {
        let text = |verdict| super::verdict(&reconciliation(verdict));
        assert!(text(Verdict::InFlight).contains("no verdict yet"));
        assert!(text(Verdict::Unbalanced).contains("DO NOT BALANCE"));
        assert_eq!(text(Verdict::Balanced), "books   balance");
    }

    fn reconciliation(verdict: Verdict) -> Reconciliation {
        let report = admin_api::reconciliation::Report { verdict, ..Default::default() };
        report.into()
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Ten orders per second, the first ten as warm-up, all sent when they are due.
    fn run() -> Measurements {
        let schedule = Schedule::at_rate(10, ms(1_000), ms(2_000), Mix::HAPPY, "run");
        let mut run = Measurements::new(schedule, None).expect("a histogram");
        for number in 0..30 {
            let due = run.schedule.due(number).expect("it is due");
            run.start(number, due, due);
        }
        run
    }

    fn report(run: &Measurements, may_shed: bool, verdict: Verdict) -> serde_json::Value {
        let memory = [(Component::ORDER, 10.04), (Component::ADMIN, 20.02)].into();
        let cpu_ms = [(Component::ORDER, 40), (Component::ADMIN, 45)].into();
        let cost = Cost { generator: Duration::from_micros(950), cpu_ms };
        let reconciliation = reconciliation(verdict);
        serde_json::to_value(Report::of(run, may_shed, &cost, memory, reconciliation)).expect("JSON")
    }

    #[test]
    fn report_shows_rates_counts_and_reasons() {
        let mut run = run();
        run.rejected(12, Rejected { reason: "503".to_owned(), may_retry: true }, ms(1_200), ms(1_204));
        for number in 13..30_u128 {
            let (order, at) = (Uuid::from_u128(number), ms(3_000));
            run.answered(u64::try_from(number).expect("a small number"), order, at);
            if number < 29 {
                run.on_confirmed(order, at);
                continue;
            }
            for name in ["PaymentFailed", "OrderCancelled", "StockReleased", "PaymentVoided"] {
                let fact = SagaFact {
                    message_id: Uuid::new_v5(&order, name.as_bytes()),
                    message_type: name.to_owned(),
                    producer: "test".to_owned(),
                    causation_id: Uuid::nil(),
                    occurred_at: jiff::Timestamp::UNIX_EPOCH,
                    detail: FactDetail::default(),
                };
                run.on_fact(order, &fact, at);
            }
        }
        let short = report(&run, false, Verdict::Balanced);
        let reasons = [
            "1 orders were rejected",
            "1 orders ended otherwise than their kind demands",
            "12 orders have not ended",
        ];
        for (name, value) in [
            ("valid", serde_json::json!(false)),
            ("target_rate", 10.into()),
            ("rate_achieved", 8.5.into()),
            ("duration_s", 2.0.into()),
            ("warmup_orders", 10.into()),
            ("started", 19.into()),
            ("completed", 16.into()),
            ("compensated", 1.into()),
            ("unexpected", 1.into()),
            ("unfinished", 12.into()),
            ("errors", 1.into()),
            ("errors_by_reason", serde_json::json!({"503": 1})),
            ("shed", 1.into()),
            ("rss_mib_total", 30.1.into()),
            ("cpu_ms_per_order", 5.0.into()),
            ("reasons", serde_json::json!(reasons)),
        ] {
            assert_eq!(short[name], value, "{name}");
        }
        assert_eq!(short["generator"]["cpu_us_per_order"], 48.0, "of the twenty that were measured");
        assert!(short.get("clients").is_none() && short.get("timeline").is_none());
        assert_eq!(report(&run, true, Verdict::Balanced)["reasons"][0], reasons[1], "it was shed");
    }

    #[test]
    fn ends_after_the_run_lower_the_rate() {
        let mut run = run();
        run.answered(10, Uuid::nil(), ms(2_000));
        run.on_confirmed(Uuid::nil(), ms(2_000));
        run.ends = Some((Duration::from_secs(3), Duration::from_secs(13)));
        let long = report(&run, false, Verdict::Balanced);
        assert_eq!((&long["rate_achieved"], &long["rate_in_time"]), (&0.1.into(), &0.5.into()));
        let reconciliation = reconciliation(Verdict::Balanced);
        let text =
            shown(&Report::of(&run, false, &Cost::default(), BTreeMap::new(), reconciliation), &View::FILE);
        let first = "0.5 orders/s ended of 10 wanted, within the 2s of the run; \
                     0.1/s with those that ended later, over 10s\n";
        assert!(text.starts_with(first), "{text}");
        assert!(text.contains("backlog did not grow while orders were sent; 29 have not ended"), "{text}");
    }
}
