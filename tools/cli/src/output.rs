//! Shell: printing. A closed pipe is no failure.

use std::io::{IsTerminal as _, Write as _};
use std::sync::OnceLock;

use jiff::Timestamp;
use serde_json::Value;

use super::exit;
use super::style::colored;
use super::text::printable;
use super::view::{Color, View};

/// Output settings of this process, decided once.
static SETTINGS: OnceLock<Settings> = OnceLock::new();

#[derive(Debug, Clone, Copy)]
struct Settings {
    width: Option<usize>,
    is_terminal: bool,
    has_colors: bool,
}

impl Settings {
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

/// Sets colours and width. Without this call the defaults hold.
pub fn configure(color: Color, is_wide: bool) {
    SETTINGS.get_or_init(|| Settings::new(color, is_wide));
}

fn settings() -> &'static Settings {
    SETTINGS.get_or_init(|| Settings::new(Color::Auto, false))
}

pub fn view() -> View {
    let settings = settings();
    View { width: settings.width, now: settings.is_terminal.then(Timestamp::now) }
}

pub fn is_terminal() -> bool {
    settings().is_terminal
}

pub fn has_colors() -> bool {
    settings().has_colors
}

/// Prints text with control characters escaped, so that foreign text cannot control the terminal.
pub fn print(text: &str) {
    let text = printable(text.trim_end());
    let text = if settings().has_colors { colored(&text) } else { text };
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints JSON in one line.
pub fn print_json(value: &Value) {
    let _ = writeln!(std::io::stdout(), "{value}");
}

/// Prints progress to standard error.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(text.trim_end()));
}

/// Prints an error and returns its exit code.
pub fn print_error(error: &anyhow::Error) -> u8 {
    note(&format!("sagactl: {error:#}"));
    exit::code_of(error)
}
