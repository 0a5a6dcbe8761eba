//! Pure: whenever they say X, the inventory service does Y.

use std::collections::BTreeMap;

use contract::inventory::{
    PriceChanged, ProductListed, Shortage, StockReleased, StockReplenished, StockReservationFailed,
    StockReserved,
};
use contract::metrics::UNITS;
use contract::money::Money;
use contract::order::{OrderCancelled, OrderConfirmed, OrderCreated, StockLine};
use contract::reconciliation::{PublishedFact, ReservationEntry, ReservationState, StockEntry};
use contract::topology::OPERATOR;
use contract::{Fact, FactType};
use saga_core::message::{Message as _, Received};
use saga_core::metric::Measurement;
use saga_core::row::{PastEvent, RowKey, RowKind};
use saga_core::service::{HandlerError, HandlerResult, Service, Step};
use saga_core::{Policy, UnitOfWork};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::domain::{
    Product, ProductCommand, ProductEvent, ProductRejection, Reservation, ReservationCommand,
    ReservationEvent, ReservationRejection,
};

/// The inventory service's reactions.
#[derive(Debug)]
pub struct InventoryService;

/// What people and the monitor may ask of a product.
#[derive(Debug, Clone)]
pub struct Command {
    /// Stock keeping unit of the product.
    pub sku: String,
    /// What is asked of it.
    pub asked: ProductCommand,
}

/// A product as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProductView {
    /// Stock keeping unit.
    pub sku: String,
    /// What people call it.
    pub name: String,
    /// Price of one piece.
    pub unit_price: Money,
    /// Pieces that no order holds.
    pub on_hand: u32,
    /// Pieces set aside for orders.
    pub reserved: u32,
    /// Pieces sold and not taken back.
    pub sold: u32,
    /// All pieces that ever came in: on hand + reserved + sold.
    pub supplied: u32,
    /// Whether the monitor replenishes it.
    pub replenish: bool,
}

/// The answer to a command.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reply {
    /// The product after it.
    pub product: ProductView,
}

