//! Shell: metrics of the whole system, from the snapshots of the notification loop.

use std::collections::BTreeMap;

use admin_api::overview::{DeadLetterSummary, Overview, SagaSummary};
use admin_api::reconciliation::{ReconciliationSummary, Verdict};
use contract::metrics as names;
use contract::saga::{ORDER_SAGA, SagaStatus};
use jiff::Timestamp;
use saga_core::metric::Metric;
use saga_engine::host::metrics::Metrics;

use super::finding_metrics::{FindingMetrics, count_by_code};
use crate::sagas::sums::SagaSums;

/// Maximum number of remembered causes. Above it, causes that are gone are forgotten, and are new again when they return.
const MAX_CAUSES: usize = 10_000;

/// Metrics that only a reconciliation sets.
const OF_RECONCILIATION: [&Metric; 3] =
    [&names::RECONCILIATION_VERDICT, &names::RECONCILIATION_DISCREPANCIES, &names::RECONCILIATION_AGE];

/// Exports snapshots, and remembers the causes of dead letters so far.
#[derive(Debug)]
pub(crate) struct OverviewMetrics {
    /// Causes of dead letters, each with the time at which it failed first.
    causes: BTreeMap<String, Timestamp>,
    findings: FindingMetrics,
}

impl OverviewMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        show_sagas(None, metrics);
        show_open_sagas(None, Timestamp::UNIX_EPOCH, metrics);
        show_dead_letters(None, metrics);
        count_by_code(None, metrics);
        metrics.set(&names::NEWEST_CAUSE, &[], f64::NAN);
        Self { causes: BTreeMap::new(), findings: FindingMetrics::default() }
    }

    /// Exports a snapshot. Missing values are NaN, or have no series where the labels are unknown.
    pub(crate) fn export(&mut self, seen: &Overview, open: Option<&SagaSums>, metrics: &Metrics) {
        show_sagas(seen.sagas.as_ref(), metrics);
        let next = seen.sagas.as_ref().and_then(|sagas| sagas.next_deadline);
        let until = next.map_or(f64::NAN, |next| next.duration_since(seen.at).as_secs_f64());
        metrics.set(&names::NEXT_DEADLINE, &[], until);
        show_open_sagas(open, seen.at, metrics);
        show_dead_letters(seen.dead_letters.as_ref(), metrics);
        self.findings.export(seen, metrics);
        let newest = seen.dead_letters.as_ref().map(|dead_letters| self.newest_cause(dead_letters));
        metrics.set(&names::NEWEST_CAUSE, &[], newest.unwrap_or(f64::NAN));
        match &seen.reconciliation {
            Some(last) => show_reconciliation(last, seen.at, metrics),
            // Also after it was invalidated.
            None => clear_reconciliation(metrics),
        }
    }

    /// Returns the time at which the newest of the current causes failed first; 0 without any. A cause whose dead letters fail
    /// again after a replay is not new.
    fn newest_cause(&mut self, seen: &DeadLetterSummary) -> f64 {
        let first: BTreeMap<_, _> = seen
            .groups
            .iter()
            .map(|group| {
                let first = self.causes.get(&group.fingerprint).copied().unwrap_or(group.oldest_at);
                (group.fingerprint.clone(), first)
            })
            .collect();
        let newest = first.values().max().map_or(0.0, |at| at.as_second() as f64);
        self.causes.extend(first.clone());
        if self.causes.len() > MAX_CAUSES {
            self.causes = first;
        }
        newest
    }
}

fn show_sagas(seen: Option<&SagaSummary>, metrics: &Metrics) {
    for status in SagaStatus::ALL.iter().filter(|status| !status.is_terminal()) {
        let count = |seen: &SagaSummary| seen.by_status.get(status.as_str()).copied().unwrap_or(0);
        metrics.set(&names::OPEN, &[status.as_str()], known(seen.map(count)));
    }
    metrics.set(&names::OVERDUE, &[], known(seen.map(|seen| seen.overdue)));
    for stage in &ORDER_SAGA {
        for step in [Some(stage.step), stage.compensation_step].into_iter().flatten() {
            let count = seen.map(|seen| seen.waiting.get(step).copied().unwrap_or(0));
            metrics.set(&names::WAITING, &[stage.owner, step], known(count));
        }
    }
}

/// Exports money and age of the open sagas.
fn show_open_sagas(seen: Option<&SagaSums>, now: Timestamp, metrics: &Metrics) {
    let nothing_yet = if seen.is_some() { 0.0 } else { f64::NAN };
    let mut amounts = BTreeMap::from([(names::SHOWN, nothing_yet)]);
    let open = seen.iter().flat_map(|seen| &seen.amounts);
    amounts.extend(open.map(|amount| (amount.currency.code(), amount.amount_minor as f64)));
    let amounts: Vec<_> =
        amounts.into_iter().map(|(currency, amount)| (vec![currency.to_owned()], amount)).collect();
    metrics.replace(&names::OPEN_AMOUNT, &amounts);
    let age = |begun: Timestamp| now.duration_since(begun).as_secs_f64().max(0.0);
    metrics.set(&names::OLDEST_AGE, &[], seen.map_or(f64::NAN, |seen| seen.oldest_at.map_or(0.0, age)));
}

