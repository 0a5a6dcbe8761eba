//! Pure: how rows are looked up, and what is found.

use jiff::Timestamp;

use crate::decider::FieldValue;

/// How to look rows up.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Field equals value; the special field `id` too.
    pub equals: Vec<(&'static str, FieldValue)>,
    /// Field is less than value.
    pub below: Vec<(&'static str, FieldValue)>,
    /// Field is value or more.
    pub from: Vec<(&'static str, FieldValue)>,
    /// Field is one of the values.
    pub one_of: Vec<(&'static str, Vec<FieldValue>)>,
    /// The state as JSON contains this text.
    pub text: Option<String>,
    /// Sorts by a field first, then by id; by id alone without it.
    pub order: Option<Order>,
    /// Start behind this id.
    pub after: Option<String>,
    /// Highest first (newest first, where ids are UUIDv7).
    pub descending: bool,
    /// At most this many.
    pub limit: usize,
}

impl Query {
    /// Whether it looks one row up by a field, which is indexed: as quick as by its id.
    #[must_use]
    pub const fn is_for_one(&self) -> bool {
        self.limit == 1 && self.text.is_none() && !self.equals.is_empty()
    }
}

/// How rows are sorted.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    /// A field that holds a number or a time in every row.
    pub field: &'static str,
    /// Its value in the row that [`Query::after`] names.
    pub after: Option<i64>,
}

/// Rows of a kind that have the same value in a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The value that they share; empty for rows without one.
    pub value: String,
    /// How many rows have it.
    pub count: u64,
    /// The least value of the field of times among them.
    pub first: i64,
    /// The greatest value of that field.
    pub last: i64,
    /// Id of the one with the greatest.
    pub latest: String,
}

/// How rows are counted together with the rows of another kind that they name.
#[derive(Debug, Clone, Copy)]
pub struct Join {
    /// A field of theirs to count by.
    pub by: &'static str,
    /// Another one.
    pub and: &'static str,
    /// The field of theirs that holds the id of the other row.
    pub through: &'static str,
    /// The kind of the other row.
    pub kind: &'static str,
    /// The field of the other row to count by.
    pub their: &'static str,
    /// A field of the other row that holds a number or a time, of which the range is told.
    pub range: &'static str,
    /// Values of it up to this one are past, and not part of the range.
    pub after: i64,
}

/// Rows that agree in all fields of a [`Join`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Their value of [`Join::by`]; empty for rows without one.
    pub by: String,
    /// Their value of [`Join::and`]; empty for rows without one.
    pub and: String,
    /// The value of [`Join::their`]; `None` where there is no other row, or it has none.
    pub their: Option<String>,
    /// How many rows there are.
    pub count: u64,
    /// How many of them have a value of [`Join::range`] that is past.
    pub past: u64,
    /// The least and the greatest value of those that are not.
    pub range: Option<(i64, i64)>,
}

/// A row that a query found.
#[derive(Debug, Clone)]
pub struct FoundRow {
    /// Its id within its kind.
    pub id: String,
    /// How many events made it, 1 or more.
    pub version: i64,
    /// State as JSON.
    pub state: String,
    /// When its first event was decided.
    pub created_at: Timestamp,
    /// When its last event was decided.
    pub updated_at: Timestamp,
    /// Its value of [`Query::order`]'s field.
    pub ordered_by: FieldValue,
}
