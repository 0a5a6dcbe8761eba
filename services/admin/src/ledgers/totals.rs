//! Pure: the totals of all ledgers and their discrepancies: orders, products, messages and rows.

use std::collections::{BTreeMap, BTreeSet};

use admin_api::reconciliation::{Baseline, Summary};
use contract::money::Money;
use contract::reconciliation::{ChargeState, CopyEntry, OrderState, ReservationState, StockEntry};
use jiff::Timestamp;
use saga_core::service_stats::{ServiceStats, StepStats};
use uuid::Uuid;

use super::account::{Account, Reference};
use super::checkpoint::{Checkpoint, OrderTotals, SkuTotals};
use super::discrepancies::{Discrepancies, MAX_SUSPECTED};
use super::resolved::ResolvedItems;
use super::rules::{Rule, Violation};

/// Step that maintains the saga view.
const VIEW: &str = "admin-saga-view";

/// Totals and discrepancies of all ledgers so far.
#[derive(Debug)]
pub struct Ledgers {
    now: Timestamp,
    baselines: BTreeMap<String, Baseline>,
    /// Time of the last accepted loss of data, by service.
    losses: BTreeMap<String, Timestamp>,
    skus: BTreeMap<String, Sku>,
    /// Every price that a product ever had, by SKU.
    prices: BTreeMap<String, Vec<Money>>,
    summary: Summary,
    discrepancies: Discrepancies,
    resolved: ResolvedItems,
    /// Digests of the accounts with suspected discrepancies, to be read again.
    suspects: BTreeMap<String, u64>,
    /// Entries of sagas with lower ids may have been purged.
    purged_before: Option<Uuid>,
    /// Marks totals of a checkpoint, which include purged reservations already.
    has_checkpoint: bool,
    /// A ledger is missing, so that comparisons between ledgers mean nothing.
    is_partial: bool,
    /// Stock was read again after the reservations, so that products that changed meanwhile are known.
    is_stock_checked: bool,
}

/// Result of the comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerResult {
    pub summary: Summary,
    pub discrepancies: Discrepancies,
    /// Discrepancies that were resolved manually.
    pub resolved: ResolvedItems,
    /// Digests of the accounts with suspected discrepancies.
    pub suspects: BTreeMap<String, u64>,
}

/// Direction of a change to a total.
#[derive(Debug, Clone, Copy)]
enum Change {
    Add,
    Remove,
}

impl Change {
    /// Adds or subtracts. A total that would fall below zero stays at zero, and the comparisons find it wrong.
    const fn apply(self, sum: &mut u64, by: u64) {
        *sum = match self {
            Self::Add => sum.saturating_add(by),
            Self::Remove => sum.saturating_sub(by),
        };
    }
}

/// All ledgers of one product.
#[derive(Debug, Default)]
struct Sku {
    stock: Option<StockEntry>,
    /// It changed while the reservations were read, so that the two cannot be compared.
    has_moved: bool,
    copy: Option<CopyEntry>,
    /// Pieces that reservations have reserved.
    held: u64,
    /// Pieces that reservations have sold.
    sold: u64,
}

impl Ledgers {
    /// Starts at a time of the order service's clock, with the accepted baseline of each step.
    pub fn new(now: Timestamp, baselines: BTreeMap<String, Baseline>) -> Self {
        Self {
            now,
            baselines,
            losses: BTreeMap::new(),
            skus: BTreeMap::new(),
            prices: BTreeMap::new(),
            summary: Summary::default(),
            discrepancies: Discrepancies::default(),
            resolved: ResolvedItems::default(),
            suspects: BTreeMap::new(),
            purged_before: None,
            has_checkpoint: false,
            is_partial: false,
            is_stock_checked: false,
        }
    }

    /// Records which services lost data, with the time at which an operator accepted the last loss.
    #[must_use]
    pub fn after_losses(self, losses: BTreeMap<String, Timestamp>) -> Self {
        Self { losses, ..self }
    }

