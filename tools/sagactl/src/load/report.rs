//! Shell: the result of a run, for people and for programs.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::overview::Verdict;
use serde::Serialize;

use super::ledger::Counts;
use super::measured::Measured;
use super::percentiles::{Percentiles, percentile_table};
use crate::local::Member;
use crate::output::{View, say, say_json, view};
use crate::reconciliation::Reconciliation;

/// What is said of a system in which something is still under way.
const CANNOT_BE_TOLD: &str =
    "cannot be told yet: something is under way, or a service does not answer; ask later with sagactl audit";

/// What a run showed.
#[derive(Debug, Serialize)]
pub struct Report {
    rate_wanted: u32,
    /// Orders that ended, per second from the first one's end to the last one's, and no shorter than the run.
    rate_achieved: f64,
    /// Orders that ended while orders were sent, per second of the run.
    rate_in_time: f64,
    /// From the first one's end to the last one's.
    ending_s: f64,
    duration_s: f64,
    warmup_orders: u64,
    started: u64,
    completed: u64,
    compensated: u64,
    failed: u64,
    unfinished: u64,
    /// Orders that ended otherwise than their kind says.
    unexpected: u64,
    errors: u64,
    errors_by_reason: BTreeMap<String, u64>,
    latency_ms: Percentiles,
    http_latency_ms: Percentiles,
    backlog_grew: bool,
    #[serde(flatten)]
    reconciliation: Reconciliation,
    rss_mib: BTreeMap<Member, f64>,
    rss_mib_total: f64,
    /// What speaks against the run; empty when it was good.
    complaints: Vec<String>,
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
        let unfinished = run.ledger.in_flight().saturating_sub(failed);
        let ending = run.ends.map_or(Duration::ZERO, |(first, last)| last - first);
        let backlog_grew = run.backlog.grew(from, until, rate_wanted);
        let complaints = complaints(counts, failed, unfinished, backlog_grew, reconciliation.verdict);
        Self {
            rate_wanted,
            rate_achieved: per_second(counts.completed + counts.compensated, ending.max(until - from)),
            rate_in_time: per_second(run.ended_in_time, until - from),
            ending_s: ending.as_secs_f64(),
            duration_s: (until - from).as_secs_f64(),
            warmup_orders: run.schedule.first_measured,
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
            backlog_grew,
            reconciliation,
            rss_mib_total: (rss_mib.values().sum::<f64>() * 10.0).round() / 10.0,
            rss_mib,
            complaints,
        }
    }

    /// Whether every order was taken and ended as it had to, the system kept up, and stock, money and messages agree.
    pub const fn is_good(&self) -> bool {
        self.complaints.is_empty()
    }
}

fn complaints(
    counts: &Counts,
    failed: u64,
    unfinished: u64,
    backlog_grew: bool,
    verdict: Verdict,
) -> Vec<String> {
    let numbers = [
        (counts.errors.values().sum(), "orders were not taken"),
        (counts.unexpected, "orders ended otherwise than their kind says"),
        (failed, "orders need a human: their compensation is parked"),
        (unfinished, "orders have not ended"),
    ];
    let numbers =
        numbers.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let backlog = backlog_grew.then(|| "orders piled up: the system did not keep up".to_owned());
    let ledgers = match verdict {
        Verdict::Balanced => None,
        Verdict::InFlight => Some(format!("whether the books balance {CANNOT_BE_TOLD}")),
        Verdict::Unbalanced => Some("the books do not balance".to_owned()),
    };
    numbers.chain(backlog).chain(ledgers).collect()
}

#[expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "shown to people, far below 2^52")]
fn per_second(count: u64, time: Duration) -> f64 {
    (count as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE) * 10.0).round() / 10.0
}

/// Prints it: one JSON object, or a short table.
pub fn print(report: &Report, json: bool) -> anyhow::Result<()> {
    if json {
        say_json(&serde_json::to_value(report)?);
    } else {
        say(&shown(report, &view()));
    }
    Ok(())
}

