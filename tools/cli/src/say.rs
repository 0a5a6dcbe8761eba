//! Shell: printing. Whoever closes the pipe has read enough: that is no failure.

use std::io::{IsTerminal as _, Write as _};
use std::sync::OnceLock;

use jiff::Timestamp;
use serde_json::Value;

use super::exit;
use super::style::painted;
use super::text::printable;
use super::view::{Color, View};

/// How this run prints, decided once.
static LOOK: OnceLock<Look> = OnceLock::new();

#[derive(Debug, Clone, Copy)]
struct Look {
    width: Option<usize>,
    is_terminal: bool,
    has_colors: bool,
}

impl Look {
    fn new(color: Color, is_wide: bool) -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let columns =
            || terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0));
        Self {
            width: if is_terminal && !is_wide { columns() } else { None },
            is_terminal,
            has_colors: color.decide(is_terminal, std::env::var("NO_COLOR").ok().as_deref()),
        }
    }
}

/// Says how to print. Without this it is as nobody asked for anything.
pub fn look(color: Color, is_wide: bool) {
    LOOK.get_or_init(|| Look::new(color, is_wide));
}

fn settled() -> &'static Look {
    LOOK.get_or_init(|| Look::new(Color::Auto, false))
}

/// Who looks at standard output.
pub fn view() -> View {
    let look = settled();
    View { width: look.width, now: look.is_terminal.then(Timestamp::now) }
}

/// Whether somebody at a terminal sees what is printed.
pub fn is_terminal() -> bool {
    settled().is_terminal
}

/// Whether what is shown has colours.
pub fn has_colors() -> bool {
    settled().has_colors
}

/// Prints text that others wrote, so that it cannot command the terminal.
pub fn say(text: &str) {
    let text = printable(text.trim_end());
    let text = if settled().has_colors { painted(&text) } else { text };
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints a value for programs, in one line.
pub fn say_json(value: &Value) {
    let _ = writeln!(std::io::stdout(), "{value}");
}

/// Says beside what is asked for how far something is.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(text.trim_end()));
}

/// Prints an error, and answers the code that the program is to end with.
pub fn complain(error: &anyhow::Error) -> u8 {
    note(&format!("sagactl: {error:#}"));
    exit::code_of(error)
}