/// Why the inventory service says no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The product says no.
    #[error(transparent)]
    Product(#[from] ProductRejection),
    /// The reservation says no.
    #[error(transparent)]
    Reservation(#[from] ReservationRejection),
}

type Work<'a> = UnitOfWork<'a, Fact>;

/// Whenever a product is listed, sold at another price or brought in, the others hear of it. What orders hold of it
/// its reservations tell.
impl Policy<Fact> for Product {
    fn whenever(event: &ProductEvent, sku: &str, _: &Self, work: &mut Work<'_>) {
        let sku = sku.to_owned();
        let Self { listing, on_hand, revision, .. } = work.row::<Self>(&sku).clone();
        count_units(event, work);
        match event {
            ProductEvent::Listed(listing, _) => work.publish(ProductListed {
                sku,
                name: listing.name.clone(),
                unit_price: listing.unit_price,
                revision,
            }),
            ProductEvent::PriceChanged(unit_price) => work.publish(PriceChanged {
                sku,
                name: listing.map(|listing| listing.name).unwrap_or_default(),
                unit_price: *unit_price,
                revision,
            }),
            ProductEvent::Restocked(quantity) => {
                work.publish(StockReplenished { sku, quantity: *quantity, on_hand });
            }
            ProductEvent::Reserved(_)
            | ProductEvent::Released(_)
            | ProductEvent::Sold(_)
            | ProductEvent::PutBack(_) => {}
        }
    }
}

/// Counts the pieces that something happened to.
fn count_units(event: &ProductEvent, work: &mut Work<'_>) {
    let (happened, pieces) = match event {
        ProductEvent::Listed(_, pieces) | ProductEvent::Restocked(pieces) => ("restocked", *pieces),
        ProductEvent::Reserved(pieces) => ("reserved", *pieces),
        ProductEvent::Released(pieces) => ("released", *pieces),
        ProductEvent::Sold(pieces) => ("sold", *pieces),
        ProductEvent::PutBack(pieces) => ("put_back", *pieces),
        ProductEvent::PriceChanged(_) => return,
    };
    work.measure(Measurement::more(&UNITS, &[happened], pieces.into()));
}

/// Whenever a reservation is held, refused or released, the others hear of it; also when nothing was held: a
/// cancellation that comes first is remembered and answered, so that nobody waits for this answer.
impl Policy<Fact> for Reservation {
    fn whenever(event: &ReservationEvent, id: &str, before: &Self, work: &mut Work<'_>) {
        let order = order_id(id);
        match (event, work.message()) {
            // What payment needs passes through unchanged; inventory keeps nothing of it.
            (ReservationEvent::Held(lines), Some(Fact::OrderCreated(created))) => {
                let (lines, payment) = (lines.clone(), created.payment.clone());
                work.publish(StockReserved { order, lines, payment, deadline: created.deadline });
            }
            (ReservationEvent::Refused, Some(Fact::OrderCreated(created))) => {
                let shortages = shortages(&wanted_by(created), work);
                work.publish(StockReservationFailed { order, shortages });
            }
            (ReservationEvent::Held(_) | ReservationEvent::Refused, other) => {
                panic!("only the creation of an order reserves, and this is {other:?}")
            }
            (ReservationEvent::Released | ReservationEvent::Voided, _) => {
                work.publish(StockReleased { order, lines: before.lines().to_vec() });
            }
            (ReservationEvent::Sold, _) => {}
        }
    }
}

impl Service for InventoryService {
    const NAME: &'static str = crate::NAME;
    const OPERATOR: Option<&'static str> = Some(OPERATOR);
    const SECRETS: &'static [&'static str] = &contract::order::SECRETS;
    type Fact = Fact;
    type Command = Command;
    type Reply = Reply;
    type Rejection = Rejection;

    fn rows() -> Vec<RowKind> {
        vec![RowKind::of::<Product>(), RowKind::of::<Reservation>()]
    }

    fn steps() -> &'static [Step] {
        &crate::STEPS
    }

    fn rows_of_command(&self, command: &Command) -> Vec<RowKey> {
        vec![RowKey::of::<Product>(&command.sku)]
    }

    fn on_command(&self, command: &Command, work: &mut Work<'_>) -> Result<Reply, HandlerError<Rejection>> {
        let sku = &command.sku;
        work.decide::<Product>(sku, &command.asked).map_err(Rejection::from)?;
        match ProductView::of(sku, work.row::<Product>(sku)) {
            Some(product) => Ok(Reply { product }),
            None => Err(Rejection::from(ProductRejection::Unknown).into()),
        }
    }

    fn rows_of_message(&self, message: &Received<Fact>) -> Vec<RowKey> {
        let reservation = message.fact.saga().map(RowKey::of::<Reservation>);
        skus(&message.fact).into_iter().map(RowKey::of::<Product>).chain(reservation).collect()
    }

    /// What the order holds need not be what its later facts name: it may have been edited on its way here.
    fn additional_rows(&self, message: &Received<Fact>, work: &mut Work<'_>) -> Vec<RowKey> {
        let order = message.fact.saga();
        let lines = order.map(|order| held(order, work)).unwrap_or_default();
        lines.into_iter().map(|line| RowKey::of::<Product>(line.sku)).collect()
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the engine hands in what the step subscribes to, no more"
    )]
    fn on_message(
        &self,
        step: &'static Step,
        message: &Received<Fact>,
        work: &mut Work<'_>,
    ) -> HandlerResult<Self> {
        match &message.fact {
            Fact::OrderCreated(fact) => reserve(fact, work),
            Fact::OrderConfirmed(fact) => sell(fact, work),
            Fact::OrderCancelled(fact) => release(fact.order, work),
            _ => Err(HandlerError::unhandled(step, message)),
        }
    }
}

