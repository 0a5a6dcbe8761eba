//! Pure: values as text for people.

use std::fmt::Write as _;

use contract::money::Money;
use serde::Deserialize as _;
use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;

use super::time;

/// Indentation of the continuation of a wrapped line.
const INDENT: usize = 6;

/// Placeholder of a missing value.
pub const NONE: &str = "–";

/// Escapes control characters, except line breaks.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() && character != '\n' {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Formats a JSON value in one line, with readable money and times.
pub fn one_line(value: &Value) -> String {
    match value {
        Value::String(text) => text.parse().map_or_else(|_| text.clone(), time::timestamp),
        Value::Array(items) => {
            let shown = items.iter().map(|item| {
                let line = one_line(item);
                if item.is_object() { format!("({line})") } else { line }
            });
            shown.collect::<Vec<_>>().join(", ")
        }
        Value::Object(members) => {
            if let Ok(money) = Money::deserialize(value) {
                return money.to_string();
            }
            let shown = members.iter().map(|(name, value)| {
                let line = one_line(value);
                let is_plain = !value.is_object() || Money::deserialize(value).is_ok();
                if is_plain { format!("{name} {line}") } else { format!("{name} ({line})") }
            });
            shown.collect::<Vec<_>>().join(" · ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Puts a text on one line of at most `max_chars` characters.
pub fn short(text: &str, max_chars: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= max_chars {
        return line;
    }
    let begin: String = line.chars().take(max_chars.saturating_sub(1)).collect();
    format!("{begin}…")
}

pub fn or_none(value: Option<impl ToString>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| value.to_string())
}

/// Lists names and values, one per line, without missing values.
pub fn fields(pairs: &[(&str, Option<String>)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in pairs {
        if let Some(value) = value {
            let _ = writeln!(text, "  {name:<width$}  {value}");
        }
    }
    text
}

/// Wraps lines between words, and indents their continuations.
pub fn wrapped(text: &str, room: Option<usize>) -> String {
    let Some(room) = room else { return text.to_owned() };
    let mut shown = String::with_capacity(text.len());
    for line in text.lines() {
        let mut used = 0;
        for word in line.split_inclusive(' ') {
            let width = word.trim_end().width();
            if used > INDENT && used + width > room {
                shown.truncate(shown.trim_end().len());
                let _ = write!(shown, "\n{:INDENT$}", "");
                used = INDENT;
            }
            shown.push_str(word);
            used += word.width();
        }
        shown.push('\n');
    }
    shown
}

/// Indents every line.
pub fn indented(text: &str, by: usize) -> String {
    text.lines().map(|line| format!("{:by$}{line}\n", "")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("a\u{1b}[2J\rb\nc\u{9b}"), "a\\u{1b}[2J\\rb\nc\\u{9b}");
    }

    #[test]
    fn long_text_is_truncated_between_characters() {
        assert_eq!(short("über\nalles hinaus", 6), "über …");
        assert_eq!(short("short", 5), "short");
    }

    #[test]
    fn long_line_is_wrapped_and_indented() {
        assert_eq!(wrapped("  why  no money, no tea\n", Some(16)), "  why  no money,\n      no tea\n");
        assert_eq!(wrapped("a_word_that_is_long x\nb", Some(9)), "a_word_that_is_long\n      x\nb\n");
        assert_eq!(wrapped("as it is", None), "as it is");
    }

    #[test]
    fn object_is_plain_line() {
        assert_eq!(one_line(&json!({"a": 1, "b": {"c": "x"}})), "a 1 · b (c x)");
        let order = json!({
            "total": {"amount_minor": 3_798, "currency": "EUR"}, "deadline": "2026-11-20T14:19:36.123456789Z",
            "changes": [{"path": "token"}, {"path": "sku"}],
        });
        let expected = "changes (path token), (path sku) · deadline 2026-11-20 14:19:36Z · total 37.98 EUR";
        assert_eq!(one_line(&order), expected);
    }

    #[test]
    fn missing_values_are_omitted() {
        let pairs = [("one", Some("1".to_owned())), ("two", None), ("three", Some("3".to_owned()))];
        assert_eq!(fields(&pairs), "  one    1\n  three  3\n");
    }
}
