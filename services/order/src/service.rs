//! Pure: the handlers of the order service: commands, messages and deadlines.

use contract::inventory::{PriceChanged, ProductListed};
use contract::money::Money;
use contract::order::{CancelReason, DeadlineExtensionRequested, Line, PaymentContext, order_id};
use contract::payment::PaymentProcessed;
use contract::topology::OPERATOR;
use contract::{Fact, payment_id};
use jiff::{SignedDuration, Timestamp};
use saga_core::UnitOfWork;
use saga_core::message::{Message as _, Received};
use saga_core::row::{RowKey, RowKind};
use saga_core::secrets::Secrets;
use saga_core::service::{HandlerError, HandlerResult, Service, Step};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::catalogue::{CatalogueItem, PriceUpdate};
use crate::domain::{Order, OrderCommand, OrderRejection, Placed};
use crate::view::OrderView;

#[derive(Debug)]
pub struct OrderService;

#[derive(Debug, Clone)]
pub enum Command {
    Place(NewOrder),
    /// Repeat the stored answer of the request's key, and place nothing without one: new orders are rejected.
    Repeat,
    /// Cancel an order that is pending or confirmed.
    Cancel {
        order: Uuid,
        reason: CancelReason,
    },
}

/// A new order. It has no prices: they come from the catalogue copy.
#[derive(Debug, Clone)]
pub struct NewOrder {
    /// Fresh id of the order and of its saga.
    pub order: Uuid,
    pub customer: String,
    /// (sku, quantity) of each line.
    pub lines: Vec<(String, u32)>,
    /// Card token, passed on to the bank.
    pub token: String,
    /// Time from placing to deadline.
    pub timeout: SignedDuration,
}

/// Reply to a command: the order after it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reply {
    pub order: OrderView,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error("the catalogue has no product {sku:?}")]
    UnknownSku { line: usize, sku: String },
    #[error("line {line} is priced in another currency than line 0")]
    MixedCurrencies {
        /// Index of the first line that differs.
        line: usize,
    },
    #[error("the total overflows at line {line}")]
    TotalTooLarge {
        /// Index of the line that overflows.
        line: usize,
    },
    #[error("new orders are rejected")]
    Overloaded,
    #[error(transparent)]
    Order(#[from] OrderRejection),
}

type Work<'a> = UnitOfWork<'a, Fact>;

