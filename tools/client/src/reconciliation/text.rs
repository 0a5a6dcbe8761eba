//! Pure: the report of a reconciliation for people: verdict, discrepancies, work in flight, totals.

use std::collections::BTreeMap;

use admin_api::reconciliation::{Discrepancy, Report, ResolvedItem, RuleCount, Scope, Summary, Verdict};
use admin_api::text::listed;
use cli::view::View;
use jiff::Timestamp;

/// Discrepancies shown for each rule.
const MAX_SHOWN: usize = 3;

/// Manual resolutions shown.
const MAX_RESOLVED_SHOWN: usize = 10;

/// Formats a report.
pub fn report_text(report: &Report, view: &View) -> String {
    let mut lines = vec![headline(report.verdict)];
    let counts = |count: fn(&RuleCount) -> u64| Counts { by_rule: &report.by_rule, count };
    let certain = counts(|rule| rule.certain);
    lines.extend(discrepancies("✗ ", (&report.discrepancies, report.discrepancy_count), &certain, view));
    lines.extend(report.in_flight.iter().map(|work| {
        format!("  in flight: {}{}; waits for {}", work.what, since(work.since, view), work.waits_for)
    }));
    let unanswered = report.unanswered.iter();
    lines.extend(unanswered.map(|service| format!("  no answer from {}: {}", service.service, service.why)));
    let suspected = (report.suspected.as_slice(), report.suspected_count);
    let mark = "? may be resolved by work in flight: ";
    lines.extend(discrepancies(mark, suspected, &counts(|rule| rule.suspected), view));
    lines.extend(resolved(report, view));
    lines.extend(totals(report));
    lines.extend(uncaptured(report));
    lines.extend(incremental(&report.scope, view));
    let baselines = report.baselines.iter();
    lines.extend(baselines.map(|(step, baseline)| {
        let accepted = baseline_text(baseline.missed);
        format!("  baseline of {step}: {accepted}, accepted {}", view.full_time(baseline.at))
    }));
    lines.join("\n")
}

/// Describes an accepted difference between published and processed messages.
pub fn baseline_text(missed: i64) -> String {
    match missed {
        0.. => format!("{missed} published messages never processed"),
        _ => format!("{} messages processed that no producer remembers", missed.unsigned_abs()),
    }
}

fn headline(verdict: Verdict) -> String {
    format!("{}: {verdict}", verdict.headline())
}

/// Names and values of totals, with the service that reports them; `None` for all services.
type Totals<'a> = (Option<&'a str>, Vec<(&'a str, u64)>);

/// Totals by ledger. A zero of a service that did not answer is unknown.
fn totals(report: &Report) -> impl Iterator<Item = String> {
    let Summary { orders, pending, overdue, confirmed, cancelled, captured, refunded, .. } = report.summary;
    let Summary { on_hand, reserved, sold, supplied, facts_published, dead_letters, rows_checked, .. } =
        report.summary;
    let ledgers: [Totals<'_>; 4] = [
        (
            Some("order"),
            vec![
                ("orders", orders),
                ("pending", pending),
                ("overdue", overdue),
                ("confirmed", confirmed),
                ("cancelled", cancelled),
            ],
        ),
        (Some("bank"), vec![("captured", captured), ("refunded", refunded)]),
        (
            Some("inventory"),
            vec![("on_hand", on_hand), ("reserved", reserved), ("sold", sold), ("supplied", supplied)],
        ),
        (
            None,
            vec![
                ("facts_published", facts_published),
                ("dead_letters", dead_letters),
                ("rows_checked", rows_checked),
            ],
        ),
    ];
    ledgers.into_iter().map(|(owner, totals)| {
        let is_unanswered =
            report.unanswered.iter().any(|missing| owner.is_none_or(|owner| owner == missing.service));
        let totals = totals.into_iter().map(|(name, total)| match total {
            0 if is_unanswered => format!("{name} unknown"),
            total => format!("{name} {total}"),
        });
        format!("  {}", totals.collect::<Vec<_>>().join(" · "))
    })
}

/// Explains why balanced ledgers have other numbers of confirmed orders and of captured charges.
fn uncaptured(report: &Report) -> Option<String> {
    let Summary { confirmed, captured, .. } = report.summary;
    if report.verdict != Verdict::Balanced {
        return None;
    }
    match confirmed.abs_diff(captured) {
        0 => None,
        more if confirmed > captured => Some(format!(
            "  {more} more confirmed than captured: payments that were refunded, resolved manually or purged"
        )),
        more => Some(format!(
            "  {more} more captured than confirmed: refunds that were resolved manually, or orders that were purged"
        )),
    }
}

/// Extent of an incremental verification.
fn incremental(scope: &Scope, view: &View) -> Option<String> {
    let at = |at: Option<Timestamp>| at.map(|at| view.full_time(at)).unwrap_or_default();
    (!scope.full).then(|| {
        format!(
            "  carried forward from {}, {} orders read since; last full verification at {}",
            at(scope.since),
            scope.orders_read,
            at(scope.full_at)
        )
    })
}

/// Counts by rule, of which the listed discrepancies are a sample.
struct Counts<'a> {
    by_rule: &'a [RuleCount],
    count: fn(&RuleCount) -> u64,
}

