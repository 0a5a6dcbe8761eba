//! Golden files of all facts: an addition passes, a change fails.
//!
//! A golden file that must change means a new version of its message. Old messages are still in the broker when a
//! new build starts, and other services still run the old build.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use contract::inventory::{
    PriceChanged, ProductChange, ProductChangeAudited, ProductListed, Shortage, StockReleased,
    StockReplenished, StockReservationFailed, StockReserved,
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
use insta::assert_snapshot;
use jiff::{SignedDuration, Timestamp};
use saga_core::decision::{DecisionConfig, Loaded, decide};
use saga_core::ids;
use saga_core::input::Input;
use saga_core::message::{Envelope, Message as _, Undecodable};
use saga_core::retry::RetryPolicy;
use saga_core::row::{RowKey, RowKind};
use saga_core::service::{HandlerError, Service};
use saga_core::testing::{
    added_members_are_passed_over, each_reads_what_it_writes, json_of, missing_members_are_named,
};
use saga_core::unit_of_work::UnitOfWork;
use serde_json::Value;
use uuid::Uuid;

#[test]
fn every_fact_matches_its_golden_file() {
    for fact_type in FactType::ALL {
        let fact = example(*fact_type);
        assert_eq!(fact.fact_type(), *fact_type, "the example is of another type");
        let version = fact_type.message_type().version;
        golden(&format!("{}.v{version}", fact_type.name()), &json_of(&fact));
    }
}

#[test]
fn every_fact_round_trips() {
    each_reads_what_it_writes(&examples());
}

/// A producer may run a newer build than its consumers.
#[test]
fn unknown_member_is_ignored() {
    // An amount is read exactly or not at all.
    added_members_are_passed_over(&examples(), |object| object.get("amount_minor").is_some());
}

#[test]
fn missing_member_is_an_error_that_names_it() {
    missing_members_are_named(&examples(), &[]);
}

/// Subjects are part of the wire format: a consumer of the old subject would receive nothing.
#[test]
fn every_fact_has_its_own_subject() {
    let subject = |it: &FactType| it.message_type().subject("service", "listener");
    let lines: Vec<_> = FactType::ALL.iter().map(|it| format!("{} {}", it.name(), subject(it))).collect();
    golden_text("subjects", &lines.join("\n"));
    let subjects: BTreeSet<_> = FactType::ALL.iter().map(subject).collect();
    assert_eq!(subjects.len(), FactType::ALL.len());
    for (fact_type, fact) in FactType::ALL.iter().zip(examples()) {
        assert_eq!(FactType::named(fact_type.name()), Some(*fact_type));
        assert_eq!(Fact::named(fact_type.name()), Some(fact_type.message_type()));
        // No fact is addressed to one service.
        assert_eq!((fact.addressee(), fact.message_type().is_addressed), (None, false));
        assert_eq!(fact.subject("service"), subject(fact_type));
    }
}

/// The message that an engine sends, with its ids.
#[test]
fn envelope_matches_its_golden_file() {
    golden("Envelope", &serde_json::from_slice(&sent()).expect("JSON"));
}

