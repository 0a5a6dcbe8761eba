//! An operator's edit mends a message, and not what others act on already.

use contract::{Fact, FactType};
use saga_core::message::Message as _;
use saga_core::testing::{json_of, read_as};
use serde_json::Value;

use crate::wire::{example, examples, id};

/// Whose order it is, what was ordered, who pays how much: what others have done by now depends on it.
#[test]
fn an_edit_breaks_a_promise_where_others_act_on_what_was_said() {
    let mut edits = 0;
    for fact in examples() {
        assert_eq!(fact.broken_promise(&fact), None, "nothing is changed");
        let whole = json_of(&fact);
        for path in leaves(&whole) {
            let mut edited = whole.clone();
            let leaf = edited.pointer_mut(&path).expect("a leaf");
            *leaf = other(leaf);
            let edited = read_as(&fact, &edited).expect("still such a fact");
            let name = fact.fact_type().name();
            assert_eq!(broken(&fact, &edited), promised(name, &path), "{path} of {name}");
            edits += 1;
        }
    }
    assert!(edits > 50, "{edits}");
    // Another line is another order, whatever the lines that were there.
    let (two, one) = (with_lines(2), with_lines(1));
    assert_eq!((broken(&one, &two), broken(&two, &one)), (Some("lines"), Some("lines")));
}

/// A message may become one of another type, as long as it is about the same order.
#[test]
fn an_edit_to_another_type_stays_with_its_order() {
    let (created, confirmed) = (example(FactType::OrderCreated), example(FactType::OrderConfirmed));
    assert_eq!(created.broken_promise(&confirmed), None);
    let listed = example(FactType::ProductListed);
    assert_eq!((broken(&created, &listed), listed.saga()), (Some("order"), None));
}

fn broken(fact: &Fact, edited: &Fact) -> Option<&'static str> {
    fact.broken_promise(edited).map(|promise| promise.member)
}

/// Which promise the member at `path` is part of.
fn promised(name: &str, path: &str) -> Option<&'static str> {
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
        _ if is_time => "2031-01-01T00:00:00Z".into(),
        _ if text.parse::<uuid::Uuid>().is_ok() => id(4711).to_string().into(),
        _ => format!("{text}, or not").into(),
    }
}

/// The paths of all values that hold no others.
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