fn shown(report: &Report, view: &View) -> String {
    let latencies = [("to the end", report.latency_ms), ("to the answer", report.http_latency_ms)];
    let memory: Vec<_> = report.rss_mib.iter().map(|(member, mib)| format!("{member} {mib:.0}")).collect();
    let errors = report.errors_by_reason.iter().map(|(reason, count)| format!("  {count} × {reason}"));
    let lines = [
        format!(
            "{:.1} orders/s ended of {} wanted, within the {}s of the run{}",
            report.rate_in_time,
            report.rate_wanted,
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
        format!("memory  {} = {:.0} MiB", memory.join(" + "), report.rss_mib_total),
        verdict(&report.reconciliation),
    ];
    let complaints = report.complaints.iter().map(|complaint| format!("✗ {complaint}"));
    lines.into_iter().chain(errors).chain(rest).chain(complaints).collect::<Vec<_>>().join("\n")
}

/// What the rate is with those that ended after the run, if any did.
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

/// Whether stock, money and messages agree, and if not, what does not add up.
pub fn verdict(reconciliation: &Reconciliation) -> String {
    match reconciliation.verdict {
        Verdict::Balanced => "books   balance".to_owned(),
        Verdict::InFlight => format!("books   {CANNOT_BE_TOLD}"),
        Verdict::Unbalanced => {
            format!("books   DO NOT BALANCE; see sagactl audit\n{}", reconciliation.shown(&view()))
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::heard_fact::{FactDetail, HeardFact};
    use uuid::Uuid;

    use super::*;
    use crate::load::measured::Arrival;
    use crate::load::schedule::Schedule;

    #[test]
    fn whatever_went_wrong_speaks_against_a_run() {
        let counts = Counts { started: 10, completed: 8, compensated: 2, ..Counts::default() };
        assert_eq!(complaints(&counts, 0, 0, false, Verdict::Balanced), [""; 0]);
        let refused = Counts { errors: [("503".to_owned(), 3)].into(), ..Counts::default() };
        assert_eq!(complaints(&refused, 0, 0, false, Verdict::Balanced), ["3 orders were not taken"]);
        let odd = Counts { unexpected: 2, ..counts.clone() };
        assert_eq!(complaints(&odd, 0, 0, false, Verdict::Balanced).len(), 1);
        for (failed, unfinished, backlog_grew, verdict) in [
            (1, 0, false, Verdict::Balanced),
            (0, 1, false, Verdict::Balanced),
            (0, 0, true, Verdict::Balanced),
            (0, 0, false, Verdict::InFlight),
            (0, 0, false, Verdict::Unbalanced),
        ] {
            assert_eq!(complaints(&counts, failed, unfinished, backlog_grew, verdict).len(), 1);
        }
    }

    #[test]
    fn books_of_which_nothing_can_be_told_yet_are_not_said_to_be_wrong() {
        let says = |verdict| super::verdict(&Reconciliation { verdict, report: serde_json::json!({}) });
        assert!(says(Verdict::InFlight).contains("cannot be told yet"));
        assert!(says(Verdict::Unbalanced).contains("DO NOT BALANCE"));
        assert_eq!(says(Verdict::Balanced), "books   balance");
    }

    /// Rates count from the first end to the last, and no less than as long as orders were sent.
    #[test]
    fn a_report_says_what_was_measured() {
        let mix = "happy=100".parse().expect("a mix");
        let schedule = Schedule::new(10, Duration::from_secs(1), Duration::from_secs(2), mix, "run");
        let mut run = Measured::new(schedule).expect("a histogram");
        (0..30).for_each(|number| run.ledger.start(number));
        run.ledger.refuse(12, "503".to_owned());
        for number in 13..30_u128 {
            let declined =
                ["OrderCreated", "PaymentFailed", "OrderCancelled", "StockReleased", "PaymentVoided"];
            let facts = if number == 29 { &declined[..] } else { &["OrderCreated", "OrderConfirmed"] };
            for said in facts {
                let customer = (*said == "OrderCreated").then(|| format!("load-run-{number}"));
                let fact = HeardFact {
                    message_id: Uuid::new_v5(&Uuid::from_u128(number), said.as_bytes()),
                    message_type: (*said).to_owned(),
                    producer: "test".to_owned(),
                    causation_id: Uuid::nil(),
                    occurred_at: jiff::Timestamp::UNIX_EPOCH,
                    detail: FactDetail { customer, ..FactDetail::default() },
                };
                run.take_in(Arrival::Fact(Uuid::from_u128(number), Box::new(fact)), Duration::from_secs(3));
            }
        }
        let report = |run: &Measured, verdict| {
            let memory = [(Member::ORDER, 10.04), (Member::ADMIN, 20.02)].into();
            let reconciliation = Reconciliation { verdict, report: serde_json::Value::Null };
            let report = Report::of(run, 10, memory, reconciliation);
            (report.is_good(), serde_json::to_value(report).expect("JSON"))
        };
        let (is_good, of_short) = report(&run, Verdict::Balanced);
        assert!(!is_good);
        let complaints = [
            "1 orders were not taken",
            "1 orders ended otherwise than their kind says",
            "12 orders have not ended",
        ];
        for (member, value) in [
            ("rate_achieved", serde_json::json!(8.5)),
            ("duration_s", serde_json::json!(2.0)),
            ("warmup_orders", serde_json::json!(10)),
            ("started", serde_json::json!(19)),
            ("completed", serde_json::json!(16)),
            ("compensated", serde_json::json!(1)),
            ("unexpected", serde_json::json!(1)),
            ("unfinished", serde_json::json!(12)),
            ("errors", serde_json::json!(1)),
            ("rss_mib_total", serde_json::json!(30.1)),
            ("complaints", serde_json::json!(complaints)),
        ] {
            assert_eq!(of_short[member], value, "{member}");
        }
        // Ends that took longer than the sending make the rate less.
        run.ends = Some((Duration::from_secs(3), Duration::from_secs(13)));
        let (_, of_long) = report(&run, Verdict::Balanced);
        assert_eq!((&of_long["rate_achieved"], &of_long["rate_in_time"]), (&1.7.into(), &8.5.into()));
        let reconciliation = Reconciliation { verdict: Verdict::Balanced, report: serde_json::Value::Null };
        let said = shown(&Report::of(&run, 10, BTreeMap::new(), reconciliation), &View::FILE);
        assert!(
            said.starts_with(
                "8.5 orders/s ended of 10 wanted, within the 2s of the run; 1.7/s with those that ended later, over 10s\n"
            ),
            "{said}"
        );
        assert!(said.contains("backlog did not grow while orders were sent; 12 have not ended"), "{said}");
        assert_eq!(report(&run, Verdict::Unbalanced).1["complaints"][3], "the books do not balance");
        let mix = "happy=100".parse().expect("a mix");
        let none = Schedule::new(10, Duration::ZERO, Duration::from_secs(2), mix, "run");
        assert!(
            report(&Measured::new(none).expect("a histogram"), Verdict::Balanced).0,
            "nothing speaks against it"
        );
    }
}