impl Counts<'_> {
    /// Number of discrepancies of a rule, with the money in the affected orders; `None` if it is not counted.
    fn of(&self, rule: &str) -> Option<(u64, String)> {
        let found = self.by_rule.iter().find(|counted| counted.rule == rule)?;
        let money = match found.amounts.as_slice() {
            [] => String::new(),
            amounts => format!(", orders of {}", listed(amounts)),
        };
        Some(((self.count)(found), money))
    }
}

/// Discrepancies by rule: their number, the first of them, and advice.
fn discrepancies(
    mark: &str,
    (listed, count): (&[Discrepancy], u64),
    counts: &Counts<'_>,
    view: &View,
) -> Vec<String> {
    let mut by_rule: BTreeMap<&str, Vec<&Discrepancy>> = BTreeMap::new();
    for discrepancy in listed {
        by_rule.entry(&discrepancy.rule).or_default().push(discrepancy);
    }
    for counted in counts.by_rule.iter().filter(|counted| (counts.count)(counted) > 0) {
        by_rule.entry(&counted.rule).or_default();
    }
    let (mut lines, mut told) = (Vec::new(), 0);
    for (rule, violations) in by_rule {
        let (all, money) = counts.of(rule).unwrap_or((violations.len() as u64, String::new()));
        told += all;
        lines.push(format!("  {mark}{rule}: {all}{money}"));
        for Discrepancy { subject, detail, difference, since: at, .. } in violations.iter().take(MAX_SHOWN) {
            let difference = difference_text(difference.as_deref());
            lines.push(format!("      {subject}: {detail}{difference}{}", since(*at, view)));
        }
        lines.extend(more(violations.len(), MAX_SHOWN));
        if let Some(first) = violations.first().filter(|first| !first.advice.is_empty()) {
            lines.push(format!("      → {}", first.advice));
        }
    }
    let uncounted = count.saturating_sub(told);
    if uncounted > 0 {
        lines.push(format!("  {mark}{uncounted} more, not listed"));
    }
    lines
}

/// Manual resolutions, with operator and reason.
fn resolved(report: &Report, view: &View) -> Vec<String> {
    let mut lines = Vec::new();
    if report.resolved_count > 0 {
        let to_check = match report.resolved_to_check {
            0 => String::new(),
            count => format!(", {count} to check"),
        };
        lines.push(format!("  resolved manually: {}{to_check}", report.resolved_count));
    }
    let shown = report.resolved.iter().take(MAX_RESOLVED_SHOWN);
    for item in shown {
        let ResolvedItem { subject, what, detail, difference, amount, check, operator, reason, since: at } =
            item;
        let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        let difference = difference_text(difference.as_deref());
        let since = since(Some(*at), view);
        lines.push(format!("      {subject}: {what}{detail}{difference}; by {operator}: {reason}{since}"));
        let amount = amount.map(|amount| format!("{amount}, ")).unwrap_or_default();
        lines.extend(check.as_ref().map(|check| format!("      → check {amount}{check}")));
    }
    lines.extend(more(report.resolved.len(), MAX_RESOLVED_SHOWN));
    lines
}

