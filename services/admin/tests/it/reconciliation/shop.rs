//! Pure: a shop whose ledgers agree, to be corrupted.

use std::collections::BTreeMap;

use admin::ledgers::accounts::{Accounts, Pages, View};
use admin::ledgers::discrepancies::Discrepancies;
use admin::ledgers::totals::Ledgers;
use admin_api::reconciliation::{Baseline, Discrepancy, Summary};
use contract::money::{Currency, Money};
use contract::order::{CancelReason, Line, StockLine};
use contract::reconciliation::{
    ChargeEntry, ChargeState, CopyEntry, OrderEntry, OrderState, PaymentEntry, PaymentState, PublishedFact,
    ReservationEntry, ReservationState, StockEntry,
};
use contract::saga_fact::{DeadLetterRef, FactDetail, SagaFact};
use contract::saga_view::SagaView;
use contract::{FactType, payment_id};
use jiff::{SignedDuration, Timestamp};
use saga_core::service_stats::{ServiceStats, StepStats, StoreStats};
use saga_engine::testing::NOON;
use uuid::Uuid;

/// Confirmed: one tea and two cups of ada's.
pub const CONFIRMED: usize = 0;
/// Paid, then cancelled by its customer: bob's pot.
pub const CANCELLED: usize = 1;
/// Cancelled for want of stock: eve's nine pots.
pub const REFUSED: usize = 2;
/// Cancelled because the bank declined: fay's cup.
pub const DECLINED: usize = 3;
/// Waits for the bank: gil's tea.
pub const PENDING: usize = 4;
/// Cancelled because the bank never answered clearly, and reversed: hal's cup.
pub const REVERSED: usize = 5;
/// Confirmed, and refunded by an operator out of kindness: ida's two teas.
pub const KINDNESS: usize = 6;

/// Ledgers of all services. Orders are in the order of the constants above.
#[derive(Debug, Clone)]
pub struct Shop {
    pub orders: Vec<OrderEntry>,
    pub reservations: Vec<ReservationEntry>,
    pub payments: Vec<PaymentEntry>,
    pub charges: Vec<ChargeEntry>,
    pub views: Vec<View>,
    pub stock: Vec<StockEntry>,
    pub copies: Vec<CopyEntry>,
    pub service_stats: Vec<ServiceStats>,
    pub baselines: BTreeMap<String, Baseline>,
    pub now: Timestamp,
    /// Reservations of orders with lower ids may have been purged.
    pub left_before: Option<Uuid>,
}

pub const fn euro(cents: i64) -> Money {
    Money::new(cents, Currency::EUR)
}

pub fn id(order: usize) -> Uuid {
    Uuid::from_u128(order as u128 + 1)
}

pub fn at(order: usize, seconds: i64) -> Timestamp {
    NOON + SignedDuration::from_mins(order as i64) + SignedDuration::from_secs(seconds)
}

fn pieces(lines: &[Line]) -> Vec<StockLine> {
    lines.iter().map(|line| StockLine { sku: line.sku.clone(), quantity: line.quantity }).collect()
}

pub fn line(sku: &str, quantity: u32, cents: i64) -> Line {
    Line { sku: sku.to_owned(), quantity, unit_price: euro(cents) }
}

