//! Shell: what looked wrong is looked at again, once what was under way has arrived: a busy system is never still, and
//! two of its ledgers are never of the same moment. Only what is wrong both times, unchanged, is told as wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::reconciliation::{CopyEntry, StockEntry};
use saga_core::service_stats::ServiceStats;
use tokio::time::{Instant, sleep, sleep_until};

use super::account::Account;
use super::answers::Asking;
use super::asking::{Fresh, Heard};
use super::draining::Draining;
use super::findings::{Discrepancy, Rule, Standing};
use super::ledgers::{Baseline, Closed, Ledgers};
use super::under_way::{Unanswered, under_way};

/// Pause between looks at what is under way.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// A service that comes back after its orders' deadlines ends them within this, and it has begun before.
const DEADLINES_FIRE_WITHIN: Duration = Duration::from_secs(2);

/// What is said of the suspects the second time.
struct Second {
    /// What was under way at the first look has arrived.
    has_drained: bool,
    /// Deadlines that had passed at the first look have had time to fire.
    has_waited: bool,
    /// Nothing at all is under way.
    is_quiet: bool,
    /// The payment service makes no call.
    calls_nobody: bool,
    first: BTreeMap<String, Account>,
    fresh: Fresh,
    found: Vec<Discrepancy>,
}

/// Settles what looks wrong in `closed`, as far as the time goes. Answers who could not be asked.
pub(super) async fn settle(
    asking: Asking<'_>,
    closed: &mut Closed,
    baselines: &BTreeMap<String, Baseline>,
) -> Vec<Unanswered> {
    if closed.findings.count == closed.findings.certain {
        return Vec::new();
    }
    let first_look = Instant::now();
    let mut heard = asking.service_stats().await;
    let mut draining = Draining::since(&heard.service_stats);
    let mut has_drained = false;
    // Half of what is left at most: the rest is for the second look. Reading may take minutes; nobody waits that long for
    // something that never comes to rest.
    let half = asking.until.saturating_duration_since(first_look) / 2;
    let until = first_look + half.min(asking.patience);
    while heard.unanswered.is_empty() && !has_drained && Instant::now() < until {
        heard = asking.service_stats().await;
        has_drained = heard.unanswered.is_empty() && draining.look(&heard.service_stats);
        if !has_drained {
            sleep(LOOK_AGAIN).await;
        }
    }
    if closed.summary.overdue > 0 {
        sleep_until((first_look + DEADLINES_FIRE_WITHIN).min(until)).await;
    }
    let first = std::mem::take(&mut closed.suspects);
    let skus: BTreeSet<&str> = products(&first, &closed.findings.listed).collect();
    let (orders, skus): (Vec<_>, Vec<_>) =
        (first.keys().map(String::as_str).collect(), skus.into_iter().collect());
    let fresh = match asking.fresh(&orders, &skus).await {
        Ok(fresh) => fresh,
        Err(missing) => return [heard.unanswered, vec![missing]].concat(),
    };
    let now = asking.service_stats().await;
    let found = compared(&now, &fresh, baselines);
    let second = Second {
        has_drained,
        has_waited: first_look.elapsed() >= DEADLINES_FIRE_WITHIN,
        is_quiet: is_quiet(&heard) && is_quiet(&now) && published(&heard) == published(&now),
        calls_nobody: calls(&now.service_stats) == 0,
        first,
        fresh,
        found,
    };
    closed.findings.settle(|suspicion| second.standing(suspicion));
    now.unanswered
}

/// The products that the suspicions are about, and those of the suspects' lines.
fn products<'a>(
    first: &'a BTreeMap<String, Account>,
    listed: &'a [Discrepancy],
) -> impl Iterator<Item = &'a str> {
    let ordered = first.values().filter_map(|account| account.order.as_ref());
    let of_lines = ordered.flat_map(|order| order.lines.iter().map(|line| line.sku.as_str()));
    let is_of_products = |found: &&Discrepancy| !found.certain && found.rule == Rule::CopyIsCatalogue.text();
    of_lines.chain(listed.iter().filter(is_of_products).map(|found| found.subject.as_str()))
}

/// What looks wrong now, with what is fresh.
fn compared(heard: &Heard, fresh: &Fresh, baselines: &BTreeMap<String, Baseline>) -> Vec<Discrepancy> {
    let mut ledgers = Ledgers::new(heard.clock_of_orders(), baselines.clone());
    fresh.copies.iter().for_each(|copy: &CopyEntry| ledgers.copy(copy.clone()));
    fresh.stock.iter().for_each(|stock: &StockEntry| ledgers.stock(stock.clone()));
    ledgers.lack_before(fresh.left_before);
    fresh.accounts.iter().for_each(|(key, account)| ledgers.account(key, account));
    ledgers.messages(&heard.service_stats);
    ledgers.close().findings.listed
}

impl Second {
    fn standing(&self, suspicion: &Discrepancy) -> Standing {
        let is = |rule: Rule| suspicion.rule == rule.text();
        // The sums are over all orders, of which only a few were asked for again.
        if is(Rule::StockIsReservations) {
            return Standing::Open;
        }
        let is_same = |found: &Discrepancy| {
            (&found.rule, &found.subject, &found.detail)
                == (&suspicion.rule, &suspicion.subject, &suspicion.detail)
        };
        if is(Rule::MessagesAreHandled) {
            let is_wrong = self.is_quiet && self.found.iter().any(is_same);
            return if is_wrong { Standing::Wrong } else { Standing::Open };
        }
        let is_looked_at = is(Rule::CopyIsCatalogue) || self.first.contains_key(&suspicion.subject);
        let is_gone = self.first.contains_key(&suspicion.subject)
            && !self.fresh.accounts.contains_key(&suspicion.subject);
        // Nothing vanishes: of what is not found under its name nothing new is known.
        if !is_looked_at || is_gone {
            return Standing::Open;
        }
        if !self.found.iter().any(is_same) {
            let is_of_it =
                |found: &Discrepancy| found.subject == suspicion.subject && found.rule == suspicion.rule;
            return if self.found.iter().any(is_of_it) { Standing::Open } else { Standing::Gone };
        }
        if is(Rule::EveryOrderEnds) {
            return if self.has_waited { Standing::Wrong } else { Standing::Open };
        }
        let is_unchanged = self.first.get(&suspicion.subject) == self.fresh.accounts.get(&suspicion.subject);
        let is_at_rest = self.has_drained && is_unchanged && !self.is_called_for(&suspicion.subject);
        if is_at_rest { Standing::Wrong } else { Standing::Open }
    }

    /// Whether the bank is being asked about this order.
    fn is_called_for(&self, order: &str) -> bool {
        !self.calls_nobody && self.fresh.accounts.get(order).is_some_and(Account::has_open_call)
    }
}

pub(super) fn is_quiet(heard: &Heard) -> bool {
    heard.unanswered.is_empty() && under_way(&heard.service_stats).is_empty()
}

pub(super) fn published(heard: &Heard) -> Vec<u64> {
    heard.service_stats.iter().flat_map(|service| service.published.values().copied()).collect()
}

fn calls(service_stats: &[ServiceStats]) -> u64 {
    service_stats.iter().map(|service| service.stats.tasks).sum()
}
