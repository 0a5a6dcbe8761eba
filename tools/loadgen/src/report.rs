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
use cli::{View, print_json, view};
use client::reconciliation::{Reconciliation, report_text};
use devstack::Component;

/// Advice for a reconciliation without a verdict.
const NO_VERDICT: &str =
    "no verdict yet: orders are in flight, or a service does not answer; run sagactl reconcile later";

/// Delay above which an order counts as late.
const LATE: Duration = Duration::from_millis(100);

#[derive(Debug, Serialize)]
pub struct Report {
    valid: bool,
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
    warmup_orders: u64,
    started: u64,
    completed: u64,
    compensated: u64,
    failed: u64,
    unfinished: u64,
    /// Orders that ended otherwise than their kind demands.
    unexpected: u64,
    errors: u64,
    errors_by_reason: BTreeMap<String, u64>,
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

#[derive(Debug, Clone, Copy)]
pub struct Tolerance {
    pub may_shed: bool,
}

impl Report {
    #[expect(clippy::float_arithmetic, reason = "shown to people")]
    pub fn of(
        run: &Measurements,
        tolerance: Tolerance,
        cost: &Cost,
        rss_mib: BTreeMap<Component, f64>,
        reconciliation: Reconciliation,
    ) -> Self {
        let counts = run.ledger.counts();
        let (from, until) = (run.schedule.measured_from(), run.schedule.end());
        let failed = run.ledger.failed();
        let unfinished = run.ledger.in_flight().saturating_sub(failed);
        let ending = run.ends.map_or(Duration::ZERO, |(first, last)| last - first);
        let target_rate = run.schedule.highest_rate();
        // A closed loop has no backlog.
        let backlog_grew = target_rate.is_some_and(|rate| run.backlog.grew(from, until, rate));
        let generator = Generator {
            cpu_us_per_order: per_order(cost.generator, run.late.count()) * 1_000.0,
            late_ms: run.late.percentiles(),
            late: run.late.beyond(LATE),
        };
        let shed = run.rejections.count();
        let tolerated = if tolerance.may_shed { shed } else { 0 };
        let mut reasons =
            reasons(counts, tolerated, failed, unfinished, backlog_grew, reconciliation.report.verdict);
        // With more than a hundredth, latencies are those of the generator rather than of the system.
        if generator.late > run.late.count() / 100 {
            let late = generator.late;
            reasons.push(format!("the generator could not keep its rate: {late} orders were sent too late"));
        }
        Self {
            valid: reasons.is_empty(),
            reasons,
            target_rate,
            clients: run.schedule.clients(),
            rate_achieved: per_second(counts.completed + counts.compensated, ending.max(until - from)),
            rate_in_time: per_second(run.ended_in_time, until - from),
            ending_s: ending.as_secs_f64(),
            duration_s: (until - from).as_secs_f64(),
            warmup_orders: counts.warmup,
            started: counts.started,
            completed: counts.completed,
            compensated: counts.compensated,
            failed,
            unfinished,
            unexpected: counts.unexpected,
            errors: counts.errors.values().sum(),
            errors_by_reason: counts.errors.clone(),
            latency_ms: run.latencies.percentiles(),
            http_latency_ms: run.http_latencies.percentiles(),
            shed,
            shed_latency_ms: run.rejections.percentiles(),
            backlog_grew,
            generator,
            reconciliation,
            cpu_ms_per_order: per_order(Duration::from_millis(cost.cpu_ms.values().sum()), run.ended_in_time),
            cpu_ms: cost.cpu_ms.clone(),
            rss_mib_total: (rss_mib.values().sum::<f64>() * 10.0).round() / 10.0,
            rss_mib,
            timeline: run.timeline.as_ref().map(|timeline| timeline.seconds().to_vec()),
        }
    }

