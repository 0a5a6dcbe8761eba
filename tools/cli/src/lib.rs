//! Shell: conventions of command-line programs: output for people and for programs, exit codes, argument parsers.

pub mod args;
pub mod exit;

// Texts and times.
pub mod text;
pub mod time;

// Colours, width and printing.
mod output;
pub mod style;
pub mod view;

// Tables that fit the terminal.
mod column_width;
pub mod table;

pub use self::output::{configure, has_colors, is_terminal, note, print, print_error, print_json, view};
pub use self::view::{Color, View};
