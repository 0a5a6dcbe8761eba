//! Pure: what every contract promises on the wire, to be held by its tests.
//!
//! Builds of different age talk to each other: a newer one may add a member, and may neither remove nor rename one.

use serde_json::Value;
use serde_json::value::to_raw_value;

use crate::message::Message;

/// The JSON of a message, without its envelope.
///
/// # Panics
/// When it has none.
#[must_use]
pub fn json_of(message: &impl Message) -> Value {
    let json = message.encode().expect("a message has a JSON form");
    serde_json::from_str(json.get()).expect("JSON")
}

/// A message of the same type as `message`, out of other JSON.
///
/// # Errors
/// When that is not of the type; the error names the member.
///
/// # Panics
/// Never: JSON is JSON.
pub fn read_as<F: Message>(message: &F, json: &Value) -> serde_json::Result<F> {
    F::decode(message.message_type(), &*to_raw_value(json).expect("JSON"))
}

/// Holds that each message reads what it writes.
///
/// # Panics
/// When one does not.
pub fn each_reads_what_it_writes<F: Message>(examples: &[F]) {
    for example in examples {
        assert_eq!(&read_as(example, &json_of(example)).expect("its own JSON"), example);
    }
}

/// Holds that a member that a newer build added anywhere is passed over, but for objects that `is_exact` knows:
/// they are read exactly, or not at all.
///
/// # Panics
/// When it is not so.
pub fn added_members_are_passed_over<F: Message>(examples: &[F], is_exact: impl Fn(&Value) -> bool) {
    for example in examples {
        for path in objects(&json_of(example)) {
            let mut richer = json_of(example);
            let object = richer.pointer_mut(&path).expect("an object");
            let is_exact = is_exact(object);
            object["added_by_a_newer_build"] = Value::from(1);
            match read_as(example, &richer) {
                Ok(read) => assert!(!is_exact && &read == example, "{path} of {example:?}"),
                Err(error) => assert!(is_exact, "{path} of {example:?}: {error}"),
            }
        }
    }
}

/// Holds that a member that was removed or renamed is an error that names it; those of `optional`, each with its
/// message type, may be missing.
///
/// # Panics
/// When it is not so.
pub fn missing_members_are_named<F: Message>(examples: &[F], optional: &[(&str, &str)]) {
    for example in examples {
        let whole = json_of(example);
        for path in objects(&whole) {
            for (member, value) in whole.pointer(&path).and_then(Value::as_object).expect("an object") {
                let mut poorer = whole.clone();
                let object = poorer.pointer_mut(&path).and_then(Value::as_object_mut).expect("an object");
                object.remove(member);
                let without = read_as(example, &poorer);
                if optional.contains(&(example.message_type().name, member)) {
                    assert_ne!(&without.expect("it may be missing"), example, "{path}/{member}");
                    continue;
                }
                let error = without.expect_err(member).to_string();
                assert!(error.contains(member), "{error} does not name {path}/{member}");

                let object = poorer.pointer_mut(&path).and_then(Value::as_object_mut).expect("an object");
                object.insert(format!("{member}_renamed"), value.clone());
                assert!(read_as(example, &poorer).is_err(), "{path}/{member}");
            }
        }
    }
}

/// JSON pointers to every object inside `value`, itself included.
fn objects(value: &Value) -> Vec<String> {
    let below = |key: &str, value: &Value| -> Vec<String> {
        objects(value).into_iter().map(|path| format!("/{key}{path}")).collect()
    };
    match value {
        Value::Object(members) => {
            let inner = members.iter().flat_map(|(member, value)| below(member, value));
            std::iter::once(String::new()).chain(inner).collect()
        }
        Value::Array(items) => {
            items.iter().enumerate().flat_map(|(index, value)| below(&index.to_string(), value)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![],
    }
}
