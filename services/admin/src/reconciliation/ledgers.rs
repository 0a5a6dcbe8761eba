//! Pure: what the services say, side by side, and whether it adds up: accounts of orders one after another, products,
//! messages, rows.

use std::collections::{BTreeMap, BTreeSet};

use contract::money::Money;
use contract::reconciliation::{ChargeState, CopyEntry, OrderState, ReservationState, StockEntry};
use jiff::Timestamp;
use saga_core::service_stats::{ServiceStats, StepStats};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::account::{Account, Standard};
use super::closing::{Closing, Orders, Pieces};
use super::findings::{Findings, Found, Rule};
use super::settled::SettledItems;

/// The step by which admin's view of the sagas hears of them.
const VIEW: &str = "admin-saga-view";

/// How much there is of everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Summary {
    /// Orders, whatever became of them.
    pub orders: u64,
    /// Orders that are neither confirmed nor cancelled yet.
    pub pending: u64,
    /// Those of them that should have ended long ago.
    pub overdue: u64,
    /// Orders that were confirmed.
    pub confirmed: u64,
    /// Orders that were cancelled.
    pub cancelled: u64,
    /// Charges that the bank holds.
    pub captured: u64,
    /// Charges that the bank gave back.
    pub refunded: u64,
    /// Pieces in stock, free.
    pub on_hand: u64,
    /// Pieces set aside for orders that wait.
    pub reserved: u64,
    /// Pieces that confirmed orders took.
    pub sold: u64,
    /// Pieces that ever came in.
    pub supplied: u64,
    /// Distinct facts that all services have published.
    pub facts_published: u64,
    /// Dead letters that wait for a human or are being replayed.
    pub dead_letters: u64,
    /// Rows that were compared with the fold of their events.
    pub rows_checked: u64,
}

/// What an operator accepted: a step and what was published for it differ by so much, and always will.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Baseline {
    /// Messages published that the step never came to, because it, or its database, was not there yet; negative when
    /// it came to more than its producers remember.
    pub missed: i64,
    /// When that was accepted: what was said before is not looked for any more.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// What the services say, side by side.
#[derive(Debug)]
pub struct Ledgers {
    now: Timestamp,
    baselines: BTreeMap<String, Baseline>,
    skus: BTreeMap<String, Sku>,
    /// Every price that a product ever had.
    prices: BTreeMap<String, Vec<Money>>,
    summary: Summary,
    findings: Findings,
    settled: SettledItems,
    /// The first accounts of which something looks wrong, to be looked at again.
    suspects: BTreeMap<String, Account>,
    /// Of sagas with lower ids, entries may have left.
    left_before: Option<Uuid>,
    /// What has left is in the sums already.
    is_left_carried: bool,
    /// Some ledger is missing: what is compared with another means nothing.
    is_partial: bool,
    /// It is known of each product whether it moved while the reservations were read.
    is_stock_checked: bool,
}

/// At most this many accounts are looked at again.
const SUSPECTS: usize = 100;

/// What the ledgers come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// How much there is of everything.
    pub summary: Summary,
    /// What does not add up.
    pub findings: Findings,
    /// What does not add up, and was settled outside.
    pub settled: SettledItems,
    /// The accounts of the first hundred orders of which something looks wrong.
    pub suspects: BTreeMap<String, Account>,
}

/// Whether something is added to a sum, or taken out of it again.
#[derive(Debug, Clone, Copy)]
enum Change {
    Comes,
    Goes,
}

impl Change {
    /// A sum that would fall below nothing stays there: what it is held against tells that it is wrong.
    const fn apply(self, sum: &mut u64, by: u64) {
        *sum = match self {
            Self::Comes => sum.saturating_add(by),
            Self::Goes => sum.saturating_sub(by),
        };
    }
}

/// All that is known of one product.
#[derive(Debug, Default)]
struct Sku {
    stock: Option<StockEntry>,
    /// It changed while the reservations were read: they are not of the same moment.
    has_moved: bool,
    copy: Option<CopyEntry>,
    /// Pieces that reservations hold.
    held: u64,
    /// Pieces that reservations have sold.
    sold: u64,
}

