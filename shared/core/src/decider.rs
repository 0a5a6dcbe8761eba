//! Pure: what a kind of row is: a state, the commands it may refuse, the events that change it.

use std::fmt::Debug;

use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};

/// A searchable value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldValue {
    /// A name, an id, or any other text.
    Text(String),
    /// A number, or a timestamp in microseconds UTC.
    Integer(i64),
    /// Not known (yet).
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

/// Sums by name.
pub type Sums = Vec<(String, i64)>;

/// What of a kind of rows leaves its database once it is old, where a retention says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetentionPolicy {
    /// Nothing.
    Keep,
    /// Old events of rows that live on: of those whose history has no end, and is read by nobody but people. A snapshot of
    /// their fold stands for them then.
    PurgeEvents,
    /// Rows that are [finished](Decider::is_finished), with all their events. They are called by their saga's id, which
    /// begins with its time. They wait until nothing can come any more from those that leave [first](RetentionPolicy::PurgeRowsFirst).
    PurgeRows,
    /// The same of rows by which people ask for something of a saga: once they have left, nobody asks any more.
    PurgeRowsFirst,
}

impl RetentionPolicy {
    /// Whether whole rows leave.
    #[must_use]
    pub const fn purges_rows(self) -> bool {
        match self {
            Self::PurgeRows | Self::PurgeRowsFirst => true,
            Self::Keep | Self::PurgeEvents => false,
        }
    }
}

/// A decider: `decide` answers a command, `evolve` folds what happened.
///
/// The state of a row always equals the fold of its events over `Default`, or over a snapshot of those that have left,
/// so rows can be dropped and rebuilt. `decide` is total: it answers events, nothing at all (it is so already), or a rejection, and
/// never fails otherwise. `evolve` never fails and never refuses.
pub trait Decider: Default + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Name of the kind of row; also its table.
    const KIND: &'static str;
    /// Names of the searchable fields, in the order of [`Decider::fields`].
    const FIELDS: &'static [&'static str] = &[];
    /// Which of [`Decider::FIELDS`] hold numbers or times in every row that has them; the others hold texts.
    const NUMBERS: &'static [&'static str] = &[];
    /// What of these rows leaves once it is old.
    const RETENTION: RetentionPolicy = RetentionPolicy::Keep;
    /// What may be asked of the row, and refused.
    type Command;
    /// What happened to the row: all that its state is made of.
    type Event: Clone + Debug + Serialize + DeserializeOwned + Send + 'static;
    /// The business says no.
    type Rejection;

    /// Answers `command` with the events it causes; with none when what it asks for is so already.
    ///
    /// # Errors
    /// The business no.
    fn decide(&self, command: &Self::Command) -> Result<Vec<Self::Event>, Self::Rejection>;

    /// Folds one event.
    fn evolve(&mut self, event: &Self::Event);

    /// Name of an event, for people who read the history.
    fn event_name(event: &Self::Event) -> &'static str;

    /// The searchable values of the row `id`, as many as [`Decider::FIELDS`].
    fn fields(&self, id: &str) -> Vec<FieldValue> {
        let _ = id;
        vec![]
    }

    /// Whether nothing is to come to this row any more, unless people ask for it: it may leave.
    fn is_finished(&self) -> bool {
        false
    }

    /// What of a finished row counts for ever, though it has left: sums by name.
    fn carried(&self) -> Sums {
        vec![]
    }

    /// When this row wants to be looked at again.
    fn due(&self) -> Option<Timestamp> {
        None
    }
}