    /// Records that a ledger is missing. From now on only violations within one ledger count.
    pub const fn mark_partial(&mut self) {
        self.is_partial = true;
    }

    /// Records that entries of sagas with lower ids may have been purged.
    pub fn mark_purged_before(&mut self, saga: Option<Uuid>) {
        self.purged_before = self.purged_before.max(saga);
    }

    /// True if parts of an account may have been purged. Then only its open work is a violation.
    fn is_old(&self, key: &str) -> bool {
        self.purged_before.is_some_and(|before| key.parse::<Uuid>().is_ok_and(|order| order < before))
    }

    /// Takes a product's stock again, after the reservations. Products and reservations change together: an unchanged
    /// product can be compared with them in a busy system too.
    pub fn reread_stock(&mut self, entry: &StockEntry) {
        let sku = self.skus.entry(entry.sku.clone()).or_default();
        sku.has_moved = entry.version == 0 || sku.stock.as_ref() != Some(entry);
    }

    /// Records that all stock was read again.
    pub const fn mark_stock_reread(&mut self) {
        self.is_stock_checked = true;
    }

    fn report(&mut self, subject: &str, found: Violation) {
        if found.rule.holds_always() || !self.is_partial {
            self.discrepancies.take(found.discrepancy(subject));
        }
    }

    pub fn stock(&mut self, entry: StockEntry) {
        let sku = self.skus.entry(entry.sku.clone()).or_default();
        sku.stock = Some(entry);
    }

    /// Takes a product of the catalogue copy. Orders are compared with its prices, so that it comes before them.
    pub fn copy(&mut self, entry: CopyEntry) {
        self.prices.insert(entry.sku.clone(), entry.prices.clone());
        let sku = self.skus.entry(entry.sku.clone()).or_default();
        sku.copy = Some(entry);
    }