impl Ledgers {
    /// Empty ledgers, at a time of the order service's clock, with what was accepted of each step.
    #[must_use]
    pub fn new(now: Timestamp, baselines: BTreeMap<String, Baseline>) -> Self {
        Self {
            now,
            baselines,
            skus: BTreeMap::new(),
            prices: BTreeMap::new(),
            summary: Summary::default(),
            findings: Findings::default(),
            settled: SettledItems::default(),
            suspects: BTreeMap::new(),
            left_before: None,
            is_left_carried: false,
            is_partial: false,
            is_stock_checked: false,
        }
    }

    /// Some ledger cannot be had: from now on only what is wrong by itself counts.
    pub const fn lack(&mut self) {
        self.is_partial = true;
    }

    /// Of sagas with lower ids, entries may be missing from now on: they have left with their age.
    pub fn lack_before(&mut self, saga: Option<Uuid>) {
        self.left_before = self.left_before.max(saga);
    }

    /// Whether parts of an account may have left. Then no part is held against another: only what is open is wrong.
    fn is_old(&self, key: &str) -> bool {
        self.left_before.is_some_and(|before| key.parse::<Uuid>().is_ok_and(|order| order < before))
    }

    /// Takes a product's stock once more, after the reservations: products and reservations change together, so one
    /// that has not changed meanwhile can be held against them whatever is under way.
    pub fn stock_again(&mut self, entry: &StockEntry) {
        let sku = self.skus.entry(entry.sku.clone()).or_default();
        sku.has_moved = entry.version == 0 || sku.stock.as_ref() != Some(entry);
    }

    /// All of it was read again.
    pub const fn stock_was_read_again(&mut self) {
        self.is_stock_checked = true;
    }

    fn report(&mut self, subject: &str, found: Found) {
        if found.rule.holds_always() || !self.is_partial {
            self.findings.take(found.of(subject));
        }
    }

    /// Takes a product's stock.
    pub fn stock(&mut self, entry: StockEntry) {
        let sku = self.skus.entry(entry.sku.clone()).or_default();
        sku.stock = Some(entry);
    }

    /// Takes a product of the order service's catalogue. Before the orders, which are held against its prices.
    pub fn copy(&mut self, entry: CopyEntry) {
        self.prices.insert(entry.sku.clone(), entry.prices.clone());
        let sku = self.skus.entry(entry.sku.clone()).or_default();
        sku.copy = Some(entry);
    }

