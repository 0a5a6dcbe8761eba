//! Pure: what all services say of their orders, stock and money, side by side, and what must hold between them.

use std::collections::BTreeMap;

use contract::money::Money;
use contract::reconciliation::{
    ChargeEntry, ChargeState, OrderEntry, OrderState, PaymentEntry, PaymentState, ReservationEntry,
    ReservationState, StockEntry,
};
use saga_core::machinery::Machinery;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// At most this many discrepancies are listed; the count tells of the rest.
const LISTED: usize = 200;

/// Something that does not add up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Discrepancy {
    /// The rule it breaks.
    pub rule: String,
    /// The order, product, step or service.
    pub subject: String,
    /// What is there, and what should be.
    pub detail: String,
}

/// How much there is of everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Summary {
    /// Orders, whatever became of them.
    pub orders: u64,
    /// Orders that are neither confirmed nor cancelled yet.
    pub pending: u64,
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

/// All that is known of one order.
#[derive(Debug, Default)]
struct Account {
    order: Option<(OrderState, Money, u64)>,
    reservation: Option<(ReservationState, u64)>,
    payment: Option<(PaymentState, Option<Money>, bool)>,
    captured: u32,
    refunded: u32,
    bank_amount: Option<Money>,
}

/// What the services say, side by side.
#[derive(Debug, Default)]
pub struct Ledgers {
    accounts: BTreeMap<Uuid, Account>,
    summary: Summary,
    found: Vec<Discrepancy>,
    count: u64,
}

impl Ledgers {
    /// Takes an entry of the order service.
    pub fn order(&mut self, entry: OrderEntry) {
        let counter = match entry.state {
            OrderState::Pending => &mut self.summary.pending,
            OrderState::Confirmed => &mut self.summary.confirmed,
            OrderState::Cancelled => &mut self.summary.cancelled,
        };
        *counter += 1;
        self.summary.orders += 1;
        self.account(entry.order).order = Some((entry.state, entry.total, entry.pieces));
    }

    /// Takes a reservation of the inventory service.
    pub fn reservation(&mut self, entry: ReservationEntry) {
        self.account(entry.order).reservation = Some((entry.state, entry.pieces));
    }

    /// Takes an entry of the payment service.
    pub fn payment(&mut self, entry: PaymentEntry) {
        self.account(entry.order).payment = Some((entry.state, entry.amount, entry.refunded_by_operator));
    }

    /// Takes a charge of the bank.
    pub fn charge(&mut self, entry: ChargeEntry) {
        let (captured, refunded) = match entry.state {
            ChargeState::Captured => (1, 0),
            ChargeState::Refunded => (0, 1),
            ChargeState::None => return,
        };
        self.summary.captured += u64::from(captured);
        self.summary.refunded += u64::from(refunded);
        let Ok(order) = entry.reference.parse() else {
            self.report(
                "bank ledger = payments",
                &entry.charge,
                format!("charged for {:?}", entry.reference),
            );
            return;
        };
        let account = self.account(order);
        account.captured += captured;
        account.refunded += refunded;
        account.bank_amount = entry.amount;
    }

    /// Takes a product's stock, which must account for every piece that came in.
    pub fn stock(&mut self, entry: &StockEntry) {
        let accounted = entry.on_hand + entry.reserved + entry.sold;
        if accounted != entry.supplied {
            let detail = format!("{accounted} accounted for, {} supplied", entry.supplied);
            self.report("on hand + reserved + sold = supplied", &entry.sku, detail);
        }
        self.summary.on_hand += entry.on_hand;
        self.summary.reserved += entry.reserved;
        self.summary.sold += entry.sold;
        self.summary.supplied += entry.supplied;
    }

    /// Takes rows that differ from the fold of their events.
    pub fn rows(&mut self, service: &str, rows: u64, differing: &[String]) {
        self.summary.rows_checked += rows;
        for row in differing {
            self.report("every row = fold of its events", service, row.clone());
        }
    }

