//! Shell: laws 3 to 5, read from the rows and histories of the services and of the bank themselves: lines sku by sku,
//! money order by order. Nothing here is shared with the reconciliation, which is judged by it.

use std::collections::{BTreeMap, BTreeSet};

use bank::domain::{Charge, ChargeEvent};
use inventory::domain::{Product, ProductEvent, Reservation};
use order::domain::{CatalogueItem, Order, Placed};
use payment::domain::{Payment, RefundReason};
use saga_core::decider::Decider;
use saga_engine::store::sqlite::SqliteStore;
use uuid::Uuid;

use super::dead_letters::{sagas_given_up, skus_given_up};
use crate::world::{World, events, rows};

/// Pieces by sku.
type Pieces = BTreeMap<String, u64>;

/// What every order came to, against what everybody keeps of it.
pub fn every_order_came_to_what_it_says(world: &World) {
    // What an operator gave up is not done: its orders are his concern.
    let given_up = sagas_given_up(world);
    let ledgers = Ledgers::of(world);
    let must = |holds: bool, law: &str, order: Uuid, what: &dyn Fn() -> String| {
        if !holds && !given_up.contains(&order) {
            world.sim.object(format!("{law}: order {order}: {}", what()));
        }
    };
    for (id, order) in &ledgers.orders {
        let Some(placed) = order.placed() else { continue };
        let own = ledgers.own(*id);
        must(order.is_settled(), "law 3", *id, &|| "never ended".to_owned());
        must(ledgers.is_priced_right(placed), "law 3", *id, &|| format!("is priced {placed:?}"));
        let held = own.reservation.map(|reservation| pieces(reservation.lines())).unwrap_or_default();
        let (confirmed, wanted) = match order {
            Order::Confirmed(_) => (true, ordered(placed)),
            Order::New | Order::Pending(_) | Order::Cancelled(..) => (false, Pieces::new()),
        };
        must(held == wanted, "law 3", *id, &|| format!("{order:?} has the pieces {held:?}"));
        let is_sold = matches!(own.reservation, Some(Reservation::Sold(_)));
        must(is_sold == confirmed, "law 3", *id, &|| format!("{order:?} has {:?}", own.reservation));
        must(own.money_is_right(confirmed, placed), "law 3", *id, &|| {
            format!("{order:?} has {:?}, and the bank {:?}", own.payment, own.charges)
        });
        must(own.charges.len() <= 1, "law 4", *id, &|| format!("charged as {:?}", own.charges));
        must(own.is_known_by_name(placed), "law 4", *id, &|| {
            format!("{:?} is paid as {:?}, {:?}", placed.payment, own.payment, own.charges)
        });
    }
    for stray in ledgers.strays() {
        world.sim.object(format!("law 3: {stray} belongs to no order"));
    }
}

