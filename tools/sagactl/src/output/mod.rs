//! What this program prints, and how it ends.

// The codes it ends with, and errors that choose theirs.
pub mod exit;

// Values as people read them; times among them.
pub mod text;
pub mod time;

// For whom it is, in which colours.
pub mod style;
mod view;

// Tables, as wide as there is room.
mod fit;
mod table;

mod say;

pub use self::say::{complain, has_colors, is_terminal, look, note, say, say_json, view};
pub use self::table::{Column, cut, goes, left, lines, right, shortened, table, table_with_sum, when};
pub use self::view::{Color, View};
