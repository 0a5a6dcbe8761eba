//! Shell: laws 3 to 5, among them one charge per order. They are read from the rows and histories of services
//! and bank: stock by sku, money by order. They share no code with the reconciliation, which is itself
//! checked.

use std::collections::{BTreeMap, BTreeSet};

use bank::domain::{Charge, ChargeEvent};
use contract::order::{Line, StockLine};
use inventory::domain::{Listing, Product, ProductEvent, Reservation};
use order::catalogue::CatalogueItem;
use order::domain::{Order, Placed};
use payment::domain::{Payment, RefundReason};
use saga_core::decider::Decider;
use saga_engine::store::sqlite::SqliteStore;
use uuid::Uuid;

use super::dead_letters::{sagas_discarded, skus_discarded};
use crate::law::Law;
use crate::world::{World, events, rows};

/// Number of pieces by sku.
type Pieces = BTreeMap<String, u64>;

/// Compares each order with its reservation, its payment and its charges.
pub fn check_orders(world: &World) {
    // Discarded work is not done, so its orders are exempt.
    let discarded = sagas_discarded(world);
    let ledgers = Ledgers::of(world);
    let must = |holds: bool, law: Law, order: Uuid, what: &dyn Fn() -> String| {
        if !holds && !discarded.contains(&order) {
            world.sim.breaks(law, format!("order {order}: {}", what()));
        }
    };
    for (id, order) in &ledgers.orders {
        let Some(placed) = order.placed() else { continue };
        let own = ledgers.own(*id);
        must(order.has_ended(), Law::OrderEnds, *id, &|| "has not ended".to_owned());
        must(ledgers.is_priced_right(placed), Law::OrderEnds, *id, &|| format!("is priced {placed:?}"));
        let reserved = own.reservation.map(|reservation| pieces(reservation.lines())).unwrap_or_default();
        let (confirmed, expected) = match order {
            Order::Confirmed(_) => (true, ordered(placed)),
            Order::New | Order::Pending(_) | Order::Cancelled(..) => (false, Pieces::new()),
        };
        must(reserved == expected, Law::OrderEnds, *id, &|| format!("{order:?} has the pieces {reserved:?}"));
        let is_sold = matches!(own.reservation, Some(Reservation::Sold(_)));
        must(is_sold == confirmed, Law::OrderEnds, *id, &|| format!("{order:?} has {:?}", own.reservation));
        must(own.is_money_right(confirmed, placed), Law::OrderEnds, *id, &|| {
            format!("{order:?} has {:?}, and the bank {:?}", own.payment, own.charges)
        });
        must(own.charges.len() <= 1, Law::OneCharge, *id, &|| format!("charged as {:?}", own.charges));
        must(own.is_identified(placed), Law::OneCharge, *id, &|| {
            format!("{:?} is paid as {:?}, {:?}", placed.payment, own.payment, own.charges)
        });
    }
    for stray in ledgers.strays() {
        world.sim.breaks(Law::OrderEnds, format!("{stray} has no order"));
    }
}

/// Compares the stock of each product with what orders have taken. A discarded dead letter exempts its own
/// products only.
pub fn check_stock(world: &World) {
    let discarded = sagas_discarded(world);
    let reservations = by_order::<Reservation>(world.inventory.store());
    let (mut sold, mut unconfirmed) = (Pieces::new(), Pieces::new());
    for (id, order) in orders(world) {
        let Some(placed) = order.placed() else { continue };
        if discarded.contains(&id) {
            // An edited order may have reserved other pieces than were ordered.
            for line in reservations.get(&id).into_iter().flat_map(Reservation::lines) {
                *unconfirmed.entry(line.sku.clone()).or_default() += u64::from(line.quantity);
            }
        }
        let of = match order {
            _ if discarded.contains(&id) => &mut unconfirmed,
            Order::Confirmed(_) => &mut sold,
            Order::New | Order::Pending(_) | Order::Cancelled(..) => continue,
        };
        for (sku, pieces) in ordered(placed) {
            *of.entry(sku).or_default() += pieces;
        }
    }
    for (sku, product) in rows::<Product>(world.inventory.store()) {
        let pieces = |of: &Pieces| of.get(&sku).copied().unwrap_or(0);
        let taken = u64::from(product.reserved) + u64::from(product.sold);
        let adds_up = u64::from(product.on_hand) + taken == u64::from(product.supplied);
        let most = pieces(&sold) + pieces(&unconfirmed);
        let is_exact = most > pieces(&sold) || product.reserved == 0;
        if !adds_up || !is_exact || !(pieces(&sold)..=most).contains(&taken) {
            let (sold, unconfirmed) = (pieces(&sold), pieces(&unconfirmed));
            let broken = format!("{sku}: {product:?}; {sold} confirmed, {unconfirmed} of discarded work");
            world.sim.breaks(Law::NoOversell, broken);
        }
    }
}

