//! Shell: what admin shows of the whole system for metrics: of each look that it takes anyway.

use std::collections::{BTreeMap, BTreeSet};

use contract::metrics as names;
use contract::overview::{BooksLook, DeadLettersLook, Overview, SagasLook, Verdict};
use contract::saga::SagaStatus;
use jiff::Timestamp;
use saga_core::metric::Metric;
use saga_engine::host::metrics::Metrics;

use crate::glance::OpenAmounts;

/// Groups of dead letters that have a series of their own, the largest.
const RANKED: usize = 5;

/// Causes that are remembered; beyond that those that are not there any more are forgotten, and would be new again.
const REMEMBERED: usize = 10_000;

/// What only an audit knows.
const OF_THE_BOOKS: [&Metric; 3] =
    [&names::RECONCILIATION_VERDICT, &names::RECONCILIATION_DISCREPANCIES, &names::RECONCILIATION_AGE];

/// What was seen so far.
#[derive(Debug)]
pub(crate) struct Gauges {
    /// Causes of dead letters; nothing before the first look.
    fingerprints: Option<BTreeSet<String>>,
}

impl Gauges {
    /// Nothing was seen yet.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        show_sagas(None, metrics);
        Self { fingerprints: None }
    }

    /// Shows what a look saw. What it could not ask nobody knows: NaN, or no series where it is not known which there are.
    pub(crate) fn take(&mut self, seen: &Overview, amounts: Option<&OpenAmounts>, metrics: &Metrics) {
        show_sagas(seen.sagas.as_ref(), metrics);
        show_open_amounts(amounts, metrics);
        show_dead_letters(seen.dead_letters.as_ref(), metrics);
        if let Some(dead_letters) = &seen.dead_letters {
            self.count_new(dead_letters, metrics);
        }
        match &seen.books {
            Some(books) => show_books(books, seen.at, metrics),
            // Also once it was forgotten, as something was settled since.
            None => forget_books(metrics),
        }
    }

    /// Counts causes that were not there at the looks before. Those of the first were there before this process.
    fn count_new(&mut self, seen: &DeadLettersLook, metrics: &Metrics) {
        let causes = seen.groups.iter().map(|group| group.fingerprint.clone());
        let Some(known) = &mut self.fingerprints else {
            self.fingerprints = Some(causes.collect());
            return;
        };
        let before = known.len();
        known.extend(causes);
        metrics.add(&names::FINGERPRINTS, &[], (known.len() - before) as u64);
        if known.len() > REMEMBERED {
            // What is there now is no news at the next look.
            *known = seen.groups.iter().map(|group| group.fingerprint.clone()).collect();
        }
    }
}

fn show_sagas(seen: Option<&SagasLook>, metrics: &Metrics) {
    for status in SagaStatus::ALL.iter().filter(|status| !status.is_terminal()) {
        let count = |seen: &SagasLook| seen.by_status.get(status.as_str()).copied().unwrap_or(0);
        metrics.set(&names::OPEN, &[status.as_str()], known(seen.map(count)));
    }
    metrics.set(&names::OVERDUE, &[], known(seen.map(|seen| seen.overdue)));
}

fn show_open_amounts(seen: Option<&OpenAmounts>, metrics: &Metrics) {
    let nothing_yet = if seen.is_some() { 0.0 } else { f64::NAN };
    let mut amounts = BTreeMap::from([(names::SHOWN, nothing_yet)]);
    amounts.extend(seen.into_iter().flatten().map(|(currency, amount)| (*currency, *amount as f64)));
    let amounts: Vec<_> =
        amounts.into_iter().map(|(currency, amount)| (vec![currency.to_owned()], amount)).collect();
    metrics.replace(&names::OPEN_AMOUNT, &amounts);
}

fn show_dead_letters(seen: Option<&DeadLettersLook>, metrics: &Metrics) {
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

fn show_books(seen: &BooksLook, now: Timestamp, metrics: &Metrics) {
    let verdict = match seen.verdict {
        Verdict::Balanced => 0.0,
        Verdict::InFlight => 1.0,
        Verdict::Unbalanced => 2.0,
    };
    metrics.set(&names::RECONCILIATION_VERDICT, &[], verdict);
    metrics.set(&names::RECONCILIATION_DISCREPANCIES, &[], number(seen.discrepancies));
    metrics.set(&names::RECONCILIATION_AGE, &[], now.duration_since(seen.at).as_secs_f64().max(0.0));
}

fn forget_books(metrics: &Metrics) {
    OF_THE_BOOKS.iter().for_each(|metric| metrics.set(metric, &[], f64::NAN));
}

fn known(count: Option<u64>) -> f64 {
    count.map_or(f64::NAN, number)
}

fn number(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use contract::metrics::OF_ADMIN;

    use super::*;

    fn overview(sagas: Option<SagasLook>, dead_letters: Option<DeadLettersLook>) -> Overview {
        let (at, services, reasons, not_asked) = (Timestamp::UNIX_EPOCH, vec![], vec![], vec![]);
        let (needs_human, books, behind) = (false, None, None);
        Overview { at, needs_human, reasons, services, sagas, dead_letters, books, behind, not_asked }
    }

    /// Neither before the first look, nor once a look could not be made.
    #[test]
    fn what_admin_cannot_look_at_is_no_number() {
        let metrics = Metrics::new(crate::NAME, &OF_ADMIN);
        let mut gauges = Gauges::new(&metrics);
        let assert_shown = |value: &str, dead_letters: &str, euros: &str| {
            let text = metrics.text().expect("metrics");
            for line in [
                format!("saga_overdue {value}\n"),
                format!("saga_open{{status=\"FAILED\"}} {value}\n"),
                format!("dead_letter_count{{status=\"PENDING\"}} {dead_letters}\n"),
                format!("dead_letter_count{{status=\"REPLAYING\"}} {dead_letters}\n"),
                format!("saga_open_amount_minor{{currency=\"EUR\"}} {euros}\n"),
                "reconciliation_verdict NaN\n".to_owned(),
            ] {
                assert!(text.contains(&line), "no {line:?} in {text}");
            }
        };
        let dollars = || metrics.text().expect("metrics").contains("USD");
        assert_shown("NaN", "NaN", "NaN");
        let (sagas, dead_letters) = (Some(SagasLook::default()), Some(DeadLettersLook::default()));
        gauges.take(&overview(sagas.clone(), dead_letters), Some(&OpenAmounts::new()), &metrics);
        assert_shown("0.0", "0.0", "0.0");
        let amounts = OpenAmounts::from([("EUR", 9_000_000_001), ("USD", 5)]);
        gauges.take(&overview(sagas, None), Some(&amounts), &metrics);
        assert_shown("0.0", "NaN", "9000000001.0");
        assert!(dollars());
        gauges.take(&overview(None, None), None, &metrics);
        assert_shown("NaN", "NaN", "NaN");
        assert!(!dollars(), "nobody knows whether there are any");
    }
}