    /// Compares what was published with what was handled, for every step of every service.
    pub fn messages(&mut self, machinery: &[Machinery]) {
        let mut published: BTreeMap<&str, u64> = BTreeMap::new();
        for service in machinery {
            published.extend(service.published.iter().map(|(subject, count)| (subject.as_str(), *count)));
            self.summary.dead_letters += service.stats.dead_letters;
            if service.stats.outbox_failed > 0 {
                let detail = format!("{} refused by the broker", service.stats.outbox_failed);
                self.report("every fact is published", &service.service, detail);
            }
        }
        self.summary.facts_published = published.values().sum();
        for step in machinery.iter().flat_map(|service| &service.steps) {
            let promised: u64 =
                step.subjects.iter().filter_map(|subject| published.get(subject.as_str())).sum();
            let seen = step.handled + step.retrying + step.dead;
            if promised != seen {
                let detail = format!(
                    "{promised} published; {} handled + {} to be tried again + {} dead",
                    step.handled, step.retrying, step.dead
                );
                self.report("published = handled + waiting + dead", &step.step, detail);
            }
        }
    }

    /// Compares all accounts: what there is, what does not add up (at most 200 of it), and how much that is. Right
    /// only for a quiet system: in a busy one the services were not asked at the same moment.
    #[must_use]
    pub fn reconcile(mut self) -> (Summary, Vec<Discrepancy>, u64) {
        let (mut held, mut sold) = (0, 0);
        for (order, account) in std::mem::take(&mut self.accounts) {
            match account.reservation {
                Some((ReservationState::Held, pieces)) => held += pieces,
                Some((ReservationState::Sold, pieces)) => sold += pieces,
                Some((ReservationState::Free, _)) | None => {}
            }
            for (rule, detail) in account.faults() {
                self.report(rule, &order, detail);
            }
        }
        for (what, stock, orders) in
            [("reserved", self.summary.reserved, held), ("sold", self.summary.sold, sold)]
        {
            if stock != orders {
                let detail = format!("products say {stock}, orders say {orders}");
                self.report("stock = reservations", &what, detail);
            }
        }
        (self.summary, self.found, self.count)
    }

    fn account(&mut self, order: Uuid) -> &mut Account {
        self.accounts.entry(order).or_default()
    }

    fn report(&mut self, rule: &str, subject: &(impl ToString + ?Sized), detail: String) {
        self.count += 1;
        if self.found.len() < LISTED {
            self.found.push(Discrepancy { rule: rule.to_owned(), subject: subject.to_string(), detail });
        }
    }
}

impl Account {
    fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        let mut must = |holds: bool, rule, detail: String| {
            if !holds {
                faults.push((rule, detail));
            }
        };
        let Some((state, total, pieces)) = self.order else {
            let traces =
                self.reservation.is_some() || self.payment.is_some() || self.captured + self.refunded > 0;
            must(!traces, "everything belongs to an order", format!("no order, but {self:?}"));
            return faults;
        };
        must(self.captured <= 1, "one charge per order", format!("{} charges captured", self.captured));
        let reservation = self.reservation.map(|(state, _)| state);
        let payment = self.payment.map(|(state, ..)| state);
        let is_kindness = self.payment.is_some_and(|(.., by_operator)| by_operator);
        match state {
            OrderState::Pending => {
                must(false, "every order ends", "neither confirmed nor cancelled".to_owned())
            }
            OrderState::Confirmed => {
                let sold = Some((ReservationState::Sold, pieces));
                must(self.reservation == sold, "confirmed = sold", format!("{:?}", self.reservation));
                let paid = match payment {
                    Some(PaymentState::Captured) => self.captured == 1,
                    Some(PaymentState::Refunded) => is_kindness && self.captured == 0,
                    Some(PaymentState::Open | PaymentState::None) | None => false,
                };
                let detail = format!("payment {payment:?}, {} captured at the bank", self.captured);
                must(paid, "one capture per confirmed order", detail);
                let amounts = (self.payment.and_then(|(_, amount, _)| amount), self.bank_amount);
                must(amounts == (Some(total), Some(total)), "amounts agree", format!("{total}: {amounts:?}"));
            }
            OrderState::Cancelled => {
                let is_free = matches!(reservation, None | Some(ReservationState::Free));
                must(is_free, "cancelled = stock back", format!("{reservation:?}"));
                let is_undone = matches!(payment, None | Some(PaymentState::None | PaymentState::Refunded));
                let detail = format!("payment {payment:?}, {} captured at the bank", self.captured);
                must(is_undone && self.captured == 0, "cancelled = money back", detail);
            }
        }
        let bank_gave_back = payment != Some(PaymentState::Refunded) || self.refunded == 1;
        must(bank_gave_back, "bank ledger = payments", format!("{} refunds at the bank", self.refunded));
        faults
    }
}

