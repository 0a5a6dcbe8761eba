//! Pure: rewrites schemas of the OpenAPI document into terms that every client generator knows.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// Patterns (ECMA-262) of the formats of single-line texts: the texts that [`super::text::one_line`] accepts, and those
/// that are also not blank after trimming.
const LINES: [(&str, &str); 2] = [
    ("one-line", r"^[^\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]*$"),
    (
        "trimmed-line",
        concat!(
            r"^[\u0009-\u000d \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*",
            r"[^\u0000- \u007f-\u00a0\u1680\u2000-\u200a\u200e\u200f\u2028-\u202f\u205f\u2066-\u2069\u3000]",
            r"([^\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]*",
            r"[^\u0000- \u007f-\u00a0\u1680\u2000-\u200a\u200e\u200f\u2028-\u202f\u205f\u2066-\u2069\u3000])?",
            r"[\u0009-\u000d \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*$",
        ),
    ),
];

/// Formats derived from Rust's integers, the registered formats for them, and their maxima.
const WIDTHS: [(&str, &str, u64); 4] = [
    ("u-int8", "uint8", u8::MAX as u64),
    ("u-int16", "uint16", u16::MAX as u64),
    ("u-int32", "uint32", u32::MAX as u64),
    ("u-int64", "uint64", u64::MAX),
];

/// Adds patterns and maxima to formats that client generators may not know.
pub(super) fn spell_out(part: &mut Value) {
    match part {
        Value::Object(members) => {
            let format = members.get("format").and_then(Value::as_str).unwrap_or_default().to_owned();
            if let Some((_, pattern)) = LINES.iter().find(|(name, _)| *name == format) {
                members.insert("pattern".to_owned(), json!(pattern));
            }
            if let Some((_, name, most)) = WIDTHS.iter().find(|(derived, ..)| *derived == format) {
                members.insert("format".to_owned(), json!(name));
                members.entry("maximum").or_insert(json!(most));
            }
            members.values_mut().for_each(spell_out);
        }
        Value::Array(items) => items.iter_mut().for_each(spell_out),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Removes `null` from optional members of answers, which are left out instead. Requests may have either.
pub(super) fn never_null(api: &mut Value) {
    let in_requests = names_in_requests(api);
    let Some(schemas) = api.pointer_mut("/components/schemas").and_then(Value::as_object_mut) else { return };
    for (_, schema) in schemas.iter_mut().filter(|(name, _)| !in_requests.contains(*name)) {
        let parts = schema.get_mut("allOf").and_then(Value::as_array_mut).into_iter().flatten();
        parts.for_each(absent_unless_required);
        absent_unless_required(schema);
    }
}

fn absent_unless_required(schema: &mut Value) {
    let required = schema.get("required").cloned().unwrap_or_default();
    let is_required = |name: &String| required.as_array().is_some_and(|names| names.contains(&json!(name)));
    let members =
        schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flat_map(Map::iter_mut);
    for (_, member) in members.filter(|(name, _)| !is_required(name)) {
        if let Some(types) = member.get_mut("type").and_then(Value::as_array_mut) {
            types.retain(|kind| kind != "null");
            if let [only] = &types[..] {
                member["type"] = only.clone();
            }
        }
        if let Some(choices) = member.get_mut("oneOf").and_then(Value::as_array_mut) {
            choices.retain(|choice| choice["type"] != "null");
            if let [only] = &choices[..] {
                *member = only.clone();
            }
        }
    }
}

/// Collects the names of schemas that request bodies use.
fn names_in_requests(api: &Value) -> BTreeSet<String> {
    let operations = api["paths"].as_object().into_iter().flat_map(Map::values);
    let operations = operations.filter_map(Value::as_object).flat_map(Map::values);
    let mut names = BTreeSet::new();
    operations
        .filter_map(|operation| operation.get("requestBody"))
        .for_each(|body| referred(api, body, &mut names));
    names
}

fn referred(api: &Value, part: &Value, names: &mut BTreeSet<String>) {
    match part {
        Value::Object(members) => {
            let name = members.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
            if let Some(name) = name.filter(|name| names.insert((*name).to_owned())) {
                referred(api, &api["components"]["schemas"][name], names);
            }
            members.values().for_each(|member| referred(api, member, names));
        }
        Value::Array(items) => items.iter().for_each(|item| referred(api, item, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
