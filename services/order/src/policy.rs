//! Pure: whenever they say X, the order service does Y.

use contract::inventory::{PriceChanged, ProductListed};
use contract::metrics::{AMOUNT, ORDER_DURATION, PLACED, count_money};
use contract::money::Money;
use contract::order::{
    CancelReason, DeadlineExtended, DeadlineExtensionRequested, Line, OrderCancelled, OrderConfirmed,
    OrderCreated, PaymentContext, StockLine,
};
use contract::payment::PaymentProcessed;
use contract::reconciliation::{CopyEntry, OrderEntry, OrderState, PublishedFact};
use contract::topology::OPERATOR;
use contract::{Fact, FactType, payment_id};
use jiff::{SignedDuration, Timestamp};
use saga_core::message::{Message as _, Received};
use saga_core::metric::Measurement;
use saga_core::row::{PastEvent, RowKey, RowKind};
use saga_core::service::{HandlerError, HandlerResult, Service, Step};
use saga_core::{Policy, UnitOfWork};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::domain::{CatalogueItem, Order, OrderCommand, OrderEvent, OrderRejection, Placed, PriceHeard};

/// The order service's reactions.
#[derive(Debug)]
pub struct OrderService;

/// What people may ask.
#[derive(Debug, Clone)]
pub enum Command {
    /// Place an order.
    Place(NewOrder),
    /// Cancel an order that is pending or confirmed.
    Cancel {
        /// The order to cancel; also the saga's id.
        order: Uuid,
        /// Who or what wants it cancelled.
        reason: CancelReason,
    },
}

/// An order as its customer asks for it. Prices are not part of it: they come from the catalogue.
#[derive(Debug, Clone)]
pub struct NewOrder {
    /// Its id, new and never used; also the saga's.
    pub order: Uuid,
    /// Who orders, and pays.
    pub customer: String,
    /// (sku, quantity) of each line.
    pub lines: Vec<(String, u32)>,
    /// Token of the card that pays, passed on to the bank.
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
    /// Who ordered, and pays.
    pub customer: String,
    /// What was ordered, at the prices of that time.
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
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reply {
    /// The order after it.
    pub order: OrderView,
}

/// Why the order service says no.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The catalogue has no such product.
    #[error("the catalogue has no product {sku:?}")]
    UnknownSku {
        /// Index of the line.
        line: usize,
        /// Stock keeping unit that the catalogue copy does not have, or not yet.
        sku: String,
    },
    /// Its lines are priced in different currencies.
    #[error("line {line} is priced in another currency than line 0")]
    MixedCurrencies {
        /// Index of the first line that differs.
        line: usize,
    },
    /// The total does not fit.
    #[error("the total overflows at line {line}")]
    TotalTooLarge {
        /// Index of the line that overflows.
        line: usize,
    },
    /// The order itself says no.
    #[error(transparent)]
    Order(#[from] OrderRejection),
}

type Work<'a> = UnitOfWork<'a, Fact>;

/// Whenever something happens to an order, the others hear of it.
impl Policy<Fact> for Order {
    fn whenever(event: &OrderEvent, id: &str, before: &Self, work: &mut Work<'_>) {
        let order = order_id(id);
        match event {
            OrderEvent::Placed(Placed { lines, payment, deadline, .. }) => {
                work.measure(Measurement::more(&PLACED, &[], 1));
                count_money(&AMOUNT, payment.total, "placed", work);
                work.publish(OrderCreated {
                    order,
                    lines: lines.clone(),
                    payment: payment.clone(),
                    deadline: *deadline,
                });
            }
            OrderEvent::Confirmed => {
                measure_time(before, "confirmed", work);
                count_worth(before, "confirmed", work);
                work.publish(OrderConfirmed { order, lines: stock_lines(before) });
            }
            OrderEvent::Cancelled(reason) => {
                // What is under way is what was placed, and neither confirmed nor cancelled: what had been confirmed is not.
                let happened = if matches!(before, Self::Confirmed(_)) { "taken_back" } else { "cancelled" };
                measure_time(before, reason.as_str(), work);
                count_worth(before, happened, work);
                work.publish(OrderCancelled { order, lines: stock_lines(before), reason: *reason });
            }
            OrderEvent::DeadlineExtended(until) => {
                work.publish(DeadlineExtended { order, deadline: *until });
            }
        }
    }
}

/// Measures how long an order was under way that no longer is.
fn measure_time(before: &Order, outcome: &str, work: &mut Work<'_>) {
    if let Order::Pending(placed) = before {
        let took = work.now().duration_since(placed.placed_at);
        work.measure(Measurement::took(&ORDER_DURATION, &[outcome], took));
    }
}

/// Counts what an order is worth that something happened to.
fn count_worth(order: &Order, event: &str, work: &mut Work<'_>) {
    if let Some(placed) = order.placed() {
        count_money(&AMOUNT, placed.payment.total, event, work);
    }
}

/// The catalogue is a copy: nobody is told of it.
impl Policy<Fact> for CatalogueItem {}

impl Service for OrderService {
    const NAME: &'static str = crate::NAME;
    const OPERATOR: Option<&'static str> = Some(OPERATOR);
    const SECRETS: &'static [&'static str] = &contract::order::SECRETS;
    type Fact = Fact;
    type Command = Command;
    type Reply = Reply;
    type Rejection = Rejection;