    /// The reference that every order is compared with.
    pub fn reference(&self) -> Reference<'_> {
        let since = self.baselines.get(VIEW).map_or(Timestamp::MIN, |baseline| baseline.at);
        Reference { now: self.now, prices: &self.prices, view_complete_since: since, losses: &self.losses }
    }

    /// Takes the entries of one order.
    pub fn account(&mut self, key: &str, account: &Account) {
        let (found, resolved) = match self.is_old(key) {
            true => (account.open_work(), vec![]),
            false => account.judged(key, self.reference()),
        };
        if !self.is_partial {
            self.resolved.take(resolved);
        }
        if found.iter().any(|found| !found.certain) && !self.is_partial && self.suspects.len() < MAX_SUSPECTED
        {
            self.suspects.insert(key.to_owned(), account.digest());
        }
        for found in found {
            self.report(key, found);
        }
        self.summary.overdue += u64::from(account.is_overdue(self.now));
        self.count(account, Change::Add);
    }

    /// Removes an order as it was at the checkpoint, because it has changed since.
    pub fn remove(&mut self, before: &Account) {
        self.count(before, Change::Remove);
    }

    /// Starts with the totals of a checkpoint.
    pub fn with_checkpoint(mut self, checkpoint: &Checkpoint) -> Self {
        let OrderTotals { orders, pending, confirmed, cancelled, captured, refunded } = checkpoint.orders;
        self.summary = Summary { orders, pending, confirmed, cancelled, captured, refunded, ..self.summary };
        for (name, pieces) in &checkpoint.skus {
            let sku = self.skus.entry(name.clone()).or_default();
            (sku.held, sku.sold) = (pieces.held, pieces.sold);
        }
        self.has_checkpoint = true;
        self
    }

    /// Returns the totals for a checkpoint; `None` when a ledger is missing, or more was resolved manually than is listed.
    pub fn to_carry(&self) -> Option<(OrderTotals, BTreeMap<String, SkuTotals>, BTreeSet<String>)> {
        let is_whole = !self.is_partial && self.resolved.count == self.resolved.listed.len() as u64;
        let Summary { orders, pending, confirmed, cancelled, captured, refunded, .. } = self.summary;
        let orders = OrderTotals { orders, pending, confirmed, cancelled, captured, refunded };
        let pieces = |(name, sku): (&String, &Sku)| {
            let pieces = SkuTotals { held: sku.held, sold: sku.sold + sku.purged(self.has_checkpoint) };
            (pieces != SkuTotals::default()).then(|| (name.clone(), pieces))
        };
        let resolved = self.resolved.listed.iter().map(|item| item.subject.clone()).collect();
        is_whole.then(|| (orders, self.skus.iter().filter_map(pieces).collect(), resolved))
    }

    fn count(&mut self, account: &Account, change: Change) {
        let summary = &mut self.summary;
        if let Some(order) = &account.order {
            change.apply(&mut summary.orders, 1);
            let state = match order.state {
                OrderState::Pending => &mut summary.pending,
                OrderState::Confirmed => &mut summary.confirmed,
                OrderState::Cancelled => &mut summary.cancelled,
            };
            change.apply(state, 1);
        }
        for charge in &account.charges {
            match charge.state {
                ChargeState::Captured => change.apply(&mut summary.captured, 1),
                ChargeState::Refunded => change.apply(&mut summary.refunded, 1),
                ChargeState::None => {}
            }
        }
        if let Some(reservation) = &account.reservation {
            for line in &reservation.lines {
                // Most are known from the stock.
                let sku = match self.skus.get_mut(&line.sku) {
                    Some(sku) => sku,
                    None => self.skus.entry(line.sku.clone()).or_default(),
                };
                match reservation.state {
                    ReservationState::Reserved => change.apply(&mut sku.held, u64::from(line.quantity)),
                    ReservationState::Sold => change.apply(&mut sku.sold, u64::from(line.quantity)),
                    ReservationState::Free => {}
                }
            }
        }
    }

    /// Takes the result of comparing rows with the fold of their events.
    pub fn rows(&mut self, service: &str, rows: u64, differing: &[String]) {
        self.summary.rows_checked += rows;
        for row in differing {
            self.report(service, Violation::new(Rule::RowsAreFolds, row.clone()));
        }
    }

    pub fn unreadable(&mut self, service: &str, rows: &[String]) {
        for row in rows {
            self.report(service, Violation::new(Rule::RowsCanBeRead, row.clone()));
        }
    }

    /// Compares published with processed messages, for every step of every service.
    pub fn messages(&mut self, service_stats: &[ServiceStats]) {
        for service in service_stats {
            self.summary.dead_letters += service.stats.dead_letters;
            self.summary.facts_published += service.published.values().sum::<u64>();
            if service.stats.outbox_failed > 0 {
                let detail = format!("{} rejected by the broker", service.stats.outbox_failed);
                self.report(&service.service, Violation::new(Rule::FactsArePublished, detail));
            }
        }
        for (step, missed) in missed(service_stats) {
            let accepted = self.baselines.get(&step.step).map_or(0, |baseline| baseline.missed);
            if missed != accepted {
                let StepStats { handled, retrying, dead, .. } = step;
                let published = missed.saturating_add_unsigned(handled + retrying + dead);
                let before = match accepted {
                    0 => String::new(),
                    _ => format!(", {accepted} of them accepted as missed"),
                };
                let detail = format!(
                    "{published} published{before}; {handled} processed + {retrying} retrying + {dead} dead"
                );
                let difference = Some(format!("{} messages", accepted.saturating_sub(missed)));
                let advice = (missed < accepted).then(|| processed_more(&step.step));
                self.report(
                    &step.step,
                    Violation { difference, advice, ..Violation::new(Rule::MessagesAreHandled, detail) },
                );
            }
        }
    }

    /// Compares the products, and returns the result. In a busy system services are not read at the same moment, so that
    /// suspected discrepancies have to be read again.
    pub fn finish(mut self) -> LedgerResult {
        for (name, sku) in std::mem::take(&mut self.skus) {
            for found in sku.violations(self.is_stock_checked, self.has_checkpoint) {
                self.report(&name, found);
            }
            if let Some(stock) = &sku.stock {
                self.summary.on_hand += stock.on_hand;
                self.summary.reserved += stock.reserved;
                self.summary.sold += stock.sold;
                self.summary.supplied += stock.supplied;
            }
        }
        let Self { summary, discrepancies, resolved, suspects, .. } = self;
        LedgerResult { summary, discrepancies, resolved, suspects }
    }
}