/// The products that a fact about an order concerns.
#[expect(clippy::wildcard_enum_match_arm, reason = "only what it hears concerns products")]
fn skus(fact: &Fact) -> Vec<&str> {
    match fact {
        Fact::OrderCreated(fact) => fact.lines.iter().map(|line| line.sku.as_str()).collect(),
        Fact::OrderConfirmed(OrderConfirmed { lines, .. })
        | Fact::OrderCancelled(OrderCancelled { lines, .. }) => {
            lines.iter().map(|line| line.sku.as_str()).collect()
        }
        _ => vec![],
    }
}

/// All lines or none.
fn reserve(created: &OrderCreated, work: &mut Work<'_>) -> HandlerResult<InventoryService> {
    let order = created.order;
    if *work.row::<Reservation>(order) != Reservation::New {
        return Ok(());
    }
    let wanted = wanted_by(created);
    let command = if shortages(&wanted, work).is_empty() {
        for StockLine { sku, quantity } in &wanted {
            work.decide::<Product>(sku, &ProductCommand::Reserve(*quantity)).map_err(Rejection::from)?;
        }
        ReservationCommand::Hold(wanted)
    } else {
        ReservationCommand::Refuse
    };
    work.decide::<Reservation>(order, &command).map_err(Rejection::from)?;
    Ok(())
}

fn wanted_by(created: &OrderCreated) -> Vec<StockLine> {
    by_sku(created.lines.iter().map(|line| (line.sku.as_str(), line.quantity)))
}

/// Lines in words.
fn in_words(lines: &[StockLine]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| format!("{} {}", line.quantity, line.sku)).collect();
    if lines.is_empty() { "nothing".to_owned() } else { lines.join(", ") }
}

/// What lines ask for, by sku: lines of one sku share its stock.
fn by_sku<'a>(lines: impl Iterator<Item = (&'a str, u32)>) -> Vec<StockLine> {
    let mut wanted: BTreeMap<&str, u32> = BTreeMap::new();
    for (sku, quantity) in lines {
        let sum = wanted.entry(sku).or_default();
        *sum = sum.saturating_add(quantity);
    }
    wanted.into_iter().map(|(sku, quantity)| StockLine { sku: sku.to_owned(), quantity }).collect()
}

/// What is not there of it.
fn shortages(wanted: &[StockLine], work: &mut Work<'_>) -> Vec<Shortage> {
    let mut shortages = Vec::new();
    for StockLine { sku, quantity } in wanted {
        let available = work.row::<Product>(sku).on_hand;
        if *quantity > available {
            shortages.push(Shortage { sku: sku.clone(), requested: *quantity, available });
        }
    }
    shortages
}

/// Sells what the order holds, if that is what was confirmed.
fn sell(confirmed: &OrderConfirmed, work: &mut Work<'_>) -> HandlerResult<InventoryService> {
    let order = confirmed.order;
    let promised = by_sku(confirmed.lines.iter().map(|line| (line.sku.as_str(), line.quantity)));
    if let Reservation::Held(lines) = work.row::<Reservation>(order)
        && *lines != promised
    {
        let [promised, held] = [&promised, lines].map(|lines| in_words(lines));
        let disagreement = format!("confirmed were {promised}, and the order holds {held}");
        return Err(HandlerError::Permanent(disagreement));
    }
    match work.decide::<Reservation>(order, &ReservationCommand::Sell) {
        Ok(false) => {}
        Ok(true) => {
            for line in held(order, work) {
                change_stock(&line, ProductCommand::Sell(line.quantity), work)?;
            }
        }
        // A confirmation can only follow our own reservation: if that is not here, it must be on its way.
        Err(ReservationRejection::Unknown) => {
            return Err(HandlerError::Transient("the reservation is not here".to_owned()));
        }
        Err(rejection @ ReservationRejection::NothingHeld) => {
            return Err(Rejection::from(rejection).into());
        }
    }
    Ok(())
}