    fn rows() -> Vec<RowKind> {
        vec![RowKind::of::<Order>(), RowKind::of::<CatalogueItem>()]
    }

    fn steps() -> &'static [Step] {
        &crate::STEPS
    }

    fn rows_of_command(&self, command: &Command) -> Vec<RowKey> {
        match command {
            Command::Place(new) => {
                let items = new.lines.iter().map(|(sku, _)| RowKey::of::<CatalogueItem>(sku));
                items.chain([RowKey::of::<Order>(new.order)]).collect()
            }
            Command::Cancel { order, .. } => vec![RowKey::of::<Order>(order)],
        }
    }

    fn on_command(&self, command: &Command, work: &mut Work<'_>) -> Result<Reply, HandlerError<Rejection>> {
        match command {
            Command::Place(new) => place(new, work),
            Command::Cancel { order, reason } => {
                cancel(*order, *reason, work).map_err(Rejection::from)?;
                reply(*order, work)
            }
        }
    }

    fn rows_of_message(&self, message: &Received<Fact>) -> Vec<RowKey> {
        match (&message.fact, message.fact.saga()) {
            (
                Fact::ProductListed(ProductListed { sku, .. }) | Fact::PriceChanged(PriceChanged { sku, .. }),
                _,
            ) => {
                vec![RowKey::of::<CatalogueItem>(sku)]
            }
            (_, saga) => saga.map(RowKey::of::<Order>).into_iter().collect(),
        }
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
            Fact::PaymentProcessed(fact) => confirm(fact, work),
            Fact::StockReservationFailed(fact) => {
                cancel(fact.order, CancelReason::OutOfStock, work).map_err(first_things_first)
            }
            Fact::PaymentFailed(fact) => {
                cancel(fact.order, CancelReason::PaymentFailed, work).map_err(first_things_first)
            }
            Fact::DeadlineExtensionRequested(asked) => extend(asked, work).map_err(first_things_first),
            Fact::ProductListed(fact) => learn(&fact.sku, fact.unit_price, fact.revision, work),
            Fact::PriceChanged(fact) => learn(&fact.sku, fact.unit_price, fact.revision, work),
            _ => Err(HandlerError::unhandled(step, message)),
        }
    }

    /// The deadline has come.
    fn on_deadline(&self, row: &RowKey, work: &mut Work<'_>) -> HandlerResult<Self> {
        let now = work.now();
        work.decide::<Order>(&row.id, &OrderCommand::Expire(now)).map_err(Rejection::from)?;
        Ok(())
    }
}

/// A fact about an order that is not there: the order's own fact caused it, so it must come. If it never does,
/// somebody has lost data, and a human should know.
fn first_things_first(rejection: OrderRejection) -> HandlerError<Rejection> {
    match rejection {
        OrderRejection::Unknown => HandlerError::Transient("the order is not here".to_owned()),
        OrderRejection::AlreadyCancelled(_) | OrderRejection::AlreadyConfirmed | OrderRejection::TooLate => {
            HandlerError::Rejected(rejection.into())
        }
    }
}

