//! Pure: facts and commands for the tests of the order service.

use contract::Fact;
use contract::inventory::{PriceChanged, ProductListed, Shortage, StockReservationFailed};
use contract::money::{Currency, Money};
use contract::order::{
    CancelReason, DeadlineExtended, DeadlineExtensionRequested, Line, OrderCancelled, OrderConfirmed,
    OrderCreated, PaymentContext, StockLine,
};
use contract::payment::{PaymentFailed, PaymentFailure, PaymentProcessed};
use contract::payment_id;
use jiff::{SignedDuration, Timestamp};
use order::service::{Command, NewOrder, OrderService};
use uuid::Uuid;

use saga_engine::testing::{NOON, ServiceUnderTest};

pub const ORDER: Uuid = Uuid::from_u128(1);
pub const TIMEOUT: SignedDuration = SignedDuration::from_secs(60);

/// Lines of each order: two packs of beans and a mug, 33.00 EUR in total.
pub const LINES: [(&str, u32); 2] = [("beans", 2), ("mug", 1)];

pub fn euros(minor: i64) -> Money {
    Money::new(minor, Currency::EUR)
}

/// Order service with known prices of beans (12.50) and mugs (8.00).
pub fn shop() -> ServiceUnderTest<OrderService> {
    let mut shop = ServiceUnderTest::of(OrderService);
    shop.receives(listed("beans", euros(1250), 1));
    shop.receives(listed("mug", euros(800), 1));
    shop
}

/// [`shop`] with a pending order.
pub fn shop_with_pending_order() -> ServiceUnderTest<OrderService> {
    let mut shop = shop();
    shop.executes(place(ORDER, &LINES)).publishes([created(ORDER)]);
    shop
}

/// [`shop`] with a confirmed order.
pub fn shop_with_confirmed_order() -> ServiceUnderTest<OrderService> {
    let mut shop = shop_with_pending_order();
    shop.receives(paid(ORDER)).publishes([confirmed(ORDER)]);
    shop
}

pub fn place(order: Uuid, lines: &[(&str, u32)]) -> Command {
    let lines = lines.iter().map(|(sku, quantity)| ((*sku).to_owned(), *quantity)).collect();
    let (customer, token) = ("ada".to_owned(), "tok_ok".to_owned());
    Command::Place(NewOrder { order, customer, lines, token, timeout: TIMEOUT })
}

pub fn cancel(order: Uuid, reason: CancelReason) -> Command {
    Command::Cancel { order, reason }
}

pub fn extension(order: Uuid, deadline: Timestamp) -> Fact {
    Fact::DeadlineExtensionRequested(DeadlineExtensionRequested { order, deadline })
}

pub fn extended(order: Uuid, deadline: Timestamp) -> Fact {
    Fact::DeadlineExtended(DeadlineExtended { order, deadline })
}

pub fn listed(sku: &str, unit_price: Money, revision: u64) -> Fact {
    Fact::ProductListed(ProductListed { sku: sku.to_owned(), name: sku.to_owned(), unit_price, revision })
}

pub fn repriced(sku: &str, unit_price: Money, revision: u64) -> Fact {
    Fact::PriceChanged(PriceChanged { sku: sku.to_owned(), name: sku.to_owned(), unit_price, revision })
}

pub fn paid(order: Uuid) -> Fact {
    let (payment, bank_reference) = (payment_id(order), "ch_1".to_owned());
    Fact::PaymentProcessed(PaymentProcessed { order, payment, amount: euros(3300), bank_reference })
}

pub fn payment_failed(order: Uuid) -> Fact {
    Fact::PaymentFailed(PaymentFailed { order, payment: payment_id(order), reason: PaymentFailure::Declined })
}

pub fn short_of_stock(order: Uuid) -> Fact {
    let shortages = vec![Shortage { sku: "mug".to_owned(), requested: 1, available: 0 }];
    Fact::StockReservationFailed(StockReservationFailed { order, shortages })
}

/// `OrderCreated` for an order of [`LINES`].
pub fn created(order: Uuid) -> Fact {
    let priced =
        |(sku, quantity): (&str, u32), unit_price| Line { sku: sku.to_owned(), quantity, unit_price };
    Fact::OrderCreated(OrderCreated {
        order,
        lines: vec![priced(LINES[0], euros(1250)), priced(LINES[1], euros(800))],
        payment: PaymentContext {
            customer: "ada".to_owned(),
            total: euros(3300),
            token: "tok_ok".to_owned(),
            id: payment_id(order),
        },
        deadline: NOON + TIMEOUT,
    })
}

pub fn confirmed(order: Uuid) -> Fact {
    Fact::OrderConfirmed(OrderConfirmed { order, lines: stock_lines() })
}

pub fn cancelled(order: Uuid, reason: CancelReason) -> Fact {
    Fact::OrderCancelled(OrderCancelled { order, lines: stock_lines(), reason })
}

fn stock_lines() -> Vec<StockLine> {
    LINES.map(|(sku, quantity)| StockLine { sku: sku.to_owned(), quantity }).to_vec()
}
