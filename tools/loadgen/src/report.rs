//! Shell: the result of a run, for people and for programs.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::overview::Verdict;
use serde::Serialize;

use super::cost::Cost;
use super::ledger::Counts;
use super::measured::Measured;
use super::percentiles::{Percentiles, percentile_table};
use super::timeline::Second;
use cli::{View, say, say_json, view};
use client::reconciliation::Reconciliation;
use devstack::Member;

/// What is said of a system in which something is still under way.
const CANNOT_BE_TOLD: &str =
    "cannot be told yet: something is under way, or a service does not answer; ask later with sagactl audit";

/// An order that is sent this much later than it was due is late.
const LATE: Duration = Duration::from_millis(100);

/// What a run showed.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether nothing speaks against it.
    valid: bool,
    /// What speaks against it.
    reasons: Vec<String>,
    /// Of an open loop: orders per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_wanted: Option<u32>,
    /// Of a closed loop: clients that wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    clients: Option<u64>,
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
    /// Orders that were refused, told when to come again, and how long that took.
    shed: u64,
    shed_latency_ms: Percentiles,
    backlog_grew: bool,
    generator: Generator,
    #[serde(flatten)]
    reconciliation: Reconciliation,
    /// Time on processors of each process, while orders were sent and measured; and of all of them, per order.
    cpu_ms: BTreeMap<Member, u64>,
    cpu_ms_per_order: f64,
    rss_mib: BTreeMap<Member, f64>,
    rss_mib_total: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeline: Option<Vec<Second>>,
}

/// What the generator itself did.
#[derive(Debug, Serialize)]
struct Generator {
    cpu_us_per_order: f64,
    /// From due to sent.
    late_ms: Percentiles,
    /// Orders that were sent much later than they were due.
    late: u64,
}

/// What does not speak against a run.
#[derive(Debug, Clone, Copy)]
pub struct Tolerance {
    /// That orders are shed.
    pub may_shed: bool,
}