impl Sku {
    /// Sold pieces of purged reservations, unless the totals include them.
    fn purged(&self, is_carried: bool) -> u64 {
        self.stock.as_ref().filter(|_| !is_carried).map_or(0, |stock| stock.purged)
    }

    fn violations(&self, is_stock_checked: bool, has_checkpoint: bool) -> Vec<Violation> {
        let mut found = Vec::new();
        let (reserved, sold) = self.stock.as_ref().map_or((0, 0), |stock| (stock.reserved, stock.sold));
        let purged = self.purged(has_checkpoint);
        for (what, product, orders) in [("reserved", reserved, self.held), ("sold", sold, self.sold + purged)]
        {
            if product != orders {
                let detail = format!("{what}: the product says {product}, orders say {orders}");
                found.push(Violation {
                    difference: pieces(product, orders),
                    certain: is_stock_checked && !self.has_moved,
                    ..Violation::new(Rule::StockIsReservations, detail)
                });
            }
        }
        if let Some(StockEntry { on_hand, reserved, sold, supplied, .. }) = self.stock {
            let accounted = on_hand + reserved + sold;
            if accounted != supplied {
                let detail = format!("{accounted} accounted for, {supplied} supplied");
                let difference = pieces(accounted, supplied);
                found.push(Violation { difference, ..Violation::new(Rule::StockAddsUp, detail) });
            }
        }
        let listed = self.stock.as_ref().and_then(|stock| Some((stock.unit_price?, stock.revision)));
        let copied = self.copy.as_ref().and_then(|copy| Some((copy.unit_price?, copy.revision)));
        if listed != copied {
            let text = |listing: Option<(Money, u64)>| {
                listing
                    .map_or("nothing".to_owned(), |(price, revision)| format!("{price}, revision {revision}"))
            };
            let detail = format!("the catalogue says {}, its copy {}", text(listed), text(copied));
            found.push(Violation::new(Rule::CopyIsCatalogue, detail));
        }
        found
    }
}

/// Advice for a step that has processed more than was published.
fn processed_more(step: &str) -> String {
    format!(
        "nothing is missing: a producer does not remember what it published, as after its database was restored from an older \
         copy. Once its orders agree, accept it: sagactl reconcile --accept {step} --reason WHY"
    )
}

fn pieces(are: u64, should: u64) -> Option<String> {
    let by = i128::from(are) - i128::from(should);
    (by != 0).then(|| format!("{by} pieces"))
}

/// Counts for every step the published messages that it has neither processed nor dead-lettered, and that do not wait for a
/// retry. The number is negative when it has processed more than were published.
pub fn missed(service_stats: &[ServiceStats]) -> impl Iterator<Item = (&StepStats, i64)> {
    let mut published: BTreeMap<&str, u64> = BTreeMap::new();
    for service in service_stats {
        published.extend(service.published.iter().map(|(subject, count)| (subject.as_str(), *count)));
    }
    service_stats.iter().flat_map(|service| &service.steps).map(move |step| {
        let promised: u64 = step.subjects.iter().filter_map(|subject| published.get(subject.as_str())).sum();
        let missed = i64::try_from(promised).unwrap_or(i64::MAX);
        (step, missed.saturating_sub_unsigned(step.handled + step.retrying + step.dead))
    })
}