    /// True if every order was accepted and ended as intended, the system kept up, and the ledgers agree.
    pub const fn is_good(&self) -> bool {
        self.valid
    }
}

fn reasons(
    counts: &Counts,
    tolerated: u64,
    failed: u64,
    unfinished: u64,
    backlog_grew: bool,
    verdict: Verdict,
) -> Vec<String> {
    let numbers = [
        (counts.errors.values().sum::<u64>().saturating_sub(tolerated), "orders were rejected"),
        (counts.unexpected, "orders ended otherwise than their kind demands"),
        (failed, "orders need a human: their compensation is dead-lettered"),
        (unfinished, "orders have not ended"),
    ];
    let numbers =
        numbers.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let backlog = backlog_grew.then(|| "the backlog grew: the system did not keep up".to_owned());
    let ledgers = match verdict {
        Verdict::Balanced => None,
        Verdict::InFlight => Some(format!("reconciliation: {NO_VERDICT}")),
        Verdict::Unbalanced => Some("the books do not balance".to_owned()),
    };
    numbers.chain(backlog).chain(ledgers).collect()
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

/// Prints a report as JSON or as a short table.
pub fn print(report: &Report, json: bool) -> anyhow::Result<()> {
    if json {
        print_json(&serde_json::to_value(report)?);
    } else {
        cli::print(&shown(report, &view()));
    }
    Ok(())
}

fn shown(report: &Report, view: &View) -> String {
    let latencies = [("to the end", report.latency_ms), ("to the answer", report.http_latency_ms)];
    let memory: Vec<_> =
        report.rss_mib.iter().map(|(component, mib)| format!("{component} {mib:.0}")).collect();
    let errors = report.errors_by_reason.iter().map(|(reason, count)| format!("  {count} × {reason}"));
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
            report.started,
            report.completed,
            report.compensated,
            report.unexpected,
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

    const STRICT: Tolerance = Tolerance { may_shed: false };

    #[test]
    fn each_failure_is_a_reason() {
        let counts = Counts { started: 10, completed: 8, compensated: 2, ..Counts::default() };
        assert_eq!(reasons(&counts, 0, 0, 0, false, Verdict::Balanced), [""; 0]);
        let rejected = Counts { errors: [("503".to_owned(), 3)].into(), ..Counts::default() };
        assert_eq!(reasons(&rejected, 0, 0, 0, false, Verdict::Balanced), ["3 orders were rejected"]);
        assert_eq!(reasons(&rejected, 2, 0, 0, false, Verdict::Balanced), ["1 orders were rejected"]);
        assert_eq!(reasons(&rejected, 3, 0, 0, false, Verdict::Balanced), [""; 0]);
        let odd = Counts { unexpected: 2, ..counts.clone() };
        assert_eq!(reasons(&odd, 0, 0, 0, false, Verdict::Balanced).len(), 1);
        for (failed, unfinished, backlog_grew, verdict) in [
            (1, 0, false, Verdict::Balanced),
            (0, 1, false, Verdict::Balanced),
            (0, 0, true, Verdict::Balanced),
            (0, 0, false, Verdict::InFlight),
            (0, 0, false, Verdict::Unbalanced),
        ] {
            assert_eq!(reasons(&counts, 0, failed, unfinished, backlog_grew, verdict).len(), 1);
        }
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

    fn report(run: &Measurements, tolerance: Tolerance, verdict: Verdict) -> (bool, serde_json::Value) {
        let memory = [(Component::ORDER, 10.04), (Component::ADMIN, 20.02)].into();
        let cpu_ms = [(Component::ORDER, 40), (Component::ADMIN, 45)].into();
        let cost = Cost { generator: Duration::from_micros(950), cpu_ms };
        let reconciliation = reconciliation(verdict);
        let report = Report::of(run, tolerance, &cost, memory, reconciliation);
        (report.is_good(), serde_json::to_value(report).expect("JSON"))
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
        let (is_good, of_short) = report(&run, STRICT, Verdict::Balanced);
        assert!(!is_good);
        let reasons = [
            "1 orders were rejected",
            "1 orders ended otherwise than their kind demands",
            "12 orders have not ended",
        ];
        for (component, value) in [
            ("valid", serde_json::json!(false)),
            ("target_rate", serde_json::json!(10)),
            ("rate_achieved", serde_json::json!(8.5)),
            ("duration_s", serde_json::json!(2.0)),
            ("warmup_orders", serde_json::json!(10)),
            ("started", serde_json::json!(19)),
            ("completed", serde_json::json!(16)),
            ("compensated", serde_json::json!(1)),
            ("unexpected", serde_json::json!(1)),
            ("unfinished", serde_json::json!(12)),
            ("errors", serde_json::json!(1)),
            ("shed", serde_json::json!(1)),
            ("rss_mib_total", serde_json::json!(30.1)),
            ("cpu_ms_per_order", serde_json::json!(5.0)),
            ("reasons", serde_json::json!(reasons)),
        ] {
            assert_eq!(of_short[component], value, "{component}");
        }
        assert_eq!(of_short["generator"]["cpu_us_per_order"], 48.0, "of the twenty that were measured");
        assert!(of_short.get("clients").is_none() && of_short.get("timeline").is_none());
        // Ends spread over more time than the sending lower the rate.
        run.ends = Some((Duration::from_secs(3), Duration::from_secs(13)));
        let (_, of_long) = report(&run, STRICT, Verdict::Balanced);
        assert_eq!((&of_long["rate_achieved"], &of_long["rate_in_time"]), (&1.7.into(), &8.5.into()));
        let reconciliation = reconciliation(Verdict::Balanced);
        let of_none = Report::of(&run, STRICT, &Cost::default(), BTreeMap::new(), reconciliation);
        let text = shown(&of_none, &View::FILE);
        assert!(
            text.starts_with(
                "8.5 orders/s ended of 10 wanted, within the 2s of the run; 1.7/s with those that ended later, over 10s\n"
            ),
            "{text}"
        );
        assert!(text.contains("backlog did not grow while orders were sent; 12 have not ended"), "{text}");
        assert_eq!(report(&run, STRICT, Verdict::Unbalanced).1["reasons"][3], "the books do not balance");
        let tolerant = report(&run, Tolerance { may_shed: true }, Verdict::Balanced).1;
        assert_eq!(tolerant["reasons"][0], reasons[1]);
    }

    #[test]
    fn late_generator_is_a_reason() {
        let schedule = Schedule::at_rate(200, Duration::ZERO, ms(1_000), Mix::HAPPY, "run");
        for (late, is_good) in [(2, true), (3, false)] {
            let mut run = Measurements::new(schedule.clone(), None).expect("a histogram");
            for number in 0..200 {
                let due = run.schedule.due(number).expect("it is due");
                run.start(number, due, if number < late { due + LATE * 2 } else { due });
                let order = Uuid::from_u128(u128::from(number));
                run.answered(number, order, due);
                run.on_confirmed(order, due);
            }
            let (found, shown) = report(&run, STRICT, Verdict::Balanced);
            assert_eq!((found, &shown["generator"]["late"]), (is_good, &late.into()), "{shown:#}");
        }
    }
}