fn difference_text(difference: Option<&str>) -> String {
    difference.map(|difference| format!("; difference {difference}")).unwrap_or_default()
}

fn more(count: usize, shown: usize) -> Option<String> {
    (count > shown).then(|| format!("      and {} more; --json lists up to 200", count - shown))
}

fn since(at: Option<Timestamp>, view: &View) -> String {
    at.map(|at| format!(", since {}", view.full_time(at))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use admin_api::reconciliation::{InFlight, Unanswered};

    use super::*;

    fn at(time: &str) -> Timestamp {
        time.parse().expect("a time")
    }

    fn discrepancy(order: u64) -> Discrepancy {
        Discrepancy {
            rule: "cancelled = money back".to_owned(),
            subject: format!("order {order}"),
            detail: "payment CAPTURED, 1 charges captured at the bank".to_owned(),
            difference: Some("13.00 EUR".to_owned()),
            since: Some(at("2027-01-15T08:00:02Z")),
            amount: None,
            advice: "sagactl saga show".to_owned(),
            certain: true,
        }
    }

    fn full() -> Report {
        Report { scope: Scope { full: true, ..Scope::default() }, ..Report::default() }
    }

    #[test]
    fn count_of_a_rule_is_not_that_of_its_sample() {
        let rule = discrepancy(1).rule;
        let amounts =
            vec![serde_json::from_str(r#"{"amount_minor": 840000, "currency": "EUR"}"#).expect("money")];
        let report = Report {
            verdict: Verdict::Unbalanced,
            by_rule: vec![RuleCount { rule, certain: 2_900, suspected: 0, amounts }],
            discrepancies: (1..=5).map(discrepancy).collect(),
            discrepancy_count: 2_900,
            ..full()
        };
        let text = report_text(&report, &View::FILE);
        assert!(text.contains("  ✗ cancelled = money back: 2900, orders of 8400.00 EUR\n"), "{text}");
        assert!(!text.contains("not listed"), "{text}");
    }

    #[test]
    fn discrepancies_are_listed_by_rule_up_to_a_limit() {
        let report = Report {
            verdict: Verdict::Unbalanced,
            discrepancies: (1..=5).map(discrepancy).collect(),
            discrepancy_count: 7,
            summary: Summary { orders: 9, ..Summary::default() },
            ..full()
        };
        let text = report_text(&report, &View::FILE);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "THE BOOKS DO NOT BALANCE: UNBALANCED");
        assert_eq!(lines[1], "  ✗ cancelled = money back: 5");
        assert_eq!(
            lines[2],
            "      order 1: payment CAPTURED, 1 charges captured at the bank; difference 13.00 EUR, since \
             2027-01-15 08:00:02Z"
        );
        assert_eq!(lines[5], "      and 2 more; --json lists up to 200");
        assert_eq!(lines[6], "      → sagactl saga show");
        assert_eq!(lines[7], "  ✗ 2 more, not listed");
        assert!(lines[8].starts_with("  orders 9 · pending"), "{text}");
    }

    #[test]
    fn missing_verdict_is_explained_by_work_in_flight_and_missing_answers() {
        let work = InFlight {
            since: Some(at("2027-01-15T08:00:02Z")),
            ..InFlight::new("payment: 1 calls open", "an answer from outside")
        };
        let report = Report {
            in_flight: vec![work],
            unanswered: vec![Unanswered {
                service: "bank".to_owned(),
                why: "bank does not answer".to_owned(),
            }],
            suspected: vec![discrepancy(1)],
            suspected_count: 1,
            summary: Summary { orders: 9, ..Summary::default() },
            ..full()
        };
        let text = report_text(&report, &View::FILE);
        assert!(!text.contains("DO NOT BALANCE"), "{text}");
        for line in [
            "  in flight: payment: 1 calls open, since 2027-01-15 08:00:02Z; waits for an answer from outside",
            "  no answer from bank: bank does not answer",
            "  ? may be resolved by work in flight: cancelled = money back: 1",
            "  orders 9 · pending 0 · ",
            "  captured unknown · refunded unknown",
            "  facts_published unknown · ",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn other_numbers_of_balanced_ledgers_are_explained() {
        let text = |verdict, confirmed, captured| {
            let summary = Summary { confirmed, captured, ..Summary::default() };
            report_text(&Report { verdict, summary, ..full() }, &View::FILE)
        };
        assert!(text(Verdict::Balanced, 13_641, 13_640).contains("1 more confirmed than captured: payments"));
        let purged = text(Verdict::Balanced, 9, 11);
        assert!(purged.contains("2 more captured than confirmed: ") && purged.contains("purged"), "{purged}");
        for (verdict, captured) in [(Verdict::Balanced, 9), (Verdict::InFlight, 8), (Verdict::Unbalanced, 8)]
        {
            assert!(!text(verdict, 9, captured).contains("more confirmed"), "{verdict}");
        }
    }

    #[test]
    fn incremental_verification_names_its_checkpoint() {
        let scope = Scope {
            full: false,
            orders_read: 3,
            since: Some(at("2027-01-15T08:00:02Z")),
            full_at: Some(at("2027-01-14T08:00:02Z")),
        };
        let text = report_text(&Report { scope, ..Report::default() }, &View::FILE);
        let line = "  carried forward from 2027-01-15 08:00:02Z, 3 orders read since; last full verification at \
                    2027-01-14 08:00:02Z";
        assert!(text.ends_with(line), "{text}");
        assert!(!report_text(&full(), &View::FILE).contains("carried"));
    }

    #[test]
    fn manual_resolutions_are_listed_with_operator_and_reason() {
        let item = ResolvedItem {
            subject: "order 1".to_owned(),
            what: "cancelled = money back".to_owned(),
            detail: "payment OPEN, 1 charges captured".to_owned(),
            difference: Some("13.00 EUR".to_owned()),
            amount: serde_json::from_str(r#"{"amount_minor": 1300, "currency": "EUR"}"#).expect("money"),
            check: None,
            operator: "ada".to_owned(),
            reason: "cheque 4711".to_owned(),
            since: at("2027-01-15T08:00:02Z"),
        };
        let report = |item: &ResolvedItem| {
            let resolved = vec![item.clone()];
            let resolved_to_check = u64::from(item.check.is_some());
            let balanced = Report { verdict: Verdict::Balanced, ..full() };
            let report = Report { resolved_count: 1, resolved_to_check, resolved, ..balanced };
            report_text(&report, &View::FILE)
        };
        let text = report(&item);
        let wanted = "the books balance: BALANCED\n  resolved manually: 1\n      order 1: cancelled = money back: payment \
                      OPEN, 1 charges captured; difference 13.00 EUR; by ada: cheque 4711, since 2027-01-15 08:00:02Z\n";
        assert!(text.starts_with(wanted), "{text}");
        let text = report(&ResolvedItem { check: Some("the bank refunded it".to_owned()), ..item });
        for line in
            ["  resolved manually: 1, 1 to check\n", "      → check 13.00 EUR, the bank refunded it\n"]
        {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn each_verdict_has_its_own_headline() {
        let all = [Verdict::Balanced, Verdict::Unbalanced, Verdict::InFlight];
        assert_eq!(all.map(headline).into_iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
    }
}