#[cfg(test)]
mod tests {
    use contract::money::Currency;

    use super::*;

    const TOTAL: Money = Money::new(1299, Currency::EUR);

    fn confirmed(ledgers: &mut Ledgers, id: u128) {
        let order = Uuid::from_u128(id);
        ledgers.order(OrderEntry { order, state: OrderState::Confirmed, total: TOTAL, pieces: 2 });
        ledgers.reservation(ReservationEntry { order, state: ReservationState::Sold, pieces: 2 });
        let state = PaymentState::Captured;
        ledgers.payment(PaymentEntry { order, state, amount: Some(TOTAL), refunded_by_operator: false });
        charge(ledgers, id, ChargeState::Captured);
        ledgers.stock(&StockEntry { sku: "tea".to_owned(), on_hand: 1, reserved: 0, sold: 2, supplied: 3 });
    }

    fn charge(ledgers: &mut Ledgers, id: u128, state: ChargeState) {
        let reference = Uuid::from_u128(id).to_string();
        ledgers.charge(ChargeEntry { charge: Uuid::from_u128(id), reference, state, amount: Some(TOTAL) });
    }

    fn broken_rules(ledgers: Ledgers) -> Vec<String> {
        ledgers.reconcile().1.into_iter().map(|discrepancy| discrepancy.rule).collect()
    }

    #[test]
    fn a_confirmed_order_with_its_sale_and_one_capture_balances() {
        let mut ledgers = Ledgers::default();
        confirmed(&mut ledgers, 1);
        assert_eq!(broken_rules(ledgers), [""; 0]);
    }

    #[test]
    fn a_second_capture_is_found() {
        let mut ledgers = Ledgers::default();
        confirmed(&mut ledgers, 1);
        charge(&mut ledgers, 1, ChargeState::Captured);
        assert!(broken_rules(ledgers).contains(&"one charge per order".to_owned()));
    }

    #[test]
    fn money_kept_for_a_cancelled_order_is_found() {
        let mut ledgers = Ledgers::default();
        let order = Uuid::from_u128(1);
        ledgers.order(OrderEntry { order, state: OrderState::Cancelled, total: TOTAL, pieces: 2 });
        charge(&mut ledgers, 1, ChargeState::Captured);
        assert_eq!(broken_rules(ledgers), ["cancelled = money back"]);
    }

    #[test]
    fn stock_that_vanished_is_found() {
        let mut ledgers = Ledgers::default();
        ledgers.stock(&StockEntry { sku: "tea".to_owned(), on_hand: 1, reserved: 1, sold: 0, supplied: 3 });
        assert_eq!(broken_rules(ledgers), ["on hand + reserved + sold = supplied", "stock = reservations"]);
    }

    #[test]
    fn a_charge_without_an_order_and_an_order_without_an_end_are_found() {
        let mut ledgers = Ledgers::default();
        charge(&mut ledgers, 1, ChargeState::Captured);
        let order = Uuid::from_u128(2);
        ledgers.order(OrderEntry { order, state: OrderState::Pending, total: TOTAL, pieces: 1 });
        assert_eq!(broken_rules(ledgers), ["everything belongs to an order", "every order ends"]);
    }
}
