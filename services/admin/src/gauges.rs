//! Shell: what admin shows of the whole system for metrics: of each look that it takes anyway.

use std::collections::{BTreeMap, BTreeSet};

use contract::metrics as names;
use contract::overview::{BooksLook, DeadLettersLook, Overview, SagasLook, Verdict};
use contract::saga::SagaStatus;
use jiff::Timestamp;
use saga_core::metric::Metric;
use saga_engine::host::metrics::Metrics;

/// Groups of dead letters that have a series of their own, the largest.
const RANKED: usize = 5;

/// Causes that are remembered; beyond that those that are not there any more are forgotten, and would be new again.
const REMEMBERED: usize = 10_000;

/// What nobody knows before an audit.
const UNKNOWN: [&Metric; 3] = [&names::BOOKS, &names::DISCREPANCIES, &names::AUDIT_AGE];

/// What was seen so far.
#[derive(Debug)]
pub(crate) struct Gauges {
    /// Causes of dead letters; nothing before the first look.
    fingerprints: Option<BTreeSet<String>>,
}

impl Gauges {
    /// Nothing was seen yet.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        forget_books(metrics);
        Self { fingerprints: None }
    }

    /// Shows what a look saw. What it could not ask stays as it was.
    pub(crate) fn take(&mut self, seen: &Overview, metrics: &Metrics) {
        if let Some(sagas) = &seen.sagas {
            show_sagas(sagas, metrics);
        }
        if let Some(dead_letters) = &seen.dead_letters {
            show_dead_letters(dead_letters, metrics);
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

fn show_sagas(seen: &SagasLook, metrics: &Metrics) {
    for status in SagaStatus::ALL.iter().filter(|status| !status.is_terminal()) {
        let count = seen.by_status.get(status.as_str()).copied().unwrap_or(0);
        metrics.set(&names::OPEN, &[status.as_str()], number(count));
    }
    metrics.set(&names::OVERDUE, &[], number(seen.overdue));
}

fn show_dead_letters(seen: &DeadLettersLook, metrics: &Metrics) {
    metrics.set(&names::DEAD_LETTERS, &["PENDING"], number(seen.pending));
    metrics.set(&names::DEAD_LETTERS, &["REPLAYING"], number(seen.replaying));
    let mut by_step: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for group in &seen.groups {
        *by_step.entry((&group.service, &group.step)).or_default() += group.count;
    }
    let by_step: Vec<_> = by_step
        .into_iter()
        .map(|((service, step), count)| (vec![service.to_owned(), step.to_owned()], number(count)))
        .collect();
    metrics.replace(&names::DEAD_LETTERS_BY_STEP, &by_step);
    let largest = seen.groups.iter().take(RANKED).enumerate();
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
    metrics.set(&names::BOOKS, &[], verdict);
    metrics.set(&names::DISCREPANCIES, &[], number(seen.discrepancies));
    metrics.set(&names::AUDIT_AGE, &[], now.duration_since(seen.at).as_secs_f64().max(0.0));
}

fn forget_books(metrics: &Metrics) {
    UNKNOWN.iter().for_each(|metric| metrics.set(metric, &[], f64::NAN));
}

fn number(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
