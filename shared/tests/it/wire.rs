//! The JSON of every message, held against golden files: adding to it passes, changing it fails.
//!
//! A golden file that has to change means a new version of its message: old ones are still under way when
//! a new build starts, and other services read with the old build.

use insta::assert_snapshot;
use jiff::Timestamp;
use serde_json::Value;
use shared::contract::{
    CancelReason, DeadLetterDiscarded, DeadLetterResolved, DeadLetterRestored, DeadLettered, Delivery,
    EditedMessage, Fact, FactType, LetterOrigin, Line, OrderCancelled, OrderConfirmed, OrderCreated,
    OriginalMessage, PaymentContext, PaymentFailed, PaymentFailure, PaymentProcessed, PaymentRefunded,
    PriceChanged, ProductListed, ReplayRequested, Shortage, StockLine, StockReleased, StockReplenished,
    StockReservationFailed, StockReserved,
};
use shared::engine::batch;
use shared::envelope::{Envelope, Undecodable};
use shared::ids;
use shared::money::{Currency, Money};
use shared::store::Loaded;

use crate::support::rig::{Pace, rules};
use crate::support::shop::{Shop, ShopCommand};
use crate::support::writes::{at, id};

/// Fields that may be missing: then the reader goes without.
const OPTIONAL: [(&str, &str); 10] = [
    ("DeadLettered", "message_type"),
    ("DeadLettered", "saga"),
    ("DeadLettered", "origin"),
    ("DeadLettered", "error_chain"),
    ("DeadLettered", "replays"),
    ("DeadLettered", "delivery"),
    ("DeadLettered", "headers"),
    ("DeadLettered", "original"),
    ("DeadLetterResolved", "saga"),
    ("ReplayRequested", "edited"),
];

#[test]
fn every_fact_has_its_golden_form() {
    for fact_type in FactType::ALL {
        let fact = example(fact_type);
        assert_eq!(fact.fact_type(), fact_type, "the example is of another type");
        golden(&format!("{}.v{}", fact_type.name(), fact_type.version()), &json(&fact));
    }
}

#[test]
fn every_fact_reads_what_it_writes() {
    for fact in examples() {
        let read = Fact::from_json(fact.fact_type(), &json(&fact).to_string());
        assert_eq!(read.expect("its own JSON"), fact);
    }
}

/// A producer may be of a newer build than its listeners.
#[test]
fn a_field_that_was_added_is_passed_over() {
    for fact in examples() {
        for path in objects(&json(&fact)) {
            let mut richer = json(&fact);
            let object = richer.pointer_mut(&path).and_then(Value::as_object_mut).expect("an object");
            // Half-understood money is worse than none: an amount is read exactly, or not at all.
            let is_money = object.contains_key("amount_minor");
            object.insert("added_by_a_newer_build".to_owned(), Value::from(1));
            let read = Fact::from_json(fact.fact_type(), &richer.to_string());
            match is_money {
                false => assert_eq!(read.expect("nothing that it knows has changed"), fact, "{path}"),
                true => assert!(read.is_err(), "{path}"),
            }
        }
    }
}

#[test]
fn a_field_that_was_removed_or_renamed_is_an_error_that_names_it() {
    for fact in examples() {
        for path in objects(&json(&fact)) {
            let object = json(&fact).pointer(&path).and_then(Value::as_object).expect("an object").clone();
            for field in object.keys() {
                let mut poorer = json(&fact);
                let object = poorer.pointer_mut(&path).and_then(Value::as_object_mut).expect("an object");
                let value = object.remove(field).expect("the field");
                let without = Fact::from_json(fact.fact_type(), &poorer.to_string());
                if OPTIONAL.contains(&(fact.fact_type().name(), field.as_str())) {
                    assert_ne!(without.expect("it may be missing"), fact, "{path}/{field}");
                    continue;
                }
                let error = without.expect_err(field).to_string();
                assert!(error.contains(field.as_str()), "{error} does not name {path}/{field}");

                let object = poorer.pointer_mut(&path).and_then(Value::as_object_mut).expect("an object");
                object.insert(format!("{field}_renamed"), value);
                let renamed = Fact::from_json(fact.fact_type(), &poorer.to_string());
                assert!(renamed.is_err(), "{path}/{field}");
            }
        }
    }
}

/// What was said by builds that knew nothing of replays is still under way when this one starts.
#[test]
fn a_dead_letter_announced_by_the_build_before_replays_is_read() {
    let mut old = json(&example(FactType::DeadLettered));
    let members = old.as_object_mut().expect("an object");
    for added in ["origin", "error_chain", "replays", "delivery", "original"] {
        assert!(members.remove(added).is_some(), "{added}");
    }
    let Fact::DeadLettered(read) =
        Fact::from_json(FactType::DeadLettered, &old.to_string()).expect("the first version")
    else {
        panic!("another fact");
    };
    assert_eq!(
        (read.origin, read.replays, read.delivery, read.original),
        (LetterOrigin::Message, 0, None, None)
    );
    assert_eq!((read.id, read.attempts), (id(44), 1));
}

