//! Shell: asking every service for its ledger, each question within its time. What does not answer is told of, and
//! keeps nobody from asking the others.

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

use super::account::Account;
use super::accounts::Accounts;
use super::answers::Asking;
use super::closing::Closing;
use super::ledgers::{Baseline, Ledgers};
use super::side_by_side::{
    BANK, CHARGES, COPIES, INVENTORY, ORDER, ORDERS, PAYMENT, PAYMENTS, RESERVATIONS, STOCK, take_page,
};
use super::under_way::Unanswered;
use crate::other_services::all;

/// Who keeps rows of orders: the service, their kind, and the field by which they name the order, unless it is their id.
const CHANGING: [(&str, &str, Option<&str>); 5] = [
    (ORDER, "order", None),
    (INVENTORY, "reservation", None),
    (PAYMENT, "payment", None),
    (BANK, "charge", Some("reference")),
    (crate::NAME, SagaView::KIND, None),
];
/// Orders that are asked for one by one, at most: beyond that it is quicker to read all, and this many names are held.
const CHANGED_MOST: usize = 100_000;
/// Pages of such orders that are asked for at once.
const ASKED_AT_ONCE: usize = 2;

/// How a service is, is a short answer, in which it waits two seconds at most for its broker. One that is away must
/// not use up the time for the others.
const SOON: Duration = Duration::from_secs(4);

/// How all services are.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub service_stats: Vec<ServiceStats>,
    pub unanswered: Vec<Unanswered>,
}

impl Heard {
    /// The time by the clock that deadlines go by.
    pub fn clock_of_orders(&self) -> Timestamp {
        let order = self.service_stats.iter().find(|service| service.service == ORDER);
        order.map_or_else(Timestamp::now, |service| service.at)
    }

    fn away(&self) -> BTreeSet<&str> {
        self.unanswered.iter().map(|unanswered| unanswered.service.as_str()).collect()
    }
}

/// What the services say of some orders and products now.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    pub accounts: BTreeMap<String, Account>,
    pub stock: Vec<StockEntry>,
    pub copies: Vec<CopyEntry>,
    /// Of sagas with lower ids, entries may be missing.
    pub left_before: Option<Uuid>,
}

