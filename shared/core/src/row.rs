//! Pure: rows of any kind, as the engine and the stores handle them.

use std::any::Any;

use jiff::Timestamp;
use serde::de::DeserializeOwned;

use crate::decider::{Decider, FieldValue, RetentionPolicy, Sums};

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
    pub is_published: bool,
}

/// An event of a history: as its decider knows it, or as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastEvent<E> {
    /// What happened.
    pub event: E,
    /// When it was decided.
    pub at: Timestamp,
    /// Whether a message tells it to the others.
    pub is_published: bool,
}

impl<E: DeserializeOwned> PastEvent<E> {
    /// The events of a history that can be read, in its order. Those that cannot are another's business: the fold of
    /// their row says so.
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

/// A row with its history, as its decider knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithHistory<D: Decider> {
    /// The state.
    pub state: D,
    /// What made it, oldest first.
    pub events: Vec<PastEvent<D::Event>>,
}

impl<D: Decider> WithHistory<D> {
    /// A row of this state, which is JSON, and this history; `None` if the state cannot be read.
    #[must_use]
    pub fn of(state: &str, history: &[StoredEvent]) -> Option<Self> {
        Some(Self { state: serde_json::from_str(state).ok()?, events: PastEvent::of(history) })
    }
}

/// A [`WithHistory`] of which only its decider knows the type.
pub type AnyWithHistory = Box<dyn Any + Send>;

/// A row of a type that only its decider knows, while its events are folded one by one.
pub trait Folding: Send {
    /// Folds one more event, which is JSON.
    ///
    /// # Errors
    /// When it cannot be read; nothing is folded then.
    fn add(&mut self, event: &str) -> serde_json::Result<()>;

    /// The same; it is among the events of [`Folding::with_history`] then.
    ///
    /// # Errors
    /// As there.
    fn keep(&mut self, event: PastEvent<&str>) -> serde_json::Result<()>;

    /// What a table keeps of the row with this id.
    ///
    /// # Errors
    /// When the state has no form as JSON.
    fn projected(&self, id: &str) -> serde_json::Result<Projected>;

    /// The values by which the row with this id is found, if a table keeps its state as this JSON, byte for byte; `None` if
    /// it keeps it otherwise.
    fn kept_as(&self, id: &str, state: &[u8]) -> Option<SearchedBy>;

    /// The row as it is now, with the events that were kept.
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
    /// Searchable fields; each is an indexed column.
    pub fields: &'static [&'static str],
    /// Which of the fields hold numbers or times.
    pub numbers: &'static [&'static str],
    /// What leaves once it is old.
    pub retention: RetentionPolicy,
    /// What is [carried](Decider::carried) of the row in this state, as JSON; `None` while it is not finished.
    pub finished: fn(&str) -> serde_json::Result<Option<Sums>>,
    /// The row before its first event, or as the JSON of a snapshot has it: to be folded event by event.
    pub begin: fn(Option<&str>) -> serde_json::Result<Box<dyn Folding>>,
}

impl RowKind {
    /// The declaration of `D`.
    #[must_use]
    pub fn of<D: Decider>() -> Self {
        let (name, fields, numbers, retention) = (D::KIND, D::FIELDS, D::NUMBERS, D::RETENTION);
        Self { name, fields, numbers, retention, finished: finished::<D>, begin: begin::<D> }
    }

    /// Whether a field holds numbers or times, and no texts.
    #[must_use]
    pub fn is_number(&self, field: &str) -> bool {
        self.numbers.contains(&field)
    }

    /// Folds the history of the row with this id, JSON, oldest event first, over the state of a snapshot if there is one.
    ///
    /// # Errors
    /// When an event or the snapshot cannot be read.
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
    Ok(state.is_finished().then(|| state.carried()))
}

/// For what rows and events of earlier builds lack: left out while it is 0, as they are written as those were.
#[must_use]
pub const fn is_zero(number: &u64) -> bool {
    *number == 0
}
