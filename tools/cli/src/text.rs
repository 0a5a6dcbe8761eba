//! Pure: values as people read them.

use std::fmt::Write as _;

use contract::money::Money;
use serde::Deserialize as _;
use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;

use super::time;

/// How far to the right a line goes on that was broken.
const GOES_ON: usize = 6;

pub const NOTHING: &str = "–";

/// Text for a terminal: what would move its cursor or colour it is escaped. Lines stay lines.
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

/// A value in one line, money and moments as people write them.
pub fn one_line(value: &Value) -> String {
    match value {
        Value::String(text) => text.parse().map_or_else(|_| text.clone(), time::moment),
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
                let is_one = !value.is_object() || Money::deserialize(value).is_ok();
                if is_one { format!("{name} {line}") } else { format!("{name} ({line})") }
            });
            shown.collect::<Vec<_>>().join(" · ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// The beginning of a text, in one line.
pub fn short(text: &str, longest: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= longest {
        return line;
    }
    let begin: String = line.chars().take(longest.saturating_sub(1)).collect();
    format!("{begin}…")
}

/// A value that may be missing.
pub fn or_nothing(value: Option<impl ToString>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |value| value.to_string())
}

/// Names and values, one below the other; what is missing is left out.
pub fn listed(pairs: &[(&str, Option<String>)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in pairs {
        if let Some(value) = value {
            let _ = writeln!(text, "  {name:<width$}  {value}");
        }
    }
    text
}

/// The same text in lines that have room, broken between words; what goes on is moved to the right.
pub fn folded(text: &str, room: Option<usize>) -> String {
    let Some(room) = room else { return text.to_owned() };
    let mut shown = String::with_capacity(text.len());
    for line in text.lines() {
        let mut used = 0;
        for word in line.split_inclusive(' ') {
            let width = word.trim_end().width();
            if used > GOES_ON && used + width > room {
                shown.truncate(shown.trim_end().len());
                let _ = write!(shown, "\n{:GOES_ON$}", "");
                used = GOES_ON;
            }
            shown.push_str(word);
            used += word.width();
        }
        shown.push('\n');
    }
    shown
}

/// Every line moved to the right.
pub fn indented(text: &str, by: usize) -> String {
    text.lines().map(|line| format!("{:by$}{line}\n", "")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_would_command_the_terminal_is_escaped() {
        assert_eq!(printable("a\u{1b}[2J\rb\nc\u{9b}"), "a\\u{1b}[2J\\rb\nc\\u{9b}");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(short("über\nalles hinaus", 6), "über …");
        assert_eq!(short("short", 5), "short");
    }

    #[test]
    fn a_line_without_room_goes_on_below() {
        assert_eq!(folded("  why  no money, no tea\n", Some(16)), "  why  no money,\n      no tea\n");
        assert_eq!(folded("a_word_that_is_long x\nb", Some(9)), "a_word_that_is_long\n      x\nb\n");
        assert_eq!(folded("as it is", None), "as it is");
    }

    #[test]
    fn an_object_is_one_line() {
        assert_eq!(one_line(&json!({"a": 1, "b": {"c": "x"}})), "a 1 · b (c x)");
        let order = json!({
            "total": {"amount_minor": 3_798, "currency": "EUR"}, "deadline": "2026-11-20T14:19:36.123456789Z",
            "changes": [{"path": "token"}, {"path": "sku"}],
        });
        let told = "changes (path token), (path sku) · deadline 2026-11-20 14:19:36Z · total 37.98 EUR";
        assert_eq!(one_line(&order), told);
    }

    #[test]
    fn what_is_missing_is_left_out() {
        let pairs = [("one", Some("1".to_owned())), ("two", None), ("three", Some("3".to_owned()))];
        assert_eq!(listed(&pairs), "  one    1\n  three  3\n");
    }
}
