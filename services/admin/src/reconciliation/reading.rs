//! Shell: requests the ledgers of all services, each within its time limit. A service that does not answer is reported, and
//! the others are read all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::reconciliation::{CopyEntry, StockEntry};
use contract::saga_view::SagaView;
use futures::future::{join_all, try_join_all};
use futures::join;
use jiff::Timestamp;
use saga_core::decider::Decider as _;
use saga_core::service_stats::{HistoryPosition, ServiceStats, StoreStats};
use saga_engine::host::internal_api::service_stats_of;
use saga_engine::host::queries::{LedgerQuery, MAX_IDS, Page, changed_ids, position};
use saga_engine::store::VerificationReport;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use uuid::Uuid;

use super::request::Request;
use super::streams::{
    BANK, CHARGES, COPIES, INVENTORY, ORDER, ORDERS, PAYMENT, PAYMENTS, RESERVATIONS, STOCK, take_page,
};
use crate::ledgers::account::Account;
use crate::ledgers::accounts::Accounts;
use crate::ledgers::checkpoint::Checkpoint;
use crate::ledgers::totals::Ledgers;
use crate::service_client::all;
use crate::topology::NAME;
use admin_api::reconciliation::Baseline;
use admin_api::reconciliation::Unanswered;

/// Rows of orders: service, kind, and the field with the order, unless it is their id.
const CHANGING: [(&str, &str, Option<&str>); 5] = [
    (ORDER, "order", None),
    (INVENTORY, "reservation", None),
    (PAYMENT, "payment", None),
    (BANK, "charge", Some("reference")),
    (NAME, SagaView::KIND, None),
];
/// Maximum number of changed orders that are read one by one. Above it a full verification is faster.
const MAX_CHANGED: usize = 100_000;
/// Pages of such orders that are read at once.
const CONCURRENT_PAGES: usize = 2;

/// Time limit of service stats, which wait up to two seconds for the broker. A service that is down must not use up the
/// time of the others.
const STATS_TIMEOUT: Duration = Duration::from_secs(4);

/// Statistics of all services that answered.
#[derive(Debug, Default)]
pub(super) struct AllStats {
    pub service_stats: Vec<ServiceStats>,
    pub unanswered: Vec<Unanswered>,
}

impl AllStats {
    /// Time of the order service, whose clock deadlines follow.
    pub fn clock_of_orders(&self) -> Timestamp {
        let order = self.service_stats.iter().find(|service| service.service == ORDER);
        order.map_or_else(Timestamp::now, |service| service.at)
    }

    /// Times of the last accepted losses of data, by service.
    pub fn losses(&self) -> BTreeMap<String, Timestamp> {
        let lost = |service: &ServiceStats| Some((service.service.clone(), service.lost_before?));
        self.service_stats.iter().filter_map(lost).collect()
    }

    /// Creates ledgers at the time of the orders, which know of the losses.
    pub fn ledgers(&self, baselines: BTreeMap<String, Baseline>) -> Ledgers {
        Ledgers::new(self.clock_of_orders(), baselines).after_losses(self.losses())
    }

    fn away(&self) -> BTreeSet<&str> {
        self.unanswered.iter().map(|unanswered| unanswered.service.as_str()).collect()
    }
}

/// Current entries of some orders and products.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    pub accounts: BTreeMap<String, Account>,
    pub stock: Vec<StockEntry>,
    pub copies: Vec<CopyEntry>,
    /// Entries of sagas with lower ids may have been purged.
    pub purged_before: Option<Uuid>,
}

