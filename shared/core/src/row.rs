//! Pure: rows of any kind, as the engine and the stores handle them.

use std::any::Any;

use jiff::Timestamp;
use serde::de::DeserializeOwned;

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

/// An event of a history, as a ledger is made of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded<E> {
    /// What happened.
    pub event: E,
    /// When it was decided.
    pub at: Timestamp,
    /// Whether a message tells it to the others.
    pub told: bool,
}

impl<E: DeserializeOwned> Recorded<E> {
    /// The events of a history that can be read, in its order. Those that cannot are another's business: the fold of
    /// their row says so.
    #[must_use]
    pub fn of(history: &[StoredEvent]) -> Vec<Self> {
        let read = |StoredEvent { data, recorded_at, told, .. }: &StoredEvent| {
            Some(Self { event: serde_json::from_str(data).ok()?, at: *recorded_at, told: *told })
        };
        history.iter().filter_map(read).collect()
    }
}

/// A row with its history, as its decider knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past<D: Decider> {
    /// The state.
    pub row: D,
    /// What made it, oldest first.
    pub events: Vec<Recorded<D::Event>>,
}

impl<D: Decider> Past<D> {
    /// A row of this state, which is JSON, and this history; `None` if the state cannot be read.
    #[must_use]
    pub fn of(state: &str, history: &[StoredEvent]) -> Option<Self> {
        Some(Self { row: serde_json::from_str(state).ok()?, events: Recorded::of(history) })
    }
}

/// A [`Past`] of which only its decider knows the type.
pub type AnyPast = Box<dyn Any + Send>;

/// The state of a row whose type only its decider knows.
pub(crate) trait AnyState: Any + Send + Sync {
    fn projected(&self, id: &str) -> serde_json::Result<Projected>;
    fn searched_by(&self, id: &str) -> SearchedBy;
}

/// A row of a type that only its decider knows, while its events are folded one by one.
pub trait Folding: Send {
    /// Folds one more event, which is JSON.
    ///
    /// # Errors
    /// When it cannot be read; nothing is folded then.
    fn add(&mut self, event: &str) -> serde_json::Result<()>;

    /// What a table keeps of the row with this id.
    ///
    /// # Errors
    /// When the state has no form as JSON.
    fn so_far(&self, id: &str) -> serde_json::Result<Projected>;
}

impl<D: Decider> Folding for D {
    fn add(&mut self, event: &str) -> serde_json::Result<()> {
        self.evolve(&serde_json::from_str(event)?);
        Ok(())
    }

    fn so_far(&self, id: &str) -> serde_json::Result<Projected> {
        self.projected(id)
    }
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
    /// The row before its first event, or as a snapshot has it: to be folded event by event.
    pub begin: fn(Option<&str>) -> serde_json::Result<Box<dyn Folding>>,
    /// The same of a whole history, whose events are [`Past::events`] afterwards if they are to be kept.
    pub read: ReadFn,
}

/// Folds the history of the row with this id; whether its events are kept; its events as JSON.
pub type ReadFn =
    fn(&str, bool, &mut dyn Iterator<Item = Recorded<String>>) -> serde_json::Result<(Projected, AnyPast)>;

impl RowKind {
    /// The declaration of `D`.
    #[must_use]
    pub fn of<D: Decider>() -> Self {
        let (name, fields, leaves) = (D::KIND, D::FIELDS, D::LEAVES);
        Self {
            name,
            formerly: None,
            fields,
            leaves,
            finished: finished::<D>,
            fold: fold::<D>,
            begin: begin::<D>,
            read: read::<D>,
        }
    }

    /// The same, called `name` by earlier builds.
    #[must_use]
    pub const fn formerly(self, name: &'static str) -> Self {
        Self { formerly: Some(name), ..self }
    }
}

fn begin<D: Decider>(snapshot: Option<&str>) -> serde_json::Result<Box<dyn Folding>> {
    Ok(Box::new(snapshot.map(serde_json::from_str::<D>).transpose()?.unwrap_or_default()))
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

fn read<D: Decider>(
    id: &str,
    keeps: bool,
    history: &mut dyn Iterator<Item = Recorded<String>>,
) -> serde_json::Result<(Projected, AnyPast)> {
    let (mut row, mut events) = (D::default(), Vec::new());
    for Recorded { event, at, told } in history {
        let event = serde_json::from_str(&event)?;
        row.evolve(&event);
        if keeps {
            events.push(Recorded { event, at, told });
        }
    }
    Ok((row.projected(id)?, Box::new(Past { row, events })))
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
