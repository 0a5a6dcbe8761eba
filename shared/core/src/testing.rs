//! Pure: checks of a contract's wire format, for its tests.
//!
//! Builds of different age exchange messages. A newer one may add a member, and may neither remove nor rename one.

use serde_json::Value;
use serde_json::value::to_raw_value;

use crate::message::Message;

/// JSON of a message, without its envelope.
///
/// # Panics
/// If it has none.
#[must_use]
pub fn json_of(message: &impl Message) -> Value {
    let json = message.encode().expect("a message has a JSON form");
    serde_json::from_str(json.get()).expect("JSON")
}

/// Parses other JSON as a message of the same type as `message`.
///
/// # Errors
/// If the JSON does not fit the type. The error names the member.
///
/// # Panics
/// Never: a [`Value`] always has a JSON form.
pub fn read_as<F: Message>(message: &F, json: &Value) -> serde_json::Result<F> {
    F::decode(message.message_type(), &*to_raw_value(json).expect("JSON"))
}

/// Asserts that each message can be read as it was written.
///
/// # Panics
/// If one cannot.
pub fn each_reads_what_it_writes<F: Message>(examples: &[F]) {
    for example in examples {
        assert_eq!(&read_as(example, &json_of(example)).expect("its own JSON"), example);
    }
}

/// Asserts that unknown members are ignored, except in objects for which `is_exact` is true.
///
/// # Panics
/// If they are not.
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

/// Asserts that a missing member is an error that names it. Those in `optional`, each with its message type, may be
/// missing.
///
/// # Panics
/// If it is not.
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

/// JSON pointers to every object in `value`, including itself.
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