/// Compares the catalogue copy with the catalogue.
pub fn check_catalogue_copy(world: &World) {
    let discarded = skus_discarded(world);
    let copies: BTreeMap<_, _> = rows::<CatalogueItem>(world.order.store()).into_iter().collect();
    for (sku, product) in rows::<Product>(world.inventory.store()) {
        let (price, copy) = (product.listing.map(|listing| listing.unit_price), copies.get(&sku));
        if copy.and_then(|copy| copy.unit_price) != price && !discarded.contains(&sku) {
            world.sim.breaks(Law::NoMessageLost, format!("{sku} costs {price:?}, its copy says {copy:?}"));
        }
    }
}

/// Rows of all services, by order.
struct Ledgers {
    orders: BTreeMap<Uuid, Order>,
    reservations: BTreeMap<Uuid, Reservation>,
    payments: BTreeMap<Uuid, Payment>,
    /// Charges that were captured or refunded, by the merchant's reference.
    charges: BTreeMap<String, Vec<Charged>>,
    /// Every price in minor units that a product ever had.
    prices: BTreeMap<String, BTreeSet<i64>>,
}

/// A charge in the bank's ledger.
#[derive(Debug)]
struct Charged {
    key: String,
    amount_minor: i64,
    captures: usize,
    refunds: usize,
}

struct OrderLedgers<'a> {
    reservation: Option<&'a Reservation>,
    payment: Option<&'a Payment>,
    charges: &'a [Charged],
}

impl Ledgers {
    fn of(world: &World) -> Self {
        let mut charges = BTreeMap::<String, Vec<Charged>>::new();
        for (key, charge) in rows::<Charge>(world.bank.store()) {
            let history: Vec<ChargeEvent> = events::<Charge>(world.bank.store(), &key);
            let count =
                |matches: fn(&ChargeEvent) -> bool| history.iter().filter(|event| matches(event)).count();
            let captures = count(|event| matches!(event, ChargeEvent::Captured(_)));
            let refunds = count(|event| matches!(event, ChargeEvent::Refunded));
            let Some(request) = charge.request().filter(|_| captures + refunds > 0) else { continue };
            let amount_minor = request.amount.amount_minor;
            let of_order = charges.entry(request.reference.clone()).or_default();
            of_order.push(Charged { key, amount_minor, captures, refunds });
        }
        let mut prices = BTreeMap::<String, BTreeSet<i64>>::new();
        for (sku, _) in rows::<Product>(world.inventory.store()) {
            let history: Vec<ProductEvent> = events::<Product>(world.inventory.store(), &sku);
            let price = |event| {
                let (ProductEvent::Listed(Listing { unit_price: price, .. }, _)
                | ProductEvent::PriceChanged(price)) = event
                else {
                    return None;
                };
                Some(price.amount_minor)
            };
            prices.insert(sku, history.into_iter().filter_map(price).collect());
        }
        Self {
            orders: orders(world),
            reservations: by_order(world.inventory.store()),
            payments: by_order(world.payment.store()),
            charges,
            prices,
        }
    }

