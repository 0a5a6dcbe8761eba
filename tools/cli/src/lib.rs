//! Shell: what command-line programs share: output for people and for programs, exit codes, argument parsers.

// The codes it ends with, and errors that choose theirs.
pub mod exit;

// Values as people read them; times among them.
pub mod text;
pub mod time;

// For whom it is, in which colours.
pub mod style;
pub mod view;

// Tables, as wide as there is room.
mod fit;
pub mod table;

mod say;

// Argument parsers.
pub mod args;

pub use self::say::{complain, has_colors, is_terminal, look, note, say, say_json, view};
pub use self::table::{Column, cut, goes, left, lines, right, shortened, table, table_with_sum, when};
pub use self::view::{Color, View};
