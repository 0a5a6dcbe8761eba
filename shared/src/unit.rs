//! Pure: the unit of work: rows in memory, and what one input does to them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use crate::contract::Fact;
use crate::decider::Decider;
use crate::ids;
use crate::row::{AnyState, RowKey, StoredRow};

/// A row in memory.
pub(crate) struct Slot {
    pub(crate) read_version: i64,
    pub(crate) version: i64,
    /// The state; not parsed until somebody asks for it.
    state: Option<Box<dyn AnyState>>,
    stored: Option<String>,
}

impl Slot {
    pub(crate) fn of(stored: Option<StoredRow>) -> Self {
        let (version, stored) = stored.map_or((0, None), |row| (row.version, Some(row.state)));
        Self { read_version: version, version, state: None, stored }
    }

    pub(crate) fn state(&self) -> Option<&dyn AnyState> {
        self.state.as_deref()
    }

    pub(crate) const fn is_changed(&self) -> bool {
        self.version > self.read_version
    }
}

/// The rows of a batch, as the inputs decided so far left them.
pub(crate) type Rows = BTreeMap<RowKey, Slot>;

/// An event that an input recorded.
pub(crate) struct Recorded {
    pub(crate) key: RowKey,
    pub(crate) version: i64,
    pub(crate) name: &'static str,
    pub(crate) data: String,
}

/// A fact that an input wants told.
pub(crate) struct Told {
    pub(crate) fact: Fact,
    /// Index of the event it tells, among this input's.
    pub(crate) event: Option<usize>,
}

/// A call that an input wants made.
pub(crate) struct Noted {
    pub(crate) id: Uuid,
    pub(crate) kind: &'static str,
    pub(crate) payload: String,
}

/// What an input did, apart from the rows.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) events: Vec<Recorded>,
    pub(crate) told: Vec<Told>,
    pub(crate) noted: Vec<Noted>,
}

/// One input's view of the rows, and the only way for it to change anything.
///
/// Changes go to copies. They replace the rows when the input succeeds, and vanish when it does not.
pub struct Unit<'a> {
    rows: &'a mut Rows,
    changed: BTreeMap<RowKey, (i64, Box<dyn AnyState>)>,
    effects: Effects,
    speaker: String,
    cause: Uuid,
    correlation_id: Uuid,
    now: Timestamp,
}

impl<'a> Unit<'a> {
    pub(crate) fn new(
        rows: &'a mut Rows,
        speaker: String,
        cause: Uuid,
        correlation_id: Uuid,
        now: Timestamp,
    ) -> Self {
        let (changed, effects) = (BTreeMap::new(), Effects::default());
        Self { rows, changed, effects, speaker, cause, correlation_id, now }
    }

    /// When this is decided.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// The saga that the input belongs to.
    #[must_use]
    pub const fn correlation_id(&self) -> Uuid {
        self.correlation_id
    }

    /// The state of a row; the default state when it is not there yet.
    ///
    /// # Panics
    /// When the input did not declare the row among its reads, or the stored state is not of kind `D`.
    /// The engine turns the panic into a dead letter of this one input.
    pub fn row<D: Decider>(&mut self, id: impl ToString) -> &D {
        let key = RowKey::of::<D>(id);
        if let Some((_, state)) = self.changed.get(&key) {
            return downcast(state.as_ref(), &key);
        }
        let Some(slot) = self.rows.get_mut(&key) else {
            panic!("row {key:?} was not declared among the reads of this input");
        };
        // The stored form stays: a state that cannot be read stays so for the whole batch.
        let state = slot.state.get_or_insert_with(|| match &slot.stored {
            None => Box::new(D::default()),
            Some(json) => match serde_json::from_str::<D>(json) {
                Ok(state) => Box::new(state),
                Err(error) => panic!("row {key:?} holds a state that is none: {error}"),
            },
        });
        downcast(&**state, &key)
    }

    /// Asks a row for a decision and records the events it answers. `Ok(true)` when something changed.
    ///
    /// # Errors
    /// The row's rejection; then nothing is recorded.
    pub fn decide<D: Decider>(
        &mut self,
        id: impl ToString,
        command: &D::Command,
    ) -> Result<bool, D::Rejection> {
        let id = id.to_string();
        let events = self.row::<D>(&id).decide(command)?;
        for event in &events {
            self.record::<D>(&id, event);
        }
        Ok(!events.is_empty())
    }

    /// Records an event: folds it and keeps it for the history.
    fn record<D: Decider>(&mut self, id: &str, event: &D::Event) {
        let key = RowKey::of::<D>(id);
        if !self.changed.contains_key(&key) {
            let state = Box::new(self.row::<D>(id).clone());
            let version = self.rows.get(&key).map_or(0, |slot| slot.version);
            self.changed.insert(key.clone(), (version, state));
        }
        let Some((version, state)) = self.changed.get_mut(&key) else {
            return;
        };
        *version += 1;
        if let Some(state) = state.as_any_mut().downcast_mut::<D>() {
            state.evolve(event);
        }
        let data = to_json(event);
        self.effects.events.push(Recorded { key, version: *version, name: D::event_name(event), data });
    }

    /// Tells the others a fact, once this is committed.
    pub fn publish(&mut self, fact: Fact) {
        let event = self.effects.events.len().checked_sub(1);
        self.effects.told.push(Told { fact, event });
    }

    /// Notes a call to the outside, to be made once this is committed. Answers the task's id.
    pub fn note(&mut self, kind: &'static str, payload: &impl Serialize) -> Uuid {
        let id = ids::task_id(&self.speaker, self.cause, self.effects.noted.len());
        self.effects.noted.push(Noted { id, kind, payload: to_json(payload) });
        id
    }

    /// Takes back everything that this input did so far.
    pub fn undo(&mut self) {
        self.changed.clear();
        self.effects = Effects::default();
    }

    /// Makes the changes the batch's.
    pub(crate) fn keep(self) -> Effects {
        for (key, (version, state)) in self.changed {
            if let Some(slot) = self.rows.get_mut(&key) {
                slot.version = version;
                slot.state = Some(state);
            }
        }
        self.effects
    }
}

fn downcast<'s, D: Decider>(state: &'s dyn AnyState, key: &RowKey) -> &'s D {
    match state.as_any().downcast_ref::<D>() {
        Some(state) => state,
        None => panic!("row {key:?} is of another kind"),
    }
}

fn to_json(value: &impl Serialize) -> String {
    match serde_json::to_string(value) {
        Ok(json) => json,
        Err(error) => panic!("a value without a JSON form: {error}"),
    }
}