impl Service for OrderService {
    const NAME: &'static str = crate::NAME;
    const OPERATOR: Option<&'static str> = Some(OPERATOR);
    const SECRETS: Secrets = contract::order::SECRETS;
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
            Command::Repeat => vec![],
            Command::Cancel { order, .. } => vec![RowKey::of::<Order>(order)],
        }
    }

    fn on_command(&self, command: &Command, work: &mut Work<'_>) -> Result<Reply, HandlerError<Rejection>> {
        match command {
            Command::Place(new) => place(new, work),
            // The engine answers a stored key without asking.
            Command::Repeat => Err(Rejection::Overloaded.into()),
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

    #[expect(clippy::wildcard_enum_match_arm, reason = "the engine delivers only what the step consumes")]
    fn on_message(
        &self,
        step: &'static Step,
        message: &Received<Fact>,
        work: &mut Work<'_>,
    ) -> HandlerResult<Self> {
        match &message.fact {
            Fact::PaymentProcessed(fact) => confirm(fact, work),
            Fact::StockReservationFailed(fact) => {
                cancel(fact.order, CancelReason::OutOfStock, work).map_err(retry_if_missing)
            }
            Fact::PaymentFailed(fact) => {
                cancel(fact.order, CancelReason::PaymentFailed, work).map_err(retry_if_missing)
            }
            Fact::DeadlineExtensionRequested(request) => {
                // An operator who asked in time is in time, however late the request arrives.
                let requested_at = message.occurred_at.min(work.now());
                extend(request, requested_at, work).map_err(retry_if_missing)
            }
            Fact::ProductListed(fact) => update_price(&fact.sku, fact.unit_price, fact.revision, work),
            Fact::PriceChanged(fact) => update_price(&fact.sku, fact.unit_price, fact.revision, work),
            _ => Err(HandlerError::unhandled(step, message)),
        }
    }

    fn on_deadline(&self, row: &RowKey, work: &mut Work<'_>) -> HandlerResult<Self> {
        let now = work.now();
        let command = match hold(order_id(&row.id), work) {
            Some(until) if until > now => OrderCommand::Hold(until),
            Some(_) | None => OrderCommand::Expire(now),
        };
        work.decide::<Order>(&row.id, &command).map_err(Rejection::from)?;
        Ok(())
    }
}

/// Time after an accepted loss of data in which no order from before it expires. In that time an operator publishes the
/// facts of the other services again, and payment answers the extended deadline with the outcome that it has.
const HOLD_AFTER_LOSS: SignedDuration = SignedDuration::from_mins(10);

/// End of the hold on an order whose confirmation may be lost; `None` if nothing of it can be lost.
fn hold(order: Uuid, work: &Work<'_>) -> Option<Timestamp> {
    let lost_before = work.lost_before().filter(|_| work.may_have_forgotten(order))?;
    Some(lost_before.checked_add(HOLD_AFTER_LOSS).unwrap_or(Timestamp::MAX))
}

/// Retries a fact about an unknown order: that order's own fact caused it, so the order must arrive. If it never does,
/// data was lost, and the dead letter tells an operator.
fn retry_if_missing(rejection: OrderRejection) -> HandlerError<Rejection> {
    match rejection {
        OrderRejection::Unknown => HandlerError::Transient("the order is not here".to_owned()),
        OrderRejection::AlreadyCancelled(_) | OrderRejection::AlreadyConfirmed | OrderRejection::TooLate => {
            HandlerError::Rejected(rejection.into())
        }
    }
}

fn place(new: &NewOrder, work: &mut Work<'_>) -> Result<Reply, HandlerError<Rejection>> {
    let (lines, total) = priced(new, work)?;
    let payment = PaymentContext {
        customer: new.customer.clone(),
        total,
        token: new.token.clone(),
        id: payment_id(new.order),
    };
    let placed_at = work.now();
    let deadline = placed_at.checked_add(new.timeout).unwrap_or(Timestamp::MAX);
    let placed = Placed { lines, payment, placed_at, deadline };
    work.decide::<Order>(new.order, &OrderCommand::Place(placed)).map_err(Rejection::from)?;
    reply(new.order, work)
}

/// Prices the lines of an order by the catalogue copy, and sums them up.
fn priced(new: &NewOrder, work: &mut Work<'_>) -> Result<(Vec<Line>, Money), HandlerError<Rejection>> {
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
    match total {
        Some(total) => Ok((lines, total)),
        None => Err(HandlerError::Permanent("an order without lines".to_owned())),
    }
}

/// Confirms the order if the captured amount is its total.
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
    work.decide::<Order>(order, &OrderCommand::Confirm).map(drop).map_err(retry_if_missing)
}

fn cancel(order: Uuid, reason: CancelReason, work: &mut Work<'_>) -> Result<(), OrderRejection> {
    work.decide::<Order>(order, &OrderCommand::Cancel(reason)).map(drop)
}

fn extend(
    request: &DeadlineExtensionRequested,
    requested_at: Timestamp,
    work: &mut Work<'_>,
) -> Result<(), OrderRejection> {
    let command = OrderCommand::Extend { until: request.deadline, requested_at };
    work.decide::<Order>(request.order, &command).map(drop)
}

fn update_price(
    sku: &str,
    unit_price: Money,
    revision: u64,
    work: &mut Work<'_>,
) -> HandlerResult<OrderService> {
    let Ok(_) = work.decide::<CatalogueItem>(sku, &PriceUpdate { unit_price, revision });
    Ok(())
}

fn reply(order: Uuid, work: &mut Work<'_>) -> Result<Reply, HandlerError<Rejection>> {
    match OrderView::of(order, work.row::<Order>(order)) {
        Some(order) => Ok(Reply { order }),
        None => Err(HandlerError::Permanent(format!("order {order} was never placed"))),
    }
}