/// What an operator wishes of one service is for that service alone: no other hears it.
#[test]
fn a_wish_is_said_to_the_service_that_holds_the_letter() {
    for fact in examples() {
        let subject = fact.subject("admin");
        assert_eq!(subject.ends_with(".inventory"), fact.addressee() == Some("inventory"), "{subject}");
        assert_eq!(fact.addressee().is_some(), fact.fact_type().is_addressed(), "{subject}");
        assert_eq!(fact.fact_type().subject("admin", "inventory"), subject);
    }
    let [operations] = shared::service::OPERATIONS else { panic!("one subscription") };
    let wished = ["replay_requested", "dead_letter_discarded", "dead_letter_restored"];
    assert_eq!(operations.subjects("order"), wished.map(|wish| format!("admin.{wish}.order")));
}

/// Subjects are part of the wire: whoever listens under the old name hears nothing any more.
#[test]
fn every_fact_has_its_own_subject() {
    let line =
        |fact_type: FactType| format!("{} {}", fact_type.name(), fact_type.subject("service", "listener"));
    let lines: Vec<_> = FactType::ALL.map(line).into();
    golden_text("subjects", &lines.join("\n"));
    let subjects = FactType::ALL.map(|fact_type| fact_type.subject("service", "listener"));
    assert_eq!(std::collections::BTreeSet::from(subjects).len(), FactType::ALL.len());
    for fact_type in FactType::ALL {
        assert_eq!(FactType::named(fact_type.name()), Some(fact_type));
    }
}

/// What the engine really sends, ids and all.
#[test]
fn an_envelope_has_its_golden_form() {
    golden("Envelope", &serde_json::from_slice(&sent()).expect("JSON"));
}

