//! Pure: how a run went.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::effects::{self, Effect, Span};
use super::plan::Disruption;
use devstack::member::Member;

/// Most sentences of one kind that are shown.
const SHOWN: usize = 10;

/// What the customers got.
#[derive(Debug, Default)]
pub struct Orders {
    /// The orders that were taken.
    pub taken: Vec<Uuid>,
    /// Those whose end their customers came to know.
    pub spans: Vec<Span>,
    /// Answers that should not have been, one sentence each.
    pub complaints: Vec<String>,
}

impl Orders {
    /// One more customer has come away.
    pub fn add(&mut self, ended: Result<(Uuid, Option<Span>), String>) {
        match ended {
            Ok((id, span)) => {
                self.taken.push(id);
                self.spans.extend(span);
            }
            Err(complaint) => self.complaints.push(complaint),
        }
    }
}

/// What was found when everything had been put right.
pub struct Found {
    /// Orders that have not ended; at most a page of them. `None` when order did not say.
    pub pending: Option<usize>,
    /// Whether stock, money and messages agree.
    pub balanced: bool,
    /// What admin says of that.
    pub report: Value,
    /// Messages that wait for a human; `None` when admin did not say.
    pub parked: Option<u64>,
    /// Processes that do not run although nobody stopped them.
    pub ended_by_themselves: Vec<Member>,
    /// From the end of the last disruption until every order had ended.
    pub settled_after: Duration,
}

/// How a run went.
#[derive(Debug, Serialize)]
pub struct Verdict {
    seed: u64,
    duration_s: f64,
    /// How often each kind of harm was done.
    disruptions: BTreeMap<&'static str, usize>,
    orders: usize,
    confirmed: u64,
    cancelled: u64,
    settled_after_s: f64,
    /// The longest time in which no order ended.
    longest_pause_s: f64,
    /// What each disruption did to the orders of its time.
    timeline: Vec<Effect>,
    /// What speaks against the system; empty when nothing was lost, doubled or left undone.
    complaints: Vec<String>,
}

impl Verdict {
    pub fn of(seed: u64, length: Duration, plan: &[Disruption], orders: Orders, found: Found) -> Self {
        let mut disruptions = BTreeMap::new();
        for disruption in plan {
            *disruptions.entry(disruption.harm.into()).or_default() += 1;
        }
        let count = |name: &str| {
            let count = found.report.pointer(&format!("/summary/{name}"));
            count.and_then(Value::as_u64).unwrap_or_default()
        };
        Self {
            seed,
            duration_s: length.as_secs_f64(),
            disruptions,
            orders: orders.taken.len(),
            confirmed: count("confirmed"),
            cancelled: count("cancelled"),
            settled_after_s: found.settled_after.as_secs_f64(),
            longest_pause_s: effects::longest_pause(&orders.spans).as_secs_f64(),
            timeline: effects::of(plan, &orders.spans),
            complaints: complaints(&orders, &found, count("orders")),
        }
    }

    /// Whether nothing was lost, doubled or left undone.
    pub const fn is_good(&self) -> bool {
        self.complaints.is_empty()
    }

    /// For people.
    pub fn text(&self) -> String {
        let harms: Vec<_> =
            self.disruptions.iter().map(|(harm, count)| format!("{count} × {harm}")).collect();
        let mut lines: Vec<_> = self.timeline.iter().map(Effect::text).collect();
        lines.extend([
            format!("seed {}: {}s of {}", self.seed, self.duration_s, harms.join(", ")),
            format!(
                "{} orders: {} confirmed, {} cancelled; longest pause {:.1}s; at rest {:.1}s after the last disruption",
                self.orders, self.confirmed, self.cancelled, self.longest_pause_s, self.settled_after_s
            ),
        ]);
        lines.extend(self.complaints.iter().map(|complaint| format!("✗ {complaint}")));
        if self.is_good() {
            lines.push("✔ nothing was lost, doubled or left undone; the books balance".to_owned());
        }
        lines.join("\n")
    }
}

