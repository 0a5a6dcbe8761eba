//! Pure: whenever this happens to an order, publish that.

use contract::Fact;
use contract::metrics::{AMOUNT, ORDER_DURATION, PLACED, count_money};
use contract::order::{DeadlineExtended, OrderCancelled, OrderConfirmed, OrderCreated, StockLine, order_id};
use saga_core::metric::Measurement;
use saga_core::{Policy, UnitOfWork};

use crate::catalogue::CatalogueItem;
use crate::domain::{Order, OrderEvent, Placed};

type Work<'a> = UnitOfWork<'a, Fact>;

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
                measure_duration(before, "confirmed", work);
                count_value(before, "confirmed", work);
                work.publish(OrderConfirmed { order, lines: stock_lines(before) });
            }
            OrderEvent::Cancelled(reason) => {
                // In flight = placed - confirmed - cancelled, so the cancellation of a confirmed order counts apart.
                let change = if matches!(before, Self::Confirmed(_)) { "taken_back" } else { "cancelled" };
                measure_duration(before, reason.as_str(), work);
                count_value(before, change, work);
                work.publish(OrderCancelled { order, lines: stock_lines(before), reason: *reason });
            }
            OrderEvent::DeadlineExtended(until) => {
                work.publish(DeadlineExtended { order, deadline: *until });
            }
        }
    }
}

impl Policy<Fact> for CatalogueItem {}

/// Measures how long an order was pending.
fn measure_duration(before: &Order, outcome: &str, work: &mut Work<'_>) {
    if let Order::Pending(placed) = before {
        let took = work.now().duration_since(placed.placed_at);
        work.measure(Measurement::took(&ORDER_DURATION, &[outcome], took));
    }
}

fn count_value(order: &Order, event: &str, work: &mut Work<'_>) {
    if let Some(placed) = order.placed() {
        count_money(&AMOUNT, placed.payment.total, event, work);
    }
}

fn stock_lines(order: &Order) -> Vec<StockLine> {
    let lines = order.placed().map(|placed| placed.lines.as_slice()).unwrap_or_default();
    lines.iter().map(|line| StockLine { sku: line.sku.clone(), quantity: line.quantity }).collect()
}
