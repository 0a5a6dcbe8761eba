//! Shell: what the audit says, in sentences: the answer first, then what is wrong, then what is still to come, and last
//! how much there is of everything.

use std::collections::BTreeMap;

use admin_api::reconciliation::Verdict;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::Reconciliation;
use cli::View;
use cli::text::one_line;

/// So many of what breaks one rule are told; the rest is counted.
const FIRST: usize = 3;

/// So many of what was settled outside are told; the rest is counted.
const MOST_SETTLED: usize = 10;

/// One finding, as admin tells it.
#[derive(Debug, Deserialize)]
struct Finding {
    rule: String,
    subject: String,
    detail: String,
    difference: Option<String>,
    since: Option<Timestamp>,
    #[serde(default)]
    advice: String,
}

#[derive(Debug, Deserialize)]
struct UnderWay {
    what: String,
    since: Option<Timestamp>,
    waits_for: String,
}

#[derive(Debug, Deserialize)]
struct Unanswered {
    service: String,
    why: String,
}

/// Something that does not add up, and was settled outside.
#[derive(Debug, Deserialize)]
struct Settled {
    subject: String,
    what: String,
    detail: String,
    difference: Option<String>,
    operator: String,
    reason: String,
    since: Timestamp,
}

fn headline(verdict: Verdict) -> String {
    format!("{}: {verdict}", verdict.headline())
}

pub(super) fn shown(reconciliation: &Reconciliation, view: &View) -> String {
    let report = &reconciliation.report;
    let mut lines = vec![headline(reconciliation.verdict)];
    lines.extend(findings(report, "discrepancies", "✗ ", view));
    let waiting: Vec<UnderWay> = members(report, "in_flight");
    lines.extend(waiting.iter().map(|one| {
        format!("  in flight: {}{}; it waits for {}", one.what, since(one.since, view), one.waits_for)
    }));
    let unanswered: Vec<Unanswered> = members(report, "unanswered");
    lines.extend(unanswered.iter().map(|one| format!("  not asked: {}: {}", one.service, one.why)));
    lines.extend(findings(report, "suspected", "? may add up yet: ", view));
    lines.extend(settled(report, view));
    let count =
        |name: &str| report.get("summary").and_then(|all| all.get(name)).map(one_line).unwrap_or_default();
    for (names, whose) in [
        (&["orders", "pending", "overdue", "confirmed", "cancelled"][..], "order"),
        (&["captured", "refunded"], "bank"),
        (&["on_hand", "reserved", "sold", "supplied"], "inventory"),
        (&["facts_published", "dead_letters", "rows_checked"], "all"),
    ] {
        let is_silent = unanswered.iter().any(|one| whose == "all" || one.service == whose);
        let counts = names.iter().map(|name| match count(name) {
            // Nobody said so: it is what was not counted.
            zero if is_silent && zero == "0" => format!("{name} not asked"),
            count => format!("{name} {count}"),
        });
        lines.push(format!("  {}", counts.collect::<Vec<_>>().join(" · ")));
    }
    lines.extend(carried_forward(report, view));
    let baselines = report.get("baselines").and_then(Value::as_object).into_iter().flatten();
    lines.extend(baselines.map(|(step, accepted)| format!("  accepted of {step}: {}", one_line(accepted))));
    lines.join("\n")
}

/// How much was read for that, when it was not everything.
fn carried_forward(report: &Value, view: &View) -> Option<String> {
    let scope = report.get("scope")?;
    let is_whole = scope.get("whole").and_then(Value::as_bool).unwrap_or(true);
    let at = |name: &str| {
        let at = scope.get(name).and_then(|at| Timestamp::deserialize(at).ok());
        at.map(|at| view.moment_in_full(at)).unwrap_or_default()
    };
    let orders = scope.get("orders_read").map(one_line).unwrap_or_default();
    (!is_whole).then(|| {
        format!(
            "  carried forward from {}, {orders} orders read since; everything was read last at {}",
            at("since"),
            at("whole_at")
        )
    })
}

/// Rule by rule: how many break it, the first few of them, and how many more.
fn findings(report: &Value, name: &str, before: &str, view: &View) -> Vec<String> {
    let mut by_rule: BTreeMap<String, Vec<Finding>> = BTreeMap::new();
    let listed: Vec<Finding> = members(report, name);
    let total = listed.len() as u64;
    for finding in listed {
        by_rule.entry(finding.rule.clone()).or_default().push(finding);
    }
    let mut lines = Vec::new();
    for (rule, broken) in &by_rule {
        lines.push(format!("  {before}{rule}: {}", broken.len()));
        for Finding { subject, detail, difference, since: at, .. } in broken.iter().take(FIRST) {
            let by = difference.as_ref().map(|by| format!("; difference {by}")).unwrap_or_default();
            lines.push(format!("      {subject}: {detail}{by}{}", since(*at, view)));
        }
        if broken.len() > FIRST {
            lines.push(format!("      and {} more; all with --json", broken.len() - FIRST));
        }
        if let Some(first) = broken.first().filter(|first| !first.advice.is_empty()) {
            lines.push(format!("      → {}", first.advice));
        }
    }
    let counted = if name == "suspected" { "suspected_count" } else { "discrepancy_count" };
    let count = report.get(counted).and_then(Value::as_u64).unwrap_or(total);
    if count > total {
        lines.push(format!("  {before}{} more are counted, and not listed", count - total));
    }
    lines
}

