//! Pure: the members that an edit changes, without secrets.

use admin_api::dead_letters::EditedMember;
use contract::order::SECRETS;
use saga_core::secrets;
use serde_json::Value;

/// Maximum length of text that is shown whole, in characters, as the result goes to the audit log.
const MAX_TEXT: usize = 1_000;

/// Compares two messages member by member, and lists position by position.
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
                if SECRETS.is_secret(name) {
                    note(path, was, is, |_| secrets::BLANK.into(), found);
                } else {
                    compare(path, was, is, found);
                }
            }
        }
        (Some(Value::Array(was)), Some(Value::Array(is))) => {
            for index in 0..was.len().max(is.len()) {
                compare(format!("{path}[{index}]"), was.get(index), is.get(index), found);
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
    SECRETS.blank(&mut value);
    cut(&mut value);
    value
}

/// Cuts long text, and appends its length.
fn cut(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some((end, _)) = text.char_indices().nth(MAX_TEXT) {
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

    fn changes(before: &Value, after: &Value) -> Value {
        json!(between(before, after))
    }

    #[test]
    fn only_changed_members_are_listed_with_their_paths() {
        let before =
            json!({"order": 1, "lines": [{"sku": "tea", "quantity": 2}, {"sku": "cup"}], "old": null});
        let after = json!({"order": 1, "lines": [{"sku": "tea", "quantity": 3}], "new": {"a": [1]}});
        assert_eq!(
            changes(&before, &after),
            json!([
                {"path": "lines[0].quantity", "before": 2, "after": 3},
                {"path": "lines[1]", "before": {"sku": "cup"}},
                {"path": "old", "before": null},
                {"path": "new", "after": {"a": [1]}},
            ])
        );
        assert!(between(&before, &before).is_empty());
        assert_eq!(
            changes(&json!("{half"), &json!([1])),
            json!([{"path": "", "before": "{half", "after": [1]}])
        );
    }

    #[test]
    fn long_text_is_cut_and_its_length_is_appended() {
        let long = "ä".repeat(200_000);
        let changes = between(&long.clone().into(), &json!({"data": 1}));
        let before = changes[0].before.as_ref().and_then(Value::as_str).expect("a text");
        assert!(
            before.starts_with("ääää") && before.ends_with("… (cut: 200000 characters in all)"),
            "{before}"
        );
        assert!(before.chars().count() < 1_100);
        // Text that differs only after the cut is listed too.
        let changes = between(&json!({"a": long}), &json!({"a": format!("{long}!")}));
        assert_eq!((changes.len(), changes[0].path.as_str()), (1, "a"));
        assert!(json!(changes).to_string().len() < 10_000);
        let whole = between(&json!({}), &json!({"a": {"b": [long]}}));
        assert!(json!(whole).to_string().len() < 10_000, "however deep it stands");
    }

    #[test]
    fn changed_secret_is_listed_without_its_value() {
        let before = json!({"token": "***", "kept": {"token": "***"}, "card": 1});
        let after =
            json!({"token": "tok_new", "kept": {"token": "***"}, "card": {"token": {"a": "tok_deep"}}});
        let changes = self::changes(&before, &after);
        assert_eq!(
            changes,
            json!([
                {"path": "card", "before": 1, "after": {"token": "***"}},
                {"path": "token", "before": "***", "after": "***"},
            ])
        );
    }
}
