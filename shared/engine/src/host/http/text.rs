//! Shell: text that people enter, and tables show.

pub use saga_core::text::{trimmed, trimmed_if_any};

/// Rejects text that would not stay on its line, such as text with line breaks or bidirectional controls.
///
/// # Errors
/// Returns an error that names the character.
pub fn one_line<C>(text: &str, _: &C) -> garde::Result {
    match saga_core::text::breaks_line(text) {
        None => Ok(()),
        Some(found) => Err(garde::Error::new(format!("must be one line of plain text, without {found:?}"))),
    }
}
