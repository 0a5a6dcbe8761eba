//! Shell: asking every service for its ledger, each question within its time. What does not answer is told of, and
//! keeps nobody from asking the others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::reconciliation::{CopyEntry, StockEntry};
use contract::saga_view::SagaView;
use futures::channel::mpsc::{Receiver, Sender, channel};
use futures::future::join_all;
use futures::{SinkExt as _, StreamExt as _, join};
use jiff::Timestamp;
use saga_core::decider::Decider as _;
use saga_core::machinery::{Machinery, Stats};
use saga_core::query::FoundRow;
use saga_engine::host::http::Problem;
use saga_engine::host::internal_api::machinery_of;
use saga_engine::host::reading::{Page, Range, entries_page};
use saga_engine::store::FoldReport;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::account::Account;
use super::accounts::{Accounts, Pages, View};
use super::ledgers::{Baseline, Ledgers};
use super::under_way::Unanswered;
use crate::AdminApp;
use crate::other_services::{OtherServices, all};

const ORDER: &str = "order";
const INVENTORY: &str = "inventory";
const PAYMENT: &str = "payment";
const BANK: &str = "bank";

const ORDERS: (&str, &str) = (ORDER, "/internal/ledger");
const COPIES: (&str, &str) = (ORDER, "/internal/ledger/catalogue");
const RESERVATIONS: (&str, &str) = (INVENTORY, "/internal/ledger/reservations");
const STOCK: (&str, &str) = (INVENTORY, "/internal/ledger/stock");
const PAYMENTS: (&str, &str) = (PAYMENT, "/internal/ledger");
const CHARGES: (&str, &str) = (BANK, "/v1/charges");

/// Events of which a service answers at once whether they make its rows: a second's worth at most.
const FOLDED_AT_ONCE: u64 = 100_000;
/// Rows of a service that differ from their events and are named, at most.
const DIFFERING: usize = 100;

/// Pages of a ledger that are there before they are needed: while one is judged, its service reads the next.
const AHEAD: usize = 1;

/// How a service is, is a short answer, in which it waits two seconds at most for its broker. One that is away must
/// not use up the time for the others.
const SOON: Duration = Duration::from_secs(4);

/// Whoever asks, until when.
#[derive(Clone, Copy)]
pub(super) struct Asking<'a> {
    pub app: &'a AdminApp,
    pub services: &'a OtherServices,
    pub until: Instant,
}

/// How all services are.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub machinery: Vec<Machinery>,
    pub unanswered: Vec<Unanswered>,
}

impl Heard {
    /// The time by the clock that deadlines go by.
    pub fn clock_of_orders(&self) -> Timestamp {
        let order = self.machinery.iter().find(|service| service.service == ORDER);
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
    async fn within<T>(
        &self,
        until: Instant,
        service: &str,
        what: &str,
        asked: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Unanswered> {
        let why = match timeout_at(until, asked).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(problem)) => problem.detail,
            Err(_) => format!("{what}: no answer in time"),
        };
        Err(Unanswered { service: service.to_owned(), why })
    }

