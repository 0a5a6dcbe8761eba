//! Pure: text that people enter, such as names and reasons.

use serde::{Deserialize, Deserializer};

/// Deserializes text without the white space around it.
///
/// # Errors
/// Returns an error for anything but a string.
pub fn trimmed<'de, D: Deserializer<'de>>(given: D) -> Result<String, D::Error> {
    String::deserialize(given).map(|text| text.trim().to_owned())
}

/// Deserializes optional text without the white space around it.
///
/// # Errors
/// Returns an error for anything but a string or null.
pub fn trimmed_if_any<'de, D: Deserializer<'de>>(given: D) -> Result<Option<String>, D::Error> {
    Option::<String>::deserialize(given).map(|text| text.map(|text| text.trim().to_owned()))
}

/// Finds the first character that breaks a line or changes its direction. Such text could pass for another row of a table.
#[must_use]
pub fn breaks_line(text: &str) -> Option<char> {
    let turns =
        |c: char| matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
    text.chars().find(|c| c.is_control() || turns(*c))
}
