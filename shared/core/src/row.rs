//! Pure: rows and events of any kind, as the engine and the stores handle them.

use std::any::Any;

use jiff::Timestamp;
use serde::de::DeserializeOwned;

use crate::decider::{Decider, FieldValue, RetentionPolicy, Sums};

/// Key of a row. Its order is the order in which rows are read and locked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    /// Kind of row, also the name of its table.
    pub kind: &'static str,
    /// Id of the row within its kind.
    pub id: String,
}

impl RowKey {
    /// Key of the row of kind `D` with this id.
    #[must_use]
    pub fn of<D: Decider>(id: impl ToString) -> Self {
        Self { kind: D::KIND, id: id.to_string() }
    }
}

/// State of a row, as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRow {
    /// Number of events of the row; 0 if it does not exist.
    pub version: i64,
    /// State as JSON, which its decider reads.
    pub state: String,
}

/// Event of a row, as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Version of the row after this event, from 1.
    pub version: i64,
    /// Name of the event, e.g. `Confirmed`.
    pub name: String,
    /// Event as JSON, which its decider reads.
    pub data: String,
    /// Id of the input that caused the event.
    pub causation_id: uuid::Uuid,
    /// Time at which the input was decided.
    pub recorded_at: Timestamp,
    /// True if a fact was published for the event.
    pub is_published: bool,
}

/// Event of a history, typed or as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastEvent<E> {
    /// Event, typed or as JSON.
    pub event: E,
    /// Time at which the input was decided.
    pub at: Timestamp,
    /// True if a fact was published for the event.
    pub is_published: bool,
}

impl<E: DeserializeOwned> PastEvent<E> {
    /// Parses a history, oldest event first. Skips unreadable events, which verification reports.
    #[must_use]
    pub fn of(history: &[StoredEvent]) -> Vec<Self> {
        let read = |StoredEvent { data, recorded_at, is_published, .. }: &StoredEvent| {
            Some(Self {
                event: serde_json::from_str(data).ok()?,
                at: *recorded_at,
                is_published: *is_published,
            })
        };
        history.iter().filter_map(read).collect()
    }
}

/// Row with its history, typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithHistory<D: Decider> {
    /// Typed state of the row.
    pub state: D,
    /// Events of the row, oldest first.
    pub events: Vec<PastEvent<D::Event>>,
}

impl<D: Decider> WithHistory<D> {
    /// Parses a state and its history; `None` if the state cannot be read.
    #[must_use]
    pub fn of(state: &str, history: &[StoredEvent]) -> Option<Self> {
        Some(Self { state: serde_json::from_str(state).ok()?, events: PastEvent::of(history) })
    }
}

/// [`WithHistory`] of a type that only its decider knows.
pub type AnyWithHistory = Box<dyn Any + Send>;

/// Fold of one row's events, of a type that only its decider knows.
pub trait Folding: Send {
    /// Folds one event, given as JSON.
    ///
    /// # Errors
    /// If the event cannot be read. The fold is unchanged then.
    fn add(&mut self, event: &str) -> serde_json::Result<()>;

    /// Folds one event and keeps it for [`Folding::with_history`].
    ///
    /// # Errors
    /// If the event cannot be read. The fold is unchanged then.
    fn keep(&mut self, event: PastEvent<&str>) -> serde_json::Result<()>;

    /// Table columns of the row with this id.
    ///
    /// # Errors
    /// If the state has no JSON form.
    fn projected(&self, id: &str) -> serde_json::Result<Projected>;

    /// Indexed values of the row with this id; `None` if `state` is not byte for byte the JSON of the fold.
    fn kept_as(&self, id: &str, state: &[u8]) -> Option<SearchedBy>;

    /// Final state with the kept events.
    fn with_history(self: Box<Self>) -> AnyWithHistory;
}

impl<D: Decider> Folding for WithHistory<D> {
    fn add(&mut self, event: &str) -> serde_json::Result<()> {
        self.state.evolve(&serde_json::from_str(event)?);
        Ok(())
    }