impl Report {
    #[expect(clippy::float_arithmetic, reason = "shown to people")]
    pub fn of(
        run: &Measured,
        tolerance: Tolerance,
        cost: &Cost,
        rss_mib: BTreeMap<Member, f64>,
        reconciliation: Reconciliation,
    ) -> Self {
        let counts = run.ledger.counts();
        let (from, until) = (run.schedule.measured_from(), run.schedule.end());
        let failed = run.ledger.failed();
        let unfinished = run.ledger.in_flight().saturating_sub(failed);
        let ending = run.ends.map_or(Duration::ZERO, |(first, last)| last - first);
        let rate_wanted = run.schedule.highest_rate();
        // Clients that wait pile nothing up.
        let backlog_grew = rate_wanted.is_some_and(|rate| run.backlog.grew(from, until, rate));
        let generator = Generator {
            cpu_us_per_order: per_order(cost.generator, run.late.count()) * 1_000.0,
            late_ms: run.late.percentiles(),
            late: run.late.beyond(LATE),
        };
        let shed = run.refusals.count();
        let tolerated = if tolerance.may_shed { shed } else { 0 };
        let mut reasons =
            reasons(counts, tolerated, failed, unfinished, backlog_grew, reconciliation.verdict);
        // A hundredth: more, and latencies are the generator's rather than the system's.
        if generator.late > run.late.count() / 100 {
            let late = generator.late;
            reasons.push(format!("the generator could not keep its rate: {late} orders were sent too late"));
        }
        Self {
            valid: reasons.is_empty(),
            reasons,
            rate_wanted,
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
            shed_latency_ms: run.refusals.percentiles(),
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

    /// Whether every order was taken and ended as it had to, the system kept up, and stock, money and messages agree.
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
        (counts.errors.values().sum::<u64>().saturating_sub(tolerated), "orders were not taken"),
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

/// Milliseconds, to a thousandth.
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
            "{:.1} orders/s ended{}, within the {}s of the run{}",
            report.rate_in_time,
            wanted(report),
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

/// What was wanted, of an open loop; of a closed one, who waited.
fn wanted(report: &Report) -> String {
    let of_rate = report.rate_wanted.map(|rate| format!(" of {rate} wanted"));
    of_rate.or(report.clients.map(|clients| format!(" for {clients} clients"))).unwrap_or_default()
}

#[expect(clippy::float_arithmetic, reason = "shown to people")]
fn cost(report: &Report) -> String {
    let all: Vec<_> = report.cpu_ms.iter().map(|(member, ms)| format!("{member} {ms}")).collect();
    format!(
        "cpu ms  {}: {:.2} per order; the generator {:.3} more",
        all.join(" + "),
        report.cpu_ms_per_order,
        report.generator.cpu_us_per_order / 1_000.0
    )
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
    use crate::measured::Refused;
    use crate::options::Mix;
    use crate::schedule::Schedule;

    const STRICT: Tolerance = Tolerance { may_shed: false };

    #[test]
    fn whatever_went_wrong_speaks_against_a_run() {
        let counts = Counts { started: 10, completed: 8, compensated: 2, ..Counts::default() };
        assert_eq!(reasons(&counts, 0, 0, 0, false, Verdict::Balanced), [""; 0]);
        let refused = Counts { errors: [("503".to_owned(), 3)].into(), ..Counts::default() };
        assert_eq!(reasons(&refused, 0, 0, 0, false, Verdict::Balanced), ["3 orders were not taken"]);
        assert_eq!(reasons(&refused, 2, 0, 0, false, Verdict::Balanced), ["1 orders were not taken"]);
        assert_eq!(reasons(&refused, 3, 0, 0, false, Verdict::Balanced), [""; 0]);
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
    fn books_of_which_nothing_can_be_told_yet_are_not_said_to_be_wrong() {
        let says = |verdict| super::verdict(&Reconciliation { verdict, report: serde_json::json!({}) });
        assert!(says(Verdict::InFlight).contains("cannot be told yet"));
        assert!(says(Verdict::Unbalanced).contains("DO NOT BALANCE"));
        assert_eq!(says(Verdict::Balanced), "books   balance");
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Ten orders per second, the first ten as warm-up, all sent when they are due.
    fn run() -> Measured {
        let schedule = Schedule::at_rate(10, ms(1_000), ms(2_000), Mix::HAPPY, "run");
        let mut run = Measured::new(schedule, None).expect("a histogram");
        for number in 0..30 {
            let due = run.schedule.due(number).expect("it is due");
            run.start(number, due, due);
        }
        run
    }

    fn report(run: &Measured, tolerance: Tolerance, verdict: Verdict) -> (bool, serde_json::Value) {
        let memory = [(Member::ORDER, 10.04), (Member::ADMIN, 20.02)].into();
        let cpu_ms = [(Member::ORDER, 40), (Member::ADMIN, 45)].into();
        let cost = Cost { generator: Duration::from_micros(950), cpu_ms };
        let reconciliation = Reconciliation { verdict, report: serde_json::Value::Null };
        let report = Report::of(run, tolerance, &cost, memory, reconciliation);
        (report.is_good(), serde_json::to_value(report).expect("JSON"))
    }

    /// Rates count from the first end to the last, and no less than as long as orders were sent.
    #[test]
    fn a_report_says_what_was_measured() {
        let mut run = run();
        run.refused(12, Refused { reason: "503".to_owned(), may_come_again: true }, ms(1_200), ms(1_204));
        for number in 13..30_u128 {
            let (order, at) = (Uuid::from_u128(number), ms(3_000));
            run.answered(u64::try_from(number).expect("a small number"), order, at);
            if number < 29 {
                run.confirmed(order, at);
                continue;
            }
            for said in ["PaymentFailed", "OrderCancelled", "StockReleased", "PaymentVoided"] {
                let fact = HeardFact {
                    message_id: Uuid::new_v5(&order, said.as_bytes()),
                    message_type: said.to_owned(),
                    producer: "test".to_owned(),
                    causation_id: Uuid::nil(),
                    occurred_at: jiff::Timestamp::UNIX_EPOCH,
                    detail: FactDetail::default(),
                };
                run.hear(order, &fact, at);
            }
        }
        let (is_good, of_short) = report(&run, STRICT, Verdict::Balanced);
        assert!(!is_good);
        let reasons = [
            "1 orders were not taken",
            "1 orders ended otherwise than their kind says",
            "12 orders have not ended",
        ];
        for (member, value) in [
            ("valid", serde_json::json!(false)),
            ("rate_wanted", serde_json::json!(10)),
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
            assert_eq!(of_short[member], value, "{member}");
        }
        assert_eq!(of_short["generator"]["cpu_us_per_order"], 48.0, "of the twenty that were measured");
        assert!(of_short.get("clients").is_none() && of_short.get("timeline").is_none());
        // Ends that took longer than the sending make the rate less.
        run.ends = Some((Duration::from_secs(3), Duration::from_secs(13)));
        let (_, of_long) = report(&run, STRICT, Verdict::Balanced);
        assert_eq!((&of_long["rate_achieved"], &of_long["rate_in_time"]), (&1.7.into(), &8.5.into()));
        let reconciliation = Reconciliation { verdict: Verdict::Balanced, report: serde_json::Value::Null };
        let of_none = Report::of(&run, STRICT, &Cost::default(), BTreeMap::new(), reconciliation);
        let said = shown(&of_none, &View::FILE);
        assert!(
            said.starts_with(
                "8.5 orders/s ended of 10 wanted, within the 2s of the run; 1.7/s with those that ended later, over 10s\n"
            ),
            "{said}"
        );
        assert!(said.contains("backlog did not grow while orders were sent; 12 have not ended"), "{said}");
        assert_eq!(report(&run, STRICT, Verdict::Unbalanced).1["reasons"][3], "the books do not balance");
        let tolerant = report(&run, Tolerance { may_shed: true }, Verdict::Balanced).1;
        assert_eq!(tolerant["reasons"][0], reasons[1]);
    }

    /// It would be its own latency that it reports.
    #[test]
    fn a_generator_that_falls_behind_speaks_against_its_run() {
        let schedule = Schedule::at_rate(200, Duration::ZERO, ms(1_000), Mix::HAPPY, "run");
        for (late, is_good) in [(2, true), (3, false)] {
            let mut run = Measured::new(schedule.clone(), None).expect("a histogram");
            for number in 0..200 {
                let due = run.schedule.due(number).expect("it is due");
                run.start(number, due, if number < late { due + LATE * 2 } else { due });
                let order = Uuid::from_u128(u128::from(number));
                run.answered(number, order, due);
                run.confirmed(order, due);
            }
            let (found, shown) = report(&run, STRICT, Verdict::Balanced);
            assert_eq!((found, &shown["generator"]["late"]), (is_good, &late.into()), "{shown:#}");
        }
    }
}
