//! Pure: facts, answers and commands for the tests of the payment service.

use contract::Fact;
use contract::inventory::StockReserved;
use contract::money::{Currency, Money};
use contract::order::{CancelReason, DeadlineExtended, OrderCancelled, PaymentContext, StockLine};
use contract::payment::{
    ManualResolutionRequested, PaymentFailed, PaymentFailure, PaymentProcessed, PaymentRefunded,
    PaymentVoided,
};
use contract::payment_id;
use jiff::Timestamp;
use payment::bank_task::{BankAnswer, BankCall, BankTask};
use payment::service::PaymentService;
use serde_json::Value;
use uuid::Uuid;

use saga_core::waiting::Task;
use saga_engine::testing::ServiceUnderTest;

pub const ORDER: Uuid = Uuid::from_u128(1);
pub const REFERENCE: &str = "ch_1";
pub const DEADLINE: Timestamp = Timestamp::constant(1_800_000_060, 0);

pub fn total() -> Money {
    Money::new(3300, Currency::EUR)
}

pub fn context() -> PaymentContext {
    PaymentContext {
        customer: "ada".to_owned(),
        total: total(),
        token: "tok_ok".to_owned(),
        id: payment_id(ORDER),
    }
}

/// Payment service with an open charge.
pub fn charging() -> ServiceUnderTest<PaymentService> {
    let mut payment = ServiceUnderTest::of(PaymentService);
    payment.receives(reserved(ORDER));
    payment
}

/// Payment service with a captured payment.
pub fn captured() -> ServiceUnderTest<PaymentService> {
    let mut payment = charging();
    payment.gets_result(&payment.open_task(), bank_captured()).publishes([processed(ORDER)]);
    payment
}

/// Stock reservation of three lines: payment charges the total of the order.
pub fn reserved(order: Uuid) -> Fact {
    let line = |sku: &str| StockLine { sku: sku.to_owned(), quantity: 2 };
    let lines = ["beans", "filter", "mug"].map(line).to_vec();
    Fact::StockReserved(StockReserved { order, lines, payment: context(), deadline: DEADLINE })
}

pub fn cancelled(order: Uuid) -> Fact {
    Fact::OrderCancelled(OrderCancelled { order, lines: vec![], reason: CancelReason::TimedOut })
}

pub fn extended(order: Uuid, deadline: Timestamp) -> Fact {
    Fact::DeadlineExtended(DeadlineExtended { order, deadline })
}

/// Manual resolution of an order, or its withdrawal.
pub fn resolved_manually(order: Uuid, resolved: bool, revision: u64) -> Fact {
    Fact::ManualResolutionRequested(ManualResolutionRequested { order, resolved, revision, cancelled: false })
}

/// Manual resolution of an order that the operator knew to be cancelled.
pub fn resolved_once_cancelled(order: Uuid, resolved: bool, revision: u64) -> Fact {
    Fact::ManualResolutionRequested(ManualResolutionRequested { order, resolved, revision, cancelled: true })
}

pub fn processed(order: Uuid) -> Fact {
    let (payment, bank_reference) = (payment_id(order), REFERENCE.to_owned());
    Fact::PaymentProcessed(PaymentProcessed { order, payment, amount: total(), bank_reference })
}

pub fn failed(order: Uuid, reason: PaymentFailure) -> Fact {
    Fact::PaymentFailed(PaymentFailed { order, payment: payment_id(order), reason })
}

pub fn refunded(order: Uuid) -> Fact {
    Fact::PaymentRefunded(PaymentRefunded { order, payment: payment_id(order), amount: total() })
}

pub fn voided(order: Uuid) -> Fact {
    Fact::PaymentVoided(PaymentVoided { order, payment: payment_id(order) })
}

pub fn bank_captured() -> Value {
    json(&BankAnswer::Captured { reference: REFERENCE.to_owned() })
}

pub fn bank_refused(reason: PaymentFailure) -> Value {
    json(&BankAnswer::Refused { reason })
}

pub fn bank_undone() -> Value {
    json(&BankAnswer::Undone)
}

/// The previous owner of the task lost its lease, and may have made the call.
pub fn claimed_again(payment: &mut ServiceUnderTest<PaymentService>, task: &Task) {
    payment.store.tasks.entry(task.id).and_modify(|task| task.claim += 1);
}

/// Call to the bank that a task asks for.
pub fn call(task: &Task) -> BankCall {
    let task: BankTask = serde_json::from_str(&task.payload).expect("a task of the bank");
    assert_eq!(task.order, ORDER);
    task.call
}

fn json(answer: &BankAnswer) -> Value {
    serde_json::to_value(answer).expect("every answer has a JSON form")
}