/// Frees what is held or takes back what is sold.
fn release(order: Uuid, work: &mut Work<'_>) -> HandlerResult<InventoryService> {
    let was_sold = matches!(work.row::<Reservation>(order), Reservation::Sold(_));
    for line in held(order, work) {
        let back = if was_sold { ProductCommand::PutBack } else { ProductCommand::Release };
        change_stock(&line, back(line.quantity), work)?;
    }
    work.decide::<Reservation>(order, &ReservationCommand::Release).map_err(Rejection::from)?;
    Ok(())
}

fn held(order: Uuid, work: &mut Work<'_>) -> Vec<StockLine> {
    work.row::<Reservation>(order).lines().to_vec()
}

/// What a reservation holds, its products hold too; a no here means that the two disagree.
fn change_stock(
    line: &StockLine,
    command: ProductCommand,
    work: &mut Work<'_>,
) -> HandlerResult<InventoryService> {
    let broken = |rejection| {
        HandlerError::Permanent(format!("stock of {:?} and the reservation disagree: {rejection}", line.sku))
    };
    work.decide::<Product>(&line.sku, &command).map(drop).map_err(broken)
}

/// The order that a reservation's row is of.
fn order_id(row: &str) -> Uuid {
    match row.parse() {
        Ok(order) => order,
        Err(error) => panic!("{row:?} is no order's id: {error}"),
    }
}

impl ProductView {
    /// The view of a product; `None` when it is not listed.
    #[must_use]
    pub fn of(sku: &str, product: &Product) -> Option<Self> {
        let listing = product.listing.as_ref()?;
        Some(Self {
            sku: sku.to_owned(),
            name: listing.name.clone(),
            unit_price: listing.unit_price,
            on_hand: product.on_hand,
            reserved: product.reserved,
            sold: product.sold,
            supplied: product.supplied,
            replenish: listing.replenish,
        })
    }
}

/// What the reconciliation gets to see of a product's stock.
#[must_use]
pub fn stock_entry(sku: &str, version: i64, product: &Product) -> StockEntry {
    StockEntry {
        version,
        sku: sku.to_owned(),
        on_hand: product.on_hand.into(),
        reserved: product.reserved.into(),
        sold: product.sold.into(),
        supplied: product.supplied.into(),
        unit_price: product.listing.as_ref().map(|listing| listing.unit_price),
        revision: product.revision,
        left: 0,
    }
}

/// What the reconciliation gets to see of a reservation.
#[must_use]
pub fn reservation_entry(
    order: Uuid,
    reservation: &Reservation,
    history: &[PastEvent<ReservationEvent>],
) -> ReservationEntry {
    let held_once = || history.iter().find_map(|it| held_by(&it.event)).unwrap_or_default();
    let (state, lines) = match reservation {
        Reservation::Held(lines) => (ReservationState::Held, lines.clone()),
        Reservation::Sold(lines) => (ReservationState::Sold, lines.clone()),
        Reservation::New | Reservation::Refused | Reservation::Released | Reservation::Void => {
            (ReservationState::Free, held_once())
        }
    };
    ReservationEntry { order, state, lines, published: PublishedFact::of(history, fact_of) }
}

fn held_by(event: &ReservationEvent) -> Option<Vec<StockLine>> {
    match event {
        ReservationEvent::Held(lines) => Some(lines.clone()),
        ReservationEvent::Refused
        | ReservationEvent::Sold
        | ReservationEvent::Released
        | ReservationEvent::Voided => None,
    }
}

/// The fact that others learn an event by.
#[must_use]
pub const fn fact_of(event: &ReservationEvent) -> Option<FactType> {
    match event {
        ReservationEvent::Held(_) => Some(FactType::StockReserved),
        ReservationEvent::Refused => Some(FactType::StockReservationFailed),
        ReservationEvent::Released | ReservationEvent::Voided => Some(FactType::StockReleased),
        ReservationEvent::Sold => None,
    }
}