    /// What every order must be held against.
    #[must_use]
    pub fn standard(&self) -> Standard<'_> {
        let since = self.baselines.get(VIEW).map_or(Timestamp::MIN, |baseline| baseline.at);
        Standard { now: self.now, prices: &self.prices, heard_since: since }
    }

    /// Takes all that is known of one order.
    pub fn account(&mut self, key: &str, account: &Account) {
        let (found, settled) = match self.is_old(key) {
            true => (account.open(), vec![]),
            false => account.judged(key, self.standard()),
        };
        if !self.is_partial {
            self.settled.take(settled);
        }
        if found.iter().any(|found| !found.certain) && !self.is_partial && self.suspects.len() < SUSPECTS {
            self.suspects.insert(key.to_owned(), account.clone());
        }
        for found in found {
            self.report(key, found);
        }
        self.summary.overdue += u64::from(account.is_overdue(self.now));
        self.count(account, Change::Comes);
    }

    /// Takes back an order as it was when the books were closed: it has changed since.
    pub fn forget(&mut self, before: &Account) {
        self.count(before, Change::Goes);
    }

    /// Begins with what everything came to when the books were closed.
    #[must_use]
    pub fn carried(mut self, closing: &Closing) -> Self {
        let Orders { orders, pending, confirmed, cancelled, captured, refunded } = closing.orders;
        self.summary = Summary { orders, pending, confirmed, cancelled, captured, refunded, ..self.summary };
        for (name, pieces) in &closing.skus {
            let sku = self.skus.entry(name.clone()).or_default();
            (sku.held, sku.sold) = (pieces.held, pieces.sold);
        }
        self.is_left_carried = true;
        self
    }

    /// What there is to carry forward of it; `None` when some ledger is missing, or more was settled outside than is
    /// listed.
    #[must_use]
    pub fn to_carry(&self) -> Option<(Orders, BTreeMap<String, Pieces>, BTreeSet<String>)> {
        let is_whole = !self.is_partial && self.settled.count == self.settled.listed.len() as u64;
        let Summary { orders, pending, confirmed, cancelled, captured, refunded, .. } = self.summary;
        let orders = Orders { orders, pending, confirmed, cancelled, captured, refunded };
        let pieces = |(name, sku): (&String, &Sku)| {
            let pieces = Pieces { held: sku.held, sold: sku.sold + sku.left(self.is_left_carried) };
            (pieces != Pieces::default()).then(|| (name.clone(), pieces))
        };
        let settled = self.settled.listed.iter().map(|item| item.subject.clone()).collect();
        is_whole.then(|| (orders, self.skus.iter().filter_map(pieces).collect(), settled))
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

    /// Takes rows that differ from the fold of their events.
    pub fn rows(&mut self, service: &str, rows: u64, differing: &[String]) {
        self.summary.rows_checked += rows;
        for row in differing {
            self.report(service, Found::plain(Rule::RowsAreFolds, row.clone()));
        }
    }

    /// Takes rows that cannot be read.
    pub fn unreadable(&mut self, service: &str, rows: &[String]) {
        for row in rows {
            self.report(service, Found::plain(Rule::RowsCanBeRead, row.clone()));
        }
    }

    /// Compares what was published with what was handled, for every step of every service.
    pub fn messages(&mut self, service_stats: &[ServiceStats]) {
        for service in service_stats {
            self.summary.dead_letters += service.stats.dead_letters;
            self.summary.facts_published += service.published.values().sum::<u64>();
            if service.stats.outbox_failed > 0 {
                let detail = format!("{} refused by the broker", service.stats.outbox_failed);
                self.report(&service.service, Found::plain(Rule::FactsArePublished, detail));
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
                    "{published} published{before}; {handled} handled + {retrying} to be tried again + {dead} dead"
                );
                let difference = Some(format!("{} messages", accepted.saturating_sub(missed)));
                self.report(
                    &step.step,
                    Found { difference, ..Found::plain(Rule::MessagesAreHandled, detail) },
                );
            }
        }
    }

    /// Compares the products: what there is of everything, and what does not add up. In a busy system the services
    /// were not asked at the same moment: what looks wrong is to be looked at again.
    #[must_use]
    pub fn close(mut self) -> Closed {
        for (name, sku) in std::mem::take(&mut self.skus) {
            for found in sku.faults(self.is_stock_checked, self.is_left_carried) {
                self.report(&name, found);
            }
            if let Some(stock) = &sku.stock {
                self.summary.on_hand += stock.on_hand;
                self.summary.reserved += stock.reserved;
                self.summary.sold += stock.sold;
                self.summary.supplied += stock.supplied;
            }
        }
        let Self { summary, findings, settled, suspects, .. } = self;
        Closed { summary, findings, settled, suspects }
    }
}

impl Sku {
    /// Pieces sold of reservations that have left, unless they are in the sums.
    fn left(&self, is_carried: bool) -> u64 {
        self.stock.as_ref().filter(|_| !is_carried).map_or(0, |stock| stock.purged)
    }

    fn faults(&self, is_stock_checked: bool, is_left_carried: bool) -> Vec<Found> {
        let mut faults = Vec::new();
        let (reserved, sold) = self.stock.as_ref().map_or((0, 0), |stock| (stock.reserved, stock.sold));
        let left = self.left(is_left_carried);
        for (what, product, orders) in [("reserved", reserved, self.held), ("sold", sold, self.sold + left)] {
            if product != orders {
                let detail = format!("{what}: the product says {product}, orders say {orders}");
                faults.push(Found {
                    difference: pieces(product, orders),
                    certain: is_stock_checked && !self.has_moved,
                    ..Found::plain(Rule::StockIsReservations, detail)
                });
            }
        }
        if let Some(StockEntry { on_hand, reserved, sold, supplied, .. }) = self.stock {
            let accounted = on_hand + reserved + sold;
            if accounted != supplied {
                let detail = format!("{accounted} accounted for, {supplied} supplied");
                let difference = pieces(accounted, supplied);
                faults.push(Found { difference, ..Found::plain(Rule::StockAddsUp, detail) });
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
            faults.push(Found::plain(Rule::CopyIsCatalogue, detail));
        }
        faults
    }
}

/// How many pieces too many.
fn pieces(are: u64, should: u64) -> Option<String> {
    let by = i128::from(are) - i128::from(should);
    (by != 0).then(|| format!("{by} pieces"))
}

/// How many of the messages that were published for a step it has not come to, for every step of every service:
/// neither handled nor parked, nor waiting for another try. Negative when it has come to more of them.
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
