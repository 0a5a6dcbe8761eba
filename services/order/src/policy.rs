//! Pure: whenever they say X, the order service does Y.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use shared::books::{OrderEntry, OrderState};
use shared::contract::{
    CancelReason, Fact, Line, OrderCancelled, OrderConfirmed, OrderCreated, PaymentContext, StockLine,
};
use shared::envelope::Message;
use shared::money::Money;
use shared::row::{RowKey, RowKind};
use shared::service::{Heard, Refusal, Service, Step};
use shared::unit::Unit;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::domain::{CatalogueItem, Order, OrderCommand, OrderRejection, Placed, PriceHeard};

/// The order service's reactions.
pub struct OrderService;

/// What people may ask.
#[derive(Debug, Clone)]
pub enum Command {
    /// Place an order.
    Place(NewOrder),
    /// Cancel one.
    Cancel {
        /// Which.
        order: Uuid,
        /// Why.
        reason: CancelReason,
    },
}

/// A wish for a new order. Prices are not part of it: they come from the catalogue.
#[derive(Debug, Clone)]
pub struct NewOrder {
    /// Its id.
    pub order: Uuid,
    /// Who orders.
    pub customer: String,
    /// (sku, quantity) of each line.
    pub lines: Vec<(String, u32)>,
    /// The card.
    pub token: String,
    /// How long it may take.
    pub patience: SignedDuration,
}

/// An order as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrderView {
    /// Its id; also the saga's.
    pub id: Uuid,
    /// `PENDING`, `CONFIRMED` or `CANCELLED`.
    pub status: String,
    /// Why it was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_because: Option<CancelReason>,
    /// Who ordered.
    pub customer: String,
    /// Its lines.
    pub lines: Vec<Line>,
    /// What it costs.
    pub total: Money,
    /// When it was placed.
    #[schema(value_type = String, format = DateTime)]
    pub placed_at: Timestamp,
    /// When it gives up unless confirmed.
    #[schema(value_type = String, format = DateTime)]
    pub deadline: Timestamp,
}

/// The answer to a command.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Reply {
    /// The order after it.
    pub order: Option<OrderView>,
}

/// Why the order service says no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejection {
    /// The catalogue has no such product.
    UnknownSku {
        /// Index of the line.
        line: usize,
        /// The product.
        sku: String,
    },
    /// Its lines are priced in different currencies.
    MixedCurrencies {
        /// Index of the first line that differs.
        line: usize,
    },
    /// The total does not fit.
    TotalTooLarge {
        /// Index of the line that overflows.
        line: usize,
    },
    /// The order itself says no.
    Order(OrderRejection),
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownSku { sku, .. } => write!(f, "the catalogue has no product {sku:?}"),
            Self::MixedCurrencies { line } => {
                write!(f, "line {line} is priced in another currency than line 0")
            }
            Self::TotalTooLarge { line } => write!(f, "the total overflows at line {line}"),
            Self::Order(rejection) => rejection.fmt(f),
        }
    }
}

impl From<OrderRejection> for Rejection {
    fn from(rejection: OrderRejection) -> Self {
        Self::Order(rejection)
    }
}

type Reaction = Result<Reply, Refusal<Rejection>>;

impl Service for OrderService {
    const NAME: &'static str = crate::NAME;
    type Command = Command;
    type Reply = Reply;
    type Rejection = Rejection;

    fn rows() -> Vec<RowKind> {
        vec![RowKind::of::<Order>(), RowKind::of::<CatalogueItem>()]
    }

