//! Pure: a kind of row: state, commands and events.

use std::fmt::Debug;

use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};

/// Searchable value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldValue {
    /// Text, such as a name or an id.
    Text(String),
    /// Number, or timestamp in microseconds UTC.
    Integer(i64),
    /// No value, or none yet.
    Null,
}

impl From<&str> for FieldValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for FieldValue {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

/// Sums by name, e.g. units sold by SKU.
pub type Sums = Vec<(String, i64)>;

/// Data of one kind of rows that is purged after the configured retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetentionPolicy {
    /// Keep all rows and events for ever.
    Keep,
    /// Purge old events of rows that never finish. A snapshot of their fold replaces them.
    PurgeEvents,
    /// Purge [finished](Decider::is_finished) rows with all their events.
    ///
    /// The ids of the rows are saga ids, which begin with a time. The rows are kept until those of
    /// [`RetentionPolicy::PurgeRowsFirst`] can cause no more messages for them.
    PurgeRows,
    /// Purge finished rows before those of [`RetentionPolicy::PurgeRows`]: the rows through which requests about a
    /// saga arrive.
    PurgeRowsFirst,
    /// Purge finished rows, whose ids are saga ids, once the rows of [`RetentionPolicy::PurgeRows`] with the same id are
    /// gone. Not every saga has such a row.
    PurgeRowsLast,
    /// Purge closed rows, under any id, once their time field and last change are older than the retention of dead letters.
    PurgeClosedRows(ClosedRows),
}

/// Condition for which a row is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedRows {
    /// Searchable field with the status.
    pub status: &'static str,
    /// Values of `status` in which the row is closed.
    pub closed: &'static [&'static str],
    /// Searchable field with the time from which the age counts at the earliest.
    pub since: &'static str,
}

impl RetentionPolicy {
    /// True if each saga has such a row, and a saga without it may have been purged.
    #[must_use]
    pub const fn purges_sagas(self) -> bool {
        match self {
            Self::PurgeRows | Self::PurgeRowsFirst => true,
            Self::Keep | Self::PurgeEvents | Self::PurgeRowsLast | Self::PurgeClosedRows(_) => false,
        }
    }
}

/// A decider: `decide` maps a command to events, `evolve` folds events into state.
///
/// The state of a row always equals the fold of its events over `Default`, or over a snapshot of purged events, so
/// rows can be rebuilt. `decide` is total: it returns events, no events (nothing to do), or a rejection. `evolve`
/// never fails.
pub trait Decider: Default + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Name of the kind and of its table.
    const KIND: &'static str;
    /// Names of the searchable fields, in the order of [`Decider::fields`].
    const FIELDS: &'static [&'static str] = &[];
    /// Names of [`Decider::FIELDS`] that hold numbers or times; the others hold text.
    const NUMBERS: &'static [&'static str] = &[];
    /// Data that is purged after the retention.
    const RETENTION: RetentionPolicy = RetentionPolicy::Keep;
    /// Request to the row, which may be rejected.
    type Command;
    /// Recorded change of the row, which `evolve` folds.
    type Event: Clone + Debug + Serialize + DeserializeOwned + Send + 'static;
    /// Business rejection of a command.
    type Rejection;

    /// Maps `command` to the events that it causes. No events if the row is in the requested state already.
    ///
    /// # Errors
    /// The business rejection.
    fn decide(&self, command: &Self::Command) -> Result<Vec<Self::Event>, Self::Rejection>;

    /// Folds one event into the state.
    fn evolve(&mut self, event: &Self::Event);

    /// Name of an event in the history.
    fn event_name(event: &Self::Event) -> &'static str;

    /// Searchable values of the row `id`, one for each of [`Decider::FIELDS`].
    fn fields(&self, id: &str) -> Vec<FieldValue> {
        let _ = id;
        vec![]
    }

    /// True if only requests of people can still change this row. It may be purged then.
    fn is_finished(&self) -> bool {
        false
    }

    /// Amounts of a finished row that totals still include after the row is purged, by name.
    fn purged_sums(&self) -> Sums {
        vec![]
    }

    /// Time at which the engine calls [`Service::on_deadline`](crate::Service::on_deadline) for this row.
    fn due(&self) -> Option<Timestamp> {
        None
    }
}
