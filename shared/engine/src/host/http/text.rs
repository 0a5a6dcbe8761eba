//! Shell: text fields: trimmed, and on one line.

use serde::{Deserialize, Deserializer};

/// Deserializes a text, and trims it.
///
/// # Errors
/// When the value is no text.
pub fn trimmed<'de, D: Deserializer<'de>>(given: D) -> Result<String, D::Error> {
    String::deserialize(given).map(|text| text.trim().to_owned())
}

/// Deserializes an optional text, and trims it.
///
/// # Errors
/// When the value is no text.
pub fn trimmed_if_any<'de, D: Deserializer<'de>>(given: D) -> Result<Option<String>, D::Error> {
    Option::<String>::deserialize(given).map(|text| text.map(|text| text.trim().to_owned()))
}

/// Rejects line breaks and bidirectional controls, with which a text could pass for another row of a table.
///
/// # Errors
/// When the text has such a character.
pub fn one_line<C>(text: &str, _: &C) -> garde::Result {
    let moves =
        |c: char| matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
    match text.chars().find(|c| c.is_control() || moves(*c)) {
        None => Ok(()),
        Some(c) => Err(garde::Error::new(format!("must be one line of plain text, without {c:?}"))),
    }
}
