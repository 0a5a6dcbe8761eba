//! Shell: conventions of command-line programs: output for people and for programs, exit codes, argument parsers.

pub mod exit;

// Texts and times.
pub mod text;
pub mod time;

// Colours and width.
pub mod style;
pub mod view;

// Tables that fit the terminal.
mod fit;
pub mod table;

mod say;

pub mod args;

pub use self::say::{complain, configure, has_colors, is_terminal, note, say, say_json, view};
pub use self::table::{Column, cut, goes, left, lines, right, shortened, table, table_with_sum, when};
pub use self::view::{Color, View};