impl Request<'_> {
    /// Reads the stats of every service, admin's own first.
    pub async fn stats(&self) -> AllStats {
        let now = Instant::now();
        // Half of the time at most: a service that is down leaves the other half for the ledgers.
        let until = now + STATS_TIMEOUT.min(self.until.saturating_duration_since(now) / 2);
        let soon = Self { until, ..*self };
        let own = soon.in_time(NAME, "its stats", service_stats_of(self.app));
        let others = all().into_iter().map(|service| {
            let asked = self.services.get::<ServiceStats>(service, "/internal/stats");
            soon.in_time(service, "its stats", asked)
        });
        let (own, others) = join!(own, join_all(others));
        let mut stats = AllStats::default();
        // Notifications do not count, as their receiver may be down for long.
        let own = own.map(|own| ServiceStats { stats: StoreStats { tasks: 0, ..own.stats }, ..own });
        for answer in std::iter::once(own).chain(others) {
            match answer {
                Ok(service_stats) => stats.service_stats.push(service_stats),
                Err(unanswered) => stats.unanswered.push(unanswered),
            }
        }
        stats
    }

    /// Reads the ledgers of all services that answer.
    pub async fn read_all(
        &self,
        stats: &AllStats,
        baselines: BTreeMap<String, Baseline>,
    ) -> (Ledgers, Vec<Unanswered>) {
        let mut ledgers = stats.ledgers(baselines);
        let (away, mut unanswered) = (stats.away(), Vec::new());
        if !away.is_empty() {
            ledgers.mark_partial();
        }
        let copies = self.take_all(&away, COPIES, &mut ledgers, Ledgers::copy).await;
        let stock = self.take_all(&away, STOCK, &mut ledgers, Ledgers::stock).await;
        let (of_accounts, folds) = self.take_accounts(&away, &mut ledgers).await;
        unanswered.extend(of_accounts);
        let again = |ledgers: &mut Ledgers, entry: StockEntry| ledgers.reread_stock(&entry);
        let again = self.take_all(&away, STOCK, &mut ledgers, again).await;
        if again.is_ok() && !away.contains(INVENTORY) {
            ledgers.mark_stock_reread();
        }
        unanswered.extend([copies, stock, again].into_iter().filter_map(Result::err));
        for (service, folds, missing) in folds {
            ledgers.rows(service, folds.rows, &folds.differing);
            unanswered.extend(missing);
        }
        (ledgers, unanswered)
    }

    /// Reads what has changed since a checkpoint, with the number of orders. `None` when a service does not answer, too much
    /// has changed, or the old state was purged.
    pub async fn read_changes(
        &self,
        stats: &AllStats,
        baselines: BTreeMap<String, Baseline>,
        checkpoint: &Checkpoint,
    ) -> Option<(Ledgers, u64)> {
        let nobody = BTreeSet::new();
        let mut ledgers = stats.ledgers(baselines).with_checkpoint(checkpoint);
        let orders = self.changed(checkpoint).await.ok()??;
        self.take_all(&nobody, COPIES, &mut ledgers, Ledgers::copy).await.ok()?;
        self.take_all(&nobody, STOCK, &mut ledgers, Ledgers::stock).await.ok()?;
        let orders: Vec<&str> = orders.iter().map(String::as_str).collect();
        for some in orders.chunks(MAX_IDS * CONCURRENT_PAGES) {
            let mut asked = Vec::new();
            for some in some.chunks(MAX_IDS) {
                asked.push(self.before_and_now(some, checkpoint));
            }
            for (before, Now { accounts, unreadable, purged_before }) in try_join_all(asked).await.ok()? {
                if purged_before.is_some_and(|before| checkpoint.is_before(before)) {
                    // An order that changed since the checkpoint may have been purged since.
                    return None;
                }
                ledgers.mark_purged_before(purged_before);
                before?.values().for_each(|account| ledgers.remove(account));
                accounts.iter().for_each(|(key, account)| ledgers.account(key, account));
                unreadable.iter().for_each(|(service, rows)| ledgers.unreadable(service, rows));
            }
        }
        let again = |ledgers: &mut Ledgers, entry: StockEntry| ledgers.reread_stock(&entry);
        self.take_all(&nobody, STOCK, &mut ledgers, again).await.ok()?;
        ledgers.mark_stock_reread();
        for (service, VerificationReport { rows, differing, .. }, missing) in
            self.changed_rows(checkpoint).await
        {
            if missing.is_some() {
                return None;
            }
            ledgers.rows(service, rows, &differing);
        }
        Some((ledgers, orders.len() as u64))
    }

    /// Reads the history position of every service; or, of a checkpoint, whether its positions still exist.
    pub async fn positions(
        &self,
        then: Option<&Checkpoint>,
    ) -> Result<BTreeMap<String, HistoryPosition>, Unanswered> {
        let of = |service: &'static str| async move {
            let at = then.and_then(|then| then.positions.get(service)).map(|position| position.event);
            let asked = async {
                match service {
                    NAME => position(self.app.store.as_ref(), at).await,
                    _ => {
                        let query = at.map(|at| ("at", at.to_string())).into_iter().collect();
                        self.services.query(service, "/internal/position", query).await
                    }
                }
            };
            Ok((service.to_owned(), self.in_time(service, "its history position", asked).await?))
        };
        try_join_all(all().into_iter().chain([NAME]).map(of)).await.map(BTreeMap::from_iter)
    }

    /// Lists orders that have changed since a checkpoint, and manually resolved ones; `None` when there are too many.
    async fn changed(&self, checkpoint: &Checkpoint) -> Result<Option<BTreeSet<String>>, Unanswered> {
        let mut orders = checkpoint.resolved.clone();
        for (service, kind, by) in CHANGING {
            let mut after = checkpoint.positions.get(service).map(|position| position.event);
            while let Some(from) = after {
                let page = async {
                    match service {
                        NAME => changed_ids(self.app.store.as_ref(), kind, from, by).await,
                        _ => {
                            let query = [("kind", kind.to_owned()), ("after", from.to_string())];
                            let by = by.map(|by| ("by", by.to_owned()));
                            let query = query.into_iter().chain(by).collect();
                            self.services.query(service, "/internal/changes", query).await
                        }
                    }
                };
                let page = self.in_time(service, "its changes", page).await?;
                orders.extend(page.ids);
                after = page.next;
                // Ids with a comma cannot be listed in a query.
                let is_strange = |id: &String| id.contains(',');
                if orders.len() > MAX_CHANGED || orders.iter().any(is_strange) {
                    return Ok(None);
                }
            }
        }
        Ok(Some(orders))
    }

    async fn before_and_now(
        &self,
        orders: &[&str],
        checkpoint: &Checkpoint,
    ) -> Result<BeforeAndNow, Unanswered> {
        let (before, now) = join!(self.before(orders, checkpoint), self.accounts(orders));
        Ok((before?, now?))
    }

    /// Reads orders as they were at a checkpoint; `None` when that was purged.
    async fn before(
        &self,
        orders: &[&str],
        checkpoint: &Checkpoint,
    ) -> Result<Option<BTreeMap<String, Account>>, Unanswered> {
        let mut accounts = Accounts::default();
        let (ordered, reserved, charged) = join!(
            self.as_of(ORDERS, orders, checkpoint),
            self.as_of(RESERVATIONS, orders, checkpoint),
            self.as_of(CHARGES, orders, checkpoint),
        );
        let (ordered, reserved, charged) = (ordered?, reserved?, charged?);
        let is_known =
            ordered.unreadable.is_empty() && reserved.unreadable.is_empty() && charged.unreadable.is_empty();
        accounts.orders.take(ordered.entries, None);
        accounts.reservations.take(reserved.entries, None);
        accounts.charges.take(charged.entries, None);
        // Payments and views have no totals.
        accounts.payments.end();
        accounts.views.end();
        let all = std::iter::from_fn(|| accounts.pop()).collect();
        Ok(is_known.then_some(all))
    }

    async fn as_of<T: DeserializeOwned>(
        &self,
        (service, path): (&str, &str),
        orders: &[&str],
        checkpoint: &Checkpoint,
    ) -> Result<Page<T>, Unanswered> {
        let at = checkpoint.positions.get(service).map_or(0, |position| position.event);
        let query = vec![("only", orders.join(",")), ("as_of", at.to_string())];
        let asked = self.services.page(service, path, query);
        self.in_time(service, path, asked).await
    }

    /// Takes every entry of a ledger, page by page.
    async fn take_all<T: DeserializeOwned>(
        &self,
        away: &BTreeSet<&str>,
        (service, path): (&str, &str),
        ledgers: &mut Ledgers,
        take: fn(&mut Ledgers, T),
    ) -> Result<(), Unanswered> {
        if away.contains(service) {
            return Ok(());
        }
        let mut after = None;
        loop {
            let page = self.next_page::<T>((service, path), after).await;
            let page = page.inspect_err(|_| ledgers.mark_partial())?;
            ledgers.unreadable(service, &page.unreadable);
            page.entries.into_iter().for_each(|entry| take(ledgers, entry));
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Reads the current entries of orders and products.
    pub async fn fresh(&self, orders: &[&str], skus: &[&str]) -> Result<Fresh, Unanswered> {
        let mut fresh = Fresh::default();
        if !orders.is_empty() {
            let now = self.accounts(orders).await?;
            (fresh.accounts, fresh.purged_before) = (now.accounts, now.purged_before);
        }
        for skus in skus.chunks(MAX_IDS) {
            // Catalogue copies are read after the orders that used them.
            fresh.stock.extend(self.only(STOCK, skus).await?.entries);
            fresh.copies.extend(self.only(COPIES, skus).await?.entries);
        }
        Ok(fresh)
    }

    /// Reads the current entries of orders, and the ids of damaged rows.
    async fn accounts(&self, orders: &[&str]) -> Result<Now, Unanswered> {
        let mut accounts = Accounts::default();
        let Accounts { orders: ordered, reservations, payments, charges, views } = &mut accounts;
        let only = LedgerQuery { only: Some(orders.join(",")), ..LedgerQuery::default() };
        let unreadable = vec![
            (ORDER, take_page(ordered, self.only(ORDERS, orders).await?)),
            (INVENTORY, take_page(reservations, self.only(RESERVATIONS, orders).await?)),
            (PAYMENT, take_page(payments, self.only(PAYMENTS, orders).await?)),
            (BANK, take_page(charges, self.only(CHARGES, orders).await?)),
            (NAME, take_page(views, self.views(only).await?)),
        ];
        let purged_before = accounts.purged_before();
        let accounts = std::iter::from_fn(|| accounts.pop()).collect();
        Ok(Now { accounts, unreadable, purged_before })
    }

    async fn only<T: DeserializeOwned>(
        &self,
        (service, path): (&str, &str),
        ids: &[&str],
    ) -> Result<Page<T>, Unanswered> {
        let asked = self.services.page(service, path, vec![("only", ids.join(","))]);
        self.in_time(service, path, asked).await
    }
}

/// Ids of damaged rows, by service.
type Unreadable = Vec<(&'static str, Vec<String>)>;

/// Entries of orders at a checkpoint, if known, and now.
type BeforeAndNow = (Option<BTreeMap<String, Account>>, Now);

/// Current entries of orders.
struct Now {
    accounts: BTreeMap<String, Account>,
    unreadable: Unreadable,
    /// Entries of sagas with lower ids may have been purged.
    purged_before: Option<Uuid>,
}