    fn steps() -> &'static [Step] {
        &crate::STEPS
    }

    fn reads(&self, heard: &Heard<'_, Command>) -> Vec<RowKey> {
        match heard {
            Heard::Command(Command::Place(new)) => {
                let items = new.lines.iter().map(|(sku, _)| RowKey::of::<CatalogueItem>(sku));
                items.chain([RowKey::of::<Order>(new.order)]).collect()
            }
            Heard::Command(Command::Cancel { order, .. }) => vec![RowKey::of::<Order>(order)],
            Heard::Message(_, message) => match (&message.fact, message.fact.saga()) {
                (Fact::ProductListed(fact), _) => vec![RowKey::of::<CatalogueItem>(&fact.sku)],
                (Fact::PriceChanged(fact), _) => vec![RowKey::of::<CatalogueItem>(&fact.sku)],
                (_, saga) => saga.map(RowKey::of::<Order>).into_iter().collect(),
            },
            Heard::Called { .. } => vec![],
            Heard::Due(key) => vec![(*key).clone()],
        }
    }

    fn react(&self, heard: &Heard<'_, Command>, unit: &mut Unit<'_>) -> Reaction {
        match heard {
            Heard::Command(Command::Place(new)) => place(new, unit),
            Heard::Command(Command::Cancel { order, reason }) => {
                cancel(*order, *reason, unit).map_err(|rejection| Refusal::Rejected(rejection.into()))
            }
            Heard::Message(step, message) => hear(step, message, unit),
            Heard::Called { kind, .. } => {
                Err(Refusal::Broken(format!("the order service makes no calls ({kind})")))
            }
            Heard::Due(key) => expire(&key.id, unit),
        }
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the engine hands in what the step subscribes to, no more"
)]
fn hear(step: &Step, message: &Message, unit: &mut Unit<'_>) -> Reaction {
    match &message.fact {
        Fact::PaymentProcessed(fact) => confirm(fact.order, unit).map_err(first_things_first),
        Fact::StockReservationFailed(fact) => {
            cancel(fact.order, CancelReason::OutOfStock, unit).map_err(first_things_first)
        }
        Fact::PaymentFailed(fact) => {
            cancel(fact.order, CancelReason::PaymentFailed, unit).map_err(first_things_first)
        }
        Fact::ProductListed(fact) => learn(&fact.sku, fact.unit_price, fact.revision, unit),
        Fact::PriceChanged(fact) => learn(&fact.sku, fact.unit_price, fact.revision, unit),
        _ => Err(Refusal::unheard(step, message)),
    }
}

/// A fact about an order that is not there: the order's own fact caused it, so it must come. If it never does,
/// somebody has lost data, and a human should know.
fn first_things_first(rejection: OrderRejection) -> Refusal<Rejection> {
    match rejection {
        OrderRejection::Unknown => Refusal::NotYet("the order is not here".to_owned()),
        OrderRejection::AlreadyCancelled(_) | OrderRejection::AlreadyConfirmed => {
            Refusal::Rejected(rejection.into())
        }
    }
}

fn place(new: &NewOrder, unit: &mut Unit<'_>) -> Reaction {
    let mut lines: Vec<Line> = Vec::with_capacity(new.lines.len());
    let mut total: Option<Money> = None;
    for (line, (sku, quantity)) in new.lines.iter().enumerate() {
        let Some(unit_price) = unit.row::<CatalogueItem>(sku).unit_price else {
            return Err(Rejection::UnknownSku { line, sku: sku.clone() }.into());
        };
        if total.is_some_and(|total| total.currency != unit_price.currency) {
            return Err(Rejection::MixedCurrencies { line }.into());
        }
        let sum = unit_price
            .times(*quantity)
            .and_then(|price| total.map_or(Some(price), |total| total.plus(price)));
        let Some(sum) = sum else {
            return Err(Rejection::TotalTooLarge { line }.into());
        };
        total = Some(sum);
        lines.push(Line { sku: sku.clone(), quantity: *quantity, unit_price });
    }
    let Some(total) = total else {
        return Err(Refusal::Broken("an order without lines".to_owned()));
    };
    let payment = PaymentContext { customer: new.customer.clone(), total, token: new.token.clone() };
    let placed_at = unit.now();
    let deadline = placed_at.checked_add(new.patience).unwrap_or(Timestamp::MAX);
    let placed = Placed { lines: lines.clone(), payment: payment.clone(), placed_at, deadline };
    if decide(new.order, &OrderCommand::Place(placed), unit)? {
        unit.publish(Fact::OrderCreated(OrderCreated { order: new.order, lines, payment, deadline }));
    }
    Ok(reply(new.order, unit))
}