/// What was settled outside and stands: order by order, who and why.
fn settled(report: &Value, view: &View) -> Vec<String> {
    let listed: Vec<Settled> = members(report, "resolved");
    let total = listed.len() as u64;
    let count = report.get("resolved_count").and_then(Value::as_u64).unwrap_or(total);
    let mut lines = Vec::new();
    if count > 0 {
        lines.push(format!("  resolved manually: {count}"));
    }
    for Settled { subject, what, detail, difference, operator, reason, since: at } in
        listed.iter().take(MOST_SETTLED)
    {
        let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        let by = difference.as_ref().map(|by| format!("; difference {by}")).unwrap_or_default();
        let since = since(Some(*at), view);
        lines.push(format!("      {subject}: {what}{detail}{by}; by {operator}: {reason}{since}"));
    }
    if listed.len() > MOST_SETTLED {
        lines.push(format!("      and {} more; all with --json", listed.len() - MOST_SETTLED));
    }
    lines
}

fn since(at: Option<Timestamp>, view: &View) -> String {
    at.map(|at| format!(", since {}", view.moment_in_full(at))).unwrap_or_default()
}

fn members<T: for<'de> Deserialize<'de>>(report: &Value, name: &str) -> Vec<T> {
    let all = report.get(name).and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|one| T::deserialize(one).ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn finding(subject: usize) -> Value {
        json!({
            "rule": "cancelled = money back", "subject": format!("order {subject}"),
            "detail": "payment CAPTURED, 1 charges captured at the bank", "difference": "13.00 EUR",
            "since": "2027-01-15T08:00:02Z", "advice": "sagactl saga show",
        })
    }

    #[test]
    fn what_is_wrong_is_told_rule_by_rule_the_first_few_and_how_many_more() {
        let found: Vec<_> = (1..=5).map(finding).collect();
        let report = json!({"discrepancies": found, "discrepancy_count": 7, "summary": {"orders": 9}});
        let text = shown(&Reconciliation { verdict: Verdict::Unbalanced, report }, &View::FILE);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "THE BOOKS DO NOT BALANCE: UNBALANCED");
        assert_eq!(lines[1], "  ✗ cancelled = money back: 5");
        assert_eq!(
            lines[2],
            "      order 1: payment CAPTURED, 1 charges captured at the bank; difference 13.00 EUR, since \
             2027-01-15 08:00:02Z"
        );
        assert_eq!(lines[5], "      and 2 more; all with --json");
        assert_eq!(lines[6], "      → sagactl saga show");
        assert_eq!(lines[7], "  ✗ 2 more are counted, and not listed");
        assert!(lines[8].starts_with("  orders 9 · pending"), "{text}");
    }

    #[test]
    fn what_cannot_be_told_yet_says_what_it_waits_for_and_who_did_not_answer() {
        let report = json!({
            "in_flight": [{"what": "payment: 1 calls open", "since": "2027-01-15T08:00:02Z",
                "waits_for": "an answer from outside"}],
            "unanswered": [{"service": "bank", "why": "bank does not answer"}],
            "suspected": [finding(1)], "suspected_count": 1,
            "summary": {"orders": 9, "pending": 0, "captured": 0, "refunded": 0, "facts_published": 0},
        });
        let text = shown(&Reconciliation { verdict: Verdict::InFlight, report }, &View::FILE);
        assert!(text.starts_with("it cannot be told yet whether the books balance: IN_FLIGHT\n"), "{text}");
        assert!(!text.contains("DO NOT BALANCE"), "{text}");
        for line in [
            "  in flight: payment: 1 calls open, since 2027-01-15 08:00:02Z; it waits for an answer from outside",
            "  not asked: bank: bank does not answer",
            "  ? may add up yet: cancelled = money back: 1",
            "  orders 9 · pending 0 · ",
            "  captured not asked · refunded not asked",
            "  facts_published not asked · ",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn what_was_carried_forward_is_told_apart() {
        let scope = |whole: bool| {
            json!({"scope": {"whole": whole, "orders_read": 3, "since": "2027-01-15T08:00:02Z",
                "whole_at": "2027-01-14T08:00:02Z"}})
        };
        let text =
            |whole| shown(&Reconciliation { verdict: Verdict::Balanced, report: scope(whole) }, &View::FILE);
        let line = "  carried forward from 2027-01-15 08:00:02Z, 3 orders read since; everything was read last at \
                    2027-01-14 08:00:02Z";
        assert!(text(false).ends_with(line), "{}", text(false));
        assert!(!text(true).contains("carried"), "{}", text(true));
    }

    #[test]
    fn what_was_settled_outside_is_listed_with_who_and_why_and_is_no_finding() {
        let report = json!({"resolved_count": 1, "resolved": [{
            "subject": "order 1", "what": "cancelled = money back", "detail": "payment OPEN, 1 charges captured",
            "difference": "13.00 EUR", "operator": "ada", "reason": "cheque 4711", "since": "2027-01-15T08:00:02Z",
        }]});
        let text = shown(&Reconciliation { verdict: Verdict::Balanced, report }, &View::FILE);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "the books balance: BALANCED",
                "  resolved manually: 1",
                "      order 1: cancelled = money back: payment OPEN, 1 charges captured; difference 13.00 EUR; by ada: \
             cheque 4711, since 2027-01-15 08:00:02Z",
            ]
        );
    }

    #[test]
    fn each_verdict_has_a_headline_of_its_own() {
        let all = [Verdict::Balanced, Verdict::Unbalanced, Verdict::InFlight];
        assert_eq!(all.map(headline).into_iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
    }
}
