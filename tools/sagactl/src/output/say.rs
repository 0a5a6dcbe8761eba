//! Shell: printing. Whoever closes the pipe has read enough: that is no failure.

use std::io::Write as _;

use super::exit;
use super::text::printable;

/// Prints text that others wrote, so that it cannot command the terminal.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{}", printable(text.trim_end()));
}

/// Prints an error, and answers the code that the program is to end with.
pub fn complain(error: &anyhow::Error) -> u8 {
    let _ = writeln!(std::io::stderr(), "sagactl: {}", printable(&format!("{error:#}")));
    exit::code_of(error)
}
