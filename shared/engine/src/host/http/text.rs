//! Shell: what people type, and tables show: without the space around it, and on one line.

use serde::{Deserialize, Deserializer};

/// A text without the space around it.
///
/// # Errors
/// When it is no text.
pub fn trimmed<'de, D: Deserializer<'de>>(given: D) -> Result<String, D::Error> {
    String::deserialize(given).map(|text| text.trim().to_owned())
}

/// The same of one that may be absent.
///
/// # Errors
/// When it is no text.
pub fn trimmed_if_any<'de, D: Deserializer<'de>>(given: D) -> Result<Option<String>, D::Error> {
    Option::<String>::deserialize(given).map(|text| text.map(|text| text.trim().to_owned()))
}

/// Whether a text stays on the line it is shown on, and in its direction: with a line break, or with what turns writing
/// round (Unicode's bidirectional controls), it could pass for another row of a table.
///
/// # Errors
/// When it does not.
pub fn one_line<C>(text: &str, _: &C) -> garde::Result {
    let moves =
        |c: char| matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
    match text.chars().find(|c| c.is_control() || moves(*c)) {
        None => Ok(()),
        Some(c) => Err(garde::Error::new(format!("must be one line of plain text, without {c:?}"))),
    }
}
