//! Shell: reads suspected discrepancies again, once work that was in flight has completed. In a busy system ledgers are never
//! read at the same moment, so that only an unchanged discrepancy is certain.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::reconciliation::{CopyEntry, StockEntry};
use saga_core::service_stats::ServiceStats;
use tokio::time::{Instant, sleep, sleep_until};

use super::reading::{AllStats, Fresh};
use super::request::Request;
use crate::ledgers::account::Account;
use crate::ledgers::draining::Draining;
use crate::ledgers::in_flight::in_flight;
use crate::ledgers::rules::{Recheck, Rule};
use crate::ledgers::totals::{LedgerResult, Ledgers};
use admin_api::reconciliation::{Baseline, Discrepancy, Unanswered};

/// Pause between two checks of work in flight.
const POLL: Duration = Duration::from_millis(20);
/// Time in which passed deadlines fire after a service has started.
const DEADLINES_FIRE_WITHIN: Duration = Duration::from_secs(2);

/// Result of the second reading.
struct Second {
    /// Work that was in flight at the first reading has completed.
    has_drained: bool,
    /// Passed deadlines had time to fire.
    has_waited: bool,
    /// Nothing is in flight.
    is_quiet: bool,
    /// No service has an open call.
    no_calls: bool,
    first: BTreeMap<String, Account>,
    fresh: Fresh,
    found: Vec<Discrepancy>,
}

/// Rechecks the suspected discrepancies of a result within the time limit. Returns services that did not answer.
pub(super) async fn recheck(
    request: Request<'_>,
    result: &mut LedgerResult,
    baselines: &BTreeMap<String, Baseline>,
) -> Vec<Unanswered> {
    if result.discrepancies.count == result.discrepancies.certain {
        return Vec::new();
    }
    let started = Instant::now();
    let mut stats = request.stats().await;
    let mut draining = Draining::since(&stats.service_stats);
    let mut has_drained = false;
    // Half of the time at most, and no longer than the client wants to wait for a busy system.
    let half = request.until.saturating_duration_since(started) / 2;
    let until = started + half.min(request.patience);
    while stats.unanswered.is_empty() && !has_drained && Instant::now() < until {
        stats = request.stats().await;
        has_drained = stats.unanswered.is_empty() && draining.advance(&stats.service_stats);
        if !has_drained {
            sleep(POLL).await;
        }
    }
    if result.summary.overdue > 0 {
        sleep_until((started + DEADLINES_FIRE_WITHIN).min(until)).await;
    }
    let first = std::mem::take(&mut result.suspects);
    let skus: BTreeSet<&str> = products(&first, &result.discrepancies.listed).collect();
    let (orders, skus): (Vec<_>, Vec<_>) =
        (first.keys().map(String::as_str).collect(), skus.into_iter().collect());
    let fresh = match request.fresh(&orders, &skus).await {
        Ok(fresh) => fresh,
        Err(missing) => return [stats.unanswered, vec![missing]].concat(),
    };
    let now = request.stats().await;
    let found = compared(&now, &fresh, baselines);
    let second = Second {
        has_drained,
        has_waited: started.elapsed() >= DEADLINES_FIRE_WITHIN,
        is_quiet: is_quiet(&stats) && is_quiet(&now) && published(&stats) == published(&now),
        no_calls: calls(&now.service_stats) == 0,
        first,
        fresh,
        found,
    };
    result.discrepancies.recheck(|suspicion| second.recheck(suspicion));
    now.unanswered
}

/// Products of suspected discrepancies, and of the lines of suspected orders.
fn products<'a>(
    first: &'a BTreeMap<String, Account>,
    listed: &'a [Discrepancy],
) -> impl Iterator<Item = &'a str> {
    let ordered = first.values().filter_map(|account| account.order.as_ref());
    let of_lines = ordered.flat_map(|order| order.lines.iter().map(|line| line.sku.as_str()));
    let is_of_products = |found: &&Discrepancy| !found.certain && found.rule == Rule::CopyIsCatalogue.text();
    of_lines.chain(listed.iter().filter(is_of_products).map(|found| found.subject.as_str()))
}

/// Compares the current entries again.
fn compared(stats: &AllStats, fresh: &Fresh, baselines: &BTreeMap<String, Baseline>) -> Vec<Discrepancy> {
    let ledgers = Ledgers::new(stats.clock_of_orders(), baselines.clone());
    let mut ledgers = ledgers.after_losses(stats.losses());
    fresh.copies.iter().for_each(|copy: &CopyEntry| ledgers.copy(copy.clone()));
    fresh.stock.iter().for_each(|stock: &StockEntry| ledgers.stock(stock.clone()));
    ledgers.mark_purged_before(fresh.purged_before);
    fresh.accounts.iter().for_each(|(key, account)| ledgers.account(key, account));
    ledgers.messages(&stats.service_stats);
    ledgers.finish().discrepancies.listed
}

impl Second {
    fn recheck(&self, suspicion: &Discrepancy) -> Recheck {
        let is = |rule: Rule| suspicion.rule == rule.text();
        // Totals are of all orders, of which only a few were read again.
        if is(Rule::StockIsReservations) {
            return Recheck::Open;
        }
        let is_same = |found: &Discrepancy| {
            (&found.rule, &found.subject, &found.detail)
                == (&suspicion.rule, &suspicion.subject, &suspicion.detail)
        };
        if is(Rule::MessagesAreHandled) {
            let is_wrong = self.is_quiet && self.found.iter().any(is_same);
            return if is_wrong { Recheck::Confirmed } else { Recheck::Open };
        }
        let is_rechecked = is(Rule::CopyIsCatalogue) || self.first.contains_key(&suspicion.subject);
        let is_gone = self.first.contains_key(&suspicion.subject)
            && !self.fresh.accounts.contains_key(&suspicion.subject);
        // Orders do not vanish: without an entry there is nothing new.
        if !is_rechecked || is_gone {
            return Recheck::Open;
        }
        if !self.found.iter().any(is_same) {
            let is_of_it =
                |found: &Discrepancy| found.subject == suspicion.subject && found.rule == suspicion.rule;
            return if self.found.iter().any(is_of_it) { Recheck::Open } else { Recheck::Resolved };
        }
        if is(Rule::EveryOrderEnds) {
            return if self.has_waited { Recheck::Confirmed } else { Recheck::Open };
        }
        let is_unchanged = self.first.get(&suspicion.subject) == self.fresh.accounts.get(&suspicion.subject);
        let is_at_rest = self.has_drained && is_unchanged && !self.has_open_call(&suspicion.subject);
        if is_at_rest { Recheck::Confirmed } else { Recheck::Open }
    }

    /// True if a call to the bank is open for this order.
    fn has_open_call(&self, order: &str) -> bool {
        !self.no_calls && self.fresh.accounts.get(order).is_some_and(Account::has_open_call)
    }
}

pub(super) fn is_quiet(stats: &AllStats) -> bool {
    stats.unanswered.is_empty() && in_flight(&stats.service_stats).is_empty()
}

pub(super) fn published(stats: &AllStats) -> Vec<u64> {
    stats.service_stats.iter().flat_map(|service| service.published.values().copied()).collect()
}

fn calls(service_stats: &[ServiceStats]) -> u64 {
    service_stats.iter().map(|service| service.stats.tasks).sum()
}
