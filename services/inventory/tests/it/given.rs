//! Pure: facts and commands for the tests of the inventory service.

use contract::inventory::{Shortage, StockReleased, StockReservationFailed, StockReserved};
use contract::money::{Currency, Money};
use contract::order::{
    CancelReason, Line, OrderCancelled, OrderConfirmed, OrderCreated, PaymentContext, StockLine,
};
use contract::{Fact, payment_id};
use inventory::domain::{Listing, Product, ProductCommand};
use inventory::service::{Command, InventoryService};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use saga_engine::testing::{NOON, ServiceUnderTest};

pub const ORDER: Uuid = Uuid::from_u128(1);
pub const OTHER_ORDER: Uuid = Uuid::from_u128(2);

/// A sku and a number of pieces.
pub type Pieces<'a> = (&'a str, u32);

pub fn euros(minor: i64) -> Money {
    Money::new(minor, Currency::EUR)
}

/// Inventory service with 10 packs of beans and 3 mugs.
pub fn warehouse() -> ServiceUnderTest<InventoryService> {
    let mut warehouse = ServiceUnderTest::of(InventoryService);
    warehouse.executes(of("beans", ProductCommand::List(listing(), 10)));
    warehouse.executes(of("mug", ProductCommand::List(listing(), 3)));
    warehouse
}

/// (on hand, reserved, sold) of a product.
pub fn stock(warehouse: &ServiceUnderTest<InventoryService>, sku: &str) -> (u32, u32, u32) {
    let product = warehouse.row::<Product>(sku);
    (product.on_hand, product.reserved, product.sold)
}

pub fn of(sku: &str, change: ProductCommand) -> Command {
    Command { sku: sku.to_owned(), change, operator: None }
}

pub fn listing() -> Listing {
    Listing { name: "a product".to_owned(), unit_price: euros(1250), replenish: true }
}

pub fn created(order: Uuid, lines: &[Pieces<'_>]) -> Fact {
    let line = |(sku, quantity): &Pieces<'_>| Line {
        sku: (*sku).to_owned(),
        quantity: *quantity,
        unit_price: euros(1250),
    };
    let lines = lines.iter().map(line).collect();
    Fact::OrderCreated(OrderCreated { order, lines, payment: payment(order), deadline: deadline() })
}

pub fn confirmed(order: Uuid, lines: &[Pieces<'_>]) -> Fact {
    Fact::OrderConfirmed(OrderConfirmed { order, lines: stock_lines(lines) })
}

pub fn cancelled(order: Uuid, lines: &[Pieces<'_>]) -> Fact {
    let reason = CancelReason::CustomerRequest;
    Fact::OrderCancelled(OrderCancelled { order, lines: stock_lines(lines), reason })
}

pub fn reserved(order: Uuid, lines: &[Pieces<'_>]) -> Fact {
    Fact::StockReserved(StockReserved {
        order,
        lines: stock_lines(lines),
        payment: payment(order),
        deadline: deadline(),
    })
}

/// (sku, requested, available) of each shortage.
pub fn refused(order: Uuid, shortages: &[(&str, u32, u32)]) -> Fact {
    let shortage = |(sku, requested, available): &(&str, u32, u32)| Shortage {
        sku: (*sku).to_owned(),
        requested: *requested,
        available: *available,
    };
    let shortages = shortages.iter().map(shortage).collect();
    Fact::StockReservationFailed(StockReservationFailed { order, shortages })
}

pub fn released(order: Uuid, lines: &[Pieces<'_>]) -> Fact {
    Fact::StockReleased(StockReleased { order, lines: stock_lines(lines) })
}

fn deadline() -> Timestamp {
    NOON + SignedDuration::from_secs(60)
}

fn payment(order: Uuid) -> PaymentContext {
    PaymentContext {
        customer: "ada".to_owned(),
        total: euros(3300),
        token: "tok_ok".to_owned(),
        id: payment_id(order),
    }
}

fn stock_lines(lines: &[Pieces<'_>]) -> Vec<StockLine> {
    lines.iter().map(|(sku, quantity)| StockLine { sku: (*sku).to_owned(), quantity: *quantity }).collect()
}
