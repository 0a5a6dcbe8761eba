//! Pure: facts, dead letters and commands for the tests of admin.

use admin::audit_log::AuditEntry;
use admin::commands::{Command, CommandKind};
use admin::dead_letters::events::Replay;
use admin::dead_letters::view::DeadLetterView;
use admin::service::{AdminMessage, AdminService};
use admin_api::actor::Actor;
use admin_api::audit_log::Action;
use contract::inventory::{
    PriceChanged, ProductChange, ProductChangeAudited, ProductListed, StockReleased, StockReplenished,
    StockReservationFailed, StockReserved,
};
use contract::money::{Currency, Money};
use contract::order::{
    CancelReason, DeadlineExtended, DeadlineExtensionRequested, Line, OrderCancelled, OrderConfirmed,
    OrderCreated, PaymentContext, StockLine,
};
use contract::payment::{
    ManualResolutionRequested, PaymentFailed, PaymentFailure, PaymentProcessed, PaymentRefunded,
    PaymentVoided, RefundAudited,
};
use contract::{Fact, FactType, payment_id};
use jiff::{SignedDuration, Timestamp};
use saga_core::dead_letter::{
    DEAD_LETTER_TYPES, DeadLetterDiscarded, DeadLetterForgotten, DeadLetterMessage, DeadLetterOrigin,
    DeadLetterResolved, DeadLetterRestored, DeadLetterStatus, DeadLettered, OPERATOR_COMMANDS, ReplayEffect,
    ReplayRequested,
};
use saga_core::ids::derived;
use saga_engine::testing::{NOON, ServiceUnderTest};
use uuid::Uuid;

/// Admin as a pure service.
pub type Admin = ServiceUnderTest<AdminService>;

pub const ORDER: Uuid = Uuid::from_u128(1);

pub fn total() -> Money {
    Money::new(3300, Currency::EUR)
}

pub fn deadline() -> Timestamp {
    NOON + SignedDuration::from_secs(60)
}

/// Names of all message types, those of the shop first.
pub fn all_types() -> impl Iterator<Item = &'static str> + Clone {
    let of_the_shop = FactType::ALL.iter().map(|fact_type| fact_type.name());
    let of_the_engine = DEAD_LETTER_TYPES.into_iter().chain(OPERATOR_COMMANDS);
    of_the_shop.chain(of_the_engine.map(|message_type| message_type.name))
}

/// A message of this type about an order. Dead letters are of a compensation.
pub fn fact(name: &str, order: Uuid) -> AdminMessage {
    let dead = dead_letter("payment-refund", Some(order), 0);
    let (dead_letter, service, revision) = (dead.id, "payment".to_owned(), 3);
    AdminMessage::DeadLetter(match name {
        "DeadLettered" => DeadLetterMessage::DeadLettered(Box::new(dead)),
        "DeadLetterResolved" => DeadLetterMessage::DeadLetterResolved(resolved(&dead)),
        "DeadLetterForgotten" => return forgotten(&dead, revision),
        "ReplayRequested" => return replay_requested(&dead, revision),
        "DeadLetterDiscarded" => {
            let replays = Some(2);
            let discarded = DeadLetterDiscarded { dead_letter, service, revision, replays };
            DeadLetterMessage::DeadLetterDiscarded(discarded)
        }
        "DeadLetterRestored" => {
            DeadLetterMessage::DeadLetterRestored(DeadLetterRestored { dead_letter, service, revision })
        }
        _ => return AdminMessage::Fact(of_the_shop(FactType::named(name).expect("a type"), order)),
    })
}

fn of_the_shop(fact_type: FactType, order: Uuid) -> Fact {
    let payment = PaymentContext {
        customer: "ada".to_owned(),
        total: total(),
        token: "tok_ok".to_owned(),
        id: payment_id(order),
    };
    let (sku, name, unit_price, revision) = ("mug".to_owned(), "Mug".to_owned(), total(), 1);
    match fact_type {
        FactType::OrderCreated => {
            let lines = vec![Line { sku, quantity: 2, unit_price }];
            OrderCreated { order, lines, payment, deadline: deadline() }.into()
        }
        FactType::OrderConfirmed => OrderConfirmed { order, lines: mugs() }.into(),
        FactType::OrderCancelled => {
            OrderCancelled { order, lines: mugs(), reason: CancelReason::CustomerRequest }.into()
        }
        FactType::StockReserved => {
            StockReserved { order, lines: mugs(), payment, deadline: deadline() }.into()
        }
        FactType::StockReservationFailed => StockReservationFailed { order, shortages: vec![] }.into(),
        FactType::StockReleased => StockReleased { order, lines: mugs() }.into(),
        FactType::StockReplenished => StockReplenished { sku, quantity: 2, on_hand: 2 }.into(),
        FactType::ProductListed => ProductListed { sku, name, unit_price, revision }.into(),
        FactType::PriceChanged => PriceChanged { sku, name, unit_price, revision }.into(),
        FactType::PaymentProcessed => {
            let (payment, bank_reference) = (payment_id(order), "ch_1".to_owned());
            PaymentProcessed { order, payment, amount: total(), bank_reference }.into()
        }
        FactType::PaymentFailed => {
            PaymentFailed { order, payment: payment_id(order), reason: PaymentFailure::Declined }.into()
        }
        FactType::PaymentRefunded => {
            PaymentRefunded { order, payment: payment_id(order), amount: total() }.into()
        }
        FactType::PaymentVoided => PaymentVoided { order, payment: payment_id(order) }.into(),
        FactType::DeadlineExtended => DeadlineExtended { order, deadline: extended() }.into(),
        FactType::DeadlineExtensionRequested => {
            DeadlineExtensionRequested { order, deadline: extended() }.into()
        }
        FactType::ManualResolutionRequested => {
            ManualResolutionRequested { order, resolved: true, revision: 1, cancelled: false }.into()
        }
        FactType::ProductChangeAudited => {
            let (change, operator) = (ProductChange::Restocked, "oscar".to_owned());
            ProductChangeAudited { sku, change, unit_price, quantity: 2, operator }.into()
        }
        FactType::RefundAudited => {
            RefundAudited { order, amount: total(), operator: "oscar".to_owned() }.into()
        }
    }
}