    fn own(&self, order: Uuid) -> OrderLedgers<'_> {
        OrderLedgers {
            reservation: self.reservations.get(&order),
            payment: self.payments.get(&order),
            charges: self.charges.get(&order.to_string()).map_or(&[], Vec::as_slice),
        }
    }

    fn is_priced_right(&self, placed: &Placed) -> bool {
        let price = |line: &Line| line.unit_price.amount_minor;
        let sum: i64 = placed.lines.iter().map(|line| price(line) * i64::from(line.quantity)).sum();
        let is_known =
            |line: &Line| self.prices.get(&line.sku).is_some_and(|prices| prices.contains(&price(line)));
        sum == placed.payment.total.amount_minor && placed.lines.iter().all(is_known)
    }

    fn strays(&self) -> Vec<String> {
        let is_stray = |order: &&Uuid| !self.orders.contains_key(*order);
        let reservations = self.reservations.keys().filter(is_stray).map(|it| format!("reservation {it}"));
        let payments = self.payments.keys().filter(is_stray).map(|it| format!("payment {it}"));
        let orders: BTreeSet<String> = self.orders.keys().map(Uuid::to_string).collect();
        let charges = self.charges.keys().filter(|reference| !orders.contains(*reference));
        reservations.chain(payments).chain(charges.map(|it| format!("the charge for {it:?}"))).collect()
    }
}

impl OrderLedgers<'_> {
    /// True if a confirmed order is paid once and in full, or refunded by an operator, and the bank keeps
    /// nothing of any other.
    fn is_money_right(&self, confirmed: bool, placed: &Placed) -> bool {
        let total = placed.payment.total.amount_minor;
        let taken = |charge: &Charged| charge.amount_minor * count(charge.captures);
        let refunded = |charge: &Charged| charge.amount_minor * count(charge.refunds);
        let taken: i64 = self.charges.iter().map(taken).sum();
        let kept = taken - self.charges.iter().map(refunded).sum::<i64>();
        if let Some(Payment::Refunded(_, _, reason)) = self.payment {
            (taken, kept) == (total, 0) && (!confirmed || *reason == RefundReason::Operator)
        } else if confirmed {
            matches!(self.payment, Some(Payment::Captured(..))) && (taken, kept) == (total, total)
        } else if matches!(self.payment, Some(Payment::Failed(..) | Payment::Void | Payment::Voided(_))) {
            // The charge may have been captured and reversed.
            kept == 0 && (taken == 0 || taken == total)
        } else {
            matches!(self.payment, None | Some(Payment::New)) && (taken, kept) == (0, 0)
        }
    }

    /// True if payment and charges have the order's customer, total, key and reference.
    fn is_identified(&self, placed: &Placed) -> bool {
        let key = placed.payment.id;
        let reference = format!("ch_{}", key.simple());
        let is_own = |payment: &Payment| {
            payment.context().is_none_or(|context| *context == placed.payment)
                && (payment.reference().is_empty() || payment.reference() == reference)
        };
        self.payment.is_none_or(is_own) && self.charges.iter().all(|charge| charge.key == key.to_string())
    }
}

fn count(times: usize) -> i64 {
    i64::try_from(times).unwrap_or(i64::MAX)
}

fn orders(world: &World) -> BTreeMap<Uuid, Order> {
    by_order(world.order.store())
}

fn by_order<D: Decider>(store: &SqliteStore) -> BTreeMap<Uuid, D> {
    rows::<D>(store).into_iter().filter_map(|(id, row)| Some((id.parse().ok()?, row))).collect()
}

fn ordered(placed: &Placed) -> Pieces {
    sum(placed.lines.iter().map(|line| (&line.sku, line.quantity)))
}

fn pieces(lines: &[StockLine]) -> Pieces {
    sum(lines.iter().map(|line| (&line.sku, line.quantity)))
}

fn sum<'a>(lines: impl Iterator<Item = (&'a String, u32)>) -> Pieces {
    let mut pieces = Pieces::new();
    for (sku, quantity) in lines {
        *pieces.entry(sku.clone()).or_default() += u64::from(quantity);
    }
    pieces
}
