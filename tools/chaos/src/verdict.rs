//! Pure: the verdict on a run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::effects::{self, Effect, Span};
use super::plan::PlannedDisruption;
use super::publish_stall::{LIMIT, Sample};
use devstack::component::Component;

/// Maximum number of problems of one kind that are shown.
const MAX_SHOWN: usize = 10;

#[derive(Debug, Default)]
pub struct Orders {
    pub accepted: Vec<Uuid>,
    /// Orders whose end is known.
    pub spans: Vec<Span>,
    pub problems: Vec<String>,
}

impl Orders {
    /// Adds the result of a customer.
    pub fn add(&mut self, ended: Result<(Uuid, Option<Span>), String>) {
        match ended {
            Ok((id, span)) => {
                self.accepted.push(id);
                self.spans.extend(span);
            }
            Err(problem) => self.problems.push(problem),
        }
    }
}

/// State of the system after the last disruption has ended.
pub struct Found {
    /// Number of unfinished orders, up to a page; `None` without an answer.
    pub pending: Option<usize>,
    pub balanced: bool,
    pub report: Value,
    /// Pending dead letters; `None` without an answer.
    pub dead_letters: Option<u64>,
    pub crashed: Vec<Component>,
    /// Longest time without a publication that nothing explains.
    pub publish_stall: Option<Sample>,
    /// Time from the end of the last disruption until every order had ended.
    pub recovered_after: Duration,
}

#[derive(Debug, Serialize)]
pub struct Verdict {
    seed: u64,
    duration_s: f64,
    /// Number of disruptions by kind.
    disruptions: BTreeMap<&'static str, usize>,
    orders: usize,
    confirmed: u64,
    cancelled: u64,
    recovered_after_s: f64,
    /// The longest time in which no order ended.
    longest_pause_s: f64,
    /// The longest time in which an outbox had entries, a process could publish, and none did.
    longest_publish_stall_s: f64,
    timeline: Vec<Effect>,
    /// Problems found; empty if nothing was lost, duplicated or left unfinished.
    problems: Vec<String>,
}

impl Verdict {
    pub fn of(seed: u64, length: Duration, plan: &[PlannedDisruption], orders: Orders, found: Found) -> Self {
        let mut disruptions = BTreeMap::new();
        for planned in plan {
            *disruptions.entry(planned.disruption.into()).or_default() += 1;
        }
        let count = |name: &str| {
            let count = found.report.pointer(&format!("/summary/{name}"));
            count.and_then(Value::as_u64).unwrap_or_default()
        };
        Self {
            seed,
            duration_s: length.as_secs_f64(),
            disruptions,
            orders: orders.accepted.len(),
            confirmed: count("confirmed"),
            cancelled: count("cancelled"),
            recovered_after_s: found.recovered_after.as_secs_f64(),
            longest_pause_s: effects::longest_pause(&orders.spans).as_secs_f64(),
            longest_publish_stall_s: found.publish_stall.map_or(0.0, |stall| stall.age.as_secs_f64()),
            timeline: effects::of(plan, &orders.spans),
            problems: problems(&orders, &found, count("orders")),
        }
    }

    pub const fn is_good(&self) -> bool {
        self.problems.is_empty()
    }

    pub fn text(&self) -> String {
        let disruptions: Vec<_> =
            self.disruptions.iter().map(|(disruption, count)| format!("{count} × {disruption}")).collect();
        let mut lines: Vec<_> = self.timeline.iter().map(Effect::text).collect();
        lines.extend([
            format!("seed {}: {}s of {}", self.seed, self.duration_s, disruptions.join(", ")),
            format!(
                "{} orders: {} confirmed, {} cancelled; longest pause {:.1}s; all ended {:.1}s after the last disruption",
                self.orders, self.confirmed, self.cancelled, self.longest_pause_s, self.recovered_after_s
            ),
            format!(
                "longest time without a publication that nothing explains: {:.1}s (at most {}s)",
                self.longest_publish_stall_s,
                LIMIT.as_secs()
            ),
        ]);
        lines.extend(self.problems.iter().map(|problem| format!("✗ {problem}")));
        if self.is_good() {
            lines.push("✔ nothing was lost, duplicated or left unfinished; the books balance".to_owned());
        }
        lines.join("\n")
    }
}

