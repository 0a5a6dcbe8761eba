//! Shell: metrics of the whole system, from the snapshots of the notification loop.

use std::collections::{BTreeMap, BTreeSet};

use admin_api::overview::{DeadLetterSummary, Finding, FindingCode, Overview, SagaSummary};
use admin_api::reconciliation::{ReconciliationSummary, Verdict};
use contract::metrics as names;
use contract::saga::SagaStatus;
use jiff::Timestamp;
use saga_core::metric::Metric;
use saga_engine::host::metrics::Metrics;

use crate::sagas::summary::Amounts;

/// Number of groups of dead letters with a series of their own, the largest.
const RANKED: usize = 5;

/// Maximum number of remembered causes. Above it, causes that are gone are forgotten, and would count as new again.
const MAX_CAUSES: usize = 10_000;

/// Metrics that only a reconciliation sets.
const OF_RECONCILIATION: [&Metric; 3] =
    [&names::RECONCILIATION_VERDICT, &names::RECONCILIATION_DISCREPANCIES, &names::RECONCILIATION_AGE];

/// Exports snapshots, and remembers the causes of dead letters so far.
#[derive(Debug)]
pub(crate) struct OverviewMetrics {
    /// Causes of dead letters; `None` before the first snapshot.
    fingerprints: Option<BTreeSet<String>>,
}

impl OverviewMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        show_sagas(None, metrics);
        show_findings(None, metrics);
        Self { fingerprints: None }
    }

    /// Exports a snapshot. Missing values are NaN, or have no series where the labels are unknown.
    pub(crate) fn export(&mut self, seen: &Overview, amounts: Option<&Amounts>, metrics: &Metrics) {
        show_sagas(seen.sagas.as_ref(), metrics);
        show_open_amounts(amounts, metrics);
        show_dead_letters(seen.dead_letters.as_ref(), metrics);
        show_findings(Some(&seen.findings), metrics);
        if let Some(dead_letters) = &seen.dead_letters {
            self.count_new(dead_letters, metrics);
        }
        match &seen.reconciliation {
            Some(last) => show_reconciliation(last, seen.at, metrics),
            // Also after it was invalidated.
            None => clear_reconciliation(metrics),
        }
    }

    /// Counts causes that are new since the first snapshot.
    fn count_new(&mut self, seen: &DeadLetterSummary, metrics: &Metrics) {
        let causes = seen.groups.iter().map(|group| group.fingerprint.clone());
        let Some(known) = &mut self.fingerprints else {
            self.fingerprints = Some(causes.collect());
            return;
        };
        let before = known.len();
        known.extend(causes);
        metrics.add(&names::FINGERPRINTS, &[], (known.len() - before) as u64);
        if known.len() > MAX_CAUSES {
            // Current causes are not new in the next snapshot.
            *known = seen.groups.iter().map(|group| group.fingerprint.clone()).collect();
        }
    }
}

fn show_sagas(seen: Option<&SagaSummary>, metrics: &Metrics) {
    for status in SagaStatus::ALL.iter().filter(|status| !status.is_terminal()) {
        let count = |seen: &SagaSummary| seen.by_status.get(status.as_str()).copied().unwrap_or(0);
        metrics.set(&names::OPEN, &[status.as_str()], known(seen.map(count)));
    }
    metrics.set(&names::OVERDUE, &[], known(seen.map(|seen| seen.overdue)));
}

/// Counts the findings that need a human. Shows every code, so that a resolved one is 0 and not absent. NaN before the first snapshot.
fn show_findings(seen: Option<&[Finding]>, metrics: &Metrics) {
    for code in FindingCode::ALL {
        let count = |seen: &[Finding]| {
            seen.iter().filter(|finding| finding.code == *code && !finding.to_clean_up).count() as u64
        };
        metrics.set(&names::FINDINGS, &[code.into()], known(seen.map(count)));
    }
}

fn show_open_amounts(seen: Option<&Amounts>, metrics: &Metrics) {
    let nothing_yet = if seen.is_some() { 0.0 } else { f64::NAN };
    let mut amounts = BTreeMap::from([(names::SHOWN, nothing_yet)]);
    amounts
        .extend(seen.into_iter().flatten().map(|(currency, amount)| (*currency, amount.amount_minor as f64)));
    let amounts: Vec<_> =
        amounts.into_iter().map(|(currency, amount)| (vec![currency.to_owned()], amount)).collect();
    metrics.replace(&names::OPEN_AMOUNT, &amounts);
}

fn show_dead_letters(seen: Option<&DeadLetterSummary>, metrics: &Metrics) {
    metrics.set(&names::DEAD_LETTERS, &["PENDING"], known(seen.map(|seen| seen.pending)));
    metrics.set(&names::DEAD_LETTERS, &["REPLAYING"], known(seen.map(|seen| seen.replaying)));
    let groups = seen.map_or(&[][..], |seen| &seen.groups);
    let mut by_step: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for group in groups {
        *by_step.entry((&group.service, &group.step)).or_default() += group.count;
    }
    let by_step: Vec<_> = by_step
        .into_iter()
        .map(|((service, step), count)| (vec![service.to_owned(), step.to_owned()], number(count)))
        .collect();
    metrics.replace(&names::DEAD_LETTERS_BY_STEP, &by_step);
    let largest = groups.iter().take(RANKED).enumerate();
    let largest: Vec<_> = largest
        .map(|(place, group)| {
            let labels = vec![(place + 1).to_string(), group.service.clone(), group.step.clone()];
            (labels, number(group.count))
        })
        .collect();
    metrics.replace(&names::DEAD_LETTER_GROUPS, &largest);
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
    use admin_api::overview::Unavailable;
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
        exported.export(&overview(sagas.clone(), dead_letters), Some(&Amounts::new()), &metrics);
        assert_shown("0.0", "0.0", "0.0");
        let amounts = Amounts::from([("EUR", money(9_000_000_001, "EUR")), ("USD", money(5, "USD"))]);
        exported.export(&overview(sagas, None), Some(&amounts), &metrics);
        assert_shown("0.0", "NaN", "9000000001.0");
        assert!(dollars());
        exported.export(&overview(None, None), None, &metrics);
        assert_shown("NaN", "NaN", "NaN");
        assert!(!dollars(), "currencies are unknown");
    }
}