impl Asking<'_> {
    /// The machinery of every service, admin's own first.
    pub async fn service_stats(&self) -> Heard {
        let now = Instant::now();
        // Half of what is left at most: one that says nothing leaves the other half for those who answer.
        let until = now + SOON.min(self.until.saturating_duration_since(now) / 2);
        let soon = Self { until, ..*self };
        let own = soon.in_time(crate::NAME, "how it is", service_stats_of(self.app));
        let others = all().into_iter().map(|service| {
            let asked = self.services.get::<ServiceStats>(service, "/internal/stats");
            soon.in_time(service, "how it is", asked)
        });
        let (own, others) = join!(own, join_all(others));
        let mut heard = Heard::default();
        // Notices to people are no part of the books, and their receiver may be away for long.
        let own = own.map(|own| ServiceStats { stats: StoreStats { tasks: 0, ..own.stats }, ..own });
        for answer in std::iter::once(own).chain(others) {
            match answer {
                Ok(service_stats) => heard.service_stats.push(service_stats),
                Err(unanswered) => heard.unanswered.push(unanswered),
            }
        }
        heard
    }

    /// The ledgers of all services that answer.
    pub async fn gather(
        &self,
        heard: &Heard,
        baselines: BTreeMap<String, Baseline>,
    ) -> (Ledgers, Vec<Unanswered>) {
        let mut ledgers = Ledgers::new(heard.clock_of_orders(), baselines);
        let (away, mut unanswered) = (heard.away(), Vec::new());
        if !away.is_empty() {
            ledgers.lack();
        }
        let copies = self.take_all(&away, COPIES, &mut ledgers, Ledgers::copy).await;
        let stock = self.take_all(&away, STOCK, &mut ledgers, Ledgers::stock).await;
        let (of_accounts, folds) = self.take_accounts(&away, &mut ledgers).await;
        unanswered.extend(of_accounts);
        let again = |ledgers: &mut Ledgers, entry: StockEntry| ledgers.stock_again(&entry);
        let again = self.take_all(&away, STOCK, &mut ledgers, again).await;
        if again.is_ok() && !away.contains(INVENTORY) {
            ledgers.stock_was_read_again();
        }
        unanswered.extend([copies, stock, again].into_iter().filter_map(Result::err));
        for (service, folds, missing) in folds {
            ledgers.rows(service, folds.rows, &folds.differing);
            unanswered.extend(missing);
        }
        (ledgers, unanswered)
    }

    /// The ledgers as they were closed, and all that has changed since, with how many orders that is. `None` when that
    /// cannot be told: somebody is away, too much has changed, or nobody knows any more how it was.
    pub async fn gather_changes(
        &self,
        heard: &Heard,
        baselines: BTreeMap<String, Baseline>,
        closing: &Closing,
    ) -> Option<(Ledgers, u64)> {
        let nobody = BTreeSet::new();
        let mut ledgers = Ledgers::new(heard.clock_of_orders(), baselines).carried(closing);
        let orders = self.changed(closing).await.ok()??;
        self.take_all(&nobody, COPIES, &mut ledgers, Ledgers::copy).await.ok()?;
        self.take_all(&nobody, STOCK, &mut ledgers, Ledgers::stock).await.ok()?;
        let orders: Vec<&str> = orders.iter().map(String::as_str).collect();
        for some in orders.chunks(MAX_IDS * ASKED_AT_ONCE) {
            let mut asked = Vec::new();
            for some in some.chunks(MAX_IDS) {
                asked.push(self.before_and_now(some, closing));
            }
            for (before, Now { accounts, unreadable, left_before }) in try_join_all(asked).await.ok()? {
                if left_before.is_some_and(|before| closing.is_before(before)) {
                    // What has changed since may have left since: nobody knows what it was.
                    return None;
                }
                ledgers.lack_before(left_before);
                before?.values().for_each(|account| ledgers.forget(account));
                accounts.iter().for_each(|(key, account)| ledgers.account(key, account));
                unreadable.iter().for_each(|(service, rows)| ledgers.unreadable(service, rows));
            }
        }
        let again = |ledgers: &mut Ledgers, entry: StockEntry| ledgers.stock_again(&entry);
        self.take_all(&nobody, STOCK, &mut ledgers, again).await.ok()?;
        ledgers.stock_was_read_again();
        for (service, VerificationReport { rows, differing, .. }, missing) in self.changed_rows(closing).await
        {
            if missing.is_some() {
                return None;
            }
            ledgers.rows(service, rows, &differing);
        }
        Some((ledgers, orders.len() as u64))
    }

    /// How far every service has come; or the same place of each as then, if it still stands there.
    ///
    /// # Errors
    /// Who did not answer.
    pub async fn places(
        &self,
        then: Option<&Closing>,
    ) -> Result<BTreeMap<String, HistoryPosition>, Unanswered> {
        let of = |service: &'static str| async move {
            let at = then.and_then(|then| then.places.get(service)).map(|place| place.event);
            let asked = async {
                match service {
                    crate::NAME => position(self.app.store.as_ref(), at).await,
                    _ => self.services.place(service, at).await,
                }
            };
            Ok((service.to_owned(), self.in_time(service, "how far it has come", asked).await?))
        };
        try_join_all(all().into_iter().chain([crate::NAME]).map(of)).await.map(BTreeMap::from_iter)
    }

    /// The orders of which some service has heard since the books were closed, and those that were settled; `None` when
    /// they are more than are read one by one.
    async fn changed(&self, closing: &Closing) -> Result<Option<BTreeSet<String>>, Unanswered> {
        let mut orders = closing.settled.clone();
        for (service, kind, by) in CHANGING {
            let mut after = closing.places.get(service).map(|place| place.event);
            while let Some(from) = after {
                let page = async {
                    match service {
                        crate::NAME => changed_ids(self.app.store.as_ref(), kind, from, by).await,
                        _ => self.services.changes(service, kind, from, by).await,
                    }
                };
                let page = self.in_time(service, "what has changed", page).await?;
                orders.extend(page.ids);
                after = page.next;
                // What is called otherwise than an order cannot be asked for by its name.
                let is_strange = |id: &String| id.contains(',');
                if orders.len() > CHANGED_MOST || orders.iter().any(is_strange) {
                    return Ok(None);
                }
            }
        }
        Ok(Some(orders))
    }

    async fn before_and_now(&self, orders: &[&str], closing: &Closing) -> Result<BeforeAndNow, Unanswered> {
        let (before, now) = join!(self.before(orders, closing), self.accounts(orders));
        Ok((before?, now?))
    }

    /// What these orders came to when the books were closed; `None` when a service cannot tell any more.
    async fn before(
        &self,
        orders: &[&str],
        closing: &Closing,
    ) -> Result<Option<BTreeMap<String, Account>>, Unanswered> {
        let mut accounts = Accounts::default();
        let (ordered, reserved, charged) = join!(
            self.as_of(ORDERS, orders, closing),
            self.as_of(RESERVATIONS, orders, closing),
            self.as_of(CHARGES, orders, closing),
        );
        let (ordered, reserved, charged) = (ordered?, reserved?, charged?);
        let is_known =
            ordered.unreadable.is_empty() && reserved.unreadable.is_empty() && charged.unreadable.is_empty();
        accounts.orders.take(ordered.entries, None);
        accounts.reservations.take(reserved.entries, None);
        accounts.charges.take(charged.entries, None);
        // Neither payments nor views are summed up.
        accounts.payments.end();
        accounts.views.end();
        let all = std::iter::from_fn(|| accounts.pop()).collect();
        Ok(is_known.then_some(all))
    }

    async fn as_of<T: DeserializeOwned>(
        &self,
        (service, path): (&str, &str),
        orders: &[&str],
        closing: &Closing,
    ) -> Result<Page<T>, Unanswered> {
        let at = closing.places.get(service).map_or(0, |place| place.event);
        let asked = self.services.as_of(service, path, orders, at);
        self.in_time(service, path, asked).await
    }

    /// Every entry of a ledger, page by page.
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
            let asked = self.services.page::<T>(service, path, after.as_deref());
            let page = self.in_time(service, path, asked).await;
            let page = page.inspect_err(|_| ledgers.lack())?;
            ledgers.unreadable(service, &page.unreadable);
            page.entries.into_iter().for_each(|entry| take(ledgers, entry));
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// What the services say now of these orders and these products.
    ///
    /// # Errors
    /// Who did not answer.
    pub async fn fresh(&self, orders: &[&str], skus: &[&str]) -> Result<Fresh, Unanswered> {
        let mut fresh = Fresh::default();
        if !orders.is_empty() {
            let now = self.accounts(orders).await?;
            (fresh.accounts, fresh.left_before) = (now.accounts, now.left_before);
        }
        for skus in skus.chunks(MAX_IDS) {
            // The copies after the orders that were made by them.
            fresh.stock.extend(self.only(STOCK, skus).await?.entries);
            fresh.copies.extend(self.only(COPIES, skus).await?.entries);
        }
        Ok(fresh)
    }

    /// What the services say now of these orders, and whose rows cannot be read.
    async fn accounts(&self, orders: &[&str]) -> Result<Now, Unanswered> {
        let mut accounts = Accounts::default();
        let Accounts { orders: ordered, reservations, payments, charges, views } = &mut accounts;
        let only = LedgerQuery { only: Some(orders.join(",")), ..LedgerQuery::default() };
        let unreadable = vec![
            (ORDER, take_page(ordered, self.only(ORDERS, orders).await?)),
            (INVENTORY, take_page(reservations, self.only(RESERVATIONS, orders).await?)),
            (PAYMENT, take_page(payments, self.only(PAYMENTS, orders).await?)),
            (BANK, take_page(charges, self.only(CHARGES, orders).await?)),
            (crate::NAME, take_page(views, self.views(only).await?)),
        ];
        let left_before = accounts.left_before();
        let accounts = std::iter::from_fn(|| accounts.pop()).collect();
        Ok(Now { accounts, unreadable, left_before })
    }

    async fn only<T: DeserializeOwned>(
        &self,
        (service, path): (&str, &str),
        ids: &[&str],
    ) -> Result<Page<T>, Unanswered> {
        let asked = self.services.only(service, path, ids);
        self.in_time(service, path, asked).await
    }
}

/// Rows that cannot be read, by service.
type Unreadable = Vec<(&'static str, Vec<String>)>;

/// What orders came to when the books were closed, if that is known, and what they come to now.
type BeforeAndNow = (Option<BTreeMap<String, Account>>, Now);

/// What orders come to now.
struct Now {
    accounts: BTreeMap<String, Account>,
    unreadable: Unreadable,
    /// Of sagas with lower ids, entries may have left.
    left_before: Option<Uuid>,
}