fn problems(orders: &Orders, found: &Found, known: u64) -> Vec<String> {
    let mut problems: Vec<String> = orders.problems.iter().take(MAX_SHOWN).cloned().collect();
    if orders.problems.len() > MAX_SHOWN {
        problems.push(format!("{} more customers have a problem", orders.problems.len() - MAX_SHOWN));
    }
    let different: BTreeSet<_> = orders.accepted.iter().collect();
    if different.len() != orders.accepted.len()
        || (orders.problems.is_empty() && known != different.len() as u64)
    {
        let (accepted, different) = (orders.accepted.len(), different.len());
        problems.push(format!(
            "{accepted} orders were accepted, {different} of them distinct, and {known} are known"
        ));
    }
    match found.pending {
        Some(0) => {}
        Some(pending) => problems.push(format!("{pending} orders or more are unfinished")),
        None => problems.push("the number of pending orders is unknown: order does not answer".to_owned()),
    }
    match found.dead_letters {
        Some(0) => {}
        Some(dead_letters) => problems.push(format!("{dead_letters} dead letters are pending")),
        None => {
            problems.push("the number of pending dead letters is unknown: admin does not answer".to_owned())
        }
    }
    if let Some(Sample { service, at, age }) = found.publish_stall.filter(|stall| stall.age > LIMIT) {
        let (at, age) = (at.as_secs_f64(), age.as_secs_f64());
        problems.push(format!(
            "{service} published nothing for {age:.1}s at {at:.1}s, and a process of it was undisturbed"
        ));
    }
    problems.extend(found.crashed.iter().map(|component| format!("{component} has crashed")));
    if !found.balanced {
        let report = &found.report;
        let lists = ["discrepancies", "in_flight", "unanswered", "suspected"]
            .map(|list| report.get(list).and_then(Value::as_array));
        let items: Vec<String> = lists.into_iter().flatten().flatten().map(Value::to_string).collect();
        let what = match report.get("verdict").and_then(Value::as_str) {
            Some("IN_FLIGHT") => "no verdict of the reconciliation yet:",
            Some(_) | None => "the books do not balance:",
        };
        problems.push(format!("{what} {} entries", items.len()));
        problems.extend(items.into_iter().take(MAX_SHOWN));
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems_of(accepted: &[u128], change: impl FnOnce(&mut Orders, &mut Found)) -> Vec<String> {
        let accepted: Vec<_> = accepted.iter().map(|id| Uuid::from_u128(*id)).collect();
        let mut orders = Orders { accepted, ..Orders::default() };
        let report = json!({"balanced": true, "summary": {"orders": 2}, "discrepancies": [{"rule": "sold"}]});
        let mut found = Found {
            pending: Some(0),
            balanced: true,
            report,
            dead_letters: Some(0),
            crashed: vec![],
            publish_stall: None,
            recovered_after: Duration::ZERO,
        };
        change(&mut orders, &mut found);
        let verdict = Verdict::of(1, Duration::from_secs(10), &[], orders, found);
        assert_eq!(verdict.is_good(), verdict.text().contains('✔'));
        verdict.problems
    }

    #[test]
    fn lost_duplicated_and_unfinished_orders_are_problems() {
        assert_eq!(problems_of(&[1, 2], |_, _| {}), [""; 0]);
        assert_eq!(problems_of(&[1], |_, _| {}).len(), 1, "an order that was not placed");
        assert_eq!(problems_of(&[1, 2, 3], |_, _| {}).len(), 1, "an order that is not known");
        assert_eq!(problems_of(&[1, 1], |_, _| {}).len(), 1, "two answers with the same order");
        let add_problems =
            |orders: &mut Orders| orders.problems.extend((0..12).map(|number| number.to_string()));
        assert_eq!(problems_of(&[1, 2], |orders, _| add_problems(orders)).len(), MAX_SHOWN + 1);
        assert_eq!(problems_of(&[1, 2], |_, found| found.pending = Some(3)).len(), 1);
        assert_eq!(problems_of(&[1, 2], |_, found| found.pending = None).len(), 1);
        assert_eq!(problems_of(&[1, 2], |_, found| found.dead_letters = Some(1)).len(), 1);
        assert_eq!(problems_of(&[1, 2], |_, found| found.dead_letters = None).len(), 1);
        assert_eq!(problems_of(&[1, 2], |_, found| found.crashed = vec![Component::NATS]).len(), 1);
        assert_eq!(problems_of(&[1, 2], |_, found| found.balanced = false).len(), 2);
        for (seconds, expected) in [(20, 0), (21, 1)] {
            let age = Duration::from_secs(seconds);
            let stall = Sample { service: Component::ORDER, at: Duration::ZERO, age };
            assert_eq!(problems_of(&[1, 2], |_, found| found.publish_stall = Some(stall)).len(), expected);
        }
        let leave_open = |found: &mut Found| {
            found.balanced = false;
            let calls = json!([{"what": "one open call"}]);
            found.report = json!({"verdict": "IN_FLIGHT", "summary": {"orders": 2}, "in_flight": calls});
        };
        assert!(problems_of(&[1, 2], |_, found| leave_open(found)).concat().contains("one open call"));
    }
}
