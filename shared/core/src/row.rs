//! Pure: rows of any kind, as the engine and the stores handle them.

use std::any::Any;

use jiff::Timestamp;

use crate::decider::{Decider, FieldValue, Leaves, Sums};

/// Names one row. Ordered, so that rows are read and locked in one order everywhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    /// Kind of row.
    pub kind: &'static str,
    /// Its id within the kind.
    pub id: String,
}

impl RowKey {
    /// The row of kind `D` with this id.
    #[must_use]
    pub fn of<D: Decider>(id: impl ToString) -> Self {
        Self { kind: D::KIND, id: id.to_string() }
    }
}

/// A row as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRow {
    /// How many events made it: 0 for a row that is not there.
    pub version: i64,
    /// The state as JSON.
    pub state: String,
}

/// An event as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// The row's version after this event, from 1.
    pub version: i64,
    /// Name of the event.
    pub name: String,
    /// The event as JSON.
    pub data: String,
    /// Id of the input that caused it.
    pub causation_id: uuid::Uuid,
    /// When it was decided.
    pub recorded_at: Timestamp,
    /// Whether a message tells it to the others.
    pub told: bool,
}

/// The state of a row whose type only its decider knows.
pub(crate) trait AnyState: Any + Send + Sync {
    fn projected(&self, id: &str) -> serde_json::Result<Projected>;
    fn searched_by(&self, id: &str) -> SearchedBy;
}

/// What a table keeps of a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projected {
    /// The state as JSON.
    pub state: String,
    /// Searchable values, in the order of the kind's fields.
    pub fields: Vec<FieldValue>,
    /// When the row is due.
    pub due: Option<Timestamp>,
}

/// The values of a row by which it is found: what its indexes hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchedBy {
    /// Searchable values, in the order of the kind's fields.
    pub fields: Vec<FieldValue>,
    /// When the row is due.
    pub due: Option<Timestamp>,
}

impl<D: Decider> AnyState for D {
    fn projected(&self, id: &str) -> serde_json::Result<Projected> {
        Ok(Projected { state: serde_json::to_string(self)?, fields: self.fields(id), due: self.due() })
    }

    fn searched_by(&self, id: &str) -> SearchedBy {
        SearchedBy { fields: self.fields(id), due: self.due() }
    }
}

/// A kind of row, as a service declares it to its store.
#[derive(Debug, Clone, Copy)]
pub struct RowKind {
    /// Name; also the table's.
    pub name: &'static str,
    /// What earlier builds called it: their rows and events are taken over.
    pub formerly: Option<&'static str>,
    /// Searchable fields; each is an indexed column.
    pub fields: &'static [&'static str],
    /// What leaves once it is old.
    pub leaves: Leaves,
    /// What is [carried](Decider::carried) of the row in this state, as JSON; `None` while it is not finished.
    pub finished: fn(&str) -> serde_json::Result<Option<Sums>>,
    /// Folds the history of the row with this id, oldest event first, over the state of a snapshot if there is one.
    pub fold: fn(&str, Option<&str>, &mut dyn Iterator<Item = String>) -> serde_json::Result<Projected>,
}

impl RowKind {
    /// The declaration of `D`.
    #[must_use]
    pub fn of<D: Decider>() -> Self {
        let (name, fields, leaves) = (D::KIND, D::FIELDS, D::LEAVES);
        Self { name, formerly: None, fields, leaves, finished: finished::<D>, fold: fold::<D> }
    }

    /// The same, called `name` by earlier builds.
    #[must_use]
    pub const fn formerly(self, name: &'static str) -> Self {
        Self { formerly: Some(name), ..self }
    }
}

fn fold<D: Decider>(
    id: &str,
    snapshot: Option<&str>,
    events: &mut dyn Iterator<Item = String>,
) -> serde_json::Result<Projected> {
    let mut state: D = snapshot.map(serde_json::from_str).transpose()?.unwrap_or_default();
    for event in events {
        state.evolve(&serde_json::from_str(&event)?);
    }
    state.projected(id)
}

fn finished<D: Decider>(state: &str) -> serde_json::Result<Option<Sums>> {
    let state: D = serde_json::from_str(state)?;
    Ok(state.is_finished().then(|| state.carried()))
}

/// For what rows and events of earlier builds lack: left out while it is 0, as they are written as those were.
#[must_use]
pub const fn is_zero(number: &u64) -> bool {
    *number == 0
}
