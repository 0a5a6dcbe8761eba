//! Shell: dead letters and overrides, as operators read them.

use saga_core::dead_letter::StoredDeadLetter;

/// Dead letters of a store.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoredDeadLetters {
    /// Dead letters that could be read, newest first.
    pub readable: Vec<StoredDeadLetter>,
    /// Ids of damaged ones, as hexadecimal digits if the id itself is damaged. A damaged dead letter hides no other.
    pub unreadable: Vec<String>,
}

/// Overrides by operators, as last stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredOverrides {
    /// Number of the change; grows with each.
    pub revision: i64,
    /// The overrides, in the caller's format.
    pub text: String,
}
