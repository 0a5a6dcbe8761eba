//! Pure: what an edit changes, member by member, as people may see it.

use contract::order::SECRETS;
use saga_core::secrets;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Longest text that is shown whole, in characters: what was parked may be of any length, and this goes to the log.
const LONGEST_TEXT: usize = 1_000;

/// A member of a message that an edit changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EditedMember {
    /// Where it stands in the envelope, `data.lines[0].quantity`; empty for all of a message that was no JSON.
    pub path: String,
    /// What it was; absent when it was not there. A card token is `***`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// What it becomes; absent when it is taken away. A card token is `***`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
}

/// What tells one message from another. Lists are compared place by place: their order means something.
#[must_use]
pub fn between(before: &Value, after: &Value) -> Vec<EditedMember> {
    let mut found = Vec::new();
    compare(String::new(), Some(before), Some(after), &mut found);
    found
}

fn compare(path: String, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<EditedMember>) {
    match (before, after) {
        (Some(Value::Object(was)), Some(Value::Object(is))) => {
            let added = is.keys().filter(|name| !was.contains_key(*name));
            for name in was.keys().chain(added) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let (was, is) = (was.get(name), is.get(name));
                if SECRETS.contains(&name.as_str()) {
                    note(path, was, is, |_| secrets::BLANK.into(), found);
                } else {
                    compare(path, was, is, found);
                }
            }
        }
        (Some(Value::Array(was)), Some(Value::Array(is))) => {
            for place in 0..was.len().max(is.len()) {
                compare(format!("{path}[{place}]"), was.get(place), is.get(place), found);
            }
        }
        (before, after) => note(path, before, after, shown, found),
    }
}

fn note(
    path: String,
    before: Option<&Value>,
    after: Option<&Value>,
    shown: fn(&Value) -> Value,
    found: &mut Vec<EditedMember>,
) {
    if before != after {
        found.push(EditedMember { path, before: before.map(&shown), after: after.map(&shown) });
    }
}

fn shown(value: &Value) -> Value {
    let mut value = value.clone();
    secrets::blank(&mut value, &SECRETS);
    cut(&mut value);
    value
}

/// Cuts every text that is too long, and says so.
fn cut(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some((end, _)) = text.char_indices().nth(LONGEST_TEXT) {
                let length = text.chars().count();
                *text = format!("{}… (cut: {length} characters in all)", &text[..end]);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(cut),
        Value::Object(members) => members.values_mut().for_each(cut),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(before: &Value, after: &Value) -> Value {
        json!(between(before, after))
    }

    #[test]
    fn what_differs_is_told_with_its_path_and_nothing_else_is() {
        let before =
            json!({"order": 1, "lines": [{"sku": "tea", "quantity": 2}, {"sku": "cup"}], "old": null});
        let after = json!({"order": 1, "lines": [{"sku": "tea", "quantity": 3}], "new": {"a": [1]}});
        assert_eq!(
            told(&before, &after),
            json!([
                {"path": "lines[0].quantity", "before": 2, "after": 3},
                {"path": "lines[1]", "before": {"sku": "cup"}},
                {"path": "old", "before": null},
                {"path": "new", "after": {"a": [1]}},
            ])
        );
        assert!(between(&before, &before).is_empty());
        assert_eq!(
            told(&json!("{half"), &json!([1])),
            json!([{"path": "", "before": "{half", "after": [1]}])
        );
    }

    /// What was parked may be of any length, and what an edit changed stays in the log.
    #[test]
    fn a_long_text_is_cut_and_it_is_said_how_long_it_is() {
        let long = "ä".repeat(200_000);
        let told = between(&long.clone().into(), &json!({"data": 1}));
        let before = told[0].before.as_ref().and_then(Value::as_str).expect("a text");
        assert!(
            before.starts_with("ääää") && before.ends_with("… (cut: 200000 characters in all)"),
            "{before}"
        );
        assert!(before.chars().count() < 1_100);
        // What differs only behind the cut differs all the same.
        let told = between(&json!({"a": long}), &json!({"a": format!("{long}!")}));
        assert_eq!((told.len(), told[0].path.as_str()), (1, "a"));
        assert!(json!(told).to_string().len() < 10_000);
        let whole = between(&json!({}), &json!({"a": {"b": [long]}}));
        assert!(json!(whole).to_string().len() < 10_000, "however deep it stands");
    }

    #[test]
    fn a_secret_is_told_to_be_another_and_is_not_shown() {
        let before = json!({"token": "***", "kept": {"token": "***"}, "card": 1});
        let after =
            json!({"token": "tok_new", "kept": {"token": "***"}, "card": {"token": {"a": "tok_deep"}}});
        let told = told(&before, &after);
        assert_eq!(
            told,
            json!([
                {"path": "card", "before": 1, "after": {"token": "***"}},
                {"path": "token", "before": "***", "after": "***"},
            ])
        );
    }
}
