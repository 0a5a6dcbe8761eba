//! Pure: each state × command of orders and catalogue items, printed.
//!
//! The lists are complete: a new variant fails to compile in the `match` that walks them.

use std::iter::successors;

use contract::order::{CancelReason, Line, PaymentContext};
use jiff::{SignedDuration, Timestamp};
use order::catalogue::{CatalogueItem, PriceUpdate};
use order::domain::{Order, OrderCommand, Placed};

use uuid::Uuid;

use crate::given::{TIMEOUT, euros};
use saga_core::decider::Decider as _;
use saga_engine::testing::NOON;
use saga_engine::testing::decider::{Names, table};

/// A deadline later than the order's own.
const LONGER: Timestamp = Timestamp::constant(2_000_000_000, 0);

#[test]
fn order_state_table() {
    let names = Names { state: name_of_state, command: name_of_command, rejection: |no| format!("{no:?}") };
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("order", table(&states(), &commands(), &names));
    });
}

#[test]
fn catalogue_item_state_table() {
    let price = |price: &PriceUpdate| format!("{} at revision {}", price.unit_price, price.revision);
    let names = Names {
        state: |item: &CatalogueItem| {
            let CatalogueItem { unit_price, revision } = item;
            let price = unit_price.map_or("unknown".to_owned(), |price| price.to_string());
            format!("{price} at revision {revision}")
        },
        command: price,
        rejection: |never| match *never {},
    };
    let states = [CatalogueItem::default(), CatalogueItem { unit_price: Some(euros(1250)), revision: 5 }];
    let prices = [4, 5, 6].map(|revision| PriceUpdate { unit_price: euros(1300), revision });
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("catalogue_item", table(&states, &prices, &names));
    });
}

#[test]
fn only_ended_orders_may_be_purged() {
    let over: Vec<_> = states().into_iter().filter(Order::is_finished).map(|order| order.status()).collect();
    assert_eq!(over, ["CONFIRMED", "CANCELLED"]);
}

pub fn states() -> Vec<Order> {
    let next = |state: &Order| match state {
        Order::New => Some(Order::Pending(placed())),
        Order::Pending(placed) => Some(Order::Confirmed(placed.clone())),
        Order::Confirmed(placed) => Some(Order::Cancelled(placed.clone(), CancelReason::OutOfStock)),
        Order::Cancelled(..) => None,
    };
    successors(Some(Order::New), next).collect()
}

pub fn commands() -> Vec<OrderCommand> {
    let early = NOON + TIMEOUT - SignedDuration::from_micros(1);
    let next = |command: &OrderCommand| match command {
        OrderCommand::Place(_) => Some(OrderCommand::Confirm),
        OrderCommand::Confirm => Some(OrderCommand::Cancel(CancelReason::OutOfStock)),
        OrderCommand::Cancel(reason) => Some(match reason {
            CancelReason::OutOfStock => OrderCommand::Cancel(CancelReason::PaymentFailed),
            CancelReason::PaymentFailed => OrderCommand::Cancel(CancelReason::TimedOut),
            CancelReason::TimedOut => OrderCommand::Cancel(CancelReason::CustomerRequest),
            CancelReason::CustomerRequest => OrderCommand::Cancel(CancelReason::Operator),
            CancelReason::Operator => OrderCommand::Expire(early),
        }),
        OrderCommand::Expire(at) if *at == early => Some(OrderCommand::Expire(NOON + TIMEOUT)),
        OrderCommand::Expire(_) => Some(OrderCommand::Extend { until: LONGER, requested_at: early }),
        OrderCommand::Extend { until, requested_at } if *until == LONGER && *requested_at == early => {
            Some(OrderCommand::Extend { until: NOON + TIMEOUT, requested_at: early })
        }
        OrderCommand::Extend { requested_at, .. } if *requested_at == early => {
            Some(OrderCommand::Extend { until: LONGER, requested_at: NOON + TIMEOUT })
        }
        OrderCommand::Extend { .. } => Some(OrderCommand::Hold(NOON + TIMEOUT)),
        OrderCommand::Hold(until) if *until == NOON + TIMEOUT => Some(OrderCommand::Hold(LONGER)),
        OrderCommand::Hold(_) => None,
    };
    successors(Some(OrderCommand::Place(placed())), next).collect()
}

fn placed() -> Placed {
    Placed {
        lines: vec![Line { sku: "beans".to_owned(), quantity: 2, unit_price: euros(1250) }],
        payment: PaymentContext {
            customer: "ada".to_owned(),
            total: euros(2500),
            token: "tok_ok".to_owned(),
            id: Uuid::nil(),
        },
        placed_at: NOON,
        deadline: NOON + TIMEOUT,
    }
}

fn name_of_state(state: &Order) -> String {
    match state.cancelled_because() {
        Some(reason) => format!("{} ({})", state.status(), reason.as_str()),
        None => state.status().to_owned(),
    }
}

fn name_of_command(command: &OrderCommand) -> String {
    match command {
        OrderCommand::Place(_) => "Place".to_owned(),
        OrderCommand::Confirm => "Confirm".to_owned(),
        OrderCommand::Cancel(reason) => format!("Cancel({})", reason.as_str()),
        OrderCommand::Expire(at) if *at < NOON + TIMEOUT => "Expire(early)".to_owned(),
        OrderCommand::Expire(_) => "Expire(at its deadline)".to_owned(),
        OrderCommand::Extend { requested_at, .. } if *requested_at >= NOON + TIMEOUT => {
            "Extend(at its deadline)".to_owned()
        }
        OrderCommand::Extend { until, .. } if *until == LONGER => "Extend(early)".to_owned(),
        OrderCommand::Extend { .. } => "Extend(early, by nothing)".to_owned(),
        OrderCommand::Hold(until) if *until == LONGER => "Hold".to_owned(),
        OrderCommand::Hold(_) => "Hold(by nothing)".to_owned(),
    }
}
