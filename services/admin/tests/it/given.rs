//! Pure: the facts that the admin service's tests are made of.

use admin::commands::{Command, Wish};
use admin::letters::By;
use jiff::{SignedDuration, Timestamp};
use shared::contract::{
    CancelReason, DeadLetterDiscarded, DeadLetterResolved, DeadLetterRestored, DeadLettered, Fact, FactType,
    LetterOrigin, Line, OrderCancelled, OrderConfirmed, OrderCreated, PaymentContext, PaymentFailed,
    PaymentFailure, PaymentProcessed, PaymentRefunded, PriceChanged, ProductListed, ReplayRequested,
    StockLine, StockReleased, StockReplenished, StockReservationFailed, StockReserved,
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
        FactType::DeadLettered => Fact::DeadLettered(Box::new(letter("payment-refund", Some(order), 0))),
        FactType::DeadLetterResolved => {
            Fact::DeadLetterResolved(resolved(&letter("payment-refund", Some(order), 0)))
        }
        FactType::ReplayRequested => replay_requested(&letter("payment-refund", Some(order), 0), 2),
        FactType::DeadLetterDiscarded => {
            let (letter, service, revision) = (letter_id(Some(order)), "payment".to_owned(), 2);
            Fact::DeadLetterDiscarded(DeadLetterDiscarded { letter, service, revision })
        }
        FactType::DeadLetterRestored => {
            let (letter, service, revision) = (letter_id(Some(order)), "payment".to_owned(), 3);
            Fact::DeadLetterRestored(DeadLetterRestored { letter, service, revision })
        }
    }
}

pub fn cancelled(order: Uuid, reason: CancelReason) -> Fact {
    let lines = vec![StockLine { sku: "mug".to_owned(), quantity: 2 }];
    Fact::OrderCancelled(OrderCancelled { order, lines, reason })
}

/// The dead letter of payment about a saga, when this many replays of it have failed.
pub fn letter(step: &str, saga: Option<Uuid>, replays: u32) -> DeadLettered {
    let reason = format!("failed {} times", replays + 1);
    DeadLettered {
        id: letter_id(saga),
        service: "payment".to_owned(),
        step: step.to_owned(),
        origin: LetterOrigin::Message,
        message_id: Uuid::from_u128(7),
        message_type: Some("OrderCancelled".to_owned()),
        saga,
        error_chain: vec![reason.clone()],
        reason,
        fingerprint: "f1".to_owned(),
        attempts: 3 * (replays + 1),
        first_failed_at: NOON,
        last_failed_at: NOON + SignedDuration::from_mins(replays.into()),
        replays,
        delivery: None,
        payload_base64: String::new(),
        original: None,
    }
}

/// What payment says when a replay of this letter went well.
pub fn resolved(letter: &DeadLettered) -> DeadLetterResolved {
    DeadLetterResolved {
        letter: letter.id,
        service: letter.service.clone(),
        step: letter.step.clone(),
        saga: letter.saga,
        message_id: letter.message_id,
        replays: letter.replays + 1,
    }
}

pub fn replay_requested(letter: &DeadLettered, revision: u64) -> Fact {
    let (letter, service) = (letter.id, letter.service.clone());
    Fact::ReplayRequested(ReplayRequested { letter, service, revision, edited: None })
}

/// Ada asks, for a good reason.
pub fn by_ada() -> By {
    By { operator: "ada".to_owned(), reason: Some("the bank is back".to_owned()) }
}

/// What Ada asks for, under the `number`-th id.
pub fn asks(number: u128, wish: Wish) -> Command {
    Command { id: command_id(number), by: by_ada(), wish }
}

pub fn command_id(number: u128) -> Uuid {
    Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + number)
}

/// A replay of a letter, without force.
pub const fn replay(letter: Uuid) -> Wish {
    Wish::Replay { letter, force: false, version: None, edited: None }
}

pub fn letter_id(saga: Option<Uuid>) -> Uuid {
    derived(&["letter", &saga.unwrap_or_default().to_string()])
}