    fn keep(&mut self, PastEvent { event, at, is_published }: PastEvent<&str>) -> serde_json::Result<()> {
        let event = serde_json::from_str(event)?;
        self.state.evolve(&event);
        self.events.push(PastEvent { event, at, is_published });
        Ok(())
    }

    fn projected(&self, id: &str) -> serde_json::Result<Projected> {
        AnyState::projected(&self.state, id)
    }

    fn kept_as(&self, id: &str, state: &[u8]) -> Option<SearchedBy> {
        let is_kept = serde_json::to_vec(&self.state).is_ok_and(|now| now == state);
        is_kept.then(|| self.state.searched_by(id))
    }

    fn with_history(self: Box<Self>) -> AnyWithHistory {
        self
    }
}

/// State of a type that only its decider knows.
pub(crate) trait AnyState: Any + Send + Sync {
    fn projected(&self, id: &str) -> serde_json::Result<Projected>;
    fn searched_by(&self, id: &str) -> SearchedBy;
}

/// Table columns of a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projected {
    /// State as JSON, which its decider reads.
    pub state: String,
    /// Searchable values, in the order of the kind's fields.
    pub fields: Vec<FieldValue>,
    /// Due time of the row.
    pub due: Option<Timestamp>,
}

/// Indexed values of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchedBy {
    /// Searchable values, in the order of the kind's fields.
    pub fields: Vec<FieldValue>,
    /// Due time of the row.
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

/// Kind of row, as a service declares it to its store.
#[derive(Debug, Clone, Copy)]
pub struct RowKind {
    /// Name of the kind and of its table.
    pub name: &'static str,
    /// Searchable fields; each is an indexed column.
    pub fields: &'static [&'static str],
    /// Fields that hold numbers or times.
    pub numbers: &'static [&'static str],
    /// Data that is purged after the retention.
    pub retention: RetentionPolicy,
    /// Returns the [sums](Decider::purged_sums) of the state, which is JSON; `None` while the row is not finished.
    pub finished: fn(&str) -> serde_json::Result<Option<Sums>>,
    /// Starts a fold from the default state, or from a snapshot given as JSON.
    pub begin: fn(Option<&str>) -> serde_json::Result<Box<dyn Folding>>,
}

impl RowKind {
    /// Declares the row kind of `D`.
    #[must_use]
    pub fn of<D: Decider>() -> Self {
        let (name, fields, numbers, retention) = (D::KIND, D::FIELDS, D::NUMBERS, D::RETENTION);
        Self { name, fields, numbers, retention, finished: finished::<D>, begin: begin::<D> }
    }

    /// True if the field holds numbers or times.
    #[must_use]
    pub fn is_number(&self, field: &str) -> bool {
        self.numbers.contains(&field)
    }

    /// Folds the history of a row, oldest event first, over a snapshot if there is one. All are JSON.
    ///
    /// # Errors
    /// If an event or the snapshot cannot be read.
    pub fn fold(
        &self,
        id: &str,
        snapshot: Option<&str>,
        events: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> serde_json::Result<Projected> {
        let mut row = (self.begin)(snapshot)?;
        for event in events {
            row.add(event.as_ref())?;
        }
        row.projected(id)
    }
}

fn begin<D: Decider>(snapshot: Option<&str>) -> serde_json::Result<Box<dyn Folding>> {
    let state: D = snapshot.map(serde_json::from_str).transpose()?.unwrap_or_default();
    Ok(Box::new(WithHistory { state, events: Vec::new() }))
}

fn finished<D: Decider>(state: &str) -> serde_json::Result<Option<Sums>> {
    let state: D = serde_json::from_str(state)?;
    Ok(state.is_finished().then(|| state.purged_sums()))
}

/// True if the number is 0. For `skip_serializing_if` of counters that are rarely set.
#[must_use]
pub const fn is_zero(number: &u64) -> bool {
    *number == 0
}