#[test]
fn an_envelope_passes_over_what_was_added_and_misses_what_was_removed() {
    let envelope: Value = serde_json::from_slice(&sent()).expect("JSON");
    let mut richer = envelope.clone();
    richer["traceparent"] = Value::from("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let read = Envelope::from_bytes(richer.to_string().as_bytes()).and_then(|envelope| envelope.open());
    assert_eq!(read.expect("nothing that it knows has changed").correlation_id, id(5));
    for field in envelope.as_object().expect("an object").keys() {
        let mut poorer = envelope.clone();
        poorer.as_object_mut().expect("an object").remove(field);
        let error = Envelope::from_bytes(poorer.to_string().as_bytes()).expect_err(field);
        assert!(matches!(error, Undecodable::NotAnEnvelope(_)), "{error:?}");
    }
}

/// A re-run by a newer build must repeat the ids of the older one, or everything is published twice.
#[test]
fn derived_ids_stay_what_they_are() {
    let ids = [
        ("message", ids::message_id("inventory:inventory-stock-reservation", id(7), 0)),
        ("second message", ids::message_id("inventory:inventory-stock-reservation", id(7), 1)),
        ("task", ids::task_id("payment:payment-processing", id(7), 0)),
        ("payment", ids::payment_id(id(7))),
        ("position", ids::of_stream_position("ORDER", 7)),
    ];
    golden_text("ids", &ids.map(|(what, id)| format!("{what} {id}")).join("\n"));
}

fn examples() -> Vec<Fact> {
    FactType::ALL.map(example).into()
}

fn example(fact_type: FactType) -> Fact {
    let order = id(42);
    let payment = id(43);
    let amount = Money::new(25_98, Currency::EUR);
    let lines = || vec![StockLine { sku: "coffee-beans-1kg".to_owned(), quantity: 2 }];
    let context = || PaymentContext { customer: "ada".to_owned(), total: amount, token: "tok_ok".to_owned() };
    let (sku, name) = ("coffee-beans-1kg".to_owned(), "Coffee beans, 1 kg".to_owned());
    let unit_price = Money::new(12_99, Currency::EUR);
    match fact_type {
        FactType::OrderCreated => {
            let lines = vec![Line { sku, quantity: 2, unit_price }];
            Fact::OrderCreated(OrderCreated { order, lines, payment: context(), deadline: at(60) })
        }
        FactType::OrderConfirmed => Fact::OrderConfirmed(OrderConfirmed { order, lines: lines() }),
        FactType::OrderCancelled => {
            Fact::OrderCancelled(OrderCancelled { order, lines: lines(), reason: CancelReason::OutOfStock })
        }
        FactType::StockReserved => {
            Fact::StockReserved(StockReserved { order, lines: lines(), payment: context() })
        }
        FactType::StockReservationFailed => {
            let shortages = vec![Shortage { sku, requested: 2, available: 1 }];
            Fact::StockReservationFailed(StockReservationFailed { order, shortages })
        }
        FactType::StockReleased => Fact::StockReleased(StockReleased { order, lines: lines() }),
        FactType::StockReplenished => {
            Fact::StockReplenished(StockReplenished { sku, quantity: 50, on_hand: 52 })
        }
        FactType::ProductListed => Fact::ProductListed(ProductListed { sku, name, unit_price, revision: 1 }),
        FactType::PriceChanged => Fact::PriceChanged(PriceChanged { sku, name, unit_price, revision: 2 }),
        FactType::PaymentProcessed => {
            let bank_reference = "ch_0001".to_owned();
            Fact::PaymentProcessed(PaymentProcessed { order, payment, amount, bank_reference })
        }
        FactType::PaymentFailed => {
            let reason = PaymentFailure::InsufficientFunds;
            Fact::PaymentFailed(PaymentFailed { order, payment, reason })
        }
        FactType::PaymentRefunded => Fact::PaymentRefunded(PaymentRefunded { order, payment, amount }),
        FactType::DeadLettered => Fact::DeadLettered(Box::new(DeadLettered {
            id: id(44),
            service: "inventory".to_owned(),
            step: "inventory-stock-reservation".to_owned(),
            // Was none of ours until it was edited.
            origin: LetterOrigin::Foreign,
            message_id: id(45),
            message_type: Some("OrderCreated".to_owned()),
            saga: Some(order),
            reason: "data is no OrderCreated: missing field `lines`".to_owned(),
            error_chain: vec!["data is no OrderCreated".to_owned(), "missing field `lines`".to_owned()],
            fingerprint: "0af7651916cd".to_owned(),
            attempts: 1,
            first_failed_at: at(1),
            last_failed_at: at(2),
            replays: 1,
            delivery: Some(Delivery {
                stream: "ORDER".to_owned(),
                sequence: 7,
                headers: vec![("Nats-Msg-Id".to_owned(), id(45).to_string())],
            }),
            payload_base64: "e30=".to_owned(),
            original: Some(OriginalMessage { message_id: id(46), payload_base64: "e31=".to_owned() }),
        })),
        FactType::DeadLetterResolved => Fact::DeadLetterResolved(DeadLetterResolved {
            letter: id(44),
            service: "inventory".to_owned(),
            step: "inventory-stock-reservation".to_owned(),
            saga: Some(order),
            message_id: id(45),
            replays: 2,
        }),
        FactType::ReplayRequested => Fact::ReplayRequested(ReplayRequested {
            letter: id(44),
            service: "inventory".to_owned(),
            revision: 3,
            edited: Some(EditedMessage { message_id: id(47), payload_base64: "e30=".to_owned() }),
        }),
        FactType::DeadLetterDiscarded => Fact::DeadLetterDiscarded(DeadLetterDiscarded {
            letter: id(44),
            service: "inventory".to_owned(),
            revision: 4,
        }),
        FactType::DeadLetterRestored => Fact::DeadLetterRestored(DeadLetterRestored {
            letter: id(44),
            service: "inventory".to_owned(),
            revision: 5,
        }),
    }
}

/// Every value that a reason may have on the wire.
#[test]
fn reasons_have_their_golden_names() {
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
        (PaymentFailure::InsufficientFunds, "insufficient_funds"),
        (PaymentFailure::LimitExceeded, "limit_exceeded"),
        (PaymentFailure::Exhausted, "exhausted"),
    ];
    for (failure, name) in failures {
        assert_eq!((failure.as_str(), serde_json::to_value(failure).expect("JSON")), (name, name.into()));
    }
}

/// The first message that the shop sends when somebody puts tea on a shelf.
fn sent() -> Vec<u8> {
    let inputs = [shared::engine::Input::command(id(4), id(5), ShopCommand::Put("tea", 3), None)];
    let (writes, _) = batch::decide(&Shop, &inputs, Loaded::default(), &rules(Pace::default()), now());
    writes.outbox[0].payload.to_vec()
}

/// With a fraction, so that its digits are part of the golden form.
fn now() -> Timestamp {
    Timestamp::from_microsecond(1_000_000_000_123_456).expect("a time")
}

fn json(fact: &Fact) -> Value {
    let json = fact.to_json().expect("a fact has a JSON form");
    serde_json::from_str(json.get()).expect("JSON")
}

/// JSON pointers to every object inside `value`, itself included.
fn objects(value: &Value) -> Vec<String> {
    let below = |key: &str, value: &Value| -> Vec<String> {
        objects(value).into_iter().map(|path| format!("/{key}{path}")).collect()
    };
    match value {
        Value::Object(fields) => {
            let inner = fields.iter().flat_map(|(field, value)| below(field, value));
            std::iter::once(String::new()).chain(inner).collect()
        }
        Value::Array(items) => {
            items.iter().enumerate().flat_map(|(index, value)| below(&index.to_string(), value)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![],
    }
}

/// Holds `value` against `snapshots/{name}.snap`.
#[track_caller]
fn golden(name: &str, value: &Value) {
    let mut sorted = value.clone();
    sorted.sort_all_objects();
    golden_text(name, &format!("{sorted:#}"));
}

#[track_caller]
fn golden_text(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| assert_snapshot!(name, text));
}
