//! Pure: the handlers of the inventory service: commands and messages.

use std::collections::BTreeMap;

use contract::Fact;
use contract::inventory::{ProductChange, ProductChangeAudited, Shortage};
use contract::order::{OrderCancelled, OrderConfirmed, OrderCreated, StockLine};
use contract::topology::OPERATOR;
use saga_core::UnitOfWork;
use saga_core::message::{Message as _, Received};
use saga_core::row::{RowKey, RowKind};
use saga_core::secrets::Secrets;
use saga_core::service::{HandlerError, HandlerResult, Service, Step};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::domain::{
    Listing, Product, ProductCommand, ProductRejection, Reservation, ReservationCommand, ReservationRejection,
};
use crate::view::ProductView;

#[derive(Debug)]
pub struct InventoryService;

/// Command for one product, from a user or from the replenishment monitor.
#[derive(Debug, Clone)]
pub struct Command {
    pub sku: String,
    pub change: ProductCommand,
    /// Operator who asked for the change, for the audit log; `None` for a change that no person asked for.
    pub operator: Option<String>,
}

/// Reply to a command: the product after it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reply {
    pub product: ProductView,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error(transparent)]
    Product(#[from] ProductRejection),
    #[error(transparent)]
    Reservation(#[from] ReservationRejection),
}

type Work<'a> = UnitOfWork<'a, Fact>;

impl Service for InventoryService {
    const NAME: &'static str = crate::NAME;
    const OPERATOR: Option<&'static str> = Some(OPERATOR);
    const SECRETS: Secrets = contract::order::SECRETS;
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
        let is_changed = work.decide::<Product>(sku, &command.change).map_err(Rejection::from)?;
        if is_changed && let Some(operator) = &command.operator {
            audit(command, operator, work);
        }
        match ProductView::of(sku, work.row::<Product>(sku)) {
            Some(product) => Ok(Reply { product }),
            None => Err(Rejection::from(ProductRejection::Unknown).into()),
        }
    }

    fn rows_of_message(&self, message: &Received<Fact>) -> Vec<RowKey> {
        let reservation = message.fact.saga().map(RowKey::of::<Reservation>);
        skus(&message.fact).into_iter().map(RowKey::of::<Product>).chain(reservation).collect()
    }

    /// Products that the order has reserved. Its later facts may name others: an operator may have edited them.
    fn additional_rows(&self, message: &Received<Fact>, work: &mut Work<'_>) -> Vec<RowKey> {
        let order = message.fact.saga();
        let lines = order.map(|order| reserved_lines(order, work)).unwrap_or_default();
        lines.into_iter().map(|line| RowKey::of::<Product>(line.sku)).collect()
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the engine delivers only what the step consumes")]
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

/// Publishes a change by an operator for the audit log. The other commands are none of operators.
fn audit(Command { sku, change, .. }: &Command, operator: &str, work: &mut Work<'_>) {
    let (change, quantity) = match change {
        ProductCommand::List(_, quantity) => (ProductChange::Listed, *quantity),
        ProductCommand::ChangePrice(_) => (ProductChange::PriceChanged, 0),
        ProductCommand::Restock(quantity) => (ProductChange::Restocked, *quantity),
        ProductCommand::Replenish { .. }
        | ProductCommand::Reserve(_)
        | ProductCommand::Release(_)
        | ProductCommand::Sell(_)
        | ProductCommand::PutBack(_) => return,
    };
    if let Some(Listing { unit_price, .. }) = work.row::<Product>(sku).listing.clone() {
        let (sku, operator) = (sku.clone(), operator.to_owned());
        work.publish(ProductChangeAudited { sku, change, unit_price, quantity, operator });
    }
}

/// Products named by a fact about an order.
#[expect(clippy::wildcard_enum_match_arm, reason = "other facts are not consumed")]
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

/// Reserves all lines or none.
fn reserve(created: &OrderCreated, work: &mut Work<'_>) -> HandlerResult<InventoryService> {
    let order = created.order;
    if *work.row::<Reservation>(order) != Reservation::New {
        return Ok(());
    }
    let requested = requested_lines(created);
    let command = if shortages(&requested, work).is_empty() {
        for StockLine { sku, quantity } in &requested {
            work.decide::<Product>(sku, &ProductCommand::Reserve(*quantity)).map_err(Rejection::from)?;
        }
        ReservationCommand::Reserve(requested)
    } else {
        ReservationCommand::Refuse
    };
    work.decide::<Reservation>(order, &command).map_err(Rejection::from)?;
    Ok(())
}

/// Lines of a new order, one per sku.
pub(crate) fn requested_lines(created: &OrderCreated) -> Vec<StockLine> {
    sum_by_sku(created.lines.iter().map(|line| (line.sku.as_str(), line.quantity)))
}

/// Sums quantities by sku, since lines of one sku share its stock.
fn sum_by_sku<'a>(lines: impl Iterator<Item = (&'a str, u32)>) -> Vec<StockLine> {
    let mut requested: BTreeMap<&str, u32> = BTreeMap::new();
    for (sku, quantity) in lines {
        let sum = requested.entry(sku).or_default();
        *sum = sum.saturating_add(quantity);
    }
    requested.into_iter().map(|(sku, quantity)| StockLine { sku: sku.to_owned(), quantity }).collect()
}

