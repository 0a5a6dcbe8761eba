//! Pure: whenever they say X, the inventory service does Y.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use shared::books::{ReservationEntry, ReservationState, StockEntry};
use shared::contract::{
    Fact, OrderCancelled, OrderConfirmed, OrderCreated, PriceChanged, ProductListed, Shortage, StockLine,
    StockReleased, StockReplenished, StockReservationFailed, StockReserved,
};
use shared::envelope::Message;
use shared::money::Money;
use shared::row::{RowKey, RowKind};
use shared::service::{Heard, Refusal, Service, Step};
use shared::unit::Unit;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::domain::{
    Product, ProductCommand, ProductRejection, Reservation, ReservationCommand, ReservationRejection,
};

/// The inventory service's reactions.
pub struct InventoryService;

/// What people and the monitor may ask of a product.
#[derive(Debug, Clone)]
pub struct Command {
    /// Which product.
    pub sku: String,
    /// What of it.
    pub wish: ProductCommand,
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
    /// Free pieces.
    pub on_hand: u32,
    /// Pieces set aside for orders.
    pub reserved: u32,
    /// Pieces sold.
    pub sold: u32,
    /// All pieces that ever came in: on hand + reserved + sold.
    pub supplied: u32,
    /// Whether the monitor replenishes it.
    pub replenish: bool,
}

/// The answer to a command.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Reply {
    /// The product after it.
    pub product: Option<ProductView>,
}

/// Why the inventory service says no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// The product says no.
    Product(ProductRejection),
    /// The reservation says no.
    Reservation(ReservationRejection),
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Product(rejection) => rejection.fmt(f),
            Self::Reservation(rejection) => rejection.fmt(f),
        }
    }
}

impl From<ProductRejection> for Rejection {
    fn from(rejection: ProductRejection) -> Self {
        Self::Product(rejection)
    }
}

impl From<ReservationRejection> for Rejection {
    fn from(rejection: ReservationRejection) -> Self {
        Self::Reservation(rejection)
    }
}

type Reaction = Result<Reply, Refusal<Rejection>>;

impl Service for InventoryService {
    const NAME: &'static str = crate::NAME;
    type Command = Command;
    type Reply = Reply;
    type Rejection = Rejection;

    fn rows() -> Vec<RowKind> {
        vec![RowKind::of::<Product>(), RowKind::of::<Reservation>()]
    }

    fn steps() -> &'static [Step] {
        &crate::STEPS
    }

    fn reads(&self, heard: &Heard<'_, Command>) -> Vec<RowKey> {
        match heard {
            Heard::Command(command) => vec![RowKey::of::<Product>(&command.sku)],
            Heard::Message(_, message) => {
                let reservation = message.fact.saga().map(RowKey::of::<Reservation>);
                skus(&message.fact).into_iter().map(RowKey::of::<Product>).chain(reservation).collect()
            }
            Heard::Called { .. } => vec![],
            Heard::Due(key) => vec![(*key).clone()],
        }
    }

    fn react(&self, heard: &Heard<'_, Command>, unit: &mut Unit<'_>) -> Reaction {
        match heard {
            Heard::Command(command) => change_product(command, unit),
            Heard::Message(step, message) => hear(step, message, unit),
            Heard::Called { kind, .. } => Err(Refusal::Broken(format!("inventory makes no calls ({kind})"))),
            Heard::Due(key) => Err(Refusal::Broken(format!("no row of inventory is ever due ({key:?})"))),
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

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the engine hands in what the step subscribes to, no more"
)]
fn hear(step: &Step, message: &Message, unit: &mut Unit<'_>) -> Reaction {
    match &message.fact {
        Fact::OrderCreated(fact) => reserve(fact, unit),
        Fact::OrderConfirmed(fact) => sell(fact.order, unit),
        Fact::OrderCancelled(fact) => release(fact.order, unit),
        _ => Err(Refusal::unheard(step, message)),
    }
}

fn change_product(command: &Command, unit: &mut Unit<'_>) -> Reaction {
    let sku = &command.sku;
    if unit.decide::<Product>(sku, &command.wish).map_err(Rejection::from)?
        && let Some(fact) = told(sku, &command.wish, unit.row::<Product>(sku))
    {
        unit.publish(fact);
    }
    Ok(Reply { product: ProductView::of(sku, unit.row::<Product>(sku)) })
}

/// The fact that tells the others of a changed product.
fn told(sku: &str, wish: &ProductCommand, product: &Product) -> Option<Fact> {
    let listing = product.listing.as_ref()?;
    let (sku, name, unit_price) = (sku.to_owned(), listing.name.clone(), listing.unit_price);
    let (revision, on_hand) = (product.revision, product.on_hand);
    match wish {
        ProductCommand::List(..) => {
            Some(Fact::ProductListed(ProductListed { sku, name, unit_price, revision }))
        }
        ProductCommand::ChangePrice(_) => {
            Some(Fact::PriceChanged(PriceChanged { sku, name, unit_price, revision }))
        }
        ProductCommand::Restock(quantity) | ProductCommand::Replenish { amount: quantity, .. } => {
            Some(Fact::StockReplenished(StockReplenished { sku, quantity: *quantity, on_hand }))
        }
        ProductCommand::Reserve(_)
        | ProductCommand::Release(_)
        | ProductCommand::Sell(_)
        | ProductCommand::PutBack(_) => None,
    }
}

