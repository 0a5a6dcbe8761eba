//! Pure: the ledgers of all services merged by order, page by page: no more of them is held than a page of each.

use std::collections::VecDeque;

use contract::reconciliation::{ChargeEntry, OrderEntry, PaymentEntry, ReservationEntry};
use contract::saga_view::SagaView;
use uuid::Uuid;

use super::account::Account;

/// A ledger that comes page by page, in the order of its keys.
#[derive(Debug)]
pub struct Pages<T> {
    key: fn(&T) -> String,
    waiting: VecDeque<(String, T)>,
    /// Where the next page starts; nothing before the first.
    after: Option<String>,
    is_over: bool,
    /// Of sagas with lower ids, entries may be missing.
    left_before: Option<Uuid>,
}

impl<T> Pages<T> {
    fn of(key: fn(&T) -> String) -> Self {
        Self { key, waiting: VecDeque::new(), after: None, is_over: false, left_before: None }
    }

    /// Whether a page is needed before anything more can be said.
    #[must_use]
    pub fn wants_more(&self) -> bool {
        self.waiting.is_empty() && !self.is_over
    }

    /// Where that page starts: behind this key.
    #[must_use]
    pub fn after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// Takes a page. Without a `next` it is the last one.
    pub fn take(&mut self, entries: Vec<T>, next: Option<String>) {
        self.waiting.extend(entries.into_iter().map(|entry| ((self.key)(&entry), entry)));
        self.is_over = next.is_none();
        self.after = next;
    }

    /// Takes note that of sagas with lower ids entries may be missing.
    pub fn lack_before(&mut self, saga: Option<Uuid>) {
        self.left_before = self.left_before.max(saga);
    }

    /// No more of it can be had.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    fn first(&self) -> Option<&str> {
        self.waiting.front().map(|(key, _)| key.as_str())
    }

    /// The next entry, if it has this key.
    fn pop(&mut self, key: &str) -> Option<T> {
        self.waiting.pop_front_if(|(first, _)| first == key).map(|(_, entry)| entry)
    }
}

/// A saga's view, under the saga's id.
pub type View = (String, SagaView);

/// What all services have of their orders, side by side.
#[derive(Debug)]
pub struct Accounts {
    /// Of the order service.
    pub orders: Pages<OrderEntry>,
    /// Of the inventory service.
    pub reservations: Pages<ReservationEntry>,
    /// Of the payment service.
    pub payments: Pages<PaymentEntry>,
    /// Of the bank; all charges of one reference are on one page.
    pub charges: Pages<ChargeEntry>,
    /// Of admin.
    pub views: Pages<View>,
}

impl Default for Accounts {
    fn default() -> Self {
        Self {
            orders: Pages::of(|entry| entry.order.to_string()),
            reservations: Pages::of(|entry| entry.order.to_string()),
            payments: Pages::of(|entry| entry.order.to_string()),
            charges: Pages::of(|entry| entry.reference.clone()),
            views: Pages::of(|(saga, _)| saga.clone()),
        }
    }
}

impl Accounts {
    /// Whether a page of some ledger is needed before the next account is complete.
    #[must_use]
    pub fn want_more(&self) -> bool {
        let Self { orders, reservations, payments, charges, views } = self;
        orders.wants_more()
            || reservations.wants_more()
            || payments.wants_more()
            || charges.wants_more()
            || views.wants_more()
    }

    /// Of sagas with lower ids, entries of some ledger may be missing: they have left with their age.
    #[must_use]
    pub fn left_before(&self) -> Option<Uuid> {
        let Self { orders, reservations, payments, charges, views } = self;
        let left = [orders.left_before, reservations.left_before, payments.left_before, charges.left_before];
        left.into_iter().max().flatten().max(views.left_before)
    }

    /// The next account in the order of their keys, which are the orders' ids; `None` when a page is needed, and at
    /// the end.
    pub fn pop(&mut self) -> Option<(String, Account)> {
        if self.want_more() {
            return None;
        }
        let Self { orders, reservations, payments, charges, views } = self;
        let firsts = [orders.first(), reservations.first(), payments.first(), charges.first(), views.first()];
        let key = firsts.into_iter().flatten().min()?.to_owned();
        let account = Account {
            order: orders.pop(&key),
            reservation: reservations.pop(&key),
            payment: payments.pop(&key),
            charges: std::iter::from_fn(|| charges.pop(&key)).collect(),
            view: views.pop(&key).map(|(_, view)| view),
        };
        Some((key, account))
    }
}
