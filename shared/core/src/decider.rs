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
    /// Whether the old events of a row may leave while it lives on, once a retention says so: for rows whose history has
    /// no end, and is read by nobody but people. A snapshot of their fold stands for them then.
    const HISTORY_LEAVES: bool = false;
    /// What may be asked of the row, and refused.
    type Command;
    /// What happened to the row: all that its state is made of.
    type Event: Clone + Debug + Serialize + DeserializeOwned;
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

    /// When this row wants to be looked at again.
    fn due(&self) -> Option<Timestamp> {
        None
    }
}