impl Shop {
    /// Consistent ledgers with one order of each outcome.
    pub fn consistent() -> Self {
        use FactType::{
            OrderCancelled, OrderConfirmed, OrderCreated, PaymentFailed, PaymentProcessed, PaymentRefunded,
            PaymentVoided, StockReleased, StockReservationFailed, StockReserved,
        };
        let mut shop = Self::empty();
        let paid = [OrderCreated, StockReserved, PaymentProcessed, OrderConfirmed];
        let undone = [&paid[..], &[OrderCancelled, StockReleased, PaymentRefunded]].concat();
        let failed = [OrderCreated, StockReserved, PaymentFailed, OrderCancelled, StockReleased];
        shop.order("ada", &[line("tea", 1, 300), line("cup", 2, 500)], None, &paid);
        shop.order("bob", &[line("pot", 1, 1_200)], Some(CancelReason::CustomerRequest), &undone);
        let rejected = [OrderCreated, StockReservationFailed, OrderCancelled, PaymentVoided];
        shop.order("eve", &[line("pot", 9, 1_200)], Some(CancelReason::OutOfStock), &rejected);
        shop.order("fay", &[line("cup", 1, 500)], Some(CancelReason::PaymentFailed), &failed);
        shop.order("gil", &[line("tea", 1, 300)], None, &[OrderCreated, StockReserved]);
        shop.order(
            "hal",
            &[line("cup", 1, 450)],
            Some(CancelReason::PaymentFailed),
            &[&failed[..], &[PaymentVoided]].concat(),
        );
        let kindness = [&paid[..], &[PaymentRefunded]].concat();
        shop.order("ida", &[line("tea", 2, 300)], None, &kindness);

        shop.payments[DECLINED].state = PaymentState::None;
        shop.payments[PENDING].state = PaymentState::Open;
        shop.payments[KINDNESS].refunded_by_operator = true;
        // It took place, unseen, and was reversed.
        let total = shop.orders[REVERSED].total;
        shop.charge(REVERSED, ChargeState::Refunded, vec![total], vec![total]);
        shop.charge(DECLINED, ChargeState::None, vec![], vec![]);
        shop.charges.sort_by_key(|charge| charge.reference.clone());
        shop
    }

    fn empty() -> Self {
        let stock = |sku: &str, cents, revision, [on_hand, reserved, sold]: [u64; 3]| StockEntry {
            sku: sku.to_owned(),
            on_hand,
            reserved,
            sold,
            supplied: on_hand + reserved + sold,
            unit_price: Some(euro(cents)),
            revision,
            version: 1,
            purged: 0,
        };
        let copy = |sku: &str, revision, cents: &[i64]| CopyEntry {
            sku: sku.to_owned(),
            unit_price: cents.last().map(|cents| euro(*cents)),
            revision,
            prices: cents.iter().map(|cents| euro(*cents)).collect(),
        };
        Self {
            orders: vec![],
            reservations: vec![],
            payments: vec![],
            charges: vec![],
            views: vec![],
            stock: vec![
                stock("cup", 500, 2, [4, 0, 2]),
                stock("pot", 1_200, 1, [1, 0, 0]),
                stock("tea", 300, 1, [9, 1, 3]),
            ],
            // Hal's cup was cheaper.
            copies: vec![copy("cup", 2, &[450, 500]), copy("pot", 1, &[1_200]), copy("tea", 1, &[300])],
            service_stats: vec![
                service("order", &[("order.created", 7)], &[]),
                service("inventory", &[], &[("inventory-stock-reservation", "order.created", [5, 1, 1])]),
            ],
            baselines: BTreeMap::new(),
            now: at(PENDING, 50),
            left_before: None,
        }
    }

