//! Shell: the statements of a batch, with the meaning of what each returns.

use saga_core::row::RowKey;

use super::values::Owned;

/// Meaning of the rows that a statement returns.
pub(super) enum Returned {
    Head,
    /// A message or key that another batch has written since the load.
    Conflict,
    /// Ids of the written rows. Any other number of them is a conflict.
    Rows(Vec<RowKey>),
    /// True if any outbox entry is out of sequence.
    OutOfSequence,
    Nothing,
}

#[derive(Default)]
pub(super) struct Statements(pub(super) Vec<(String, Owned, Returned)>);

impl Statements {
    pub(super) fn push(&mut self, sql: impl Into<String>, values: Owned, returned: Returned) {
        self.0.push((sql.into(), values, returned));
    }
}

/// Boxes the parameters of a statement.
macro_rules! values {
    ($($value:expr),* $(,)?) => { vec![$(Box::new($value) as _),*] };
}
pub(super) use values;

/// Collects one parameter of each row into an array.
pub(super) fn column<R, T>(rows: &[R], of: impl Fn(&R) -> T) -> Vec<T> {
    rows.iter().map(of).collect()
}