/// All lines or none.
fn reserve(fact: &OrderCreated, unit: &mut Unit<'_>) -> Reaction {
    let order = fact.order;
    if *unit.row::<Reservation>(order) != Reservation::New {
        return Ok(Reply::default());
    }
    // Lines of one sku share its stock.
    let mut wanted: BTreeMap<&str, u32> = BTreeMap::new();
    for line in &fact.lines {
        let sum = wanted.entry(&line.sku).or_default();
        *sum = sum.saturating_add(line.quantity);
    }
    let mut shortages = Vec::new();
    for (sku, requested) in &wanted {
        if let Err(rejection) = unit.decide::<Product>(sku, &ProductCommand::Reserve(*requested)) {
            let ProductRejection::OutOfStock { available } = rejection else {
                return Err(Rejection::from(rejection).into());
            };
            shortages.push(Shortage { sku: (*sku).to_owned(), requested: *requested, available });
        }
    }
    if shortages.is_empty() {
        let lines: Vec<StockLine> =
            wanted.into_iter().map(|(sku, quantity)| StockLine { sku: sku.to_owned(), quantity }).collect();
        change_reservation(order, &ReservationCommand::Hold(lines.clone()), unit).map_err(refused)?;
        unit.publish(Fact::StockReserved(StockReserved { order, lines, payment: fact.payment.clone() }));
    } else {
        // The lines that were there are not kept: this input starts over, as a refusal.
        unit.undo();
        change_reservation(order, &ReservationCommand::Refuse, unit).map_err(refused)?;
        unit.publish(Fact::StockReservationFailed(StockReservationFailed { order, shortages }));
    }
    Ok(Reply::default())
}

fn sell(order: Uuid, unit: &mut Unit<'_>) -> Reaction {
    match change_reservation(order, &ReservationCommand::Sell, unit) {
        Ok(false) => {}
        Ok(true) => {
            for line in held(order, unit) {
                change_stock(&line, ProductCommand::Sell(line.quantity), unit)?;
            }
        }
        // A confirmation can only follow our own reservation: if that is not here, it must be on its way.
        Err(ReservationRejection::Unknown) => {
            return Err(Refusal::NotYet("the reservation is not here".to_owned()));
        }
        Err(rejection @ ReservationRejection::NothingHeld) => {
            return Err(Rejection::from(rejection).into());
        }
    }
    Ok(Reply::default())
}

/// Frees what is held or takes back what is sold, and says so; also when nothing was: a cancellation that comes
/// first is remembered and answered, so that nobody waits for this answer.
fn release(order: Uuid, unit: &mut Unit<'_>) -> Reaction {
    let was_sold = matches!(unit.row::<Reservation>(order), Reservation::Sold(_));
    let lines = held(order, unit);
    for line in &lines {
        let back = if was_sold { ProductCommand::PutBack } else { ProductCommand::Release };
        change_stock(line, back(line.quantity), unit)?;
    }
    if change_reservation(order, &ReservationCommand::Release, unit).map_err(refused)? {
        unit.publish(Fact::StockReleased(StockReleased { order, lines }));
    }
    Ok(Reply::default())
}

fn held(order: Uuid, unit: &mut Unit<'_>) -> Vec<StockLine> {
    unit.row::<Reservation>(order).lines().to_vec()
}

/// What a reservation holds, its products hold too; a no here means that the books are wrong.
fn change_stock(
    line: &StockLine,
    wish: ProductCommand,
    unit: &mut Unit<'_>,
) -> Result<bool, Refusal<Rejection>> {
    let broken = |rejection| {
        Refusal::Broken(format!("stock of {:?} and the reservation disagree: {rejection}", line.sku))
    };
    unit.decide::<Product>(&line.sku, &wish).map_err(broken)
}

fn refused(rejection: impl Into<Rejection>) -> Refusal<Rejection> {
    Refusal::Rejected(rejection.into())
}

fn change_reservation(
    order: Uuid,
    wish: &ReservationCommand,
    unit: &mut Unit<'_>,
) -> Result<bool, ReservationRejection> {
    unit.decide::<Reservation>(order, wish)
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

/// What the audit gets to see of a product's stock.
#[must_use]
pub fn stock_entry(sku: &str, product: &Product) -> StockEntry {
    StockEntry {
        sku: sku.to_owned(),
        on_hand: product.on_hand.into(),
        reserved: product.reserved.into(),
        sold: product.sold.into(),
        supplied: product.supplied.into(),
    }
}

/// What the audit gets to see of a reservation.
#[must_use]
pub fn reservation_entry(order: Uuid, reservation: &Reservation) -> ReservationEntry {
    let state = match reservation {
        Reservation::Held(_) => ReservationState::Held,
        Reservation::Sold(_) => ReservationState::Sold,
        Reservation::New | Reservation::Refused | Reservation::Released | Reservation::Void => {
            ReservationState::Free
        }
    };
    let pieces = reservation.lines().iter().map(|line| u64::from(line.quantity)).sum();
    ReservationEntry { order, state, pieces }
}