fn show_dead_letters(seen: Option<&DeadLetterSummary>, metrics: &Metrics) {
    metrics.set(&names::DEAD_LETTERS, &["PENDING"], known(seen.map(|seen| seen.pending)));
    metrics.set(&names::DEAD_LETTERS, &["REPLAYING"], known(seen.map(|seen| seen.replaying)));
    let groups = seen.map_or(&[][..], |seen| &seen.groups);
    let awaited = seen.map(|_| groups.iter().map(|group| group.awaited).sum());
    metrics.set(&names::DEAD_LETTERS_AWAITED, &[], known(awaited));
    let mut by_step: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for group in groups {
        *by_step.entry((&group.service, &group.step)).or_default() += group.count;
    }
    let by_step: Vec<_> = by_step
        .into_iter()
        .map(|((service, step), count)| (vec![service.to_owned(), step.to_owned()], number(count)))
        .collect();
    metrics.replace(&names::DEAD_LETTERS_BY_STEP, &by_step);
}

fn show_reconciliation(seen: &ReconciliationSummary, now: Timestamp, metrics: &Metrics) {
    let verdict = match seen.verdict {
        Verdict::Balanced => 0.0,
        Verdict::InFlight => 1.0,
        Verdict::Unbalanced => 2.0,
    };
    metrics.set(&names::RECONCILIATION_VERDICT, &[], verdict);
    metrics.set(&names::RECONCILIATION_DISCREPANCIES, &[], number(seen.discrepancies));
    metrics.set(&names::RECONCILIATION_AGE, &[], now.duration_since(seen.at).as_secs_f64().max(0.0));
}

fn clear_reconciliation(metrics: &Metrics) {
    OF_RECONCILIATION.iter().for_each(|metric| metrics.set(metric, &[], f64::NAN));
}

fn known(count: Option<u64>) -> f64 {
    count.map_or(f64::NAN, number)
}