/// Extended deadline of an order.
pub fn extended() -> Timestamp {
    deadline() + SignedDuration::from_mins(5)
}

fn mugs() -> Vec<StockLine> {
    vec![StockLine { sku: "mug".to_owned(), quantity: 2 }]
}

pub fn cancelled(order: Uuid, reason: CancelReason) -> AdminMessage {
    AdminMessage::Fact(OrderCancelled { order, lines: mugs(), reason }.into())
}

/// Dead letter of the refund of [`ORDER`], after so many failed replays.
pub fn dead_refund(replays: u32) -> DeadLettered {
    dead_letter("payment-refund", Some(ORDER), replays)
}

/// Dead letter of payment for a saga, after so many failed replays.
pub fn dead_letter(step: &str, saga: Option<Uuid>, replays: u32) -> DeadLettered {
    let reason = format!("failed {} times", replays + 1);
    DeadLettered {
        trace: None,
        id: dead_letter_id(saga),
        service: "payment".to_owned(),
        step: step.to_owned(),
        origin: DeadLetterOrigin::Message,
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

/// Report of a dead letter.
pub fn announced(dead: &DeadLettered) -> AdminMessage {
    DeadLetterMessage::DeadLettered(Box::new(dead.clone())).into()
}

/// Report of a successful replay.
pub fn handled(dead: &DeadLettered) -> AdminMessage {
    DeadLetterMessage::DeadLetterResolved(resolved(dead)).into()
}

/// Report that a dead letter is gone.
pub fn forgotten(dead: &DeadLettered, revision: u64) -> AdminMessage {
    let (dead_letter, service) = (dead.id, dead.service.clone());
    DeadLetterMessage::DeadLetterForgotten(DeadLetterForgotten { dead_letter, service, revision }).into()
}

pub fn resolved(dead: &DeadLettered) -> DeadLetterResolved {
    DeadLetterResolved {
        dead_letter: dead.id,
        service: dead.service.clone(),
        step: dead.step.clone(),
        saga: dead.saga,
        message_id: dead.message_id,
        replays: dead.replays + 1,
        effect: ReplayEffect::TookEffect,
    }
}

/// Revision of a request at noon, after so many requests.
pub fn revision(before: u64) -> u64 {
    u64::try_from(NOON.as_microsecond()).expect("after 1970") + before
}

pub fn replay_requested(dead: &DeadLettered, revision: u64) -> AdminMessage {
    let (dead_letter, service) = (dead.id, dead.service.clone());
    let request = ReplayRequested { dead_letter, service, revision, edited: None };
    DeadLetterMessage::ReplayRequested(request).into()
}

pub fn by_ada() -> Actor {
    Actor { operator: "ada".to_owned(), reason: Some("the bank is back".to_owned()) }
}

/// Command of Ada with the `number`-th id.
pub fn asks(number: u128, kind: CommandKind) -> Command {
    Command { id: command_id(number), by: by_ada(), kind }
}

pub fn command_id(number: u128) -> Uuid {
    Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + number)
}

pub fn replay(dead_letter: Uuid) -> CommandKind {
    CommandKind::Replay(dead_letter, Replay::default())
}

pub fn dead_letter_id(saga: Option<Uuid>) -> Uuid {
    derived(&["letter", &saga.unwrap_or_default().to_string()])
}

/// Admin with one dead letter.
pub fn with_a_dead_letter() -> (Admin, DeadLettered) {
    let (mut admin, dead) = (Admin::of(AdminService), dead_refund(0));
    admin.receives(announced(&dead));
    (admin, dead)
}

pub fn status(admin: &Admin) -> Option<DeadLetterStatus> {
    admin.row::<DeadLetterView>(dead_letter_id(Some(ORDER))).status()
}

pub fn entry(admin: &Admin, number: u128) -> (String, Action, String, Option<String>, String) {
    let entry = admin.row::<AuditEntry>(command_id(number)).0.expect("an entry");
    (entry.by.operator, entry.action, entry.target, entry.by.reason, entry.outcome)
}
