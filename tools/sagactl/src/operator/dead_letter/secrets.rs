//! Pure: card tokens in what operators see and write.

use serde_json::Value;

/// The member that is never shown: a card's token is the customer's secret.
const HIDDEN: &str = "token";
/// What is shown instead.
const MASK: &str = "***";

pub fn hide(value: &mut Value) {
    each_secret(value, &mut |secret| *secret = MASK.into());
}

/// Whether something is hidden in it.
pub fn is_hidden(value: &Value) -> bool {
    let mut found = false;
    each_secret(&mut value.clone(), &mut |secret| found |= secret == MASK);
    found
}

/// Puts back what was hidden and is still where it was. A secret that was written anew stays.
pub fn put_back(edited: &mut Value, original: &Value) {
    match edited {
        Value::Object(members) => {
            for (name, member) in members {
                let Some(original) = original.get(name) else { continue };
                if name == HIDDEN && member == MASK {
                    *member = original.clone();
                } else {
                    put_back(member, original);
                }
            }
        }
        Value::Array(items) => {
            for (item, original) in items.iter_mut().zip(original.as_array().into_iter().flatten()) {
                put_back(item, original);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn each_secret(value: &mut Value, act: &mut impl FnMut(&mut Value)) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if name == HIDDEN { act(member) } else { each_secret(member, act) }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| each_secret(item, act)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_hidden_comes_back_where_it_was() {
        let original = json!({"payment": {"token": "tok_ok", "note": "a"}, "cards": [{"token": "t1"}]});
        let mut shown = original.clone();
        hide(&mut shown);
        assert_eq!(shown, json!({"payment": {"token": "***", "note": "a"}, "cards": [{"token": "***"}]}));
        assert!(is_hidden(&shown) && !is_hidden(&original));
        shown["payment"]["note"] = "b".into();
        put_back(&mut shown, &original);
        assert_eq!(shown, json!({"payment": {"token": "tok_ok", "note": "b"}, "cards": [{"token": "t1"}]}));
    }

    #[test]
    fn a_secret_that_was_written_anew_stays() {
        let mut edited = json!({"token": "tok_new", "extra": {"token": "***"}});
        put_back(&mut edited, &json!({"token": "tok_old"}));
        assert_eq!(edited, json!({"token": "tok_new", "extra": {"token": "***"}}));
    }
}
