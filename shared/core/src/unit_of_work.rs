//! Pure: the unit of work: what one input may read, the only way for it to change anything, and the policy that says
//! what follows from a change.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use crate::decider::Decider;
use crate::ids;
use crate::metric::Measurement;
use crate::row::{AnyState, RowKey, StoredRow};

/// A row in memory.
pub(crate) struct Slot {
    pub(crate) read_version: i64,
    pub(crate) version: i64,
    /// The state; not parsed until somebody asks for it.
    state: Option<Arc<dyn AnyState>>,
    /// The state that was read, once it is parsed.
    read: Option<Arc<dyn AnyState>>,
    stored: Option<String>,
}

impl Slot {
    pub(crate) fn of(stored: Option<StoredRow>) -> Self {
        let (version, stored) = stored.map_or((0, None), |row| (row.version, Some(row.state)));
        Self { read_version: version, version, state: None, read: None, stored }
    }

    pub(crate) fn state(&self) -> Option<&dyn AnyState> {
        self.state.as_deref()
    }

    /// The state that was read, if anybody has asked for it and there was one.
    pub(crate) fn read(&self) -> Option<&dyn AnyState> {
        self.read.as_deref()
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
pub(crate) struct Told<F> {
    pub(crate) fact: F,
    /// Index of the event it tells, among this input's.
    pub(crate) event: Option<usize>,
}

/// A call that an input wants made.
pub(crate) struct Called {
    pub(crate) id: Uuid,
    pub(crate) kind: &'static str,
    pub(crate) payload: String,
}

/// What an input did, apart from the rows.
pub(crate) struct Effects<F> {
    pub(crate) events: Vec<Recorded>,
    pub(crate) told: Vec<Told<F>>,
    pub(crate) called: Vec<Called>,
    pub(crate) measured: Vec<Measurement>,
}

/// Whose unit of work it is.
pub(crate) struct Cause<'a, F> {
    /// The service and what of it reacts: two steps of one service that hear one message derive different ids.
    pub(crate) producer: String,
    /// Id of the input.
    pub(crate) id: Uuid,
    pub(crate) correlation_id: Uuid,
    pub(crate) now: Timestamp,
    /// What the input says, when it is a message.
    pub(crate) heard: Option<&'a F>,
}

/// One input's view of the rows of its batch.
///
/// Changes go to copies. They replace the rows when the input succeeds, and vanish when it does not.
pub struct UnitOfWork<'a, F> {
    rows: &'a mut Rows,
    changed: BTreeMap<RowKey, (i64, Arc<dyn AnyState>)>,
    effects: Effects<F>,
    cause: Cause<'a, F>,
}

impl<'a, F> UnitOfWork<'a, F> {
    pub(crate) fn new(rows: &'a mut Rows, cause: Cause<'a, F>) -> Self {
        let effects = Effects { events: vec![], told: vec![], called: vec![], measured: vec![] };
        Self { rows, changed: BTreeMap::new(), effects, cause }
    }

