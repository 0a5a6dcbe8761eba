//! Shell: reads suspected discrepancies again, once work that was in flight has completed. In a busy system ledgers are never
//! read at the same moment, so that only an unchanged discrepancy is certain.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::reconciliation::{CopyEntry, StockEntry};
use saga_core::service_stats::ServiceStats;
use saga_engine::host::queries::MAX_IDS;
use tokio::time::{Instant, sleep, sleep_until};

use super::reading::{AllStats, Fresh};
use super::request::Request;
use crate::ledgers::discrepancies::{Discrepancies, Recheck};
use crate::ledgers::draining::Draining;
use crate::ledgers::in_flight::in_flight;
use crate::ledgers::rules::Rule;
use crate::ledgers::totals::{LedgerResult, Ledgers};
use admin_api::reconciliation::{Baseline, Discrepancy, Unanswered};

/// Pause between two checks of work in flight.
const POLL: Duration = Duration::from_millis(20);
/// Time in which passed deadlines fire after a service has started.
const DEADLINES_FIRE_WITHIN: Duration = Duration::from_secs(2);

/// Time at the end of a request in which no more accounts are read again.
const MIN_READING_TIME: Duration = Duration::from_millis(200);

/// Result of the second reading.
#[derive(Default)]
struct Second {
    /// Work that was in flight at the first reading has completed.
    has_drained: bool,
    /// Passed deadlines had time to fire.
    has_waited: bool,
    /// Nothing is in flight.
    is_quiet: bool,
    /// No service has an open call.
    no_calls: bool,
    /// Digests of the accounts at the first reading.
    first: BTreeMap<String, u64>,
    /// Accounts that were read again.
    again: BTreeMap<String, RereadAccount>,
    /// Discrepancies of the second reading, by subject.
    found: BTreeMap<String, Vec<Discrepancy>>,
}

/// Account that was read again.
struct RereadAccount {
    digest: u64,
    has_open_call: bool,
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
    let mut second = Second { first: std::mem::take(&mut result.suspects), has_drained, ..Second::default() };
    if let Err(missing) = read_again(request, &mut second, (&result.discrepancies, baselines), &stats).await {
        return [stats.unanswered, vec![missing]].concat();
    }
    let now = request.stats().await;
    let mut messages = now.ledgers(baselines.clone());
    messages.messages(&now.service_stats);
    second.add(messages);
    second.has_waited = started.elapsed() >= DEADLINES_FIRE_WITHIN;
    second.is_quiet = is_quiet(&stats) && is_quiet(&now) && published(&stats) == published(&now);
    second.no_calls = calls(&now.service_stats) == 0;
    result.discrepancies.recheck(|suspicion| second.recheck(suspicion));
    now.unanswered
}

/// Reads suspected accounts and products again, a part at a time, until the request is nearly over.
async fn read_again(
    request: Request<'_>,
    second: &mut Second,
    (suspected, baselines): (&Discrepancies, &BTreeMap<String, Baseline>),
    stats: &AllStats,
) -> Result<(), Unanswered> {
    let is_of_copies = |found: &&Discrepancy| !found.certain && found.rule == Rule::CopyIsCatalogue.text();
    let of_copies = suspected.listed.iter().filter(is_of_copies).map(|found| found.subject.clone());
    let mut skus: BTreeSet<String> = of_copies.collect();
    let orders: Vec<String> = second.first.keys().cloned().collect();
    let mut parts = orders.chunks(MAX_IDS);
    loop {
        let part: Vec<&str> = parts.next().unwrap_or_default().iter().map(String::as_str).collect();
        let is_over = request.until.saturating_duration_since(Instant::now()) < MIN_READING_TIME;
        if is_over || (part.is_empty() && skus.is_empty()) {
            return Ok(());
        }
        let Fresh { accounts, purged_before, .. } = request.fresh(&part, &[]).await?;
        let ordered = accounts.values().filter_map(|account| account.order.as_ref());
        skus.extend(ordered.flat_map(|order| order.lines.iter().map(|line| line.sku.clone())));
        let products: Vec<&str> = skus.iter().map(String::as_str).collect();
        let Fresh { stock, copies, .. } = request.fresh(&[], &products).await?;
        let mut ledgers = stats.ledgers(baselines.clone());
        copies.into_iter().for_each(|copy: CopyEntry| ledgers.copy(copy));
        stock.into_iter().for_each(|stock: StockEntry| ledgers.stock(stock));
        ledgers.mark_purged_before(purged_before);
        accounts.iter().for_each(|(key, account)| ledgers.account(key, account));
        second.add(ledgers);
        second.again.extend(accounts.into_iter().map(|(key, account)| {
            let again = RereadAccount { digest: account.digest(), has_open_call: account.has_open_call() };
            (key, again)
        }));
        skus.clear();
    }
}

impl Second {
    /// Adds the discrepancies of ledgers that were read again.
    fn add(&mut self, ledgers: Ledgers) {
        for found in ledgers.finish().discrepancies.listed {
            self.found.entry(found.subject.clone()).or_default().push(found);
        }
    }

    fn recheck(&self, suspicion: &Discrepancy) -> Recheck {
        let is = |rule: Rule| suspicion.rule == rule.text();
        // Totals are of all orders, of which only a few were read again.
        if is(Rule::StockIsReservations) {
            return Recheck::Open;
        }
        let found = self.found.get(&suspicion.subject).map(Vec::as_slice).unwrap_or_default();
        let is_same =
            |found: &Discrepancy| (&found.rule, &found.detail) == (&suspicion.rule, &suspicion.detail);
        if is(Rule::MessagesAreHandled) {
            let is_wrong = self.is_quiet && found.iter().any(is_same);
            return if is_wrong { Recheck::Confirmed } else { Recheck::Open };
        }
        let is_rechecked = is(Rule::CopyIsCatalogue) || self.first.contains_key(&suspicion.subject);
        let is_gone =
            self.first.contains_key(&suspicion.subject) && !self.again.contains_key(&suspicion.subject);
        // Orders do not vanish: without an entry there is nothing new, or the time was over.
        if !is_rechecked || is_gone {
            return Recheck::Open;
        }
        if !found.iter().any(is_same) {
            let is_of_it = |found: &Discrepancy| found.rule == suspicion.rule;
            return if found.iter().any(is_of_it) { Recheck::Open } else { Recheck::Resolved };
        }
        if is(Rule::EveryOrderEnds) {
            return if self.has_waited { Recheck::Confirmed } else { Recheck::Open };
        }
        let again = self.again.get(&suspicion.subject);
        let is_unchanged = self.first.get(&suspicion.subject).copied() == again.map(|again| again.digest);
        let has_open_call = !self.no_calls && again.is_some_and(|again| again.has_open_call);
        let is_at_rest = self.has_drained && is_unchanged && !has_open_call;
        if is_at_rest { Recheck::Confirmed } else { Recheck::Open }
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
