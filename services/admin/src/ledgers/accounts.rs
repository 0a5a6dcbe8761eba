//! Pure: the ledgers of all services merged by order, with one page of each in memory.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fmt;

use contract::reconciliation::{ChargeEntry, OrderEntry, PaymentEntry, ReservationEntry};
use contract::saga_view::SagaView;
use uuid::Uuid;

use super::account::Account;

/// Sort key of ledger entries: text, nearly always the id of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Key {
    Order(Uuid),
    /// Any other text, and ids in another notation.
    Text(String),
}

impl Key {
    fn of(text: &str) -> Self {
        match Uuid::try_parse(text) {
            Ok(order) if order.hyphenated().encode_lower(&mut Uuid::encode_buffer()) == text => {
                Self::Order(order)
            }
            Ok(_) | Err(_) => Self::Text(text.to_owned()),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order(order) => order.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Orders keys as their texts: the digits of an id are in the order of its bytes.
impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        let (mut one, mut two) = (Uuid::encode_buffer(), Uuid::encode_buffer());
        match (self, other) {
            (Self::Order(one), Self::Order(two)) => one.cmp(two),
            (Self::Order(order), Self::Text(text)) => (*order.hyphenated().encode_lower(&mut one)).cmp(text),
            (Self::Text(text), Self::Order(order)) => (**text).cmp(order.hyphenated().encode_lower(&mut two)),
            (Self::Text(one), Self::Text(two)) => one.cmp(two),
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A ledger that arrives page by page, in the order of its keys.
#[derive(Debug)]
pub struct Pages<T> {
    key: fn(&T) -> Key,
    waiting: VecDeque<(Key, T)>,
    /// Start of the next page; `None` before the first.
    after: Option<String>,
    is_over: bool,
    /// Entries of sagas with lower ids may have been purged.
    purged_before: Option<Uuid>,
}

impl<T> Pages<T> {
    fn of(key: fn(&T) -> Key) -> Self {
        Self { key, waiting: VecDeque::new(), after: None, is_over: false, purged_before: None }
    }

    /// True if the next page is needed.
    pub fn wants_more(&self) -> bool {
        self.waiting.is_empty() && !self.is_over
    }

    /// Key after which the next page starts.
    pub fn after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// Takes a page, the last one without `next`.
    pub fn take(&mut self, entries: Vec<T>, next: Option<String>) {
        self.waiting.extend(entries.into_iter().map(|entry| ((self.key)(&entry), entry)));
        self.is_over = next.is_none();
        self.after = next;
    }

    /// Records that entries of sagas with lower ids may have been purged.
    pub fn mark_purged_before(&mut self, saga: Option<Uuid>) {
        self.purged_before = self.purged_before.max(saga);
    }

    /// Ends the ledger: no more pages can be read.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    fn state(&self) -> LedgerState<'_> {
        let first = self.waiting.front().map(|(key, _)| key);
        LedgerState { wants_more: self.wants_more(), purged_before: self.purged_before, first }
    }

    /// Takes the next entry, if it has this key.
    fn pop(&mut self, key: &Key) -> Option<T> {
        self.waiting.pop_front_if(|(first, _)| first == key).map(|(_, entry)| entry)
    }
}

/// State of a ledger, whatever its entries.
struct LedgerState<'a> {
    wants_more: bool,
    purged_before: Option<Uuid>,
    /// Key of the next entry.
    first: Option<&'a Key>,
}

/// A saga view under its id.
pub type View = (String, SagaView);

/// The ledgers of all services, merged by order.
#[derive(Debug)]
pub struct Accounts {
    pub orders: Pages<OrderEntry>,
    pub reservations: Pages<ReservationEntry>,
    pub payments: Pages<PaymentEntry>,
    /// All charges of one order are on one page.
    pub charges: Pages<ChargeEntry>,
    pub views: Pages<View>,
}

impl Default for Accounts {
    fn default() -> Self {
        Self {
            orders: Pages::of(|entry| Key::Order(entry.order)),
            reservations: Pages::of(|entry| Key::Order(entry.order)),
            payments: Pages::of(|entry| Key::Order(entry.order)),
            charges: Pages::of(|entry| Key::of(&entry.reference)),
            views: Pages::of(|(saga, _)| Key::of(saga)),
        }
    }
}

impl Accounts {
    /// True if a page of some ledger is needed to complete the next account.
    pub fn want_more(&self) -> bool {
        self.ledgers().into_iter().any(|ledger| ledger.wants_more)
    }

    /// Id below which entries of some ledger may have been purged.
    pub fn purged_before(&self) -> Option<Uuid> {
        self.ledgers().into_iter().filter_map(|ledger| ledger.purged_before).max()
    }

    /// Takes the next account in the order of the keys; `None` when a page is needed, and at the end.
    pub fn pop(&mut self) -> Option<(String, Account)> {
        if self.want_more() {
            return None;
        }
        let key = self.ledgers().into_iter().filter_map(|ledger| ledger.first).min()?.clone();
        let Self { orders, reservations, payments, charges, views } = self;
        let account = Account {
            order: orders.pop(&key),
            reservation: reservations.pop(&key),
            payment: payments.pop(&key),
            charges: std::iter::from_fn(|| charges.pop(&key)).collect(),
            view: views.pop(&key).map(|(_, view)| view),
        };
        Some((key.to_string(), account))
    }

    fn ledgers(&self) -> [LedgerState<'_>; 5] {
        let Self { orders, reservations, payments, charges, views } = self;
        [orders.state(), reservations.state(), payments.state(), charges.state(), views.state()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_and_print_as_their_texts() {
        let id = "01a20dff-9c10-7136-ae2e-72ac625b2ab3";
        let (upper, bare) = (id.to_uppercase(), id.replace('-', ""));
        let mut texts = vec!["", "0", id, &upper, &bare, "01a20dff-", "01b", "shop", "zz"];
        texts.push("f1a20dff-9c10-7136-ae2e-72ac625b2ab3");
        for one in &texts {
            assert_eq!(Key::of(one).to_string(), *one);
            for two in &texts {
                assert_eq!(Key::of(one).cmp(&Key::of(two)), one.cmp(two), "{one} {two}");
            }
        }
    }
}