#[test]
fn envelope_ignores_unknown_and_requires_known_members() {
    let envelope: Value = serde_json::from_slice(&sent()).expect("JSON");
    let mut richer = envelope.clone();
    richer["traceparent"] = Value::from("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let read =
        Envelope::from_bytes(richer.to_string().as_bytes()).and_then(|envelope| envelope.open::<Fact>());
    assert_eq!(read.expect("nothing that it knows has changed").correlation_id, id(5));
    for member in envelope.as_object().expect("an object").keys() {
        let mut poorer = envelope.clone();
        poorer.as_object_mut().expect("an object").remove(member);
        let error = Envelope::from_bytes(poorer.to_string().as_bytes()).expect_err(member);
        assert!(matches!(error, Undecodable::NotAnEnvelope(_)), "{error:?}");
    }
}

/// A newer build that repeats a decision must derive the same ids. Otherwise messages published before a crash
/// would be published again under other ids.
#[test]
fn derived_ids_are_stable() {
    let ids = [
        ("message", ids::message_id(id(7), "inventory:inventory-stock-reservation", id(7), 0)),
        ("second message", ids::message_id(id(7), "inventory:inventory-stock-reservation", id(7), 1)),
        ("task", ids::task_id(id(7), "payment:payment-processing", id(7), 0)),
        ("payment", payment_id(id(7))),
        ("position", ids::of_stream_position("ORDER", 7)),
    ];
    golden_text("ids", &ids.map(|(what, id)| format!("{what} {id}")).join("\n"));
}

/// Every value of a reason.
#[test]
fn reason_names_match_golden_file() {
    let reasons = [
        (CancelReason::OutOfStock, "out_of_stock"),
        (CancelReason::PaymentFailed, "payment_failed"),
        (CancelReason::TimedOut, "timed_out"),
        (CancelReason::CustomerRequest, "customer_request"),
        (CancelReason::Operator, "operator"),
    ];
    for (reason, name) in reasons {
        assert_eq!((reason.as_str(), serde_json::to_value(reason).expect("JSON")), (name, name.into()));
    }
    let failures = [
        (PaymentFailure::Declined, "declined"),
        (PaymentFailure::UnknownCard, "unknown_card"),
        (PaymentFailure::InsufficientFunds, "insufficient_funds"),
        (PaymentFailure::LimitExceeded, "limit_exceeded"),
        (PaymentFailure::Exhausted, "exhausted"),
    ];
    for (failure, name) in failures {
        assert_eq!((failure.as_str(), serde_json::to_value(failure).expect("JSON")), (name, name.into()));
    }
}

pub fn examples() -> Vec<Fact> {
    FactType::ALL.iter().map(|fact_type| example(*fact_type)).collect()
}

pub fn example(fact_type: FactType) -> Fact {
    let order = id(42);
    let payment = id(43);
    let amount = Money::new(25_98, Currency::EUR);
    let lines = || vec![StockLine { sku: "coffee-beans-1kg".to_owned(), quantity: 2 }];
    let deadline = Timestamp::from_second(1_000_000_060).expect("a time");
    let context = || PaymentContext {
        customer: "ada".to_owned(),
        total: amount,
        token: "tok_ok".to_owned(),
        id: payment,
    };
    let (sku, name) = ("coffee-beans-1kg".to_owned(), "Coffee beans, 1 kg".to_owned());
    let unit_price = Money::new(12_99, Currency::EUR);
    match fact_type {
        FactType::OrderCreated => {
            let lines = vec![Line { sku, quantity: 2, unit_price }];
            OrderCreated { order, lines, payment: context(), deadline }.into()
        }
        FactType::OrderConfirmed => OrderConfirmed { order, lines: lines() }.into(),
        FactType::OrderCancelled => {
            OrderCancelled { order, lines: lines(), reason: CancelReason::OutOfStock }.into()
        }
        FactType::StockReserved => {
            StockReserved { order, lines: lines(), payment: context(), deadline }.into()
        }
        FactType::StockReservationFailed => {
            let shortages = vec![Shortage { sku, requested: 2, available: 1 }];
            StockReservationFailed { order, shortages }.into()
        }
        FactType::StockReleased => StockReleased { order, lines: lines() }.into(),
        FactType::StockReplenished => StockReplenished { sku, quantity: 50, on_hand: 52 }.into(),
        FactType::ProductListed => ProductListed { sku, name, unit_price, revision: 1 }.into(),
        FactType::PriceChanged => PriceChanged { sku, name, unit_price, revision: 2 }.into(),
        FactType::PaymentProcessed => {
            PaymentProcessed { order, payment, amount, bank_reference: "ch_0001".to_owned() }.into()
        }
        FactType::PaymentFailed => {
            PaymentFailed { order, payment, reason: PaymentFailure::InsufficientFunds }.into()
        }
        FactType::PaymentRefunded => PaymentRefunded { order, payment, amount }.into(),
        FactType::PaymentVoided => PaymentVoided { order, payment }.into(),
        FactType::DeadlineExtended => DeadlineExtended { order, deadline }.into(),
        FactType::DeadlineExtensionRequested => DeadlineExtensionRequested { order, deadline }.into(),
        FactType::ManualResolutionRequested => {
            ManualResolutionRequested { order, resolved: true, revision: 1, cancelled: true }.into()
        }
        FactType::ProductChangeAudited => {
            let (change, operator) = (ProductChange::Listed, "oscar".to_owned());
            ProductChangeAudited { sku, change, unit_price, quantity: 50, operator }.into()
        }
        FactType::RefundAudited => RefundAudited { order, amount, operator: "oscar".to_owned() }.into(),
    }
}

/// The message about the confirmation of saga 5 by command 4.
fn sent() -> Vec<u8> {
    let inputs = [Input::command(id(4), id(5), (), None)];
    let retry = RetryPolicy { max_attempts: 1, base: Duration::ZERO, cap: Duration::ZERO };
    let rules = DecisionConfig {
        retry,
        step_retry: BTreeMap::new(),
        task_retry: retry,
        owner: "order-1".to_owned(),
        task_lease: SignedDuration::ZERO,
        keep_failed: false,
        lost_before: None,
        use_inbox: true,
    };
    // With a fraction, so that its digits are part of the golden file.
    let now = Timestamp::from_microsecond(1_000_000_000_123_456).expect("a time");
    let (writes, _) = decide(&Confirming, &inputs, Loaded::default(), &rules, now);
    writes.outbox[0].payload.to_vec()
}

/// Confirms an order of three units of tea, whatever the command.
struct Confirming;

impl Service for Confirming {
    const NAME: &'static str = "order";
    type Fact = Fact;
    type Command = ();
    type Reply = ();
    type Rejection = Infallible;

    fn rows() -> Vec<RowKind> {
        vec![]
    }

    fn rows_of_command(&self, (): &()) -> Vec<RowKey> {
        vec![]
    }

    fn on_command(&self, (): &(), work: &mut UnitOfWork<'_, Fact>) -> Result<(), HandlerError<Infallible>> {
        let lines = vec![StockLine { sku: "tea".to_owned(), quantity: 3 }];
        work.publish(OrderConfirmed { order: work.correlation_id(), lines });
        Ok(())
    }
}

pub fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

/// Compares `value` with `snapshots/{name}.snap`.
#[track_caller]
fn golden(name: &str, value: &Value) {
    let mut sorted = value.clone();
    sorted.sort_all_objects();
    golden_text(name, &format!("{sorted:#}"));
}

#[track_caller]
pub fn golden_text(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| assert_snapshot!(name, text));
}