fn confirm(order: Uuid, unit: &mut Unit<'_>) -> Result<Reply, OrderRejection> {
    if unit.decide::<Order>(order, &OrderCommand::Confirm)? {
        let lines = stock_lines(order, unit);
        unit.publish(Fact::OrderConfirmed(OrderConfirmed { order, lines }));
    }
    Ok(reply(order, unit))
}

fn cancel(order: Uuid, reason: CancelReason, unit: &mut Unit<'_>) -> Result<Reply, OrderRejection> {
    if unit.decide::<Order>(order, &OrderCommand::Cancel(reason))? {
        publish_cancellation(order, reason, unit);
    }
    Ok(reply(order, unit))
}

fn expire(id: &str, unit: &mut Unit<'_>) -> Reaction {
    let order: Uuid = id.parse().map_err(|_| Refusal::Broken(format!("{id:?} is no order id")))?;
    let now = unit.now();
    if decide(order, &OrderCommand::Expire(now), unit)? {
        publish_cancellation(order, CancelReason::TimedOut, unit);
    }
    Ok(Reply::default())
}

fn learn(sku: &str, unit_price: Money, revision: u64, unit: &mut Unit<'_>) -> Reaction {
    let Ok(_) = unit.decide::<CatalogueItem>(sku, &PriceHeard { unit_price, revision });
    Ok(Reply::default())
}

fn decide(order: Uuid, command: &OrderCommand, unit: &mut Unit<'_>) -> Result<bool, Refusal<Rejection>> {
    unit.decide::<Order>(order, command).map_err(|rejection| Refusal::Rejected(rejection.into()))
}

fn publish_cancellation(order: Uuid, reason: CancelReason, unit: &mut Unit<'_>) {
    let lines = stock_lines(order, unit);
    unit.publish(Fact::OrderCancelled(OrderCancelled { order, lines, reason }));
}

fn stock_lines(order: Uuid, unit: &mut Unit<'_>) -> Vec<StockLine> {
    let placed = unit.row::<Order>(order).placed();
    let lines = placed.map(|placed| placed.lines.as_slice()).unwrap_or_default();
    lines.iter().map(|line| StockLine { sku: line.sku.clone(), quantity: line.quantity }).collect()
}

fn reply(order: Uuid, unit: &mut Unit<'_>) -> Reply {
    Reply { order: OrderView::of(order, unit.row::<Order>(order)) }
}

impl OrderView {
    /// The view of an order; `None` when it is not there.
    #[must_use]
    pub fn of(id: Uuid, order: &Order) -> Option<Self> {
        let placed = order.placed()?;
        Some(Self {
            id,
            status: order.status().to_owned(),
            cancelled_because: order.cancelled_because(),
            customer: placed.payment.customer.clone(),
            lines: placed.lines.clone(),
            total: placed.payment.total,
            placed_at: placed.placed_at,
            deadline: placed.deadline,
        })
    }
}

/// What the audit gets to see of an order; `None` when it is not there.
#[must_use]
pub fn book_entry(id: Uuid, order: &Order) -> Option<OrderEntry> {
    let state = match order {
        Order::New => return None,
        Order::Pending(_) => OrderState::Pending,
        Order::Confirmed(_) => OrderState::Confirmed,
        Order::Cancelled(..) => OrderState::Cancelled,
    };
    let placed = order.placed()?;
    let pieces = placed.lines.iter().map(|line| u64::from(line.quantity)).sum();
    Some(OrderEntry { order: id, state, total: placed.payment.total, pieces })
}