    /// The machinery of every service, admin's own first.
    pub async fn machinery(&self) -> Heard {
        let now = Instant::now();
        // Half of what is left at most: one that says nothing leaves the other half for those who answer.
        let until = now + SOON.min(self.until.saturating_duration_since(now) / 2);
        let own = self.within(until, crate::NAME, "how it is", machinery_of(self.app));
        let others = all().into_iter().map(|service| {
            let asked = self.services.get::<Machinery>(service, "/internal/machinery");
            self.within(until, service, "how it is", asked)
        });
        let (own, others) = join!(own, join_all(others));
        let mut heard = Heard::default();
        // Notices to people are no part of the books, and their receiver may be away for long.
        let own = own.map(|own| Machinery { stats: Stats { tasks: 0, ..own.stats }, ..own });
        for answer in std::iter::once(own).chain(others) {
            match answer {
                Ok(machinery) => heard.machinery.push(machinery),
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
        // Beside each other: each service has a connection of its own for either.
        let (of_accounts, folds) = join!(self.take_accounts(&away, &mut ledgers), self.take_folds(&away));
        unanswered.extend(of_accounts);
        let again = |ledgers: &mut Ledgers, entry: StockEntry| ledgers.stock_again(&entry);
        let again = self.take_all(&away, STOCK, &mut ledgers, again).await;
        if again.is_ok() && !away.contains(INVENTORY) {
            ledgers.stock_was_read_again();
        }
        unanswered.extend([copies, stock, again].into_iter().filter_map(Result::err));
        for (service, folds) in folds {
            match folds {
                Ok(folds) => ledgers.rows(service, folds.rows, &folds.differing),
                Err(missing) => unanswered.push(missing),
            }
        }
        (ledgers, unanswered)
    }

    /// Every row of every service that answers, against its events.
    async fn take_folds(&self, away: &BTreeSet<&str>) -> Vec<(&'static str, Result<FoldReport, Unanswered>)> {
        let of = |service: &'static str| async move { (service, self.folds(service).await) };
        let others = all().into_iter().filter(|service| !away.contains(service));
        join_all(others.chain([crate::NAME]).map(of)).await
    }

    /// Part by part: each is answered within the time of one answer, however much there is.
    async fn folds(&self, service: &str) -> Result<FoldReport, Unanswered> {
        let mut all = FoldReport::default();
        let mut after = None;
        loop {
            let part = async {
                match service {
                    crate::NAME => Ok(self.app.store.verify_part(after, FOLDED_AT_ONCE).await?),
                    _ => self.services.folds(service, after.as_deref(), FOLDED_AT_ONCE).await,
                }
            };
            let part = self.within(self.until, service, "its rows", part).await?;
            all.rows += part.rows;
            all.events += part.events;
            let room = DIFFERING.saturating_sub(all.differing.len());
            all.differing.extend(part.differing.into_iter().take(room));
            after = part.next;
            if after.is_none() {
                return Ok(all);
            }
        }
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
            let page = self.within(self.until, service, path, asked).await;
            let page = page.inspect_err(|_| ledgers.lack())?;
            ledgers.unreadable(service, &page.unreadable);
            page.entries.into_iter().for_each(|entry| take(ledgers, entry));
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// The ledgers of all services side by side: a page of each, and the next of each under way meanwhile.
    async fn take_accounts(&self, away: &BTreeSet<&str>, ledgers: &mut Ledgers) -> Vec<Unanswered> {
        let (to_orders, mut orders) = channel(AHEAD);
        let (to_reservations, mut reservations) = channel(AHEAD);
        let (to_payments, mut payments) = channel(AHEAD);
        let (to_charges, mut charges) = channel(AHEAD);
        let (to_views, mut views) = channel(AHEAD);
        let judging = async {
            let (mut accounts, mut unanswered) = (Accounts::default(), Vec::new());
            loop {
                while accounts.want_more() {
                    for refilled in [
                        refill(ORDER, &mut accounts.orders, &mut orders).await,
                        refill(INVENTORY, &mut accounts.reservations, &mut reservations).await,
                        refill(PAYMENT, &mut accounts.payments, &mut payments).await,
                        refill(BANK, &mut accounts.charges, &mut charges).await,
                        refill(crate::NAME, &mut accounts.views, &mut views).await,
                    ] {
                        match refilled {
                            Ok((service, rows)) => ledgers.unreadable(service, &rows),
                            Err(missing) => {
                                ledgers.lack();
                                unanswered.push(missing);
                            }
                        }
                    }
                }
                ledgers.lack_before(accounts.left_before());
                let Some((key, account)) = accounts.pop() else { return unanswered };
                ledgers.account(&key, &account);
            }
        };
        let (unanswered, ..) = join!(
            judging,
            self.send_pages(away, ORDERS, to_orders),
            self.send_pages(away, RESERVATIONS, to_reservations),
            self.send_pages(away, PAYMENTS, to_payments),
            self.send_pages(away, CHARGES, to_charges),
            self.send_views(to_views),
        );
        unanswered
    }

    /// Sends every page of a ledger, up to the first that does not come.
    async fn send_pages<T: DeserializeOwned>(
        &self,
        away: &BTreeSet<&str>,
        (service, path): (&str, &str),
        mut to: Sender<Answered<T>>,
    ) {
        if away.contains(service) {
            return;
        }
        let mut after = None;
        loop {
            let asked = self.services.page(service, path, after.as_deref());
            let page = self.within(self.until, service, path, asked).await;
            after = page.as_ref().ok().and_then(|page| page.next.clone());
            if to.send(page).await.is_err() || after.is_none() {
                return;
            }
        }
    }

    /// The same of admin's own view of the sagas.
    async fn send_views(&self, mut to: Sender<Answered<View>>) {
        let mut after = None;
        loop {
            let page = self.views(Range { after, only: None }).await;
            after = page.as_ref().ok().and_then(|page| page.next.clone());
            if to.send(page).await.is_err() || after.is_none() {
                return;
            }
        }
    }

    async fn views(&self, range: Range) -> Result<Page<View>, Unanswered> {
        let entry = |row: &FoundRow| Some((row.id.clone(), serde_json::from_str(&row.state).ok()?));
        let asked = entries_page(self.app.store.as_ref(), SagaView::KIND, range, entry);
        self.within(self.until, crate::NAME, "its view of the sagas", asked).await
    }

    /// What the services say now of these orders and these products.
    ///
    /// # Errors
    /// Who did not answer.
    pub async fn fresh(&self, orders: &[&str], skus: &[&str]) -> Result<Fresh, Unanswered> {
        let mut fresh = Fresh::default();
        let mut accounts = Accounts::default();
        if !orders.is_empty() {
            self.again(ORDERS, orders, &mut accounts.orders).await?;
            self.again(RESERVATIONS, orders, &mut accounts.reservations).await?;
            self.again(PAYMENTS, orders, &mut accounts.payments).await?;
            self.again(CHARGES, orders, &mut accounts.charges).await?;
            let only = Range { after: None, only: Some(orders.join(",")) };
            let views = self.views(only).await?;
            accounts.views.lack_before(views.left_before);
            accounts.views.take(views.entries, None);
            fresh.left_before = accounts.left_before();
            while let Some((key, account)) = accounts.pop() {
                fresh.accounts.insert(key, account);
            }
        }
        for skus in skus.chunks(saga_engine::host::reading::ONLY) {
            // The copies after the orders that were made by them.
            fresh.stock.extend(self.only(STOCK, skus).await?.entries);
            fresh.copies.extend(self.only(COPIES, skus).await?.entries);
        }
        Ok(fresh)
    }

    async fn only<T: DeserializeOwned>(
        &self,
        (service, path): (&str, &str),
        ids: &[&str],
    ) -> Result<Page<T>, Unanswered> {
        let asked = self.services.only(service, path, ids);
        self.within(self.until, service, path, asked).await
    }

    /// What a ledger says now of these orders.
    async fn again<T: DeserializeOwned>(
        &self,
        ledger: (&str, &str),
        orders: &[&str],
        pages: &mut Pages<T>,
    ) -> Result<(), Unanswered> {
        let page = self.only(ledger, orders).await?;
        pages.lack_before(page.left_before);
        pages.take(page.entries, None);
        Ok(())
    }
}

/// A page of a ledger, or who did not answer.
type Answered<T> = Result<Page<T>, Unanswered>;

/// Takes the next page of a ledger, if it is needed. Answers which rows of it cannot be read.
async fn refill<'s, T>(
    service: &'s str,
    pages: &mut Pages<T>,
    from: &mut Receiver<Answered<T>>,
) -> Result<(&'s str, Vec<String>), Unanswered> {
    if !pages.wants_more() {
        return Ok((service, Vec::new()));
    }
    match from.next().await {
        Some(Ok(Page { entries, next, unreadable, left_before })) => {
            pages.lack_before(left_before);
            pages.take(entries, next);
            Ok((service, unreadable))
        }
        Some(Err(missing)) => {
            pages.end();
            Err(missing)
        }
        None => {
            pages.end();
            Ok((service, Vec::new()))
        }
    }
}