fn place(new: &NewOrder, work: &mut Work<'_>) -> Result<Reply, HandlerError<Rejection>> {
    let mut lines: Vec<Line> = Vec::with_capacity(new.lines.len());
    let mut total: Option<Money> = None;
    for (line, (sku, quantity)) in new.lines.iter().enumerate() {
        let Some(unit_price) = work.row::<CatalogueItem>(sku).unit_price else {
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
        return Err(HandlerError::Permanent("an order without lines".to_owned()));
    };
    let payment = PaymentContext {
        customer: new.customer.clone(),
        total,
        token: new.token.clone(),
        id: payment_id(new.order),
    };
    let placed_at = work.now();
    let deadline = placed_at.checked_add(new.patience).unwrap_or(Timestamp::MAX);
    let placed = Placed { lines, payment, placed_at, deadline };
    work.decide::<Order>(new.order, &OrderCommand::Place(placed)).map_err(Rejection::from)?;
    reply(new.order, work)
}

/// Confirms the order, if what was captured is what it costs.
fn confirm(paid: &PaymentProcessed, work: &mut Work<'_>) -> HandlerResult<OrderService> {
    let order = paid.order;
    if let Order::Pending(Placed { payment: PaymentContext { total, .. }, .. }) = work.row::<Order>(order)
        && *total != paid.amount
    {
        return Err(HandlerError::Permanent(format!(
            "{} was captured, the order costs {total}",
            paid.amount
        )));
    }
    work.decide::<Order>(order, &OrderCommand::Confirm).map(drop).map_err(first_things_first)
}

fn cancel(order: Uuid, reason: CancelReason, work: &mut Work<'_>) -> Result<(), OrderRejection> {
    work.decide::<Order>(order, &OrderCommand::Cancel(reason)).map(drop)
}

fn extend(asked: &DeadlineExtensionRequested, work: &mut Work<'_>) -> Result<(), OrderRejection> {
    let command = OrderCommand::Extend { until: asked.deadline, now: work.now() };
    work.decide::<Order>(asked.order, &command).map(drop)
}

fn learn(sku: &str, unit_price: Money, revision: u64, work: &mut Work<'_>) -> HandlerResult<OrderService> {
    let Ok(_) = work.decide::<CatalogueItem>(sku, &PriceHeard { unit_price, revision });
    Ok(())
}

fn stock_lines(order: &Order) -> Vec<StockLine> {
    let lines = order.placed().map(|placed| placed.lines.as_slice()).unwrap_or_default();
    lines.iter().map(|line| StockLine { sku: line.sku.clone(), quantity: line.quantity }).collect()
}

fn reply(order: Uuid, work: &mut Work<'_>) -> Result<Reply, HandlerError<Rejection>> {
    match OrderView::of(order, work.row::<Order>(order)) {
        Some(order) => Ok(Reply { order }),
        None => Err(HandlerError::Permanent(format!("order {order} was never placed"))),
    }
}

/// The id of an order's row.
fn order_id(row: &str) -> Uuid {
    match row.parse() {
        Ok(order) => order,
        Err(error) => panic!("{row:?} is no order's id: {error}"),
    }
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

/// What the reconciliation gets to see of an order; `None` when it is not there.
#[must_use]
pub fn ledger_entry(id: Uuid, order: &Order, history: &[PastEvent<OrderEvent>]) -> Option<OrderEntry> {
    let state = match order {
        Order::New => return None,
        Order::Pending(_) => OrderState::Pending,
        Order::Confirmed(_) => OrderState::Confirmed,
        Order::Cancelled(..) => OrderState::Cancelled,
    };
    let Placed { lines, payment, deadline, .. } = order.placed()?.clone();
    Some(OrderEntry {
        payment: payment.id,
        order: id,
        state,
        cancelled_because: order.cancelled_because(),
        customer: payment.customer,
        lines,
        total: payment.total,
        deadline,
        published: PublishedFact::of(history, fact_of),
    })
}

/// The fact that others learn an event by.
#[must_use]
pub const fn fact_of(event: &OrderEvent) -> Option<FactType> {
    Some(match event {
        OrderEvent::Placed(_) => FactType::OrderCreated,
        OrderEvent::Confirmed => FactType::OrderConfirmed,
        OrderEvent::Cancelled(_) => FactType::OrderCancelled,
        OrderEvent::DeadlineExtended(_) => FactType::DeadlineExtended,
    })
}

/// What the reconciliation gets to see of the copy of a product.
#[must_use]
pub fn copy_entry(sku: &str, item: &CatalogueItem, history: &[PastEvent<PriceHeard>]) -> CopyEntry {
    let mut prices = Vec::new();
    for PriceHeard { unit_price, .. } in history.iter().map(|heard| &heard.event) {
        if !prices.contains(unit_price) {
            prices.push(*unit_price);
        }
    }
    CopyEntry { sku: sku.to_owned(), unit_price: item.unit_price, revision: item.revision, prices }
}
