//! Shell: reads the ledgers of all services page by page, all at once, and compares each order when it is complete. Rows are
//! verified beside that.

use std::collections::BTreeSet;

use contract::saga_view::SagaView;
use futures::channel::mpsc::{Receiver, Sender, channel};
use futures::channel::oneshot;
use futures::future::BoxFuture;
use futures::{SinkExt as _, StreamExt as _, join};
use saga_engine::host::queries::{LedgerQuery, Page, entries_without_history};
use saga_engine::store::VerificationReport;
use serde::de::DeserializeOwned;

use super::request::{Answered, Request};
use super::verification::{Checked, ServiceFolds, add};
use crate::ledgers::accounts::{Accounts, Pages, View};
use crate::ledgers::totals::Ledgers;
use crate::topology::NAME;
use admin_api::reconciliation::Unanswered;

pub(super) const ORDER: &str = "order";
pub(super) const INVENTORY: &str = "inventory";
pub(super) const PAYMENT: &str = "payment";
pub(super) const BANK: &str = "bank";

pub(super) const ORDERS: (&str, &str) = (ORDER, "/internal/ledger");
pub(super) const COPIES: (&str, &str) = (ORDER, "/internal/ledger/catalogue");
pub(super) const RESERVATIONS: (&str, &str) = (INVENTORY, "/internal/ledger/reservations");
pub(super) const STOCK: (&str, &str) = (INVENTORY, "/internal/ledger/stock");
pub(super) const PAYMENTS: (&str, &str) = (PAYMENT, "/internal/ledger");
pub(super) const CHARGES: (&str, &str) = (BANK, "/v1/charges");

/// Pages of a ledger that are read ahead.
const AHEAD: usize = 1;

impl Request<'_> {
    /// Takes all orders from the ledgers of all services, and verifies every row of the services that answer.
    pub async fn take_accounts(
        &self,
        away: &BTreeSet<&str>,
        ledgers: &mut Ledgers,
    ) -> (Vec<Unanswered>, Vec<ServiceFolds>) {
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
                        refill(NAME, &mut accounts.views, &mut views).await,
                    ] {
                        match refilled {
                            Ok((service, rows)) => ledgers.unreadable(service, &rows),
                            Err(missing) => {
                                ledgers.mark_partial();
                                unanswered.push(missing);
                            }
                        }
                    }
                }
                ledgers.mark_purged_before(accounts.purged_before());
                let Some((key, account)) = accounts.pop() else { return unanswered };
                ledgers.account(&key, &account);
            }
        };
        let (unanswered, ordered, reserved, paid, charged, viewed) = join!(
            judging,
            self.send_pages(away, ORDERS, to_orders),
            self.send_pages(away, RESERVATIONS, to_reservations),
            self.send_pages(away, PAYMENTS, to_payments),
            self.send_pages(away, CHARGES, to_charges),
            self.send_views(to_views),
        );
        (unanswered, [ordered, reserved, paid, charged, viewed].into_iter().flatten().collect())
    }

    /// Sends every page of a ledger up to the first error, and verifies all rows of the service.
    async fn send_pages<T: DeserializeOwned>(
        &self,
        away: &BTreeSet<&str>,
        (service, path): (&'static str, &str),
        to: Sender<Answered<T>>,
    ) -> Option<ServiceFolds> {
        if away.contains(service) {
            return None;
        }
        let page = |after: Option<String>| -> BoxFuture<'_, Answered<T>> {
            Box::pin(self.next_page((service, path), after))
        };
        Some(self.send(service, page, to).await)
    }

    /// Reads the page of a ledger after `after`; the first without it.
    pub async fn next_page<T: DeserializeOwned>(
        &self,
        (service, path): (&str, &str),
        after: Option<String>,
    ) -> Answered<T> {
        let query = after.map(|after| ("after", after)).into_iter().collect();
        self.in_time(service, path, self.services.page(service, path, query)).await
    }

    /// Sends every page of admin's saga view.
    async fn send_views(&self, to: Sender<Answered<View>>) -> Option<ServiceFolds> {
        let page = |after| -> BoxFuture<'_, Answered<View>> {
            Box::pin(self.views(LedgerQuery { after, ..LedgerQuery::default() }))
        };
        Some(self.send(NAME, page, to).await)
    }

    /// Sends every page, and verifies all rows of the service beside that. Pages include the result for their own rows.
    async fn send<'p, T>(
        &self,
        service: &'static str,
        page: impl Fn(Option<String>) -> BoxFuture<'p, Answered<T>>,
        mut to: Sender<Answered<T>>,
    ) -> ServiceFolds {
        let (first, of_the_first) = oneshot::channel();
        let pages = async {
            let (mut after, mut checked, mut first) = (None, Checked::default(), Some(first));
            loop {
                let page = page(after).await;
                after = checked.take(&page);
                if let Some(first) = first.take() {
                    // The receiver may be gone.
                    let _ = first.send(checked.kind());
                }
                if to.send(page).await.is_err() {
                    checked.mark_partial();
                    break;
                }
                if after.is_none() {
                    break;
                }
            }
            drop(to);
            checked.all()
        };
        let others = async {
            let kind = of_the_first.await.ok().flatten();
            (kind.is_some(), self.all_rows(service, kind).await)
        };
        let ((mut of_pages, is_whole), (is_left_out, mut rows)) = join!(pages, others);
        if is_whole {
            add(&mut rows.1, of_pages);
            return rows;
        }
        if is_left_out {
            // A page of the excluded kind is missing.
            add(&mut of_pages, rows.1);
            rows = self.all_rows(service, None).await;
        }
        let (service, mut folds, missing) = rows;
        if missing.is_some() {
            // Differences that pages reported are kept.
            of_pages.differing.retain(|row| !folds.differing.contains(row));
            add(
                &mut folds,
                VerificationReport { differing: of_pages.differing, ..VerificationReport::default() },
            );
        }
        (service, folds, missing)
    }

    /// Reads a page of admin's saga view, or a part of it.
    pub async fn views(&self, range: LedgerQuery) -> Result<Page<View>, Unanswered> {
        let entry = |saga: &str, view: SagaView| Some((saga.to_owned(), view));
        let asked = entries_without_history(self.app.store.as_ref(), range, entry);
        self.in_time(NAME, "its saga view", asked).await
    }
}

/// Takes the next page of a ledger, if it is needed, and returns its damaged rows.
async fn refill<'s, T>(
    service: &'s str,
    pages: &mut Pages<T>,
    from: &mut Receiver<Answered<T>>,
) -> Result<(&'s str, Vec<String>), Unanswered> {
    if !pages.wants_more() {
        return Ok((service, Vec::new()));
    }
    match from.next().await {
        Some(Ok(page)) => Ok((service, take_page(pages, page))),
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

/// Takes a page of a ledger, and returns its damaged rows.
pub(super) fn take_page<T>(pages: &mut Pages<T>, page: Page<T>) -> Vec<String> {
    let Page { entries, next, unreadable, purged_before, folds: _ } = page;
    pages.mark_purged_before(purged_before);
    pages.take(entries, next);
    unreadable
}
