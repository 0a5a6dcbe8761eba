//! Pure: queries for rows, and their results.

use jiff::Timestamp;

use crate::decider::FieldValue;

/// Query for rows of one kind.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Fields that equal a value; `id` is a field too.
    pub equals: Vec<(&'static str, FieldValue)>,
    /// Fields that are below a value.
    pub below: Vec<(&'static str, FieldValue)>,
    /// Fields at or above a value.
    pub from: Vec<(&'static str, FieldValue)>,
    /// Fields that equal one of several values.
    pub one_of: Vec<(&'static str, Vec<FieldValue>)>,
    /// Fields that contain a text, whatever the case of ASCII letters.
    pub contains: Vec<(&'static str, String)>,
    /// Texts that the state's JSON contains, whatever the case of ASCII letters; see [`text_in_json`].
    pub texts: Vec<String>,
    /// First sort key; without it rows are sorted by id alone.
    pub order: Option<Order>,
    /// Id after which the page starts.
    pub after: Option<String>,
    /// Descending order: newest first, where ids are UUIDv7.
    pub descending: bool,
    /// Maximum number of rows to return.
    pub limit: usize,
}

impl Query {
    /// True if the query looks up one row by an indexed field.
    #[must_use]
    pub const fn is_for_one(&self) -> bool {
        self.limit == 1 && self.texts.is_empty() && self.contains.is_empty() && !self.equals.is_empty()
    }
}

/// Text as JSON contains it, for [`Query::texts`].
#[must_use]
pub fn text_in_json(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    json[1..json.len() - 1].to_owned()
}

/// First sort key of a query.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    /// Field that holds a number or a time in every row.
    pub field: &'static str,
    /// Value of the field in the row that [`Query::after`] names.
    pub after: Option<i64>,
}

/// Rows of a kind with the same value in a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Common value; empty for rows without one.
    pub value: String,
    /// Number of rows in the group.
    pub count: u64,
    /// Lowest value of the time field.
    pub first: i64,
    /// Highest value of the time field.
    pub last: i64,
    /// Id of the row with the highest value.
    pub latest: String,
}

/// Counts of rows, joined with the rows of another kind that they refer to.
#[derive(Debug, Clone, Copy)]
pub struct Join {
    /// First field to group by.
    pub by: &'static str,
    /// Second field to group by.
    pub and: &'static str,
    /// Field that holds the id of the other row.
    pub through: &'static str,
    /// Kind of the other row.
    pub kind: &'static str,
    /// Field of the other row to group by.
    pub their: &'static str,
    /// Field of the other row, a number or time, whose range is returned.
    pub range: &'static str,
    /// Upper bound of past values, which the range excludes.
    pub after: i64,
}

/// Group of rows that agree in all fields of a [`Join`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Value of [`Join::by`]; empty for rows without one.
    pub by: String,
    /// Value of [`Join::and`]; empty for rows without one.
    pub and: String,
    /// Value of [`Join::their`]; `None` if the other row does not exist or has no value.
    pub their: Option<String>,
    /// Number of rows in the group.
    pub count: u64,
    /// Number of rows with a past value of [`Join::range`].
    pub past: u64,
    /// Lowest and highest value of [`Join::range`] that is not past.
    pub range: Option<(i64, i64)>,
}

/// Row that a query found.
#[derive(Debug, Clone)]
pub struct FoundRow {
    /// Id of the row within its kind.
    pub id: String,
    /// Number of events of the row, at least 1.
    pub version: i64,
    /// State as JSON, which its decider reads.
    pub state: String,
    /// Time of the first event.
    pub created_at: Timestamp,
    /// Time of the last event.
    pub updated_at: Timestamp,
    /// Value of the field in [`Query::order`].
    pub ordered_by: FieldValue,
}