    fn order(
        &mut self,
        customer: &str,
        lines: &[Line],
        cancelled_because: Option<CancelReason>,
        facts: &[FactType],
    ) {
        let (number, customer) = (self.orders.len(), customer.to_owned());
        let order = id(number);
        let total = lines.iter().fold(euro(0), |sum, line| {
            line.unit_price.times(line.quantity).and_then(|price| sum.plus(price)).expect("a small sum")
        });
        let has = |fact| facts.contains(&fact);
        let facts_of = |own: &[FactType]| {
            let all = facts.iter().zip(0..).filter(|(fact, _)| own.contains(fact));
            all.map(|(fact, second)| PublishedFact { fact: *fact, at: at(number, second) })
                .collect::<Vec<_>>()
        };
        let state = match (cancelled_because, has(FactType::OrderConfirmed)) {
            (Some(_), _) => OrderState::Cancelled,
            (None, true) => OrderState::Confirmed,
            (None, false) => OrderState::Pending,
        };
        self.orders.push(OrderEntry {
            order,
            state,
            cancelled_because,
            customer: customer.clone(),
            lines: lines.to_vec(),
            total,
            payment: payment_id(order),
            deadline: at(number, 60),
            published: facts_of(&[
                FactType::OrderCreated,
                FactType::OrderConfirmed,
                FactType::OrderCancelled,
            ]),
        });
        self.reservations.push(ReservationEntry {
            order,
            state: match state {
                OrderState::Pending => ReservationState::Reserved,
                OrderState::Confirmed => ReservationState::Sold,
                OrderState::Cancelled => ReservationState::Free,
            },
            lines: if has(FactType::StockReserved) { pieces(lines) } else { vec![] },
            published: facts_of(&[
                FactType::StockReserved,
                FactType::StockReservationFailed,
                FactType::StockReleased,
            ]),
        });
        let once = |fact| if has(fact) { vec![total] } else { vec![] };
        let (captured, refunded) = (once(FactType::PaymentProcessed), once(FactType::PaymentRefunded));
        let (state, charged) = match (captured.is_empty(), refunded.is_empty()) {
            (true, _) => (PaymentState::None, ChargeState::None),
            (false, true) => (PaymentState::Captured, ChargeState::Captured),
            (false, false) => (PaymentState::Refunded, ChargeState::Refunded),
        };
        let is_asked = has(FactType::StockReserved);
        self.payments.push(PaymentEntry {
            order,
            state,
            customer: is_asked.then_some(customer.clone()),
            amount: is_asked.then_some(total),
            reference: if captured.is_empty() { String::new() } else { format!("ch_{number}") },
            captured: captured.clone(),
            refunded: refunded.clone(),
            refunded_by_operator: false,
            resolved_manually: false,
            published: facts_of(&[
                FactType::PaymentProcessed,
                FactType::PaymentFailed,
                FactType::PaymentRefunded,
                FactType::PaymentVoided,
            ]),
        });
        if charged != ChargeState::None {
            self.charge(number, charged, captured, refunded);
        }
        self.views.push((order.to_string(), self.view_after(number, facts)));
    }

    /// Adds a charge at the bank.
    pub fn charge(&mut self, order: usize, state: ChargeState, captured: Vec<Money>, refunded: Vec<Money>) {
        let OrderEntry { order: id, total, .. } = self.orders[order];
        self.charges.push(ChargeEntry {
            charge: payment_id(id),
            id: format!("ch_{order}"),
            reference: id.to_string(),
            state,
            amount: Some(total),
            captured,
            refunded,
        });
    }

    /// Saga view after these facts.
    fn view_after(&self, order: usize, facts: &[FactType]) -> SagaView {
        let mut view = SagaView::default();
        for (fact, second) in facts.iter().zip(0..) {
            self.receives(&mut view, order, *fact, second);
        }
        view
    }

    /// Records a fact in a saga view.
    pub fn receives(&self, view: &mut SagaView, order: usize, fact: FactType, second: i64) {
        let OrderEntry { customer, total, deadline, cancelled_because, .. } = self.orders[order].clone();
        let detail = match fact {
            FactType::OrderCreated => FactDetail {
                customer: Some(customer),
                total: Some(total),
                deadline: Some(deadline),
                ..FactDetail::default()
            },
            FactType::DeadlineExtended => FactDetail { deadline: Some(deadline), ..FactDetail::default() },
            FactType::OrderCancelled => FactDetail { cancelled_because, ..FactDetail::default() },
            FactType::OrderConfirmed
            | FactType::StockReserved
            | FactType::StockReservationFailed
            | FactType::StockReleased
            | FactType::StockReplenished
            | FactType::ProductListed
            | FactType::PriceChanged
            | FactType::PaymentProcessed
            | FactType::PaymentFailed
            | FactType::PaymentRefunded
            | FactType::PaymentVoided
            | FactType::DeadlineExtensionRequested
            | FactType::ManualResolutionRequested
            | FactType::ProductChangeAudited
            | FactType::RefundAudited => FactDetail::default(),
        };
        view.record(&SagaFact {
            message_id: Uuid::from_u128((order * 100) as u128 + second as u128),
            message_type: fact.name().to_owned(),
            producer: "somebody".to_owned(),
            causation_id: Uuid::nil(),
            occurred_at: at(order, second),
            detail,
        });
    }