    /// When this is decided.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.cause.now
    }

    /// The saga that the input belongs to.
    #[must_use]
    pub const fn correlation_id(&self) -> Uuid {
        self.cause.correlation_id
    }

    /// The fact that is being reacted to; `None` when the input is no message. A policy finds here what it passes
    /// on without keeping it.
    #[must_use]
    pub const fn message(&self) -> Option<&'a F> {
        self.cause.heard
    }

    /// The state of a row; the default state when it is not there yet.
    ///
    /// # Panics
    /// When the input did not declare the row among its reads, or the stored state is not of kind `D`.
    /// The engine turns the panic into a dead letter of this one input.
    pub fn row<D: Decider>(&mut self, id: impl ToString) -> &D {
        let key = RowKey::of::<D>(id);
        let any: &dyn Any = &**self.state::<D>(&key);
        match any.downcast_ref::<D>() {
            Some(state) => state,
            None => panic!("row {key:?} is of another kind"),
        }
    }

    fn state<D: Decider>(&mut self, key: &RowKey) -> &Arc<dyn AnyState> {
        if let Some((_, state)) = self.changed.get(key) {
            return state;
        }
        let Some(slot) = self.rows.get_mut(key) else {
            panic!("row {key:?} was not declared among the reads of this input");
        };
        // The stored form stays: a state that cannot be read stays so for the whole batch.
        let Slot { state, read, stored, .. } = slot;
        state.get_or_insert_with(|| match stored {
            None => Arc::new(D::default()),
            Some(json) => match serde_json::from_str::<D>(json) {
                Ok(state) => read.insert(Arc::new(state)).clone(),
                Err(error) => panic!("row {key:?} holds a state that is none: {error}"),
            },
        })
    }

    /// Asks a row for a decision and records the events it answers, each followed by what its policy says.
    /// `Ok(true)` when something changed.
    ///
    /// # Errors
    /// The row's rejection; then nothing is recorded.
    pub fn decide<D: Policy<F>>(
        &mut self,
        id: impl ToString,
        command: &D::Command,
    ) -> Result<bool, D::Rejection> {
        let id = id.to_string();
        let events = self.row::<D>(&id).decide(command)?;
        for event in &events {
            let before = self.record::<D>(&id, event);
            D::whenever(event, &id, &before, self);
        }
        Ok(!events.is_empty())
    }

    /// Records an event: folds it and keeps it for the history. Answers the state before.
    fn record<D: Decider>(&mut self, id: &str, event: &D::Event) -> Arc<D> {
        let key = RowKey::of::<D>(id);
        let before: Arc<dyn Any + Send + Sync> = self.state::<D>(&key).clone();
        let Ok(before) = before.downcast::<D>() else { panic!("row {key:?} is of another kind") };
        let mut state = D::clone(&before);
        state.evolve(event);
        let read_version = || self.rows.get(&key).map_or(0, |slot| slot.version);
        let version = 1 + self.changed.get(&key).map_or_else(read_version, |(version, _)| *version);
        self.changed.insert(key.clone(), (version, Arc::new(state)));
        let data = to_json(event);
        self.effects.events.push(Recorded { key, version, name: D::event_name(event), data });
        before
    }

    /// Tells the others a fact, once this is committed: the fact of the event that was recorded last.
    pub fn publish(&mut self, fact: impl Into<F>) {
        let event = self.effects.events.len().checked_sub(1);
        self.effects.told.push(Told { fact: fact.into(), event });
    }

    /// Calls the outside, once this is committed: writes a task of this kind. Answers the task's id.
    pub fn add_task(&mut self, kind: &'static str, payload: &impl Serialize) -> Uuid {
        let Cause { correlation_id, producer, id, .. } = &self.cause;
        let id = ids::task_id(*correlation_id, producer, *id, self.effects.called.len());
        self.effects.called.push(Called { id, kind, payload: to_json(payload) });
        id
    }

    /// Takes note of a measurement: it counts once this is committed.
    pub fn measure(&mut self, measurement: Measurement) {
        self.effects.measured.push(measurement);
    }

    /// Makes the changes the batch's.
    pub(crate) fn keep(self) -> Effects<F> {
        for (key, (version, state)) in self.changed {
            if let Some(slot) = self.rows.get_mut(&key) {
                slot.version = version;
                slot.state = Some(state);
            }
        }
        self.effects
    }
}

/// Whenever this event happens, publish that, call that: the one way from an event to what others learn of it.
///
/// `F` is what the service publishes. The unit of work calls [`Policy::whenever`] right after it has recorded an
/// event, in the same transaction, so a fact can neither be told without its event nor forgotten beside it.
pub trait Policy<F>: Decider {
    /// What follows from `event`, which has just changed the row `id`; `before` is the state that it changed. In
    /// `work` the row is as the event left it. Unless said otherwise nothing follows: nobody is told.
    fn whenever(event: &Self::Event, id: &str, before: &Self, work: &mut UnitOfWork<'_, F>) {
        let _ = (event, id, before, work);
    }
}

fn to_json(value: &impl Serialize) -> String {
    match serde_json::to_string(value) {
        Ok(json) => json,
        Err(error) => panic!("a value without a JSON form: {error}"),
    }
}