fn complaints(orders: &Orders, found: &Found, known: u64) -> Vec<String> {
    let mut complaints: Vec<String> = orders.complaints.iter().take(SHOWN).cloned().collect();
    if orders.complaints.len() > SHOWN {
        complaints.push(format!("{} more customers complain", orders.complaints.len() - SHOWN));
    }
    let different: BTreeSet<_> = orders.taken.iter().collect();
    if different.len() != orders.taken.len()
        || (orders.complaints.is_empty() && known != different.len() as u64)
    {
        let (taken, different) = (orders.taken.len(), different.len());
        complaints
            .push(format!("{taken} orders were taken, {different} of them different, and {known} are known"));
    }
    match found.pending {
        Some(0) => {}
        Some(pending) => complaints.push(format!("{pending} orders or more have not ended")),
        None => complaints.push("order does not say what is pending".to_owned()),
    }
    match found.parked {
        Some(0) => {}
        Some(parked) => complaints.push(format!("{parked} messages wait for a human")),
        None => complaints.push("admin does not say what is parked".to_owned()),
    }
    complaints.extend(found.ended_by_themselves.iter().map(|member| format!("{member} has ended by itself")));
    if !found.balanced {
        let report = &found.report;
        let lists = ["discrepancies", "under_way", "unanswered", "suspected"]
            .map(|list| report.get(list).and_then(Value::as_array));
        let items: Vec<String> = lists.into_iter().flatten().flatten().map(Value::to_string).collect();
        let what = match report.get("verdict").and_then(Value::as_str) {
            Some("IN_FLIGHT") => "it cannot be told yet whether the books balance, for",
            Some(_) | None => "the books do not balance, in",
        };
        complaints.push(format!("{what} {} points", items.len()));
        complaints.extend(items.into_iter().take(SHOWN));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn complaints_of(taken: &[u128], change: impl FnOnce(&mut Orders, &mut Found)) -> Vec<String> {
        let taken: Vec<_> = taken.iter().map(|id| Uuid::from_u128(*id)).collect();
        let mut orders = Orders { taken, ..Orders::default() };
        let report = json!({"balanced": true, "summary": {"orders": 2}, "discrepancies": [{"rule": "sold"}]});
        let mut found = Found {
            pending: Some(0),
            balanced: true,
            report,
            parked: Some(0),
            ended_by_themselves: vec![],
            settled_after: Duration::ZERO,
        };
        change(&mut orders, &mut found);
        let verdict = Verdict::of(1, Duration::from_secs(10), &[], orders, found);
        assert_eq!(verdict.is_good(), verdict.text().contains('✔'));
        verdict.complaints
    }

    #[test]
    fn whatever_was_lost_doubled_or_left_undone_speaks_against_the_system() {
        assert_eq!(complaints_of(&[1, 2], |_, _| {}), [""; 0]);
        assert_eq!(complaints_of(&[1], |_, _| {}).len(), 1, "one that nobody placed");
        assert_eq!(complaints_of(&[1, 2, 3], |_, _| {}).len(), 1, "one that is not known");
        assert_eq!(complaints_of(&[1, 1], |_, _| {}).len(), 1, "two answers for one order");
        let complain =
            |orders: &mut Orders| orders.complaints.extend((0..12).map(|number| number.to_string()));
        assert_eq!(complaints_of(&[1, 2], |orders, _| complain(orders)).len(), SHOWN + 1);
        assert_eq!(complaints_of(&[1, 2], |_, found| found.pending = Some(3)).len(), 1);
        assert_eq!(complaints_of(&[1, 2], |_, found| found.pending = None).len(), 1);
        assert_eq!(complaints_of(&[1, 2], |_, found| found.parked = Some(1)).len(), 1);
        assert_eq!(complaints_of(&[1, 2], |_, found| found.parked = None).len(), 1);
        assert_eq!(
            complaints_of(&[1, 2], |_, found| found.ended_by_themselves = vec![Member::NATS]).len(),
            1
        );
        assert_eq!(complaints_of(&[1, 2], |_, found| found.balanced = false).len(), 2);
    }
}
