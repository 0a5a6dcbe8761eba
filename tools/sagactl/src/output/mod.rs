//! What this program prints, and how it ends.

// The codes it ends with, and errors that choose theirs.
pub mod exit;
// Values as people read them.
pub mod text;

mod say;
mod table;

pub use self::say::{complain, say};
pub use self::table::{Column, left, right, table, table_with_sum};
