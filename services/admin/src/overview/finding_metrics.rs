//! Shell: a series for each finding: its start, the orders that wait, and their money.

use std::collections::BTreeMap;

use admin_api::overview::{Finding, FindingCode, Overview};
use contract::metrics as names;
use jiff::Timestamp;
use saga_engine::host::metrics::Metrics;

use crate::notifications::open_finding::text_of;

/// Maximum number of findings with a series of their own, the first in the order of the rules.
const MAX_FINDINGS: usize = 50;

/// Findings as they were first seen. A text that changes with every count would be a new series each time.
#[derive(Debug, Default)]
pub(super) struct FindingMetrics {
    seen: BTreeMap<String, (Timestamp, String)>,
}

impl FindingMetrics {
    pub(super) fn export(&mut self, overview: &Overview, metrics: &Metrics) {
        count_by_code(Some(&overview.findings), metrics);
        let shown = &overview.findings[..overview.findings.len().min(MAX_FINDINGS)];
        self.seen.retain(|key, _| shown.iter().any(|finding| finding.key == *key));
        for finding in shown {
            let first = || (finding.since.unwrap_or(overview.at), label_of(finding));
            self.seen.entry(finding.key.clone()).or_insert_with(first);
        }
        let starts = shown.iter().filter_map(|finding| {
            let (since, text) = self.seen.get(&finding.key)?;
            let state = if finding.to_clean_up { "clean_up" } else { "open" };
            let service = finding.service.clone().unwrap_or_default();
            let labels =
                [finding.key.clone(), finding.code.to_string(), service, state.to_owned(), text.clone()];
            Some((labels.to_vec(), since.as_second() as f64))
        });
        metrics.replace(&names::FINDING_START, &starts.collect::<Vec<_>>());
        let orders = shown.iter().filter_map(|finding| {
            let orders =
                finding.impact.orders.or_else(|| finding.count.filter(|_| counts_orders(finding)))?;
            Some((vec![finding.key.clone()], orders as f64))
        });
        metrics.replace(&names::FINDING_ORDERS, &orders.collect::<Vec<_>>());
        let amounts = shown.iter().flat_map(|finding| {
            let of_currency = |amount: &contract::money::Money| {
                (vec![finding.key.clone(), amount.currency.code().to_owned()], amount.amount_minor as f64)
            };
            finding.impact.amounts.iter().map(of_currency)
        });
        metrics.replace(&names::FINDING_AMOUNT, &amounts.collect::<Vec<_>>());
    }
}

/// The text without the count that it begins with, which changes, and without a fingerprint, so that a cause fits in a cell.
fn label_of(finding: &Finding) -> String {
    let text = text_of(finding);
    let text = match finding.key.split_once(':') {
        Some((_, fingerprint)) => text.replace(&format!(", fingerprint {fingerprint}"), ""),
        None => text,
    };
    let rest = text.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == ',');
    rest.trim_start().to_owned()
}

/// True if the count of a finding is one of sagas.
const fn counts_orders(finding: &Finding) -> bool {
    matches!(finding.code, FindingCode::CompensationStuck | FindingCode::SagasOverdue)
}

/// Counts the findings that need a human. Shows every code, so that a resolved one is 0 and not absent. NaN before the first
/// snapshot.
pub(super) fn count_by_code(seen: Option<&[Finding]>, metrics: &Metrics) {
    for code in FindingCode::ALL {
        let count = |seen: &[Finding]| {
            seen.iter().filter(|finding| finding.code == *code && !finding.to_clean_up).count() as f64
        };
        metrics.set(&names::FINDINGS, &[code.into()], seen.map_or(f64::NAN, count));
    }
}
