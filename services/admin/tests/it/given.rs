//! Pure: the facts that the admin service's tests are made of.

use jiff::{SignedDuration, Timestamp};
use shared::contract::{
    CancelReason, DeadLettered, Fact, FactType, Line, OrderCancelled, OrderConfirmed, OrderCreated,
    PaymentContext, PaymentFailed, PaymentFailure, PaymentProcessed, PaymentRefunded, PriceChanged,
    ProductListed, StockLine, StockReleased, StockReplenished, StockReservationFailed, StockReserved,
};
use shared::ids::{derived, payment_id};
use shared::money::{Currency, Money};
use uuid::Uuid;

use crate::world::NOON;

pub const ORDER: Uuid = Uuid::from_u128(1);

pub fn total() -> Money {
    Money::new(3300, Currency::EUR)
}

pub fn deadline() -> Timestamp {
    NOON + SignedDuration::from_secs(60)
}

/// The fact of each type about an order. A dead letter is one of a step that undoes.
pub fn fact(fact_type: FactType, order: Uuid) -> Fact {
    let payment = PaymentContext { customer: "ada".to_owned(), total: total(), token: "tok_ok".to_owned() };
    let lines = vec![StockLine { sku: "mug".to_owned(), quantity: 2 }];
    let (sku, name, unit_price, revision) = ("mug".to_owned(), "Mug".to_owned(), total(), 1);
    match fact_type {
        FactType::OrderCreated => {
            let lines = vec![Line { sku, quantity: 2, unit_price }];
            Fact::OrderCreated(OrderCreated { order, lines, payment, deadline: deadline() })
        }
        FactType::OrderConfirmed => Fact::OrderConfirmed(OrderConfirmed { order, lines }),
        FactType::OrderCancelled => cancelled(order, CancelReason::CustomerRequest),
        FactType::StockReserved => Fact::StockReserved(StockReserved { order, lines, payment }),
        FactType::StockReservationFailed => {
            Fact::StockReservationFailed(StockReservationFailed { order, shortages: vec![] })
        }
        FactType::StockReleased => Fact::StockReleased(StockReleased { order, lines }),
        FactType::StockReplenished => {
            Fact::StockReplenished(StockReplenished { sku, quantity: 2, on_hand: 2 })
        }
        FactType::ProductListed => Fact::ProductListed(ProductListed { sku, name, unit_price, revision }),
        FactType::PriceChanged => Fact::PriceChanged(PriceChanged { sku, name, unit_price, revision }),
        FactType::PaymentProcessed => {
            let (payment, bank_reference) = (payment_id(order), "ch_1".to_owned());
            Fact::PaymentProcessed(PaymentProcessed { order, payment, amount: total(), bank_reference })
        }
        FactType::PaymentFailed => {
            let (payment, reason) = (payment_id(order), PaymentFailure::Declined);
            Fact::PaymentFailed(PaymentFailed { order, payment, reason })
        }
        FactType::PaymentRefunded => {
            Fact::PaymentRefunded(PaymentRefunded { order, payment: payment_id(order), amount: total() })
        }
        FactType::DeadLettered => Fact::DeadLettered(letter("payment-refund", Some(order), 0)),
    }
}

pub fn cancelled(order: Uuid, reason: CancelReason) -> Fact {
    let lines = vec![StockLine { sku: "mug".to_owned(), quantity: 2 }];
    Fact::OrderCancelled(OrderCancelled { order, lines, reason })
}

/// The dead letter of payment about a saga, when it failed last this many minutes after noon.
pub fn letter(step: &str, saga: Option<Uuid>, minutes: i64) -> DeadLettered {
    DeadLettered {
        id: letter_id(saga),
        service: "payment".to_owned(),
        step: step.to_owned(),
        message_id: Uuid::from_u128(7),
        message_type: None,
        saga,
        reason: format!("failed at {minutes} past"),
        fingerprint: "f1".to_owned(),
        attempts: 3,
        first_failed_at: NOON,
        last_failed_at: NOON + SignedDuration::from_mins(minutes),
        payload_base64: String::new(),
    }
}

pub fn letter_id(saga: Option<Uuid>) -> Uuid {
    derived(&["letter", &saga.unwrap_or_default().to_string()])
}
