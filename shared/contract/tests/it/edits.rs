//! Edits by operators: a repaired message may not change members that others have acted on.

use contract::{Fact, FactType};
use saga_core::message::Message as _;
use saga_core::testing::{json_of, read_as};
use serde_json::Value;

use crate::wire::{example, examples, id};

/// Order id, lines, customer and amount: other services depend on them by now.
#[test]
fn edit_of_immutable_member_is_detected() {
    let mut edits = 0;
    for fact in examples() {
        assert_eq!(fact.immutable_change(&fact), None, "nothing is changed");
        let whole = json_of(&fact);
        for path in leaves(&whole) {
            let mut edited = whole.clone();
            let leaf = edited.pointer_mut(&path).expect("a leaf");
            *leaf = other(leaf);
            let edited = read_as(&fact, &edited).expect("still such a fact");
            let name = fact.fact_type().name();
            assert_eq!(changed(&fact, &edited), immutable_member(name, &path), "{path} of {name}");
            edits += 1;
        }
    }
    assert!(edits > 50, "{edits}");
    // Another line is another order, whatever the other lines.
    let (two, one) = (with_lines(2), with_lines(1));
    assert_eq!((changed(&one, &two), changed(&two, &one)), (Some("lines"), Some("lines")));
}

/// A message may become one of another type about the same order.
#[test]
fn edit_to_another_type_must_keep_its_order() {
    let (created, confirmed) = (example(FactType::OrderCreated), example(FactType::OrderConfirmed));
    assert_eq!(created.immutable_change(&confirmed), None);
    let listed = example(FactType::ProductListed);
    assert_eq!((changed(&created, &listed), listed.saga()), (Some("order"), None));
}

fn changed(fact: &Fact, edited: &Fact) -> Option<&'static str> {
    fact.immutable_change(edited).map(|promise| promise.member)
}

/// The immutable member that `path` belongs to.
fn immutable_member(name: &str, path: &str) -> Option<&'static str> {
    let is_order = ["OrderCreated", "StockReserved"].contains(&name);
    let is_money = ["PaymentProcessed", "PaymentRefunded"].contains(&name);
    let is_of =
        |member: &str| path.strip_prefix(member).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    match () {
        () if is_of("/order") => Some("order"),
        () if is_order && is_of("/lines") => Some("lines"),
        () if is_order && !is_of("/payment/token") && is_of("/payment") => Some("payment"),
        () if is_money && is_of("/payment") => Some("payment"),
        () if is_money && is_of("/amount") => Some("amount"),
        () => None,
    }
}

/// Another value of the same kind.
fn other(value: &Value) -> Value {
    if let Some(is_so) = value.as_bool() {
        return Value::from(!is_so);
    }
    let Some(text) = value.as_str() else {
        return Value::from(value.as_u64().expect("a number or a text") + 1);
    };
    let is_time = text.ends_with('Z');
    match text {
        "EUR" => "USD".into(),
        "out_of_stock" => "operator".into(),
        "insufficient_funds" => "declined".into(),
        "listed" => "restocked".into(),
        _ if is_time => "2031-01-01T00:00:00Z".into(),
        _ if text.parse::<uuid::Uuid>().is_ok() => id(4711).to_string().into(),
        _ => format!("{text}, or not").into(),
    }
}

/// Paths of all scalar values.
fn leaves(value: &Value) -> Vec<String> {
    let below = |key: String, value| leaves(value).into_iter().map(move |path| format!("/{key}{path}"));
    match value {
        Value::Object(members) => members.iter().flat_map(|(key, value)| below(key.clone(), value)).collect(),
        Value::Array(items) => {
            items.iter().enumerate().flat_map(|(key, value)| below(key.to_string(), value)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![String::new()],
    }
}

fn with_lines(count: usize) -> Fact {
    let fact = example(FactType::StockReserved);
    let mut json = json_of(&fact);
    let line = json["lines"][0].clone();
    json["lines"] = Value::from(vec![line; count]);
    read_as(&fact, &json).expect("such a fact")
}