/// Lines that exceed the stock on hand.
pub(crate) fn shortages(requested: &[StockLine], work: &mut Work<'_>) -> Vec<Shortage> {
    let mut shortages = Vec::new();
    for StockLine { sku, quantity } in requested {
        let available = work.row::<Product>(sku).on_hand;
        if *quantity > available {
            shortages.push(Shortage { sku: sku.clone(), requested: *quantity, available });
        }
    }
    shortages
}

/// Sells the reserved lines if they are the confirmed ones.
fn sell(confirmed: &OrderConfirmed, work: &mut Work<'_>) -> HandlerResult<InventoryService> {
    let order = confirmed.order;
    let confirmed = sum_by_sku(confirmed.lines.iter().map(|line| (line.sku.as_str(), line.quantity)));
    if let Reservation::Reserved(lines) = work.row::<Reservation>(order)
        && *lines != confirmed
    {
        let [confirmed, reserved] = [&confirmed, lines].map(|lines| describe(lines));
        return Err(HandlerError::Permanent(format!("confirmed: {confirmed}, but reserved: {reserved}")));
    }
    match work.decide::<Reservation>(order, &ReservationCommand::Sell) {
        Ok(false) => {}
        Ok(true) => {
            for line in reserved_lines(order, work) {
                change_stock(&line, ProductCommand::Sell(line.quantity), work)?;
            }
        }
        // A confirmation follows from our own reservation, which must therefore arrive.
        Err(ReservationRejection::Unknown) => {
            return Err(HandlerError::Transient("the reservation is not here".to_owned()));
        }
        Err(rejection @ ReservationRejection::NothingReserved) => {
            return Err(Rejection::from(rejection).into());
        }
    }
    Ok(())
}

fn describe(lines: &[StockLine]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| format!("{} {}", line.quantity, line.sku)).collect();
    if lines.is_empty() { "nothing".to_owned() } else { lines.join(", ") }
}

/// Releases reserved lines, or puts sold ones back.
fn release(order: Uuid, work: &mut Work<'_>) -> HandlerResult<InventoryService> {
    let was_sold = matches!(work.row::<Reservation>(order), Reservation::Sold(_));
    for line in reserved_lines(order, work) {
        let undo = if was_sold { ProductCommand::PutBack } else { ProductCommand::Release };
        change_stock(&line, undo(line.quantity), work)?;
    }
    work.decide::<Reservation>(order, &ReservationCommand::Release).map_err(Rejection::from)?;
    Ok(())
}

fn reserved_lines(order: Uuid, work: &mut Work<'_>) -> Vec<StockLine> {
    work.row::<Reservation>(order).lines().to_vec()
}

/// Applies a change that the reservation implies. A rejection means that product and reservation disagree.
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