fn number(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use admin_api::overview::{Finding, FindingCode, GroupSummary, Impact, Unavailable};
    use contract::metrics::OF_ADMIN;

    use crate::overview::affected::Affected;
    use crate::overview::findings::with_findings;

    use super::*;

    fn overview(sagas: Option<SagaSummary>, dead_letters: Option<DeadLetterSummary>) -> Overview {
        let (at, services, findings, unavailable) = (Timestamp::UNIX_EPOCH, vec![], vec![], vec![]);
        let (needs_human, reconciliation, unconsumed) = (false, None, None);
        Overview {
            at,
            needs_human,
            findings,
            services,
            sagas,
            dead_letters,
            reconciliation,
            unconsumed,
            unavailable,
        }
    }

    fn money(amount_minor: i64, currency: &str) -> contract::money::Money {
        serde_json::from_value(serde_json::json!({ "amount_minor": amount_minor, "currency": currency }))
            .expect("money")
    }

    #[test]
    fn every_finding_code_is_nan_before_first_snapshot_and_then_counted() {
        let metrics = Metrics::new(crate::topology::NAME, &OF_ADMIN);
        let mut exported = OverviewMetrics::new(&metrics);
        let count = |code: FindingCode| {
            let text = metrics.text().expect("metrics");
            let prefix = format!("finding_open{{code=\"{code}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&prefix)?.parse::<f64>().ok())
        };
        assert!(FindingCode::ALL.iter().all(|code| count(*code).is_some_and(f64::is_nan)));
        let unavailable = Unavailable { what: "sagas".to_owned(), problem: "time-out".to_owned() };
        let seen = Overview { unavailable: vec![unavailable; 2], ..overview(None, None) };
        exported.export(&with_findings(seen, &Affected::default()), None, &metrics);
        assert_eq!(count(FindingCode::Unavailable), Some(2.0));
        exported.export(&overview(None, None), None, &metrics);
        assert_eq!(count(FindingCode::Unavailable), Some(0.0));
    }

    fn value(metrics: &Metrics, series: &str) -> Option<f64> {
        let text = metrics.text().expect("metrics");
        text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    /// Regression: a cause that came while admin restarted, as it does in a release, was never new.
    #[test]
    fn cause_is_as_old_as_its_first_failure_after_a_restart_and_after_a_failed_replay() {
        let group = |fingerprint: &str, second| GroupSummary {
            fingerprint: fingerprint.to_owned(),
            count: 1,
            service: "payment".to_owned(),
            step: "payment-processing".to_owned(),
            reason: "no way".to_owned(),
            foreign: false,
            newest: uuid::Uuid::nil(),
            newest_at: Timestamp::constant(second, 0),
            oldest_at: Timestamp::constant(second, 0),
            awaited: 1,
            ended: 0,
            cancelled: 0,
            confirmed: 0,
            first_until: None,
            last_until: None,
        };
        let metrics = Metrics::new(crate::topology::NAME, &OF_ADMIN);
        let mut exported = OverviewMetrics::new(&metrics);
        let mut newest = |groups: &[GroupSummary]| {
            let seen = DeadLetterSummary { groups: groups.to_vec(), ..DeadLetterSummary::default() };
            exported.export(&overview(None, Some(seen)), None, &metrics);
            value(&metrics, "dead_letter_newest_cause_timestamp_seconds")
        };
        assert_eq!(newest(&[group("a", 100), group("b", 200)]), Some(200.0), "the first snapshot");
        assert_eq!(newest(&[group("a", 900), group("b", 800)]), Some(200.0), "they failed again");
        assert_eq!(newest(&[group("a", 900)]), Some(100.0), "b is resolved");
        assert_eq!(newest(&[]), Some(0.0));
        assert_eq!(value(&metrics, "dead_letter_awaited"), Some(0.0));
    }

    #[test]
    fn finding_has_one_series_while_it_lasts() {
        let metrics = Metrics::new(crate::topology::NAME, &OF_ADMIN);
        let mut exported = OverviewMetrics::new(&metrics);
        let mut export = |findings: &[Finding]| {
            let seen = Overview { findings: findings.to_vec(), ..overview(None, None) };
            exported.export(&seen, None, &metrics);
        };
        let orders = |count, text: &str| Finding {
            impact: Impact { orders: Some(count), amounts: vec![money(1_299, "EUR")], ..Impact::default() },
            since: Some(Timestamp::constant(7, 0)),
            service: Some("bank".to_owned()),
            ..Finding::new(FindingCode::Unreachable, "bank", text.to_owned())
        };
        let series = "finding_start_timestamp_seconds{key=\"unreachable:bank\",code=\"unreachable\",owner=\"bank\",state=\"open\",text=\"refused\"}";
        let of_orders = "finding_orders{key=\"unreachable:bank\"}";
        export(&[orders(150, "refused")]);
        assert_eq!((value(&metrics, series), value(&metrics, of_orders)), (Some(7.0), Some(150.0)));
        let amount = "finding_amount_minor{key=\"unreachable:bank\",currency=\"EUR\"}";
        assert_eq!(value(&metrics, amount), Some(1_299.0));
        export(&[orders(200, "refused again")]);
        assert_eq!((value(&metrics, series), value(&metrics, of_orders)), (Some(7.0), Some(200.0)));
        export(&[]);
        assert_eq!((value(&metrics, series), value(&metrics, of_orders)), (None, None));
        let text = "1,200 dead letters at payment-processing of payment, fingerprint a1".to_owned();
        let cause = "Cause: cannot parse\nNobody waits.".to_owned();
        export(&[Finding { explanation: cause, ..Finding::new(FindingCode::DeadLetters, "a1", text) }]);
        let series = "finding_start_timestamp_seconds{key=\"dead_letters:a1\",code=\"dead_letters\",owner=\"\",state=\"open\",\
            text=\"dead letters at payment-processing of payment. Cause: cannot parse\"}";
        assert!(value(&metrics, series).is_some(), "{}", metrics.text().expect("metrics"));
    }

    #[test]
    fn values_are_nan_before_first_snapshot_and_when_unavailable() {
        let metrics = Metrics::new(crate::topology::NAME, &OF_ADMIN);
        let mut exported = OverviewMetrics::new(&metrics);
        let assert_shown = |value: &str, dead_letters: &str, euros: &str| {
            let text = metrics.text().expect("metrics");
            for line in [
                format!("saga_overdue {value}\n"),
                format!("saga_open{{status=\"COMPENSATION_STUCK\"}} {value}\n"),
                format!("dead_letter_open{{status=\"PENDING\"}} {dead_letters}\n"),
                format!("dead_letter_open{{status=\"REPLAYING\"}} {dead_letters}\n"),
                format!("saga_open_amount_minor{{currency=\"EUR\"}} {euros}\n"),
                "reconciliation_verdict NaN\n".to_owned(),
            ] {
                assert!(text.contains(&line), "no {line:?} in {text}");
            }
        };
        let dollars = || metrics.text().expect("metrics").contains("USD");
        assert_shown("NaN", "NaN", "NaN");
        let (sagas, dead_letters) = (Some(SagaSummary::default()), Some(DeadLetterSummary::default()));
        exported.export(&overview(sagas.clone(), dead_letters), Some(&SagaSums::default()), &metrics);
        assert_shown("0.0", "0.0", "0.0");
        let amounts = vec![money(9_000_000_001, "EUR"), money(5, "USD")];
        let open = SagaSums { amounts, ..SagaSums::default() };
        exported.export(&overview(sagas, None), Some(&open), &metrics);
        assert_shown("0.0", "NaN", "9000000001.0");
        assert!(dollars());
        exported.export(&overview(None, None), None, &metrics);
        assert_shown("NaN", "NaN", "NaN");
        assert!(!dollars(), "currencies are unknown");
    }
}