    /// Records a dead letter of a step in the saga view.
    pub fn dead_letter(&mut self, order: usize, step: &str) {
        use FactType::{OrderCancelled, OrderCreated, PaymentProcessed, PaymentRefunded, StockReserved};
        let mut view = self.view_after(
            order,
            &[OrderCreated, StockReserved, PaymentProcessed, OrderCancelled, PaymentRefunded],
        );
        let dead_letter_of = DeadLetterRef { dead_letter: Uuid::nil(), step: step.to_owned() };
        view.record(&SagaFact {
            message_id: Uuid::max(),
            message_type: "DeadLettered".to_owned(),
            producer: "inventory".to_owned(),
            causation_id: Uuid::nil(),
            occurred_at: at(order, 9),
            detail: FactDetail { dead_lettered: Some(dead_letter_of), ..FactDetail::default() },
        });
        self.views[order].1 = view;
    }

    /// Reconciles with pages of this length.
    pub fn reconciled(&self, page: usize) -> (Summary, Discrepancies) {
        let lost = |service: &ServiceStats| Some((service.service.clone(), service.lost_before?));
        let losses = self.service_stats.iter().filter_map(lost).collect();
        let mut ledgers = Ledgers::new(self.now, self.baselines.clone()).after_losses(losses);
        self.copies.iter().for_each(|copy| ledgers.copy(copy.clone()));
        self.stock.iter().for_each(|stock| ledgers.stock(stock.clone()));
        let mut accounts = Accounts::default();
        loop {
            while accounts.want_more() {
                hand(&mut accounts.orders, &self.orders, |entry| entry.order.to_string(), page);
                hand(&mut accounts.reservations, &self.reservations, |entry| entry.order.to_string(), page);
                hand(&mut accounts.payments, &self.payments, |entry| entry.order.to_string(), page);
                accounts.reservations.mark_purged_before(self.left_before);
                // Whole references, as the bank does.
                hand(&mut accounts.charges, &self.charges, |entry| entry.reference.clone(), page.max(3));
                hand(&mut accounts.views, &self.views, |(saga, _)| saga.clone(), page);
            }
            ledgers.mark_purged_before(accounts.purged_before());
            match accounts.pop() {
                Some((key, account)) => ledgers.account(&key, &account),
                None => break,
            }
        }
        ledgers.messages(&self.service_stats);
        let closed = ledgers.finish();
        (closed.summary, closed.discrepancies)
    }

    /// Discrepancies as lines: `rule · order or product · detail`, orders by their number.
    pub fn discrepancies(&self) -> Vec<String> {
        let whole = self.reconciled(2_000).1;
        let text = |Discrepancy { rule, subject, detail, .. }: &Discrepancy| {
            let number = subject.parse::<Uuid>().map(|order| format!("order {}", order.as_u128() - 1));
            format!("{rule} · {} · {detail}", number.unwrap_or_else(|_| subject.clone()))
        };
        whole.listed.iter().map(text).collect()
    }
}

/// Passes the next page, if it is needed.
fn hand<T: Clone>(pages: &mut Pages<T>, all: &[T], key: fn(&T) -> String, length: usize) {
    if pages.wants_more() {
        let after = pages.after().map(str::to_owned);
        let mut rest = all.iter().filter(|entry| after.as_ref().is_none_or(|after| key(entry) > *after));
        let page: Vec<T> = rest.by_ref().take(length).cloned().collect();
        let next = rest.next().and_then(|_| page.last()).map(key);
        pages.take(page, next);
    }
}

fn service(name: &str, published: &[(&str, u64)], steps: &[(&str, &str, [u64; 3])]) -> ServiceStats {
    let step = |(step, subject, [handled, retrying, dead]): &(&str, &str, [u64; 3])| StepStats {
        step: (*step).to_owned(),
        subjects: vec![(*subject).to_owned()],
        handled: *handled,
        retrying: *retrying,
        dead: *dead,
        waiting: Some(0),
        acknowledged: BTreeMap::new(),
    };
    ServiceStats {
        service: name.to_owned(),
        instance: name.to_owned(),
        at: NOON,
        stats: StoreStats::default(),
        calls_open: 0,
        published: published.iter().map(|(subject, count)| ((*subject).to_owned(), *count)).collect(),
        newest: None,
        lost_before: None,
        steps: steps.iter().map(step).collect(),
    }
}