/// The stock of each product, against what the orders have taken. What was given up silences its own products alone.
pub fn every_piece_is_accounted_for(world: &World) {
    let given_up = sagas_given_up(world);
    let held = by_order::<Reservation>(world.inventory.store());
    let (mut sold, mut loose) = (Pieces::new(), Pieces::new());
    for (id, order) in orders(world) {
        let Some(placed) = order.placed() else { continue };
        if given_up.contains(&id) {
            // It may hold other pieces than were ordered, if it was edited before.
            for (sku, pieces) in held.get(&id).map(|held| pieces(held.lines())).unwrap_or_default() {
                *loose.entry(sku).or_default() += pieces;
            }
        }
        let of = match order {
            _ if given_up.contains(&id) => &mut loose,
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
        let most = pieces(&sold) + pieces(&loose);
        let is_exact = most > pieces(&sold) || product.reserved == 0;
        if !adds_up || !is_exact || !(pieces(&sold)..=most).contains(&taken) {
            let (sold, loose) = (pieces(&sold), pieces(&loose));
            world.sim.object(format!("law 5: {sku}: {product:?}; {sold} sold by orders, {loose} given up"));
        }
    }
}

/// The copy of the catalogue is the catalogue.
pub fn the_catalogue_was_copied(world: &World) {
    let given_up = skus_given_up(world);
    let copies: BTreeMap<_, _> = rows::<CatalogueItem>(world.order.store()).into_iter().collect();
    for (sku, product) in rows::<Product>(world.inventory.store()) {
        let (price, copy) = (product.listing.map(|listing| listing.unit_price), copies.get(&sku));
        if copy.and_then(|copy| copy.unit_price) != price && !given_up.contains(&sku) {
            world.sim.object(format!("law 2: {sku} costs {price:?}, its copy says {copy:?}"));
        }
    }
}

/// What everybody keeps, by order.
struct Ledgers {
    orders: BTreeMap<Uuid, Order>,
    reservations: BTreeMap<Uuid, Reservation>,
    payments: BTreeMap<Uuid, Payment>,
    /// By the reference that the merchant gave: each charge that came to anything.
    charges: BTreeMap<String, Vec<Charged>>,
    /// Every price, in minor units, that a product ever had.
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

/// What there is of one order.
struct Own<'a> {
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
                |wanted: fn(&ChargeEvent) -> bool| history.iter().filter(|event| wanted(event)).count();
            let captures = count(|event| matches!(event, ChargeEvent::Captured(_)));
            let refunds = count(|event| matches!(event, ChargeEvent::Refunded));
            let Some(asked) = charge.asked().filter(|_| captures + refunds > 0) else { continue };
            let amount_minor = asked.amount.amount_minor;
            let of_order = charges.entry(asked.reference.clone()).or_default();
            of_order.push(Charged { key, amount_minor, captures, refunds });
        }
        let mut prices = BTreeMap::<String, BTreeSet<i64>>::new();
        for (sku, _) in rows::<Product>(world.inventory.store()) {
            let history: Vec<ProductEvent> = events::<Product>(world.inventory.store(), &sku);
            let price = |event| match event {
                ProductEvent::Listed(listing, _) => Some(listing.unit_price.amount_minor),
                ProductEvent::PriceChanged(price) => Some(price.amount_minor),
                ProductEvent::Restocked(_)
                | ProductEvent::Reserved(_)
                | ProductEvent::Released(_)
                | ProductEvent::Sold(_)
                | ProductEvent::PutBack(_) => None,
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

    fn own(&self, order: Uuid) -> Own<'_> {
        Own {
            reservation: self.reservations.get(&order),
            payment: self.payments.get(&order),
            charges: self.charges.get(&order.to_string()).map_or(&[], Vec::as_slice),
        }
    }

    fn is_priced_right(&self, placed: &Placed) -> bool {
        let price = |line: &contract::order::Line| line.unit_price.amount_minor;
        let sum: i64 = placed.lines.iter().map(|line| price(line) * i64::from(line.quantity)).sum();
        let is_known = |line: &contract::order::Line| {
            self.prices.get(&line.sku).is_some_and(|prices| prices.contains(&price(line)))
        };
        sum == placed.payment.total.amount_minor && placed.lines.iter().all(is_known)
    }

    /// What is there of orders that are not.
    fn strays(&self) -> Vec<String> {
        let is_stray = |order: &&Uuid| !self.orders.contains_key(*order);
        let reservations = self.reservations.keys().filter(is_stray).map(|it| format!("reservation {it}"));
        let payments = self.payments.keys().filter(is_stray).map(|it| format!("payment {it}"));
        let known: BTreeSet<String> = self.orders.keys().map(Uuid::to_string).collect();
        let charges = self.charges.keys().filter(|reference| !known.contains(*reference));
        reservations.chain(payments).chain(charges.map(|it| format!("the charge for {it:?}"))).collect()
    }
}

impl Own<'_> {
    /// A confirmed order is paid in full, once, unless an operator gave it back; of any other the bank keeps nothing.
    fn money_is_right(&self, confirmed: bool, placed: &Placed) -> bool {
        let total = placed.payment.total.amount_minor;
        let taken = |charge: &Charged| charge.amount_minor * count(charge.captures);
        let given_back = |charge: &Charged| charge.amount_minor * count(charge.refunds);
        let taken: i64 = self.charges.iter().map(taken).sum();
        let kept = taken - self.charges.iter().map(given_back).sum::<i64>();
        match (self.payment, confirmed) {
            (Some(Payment::Captured(..)), true) => (taken, kept) == (total, total),
            (Some(Payment::Refunded(_, _, reason)), confirmed) => {
                (taken, kept) == (total, 0) && (!confirmed || *reason == RefundReason::Operator)
            }
            // Its charge may have been captured and reversed.
            (Some(Payment::Failed(..) | Payment::Void | Payment::Voided(_)), false) => {
                kept == 0 && (taken == 0 || taken == total)
            }
            (None | Some(Payment::New), false) => taken == 0 && kept == 0,
            (
                None
                | Some(
                    Payment::New
                    | Payment::Void
                    | Payment::Voided(_)
                    | Payment::Failed(..)
                    | Payment::Charging(_)
                    | Payment::Doomed(_)
                    | Payment::Reversing(_)
                    | Payment::Voiding(_)
                    | Payment::Refunding(..)
                    | Payment::Settled(_),
                ),
                _,
            )
            | (Some(Payment::Captured(..)), false) => false,
        }
    }

    /// The payment and the charge are this order's: the same payer, the same total, the one key, the one reference.
    fn is_known_by_name(&self, placed: &Placed) -> bool {
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
    let mut pieces = Pieces::new();
    for line in &placed.lines {
        *pieces.entry(line.sku.clone()).or_default() += u64::from(line.quantity);
    }
    pieces
}

fn pieces(lines: &[contract::order::StockLine]) -> Pieces {
    let mut pieces = Pieces::new();
    for line in lines {
        *pieces.entry(line.sku.clone()).or_default() += u64::from(line.quantity);
    }
    pieces
}
