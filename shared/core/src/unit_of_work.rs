//! Pure: the unit of work of one input: its reads, its changes, and the policy that maps events to effects.

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
use crate::waiting::CLOCKS_DIFFER;

/// Row of a batch, in memory.
pub(crate) struct Slot {
    pub(crate) read_version: i64,
    pub(crate) version: i64,
    /// State, parsed at first use.
    state: Option<Arc<dyn AnyState>>,
    /// State as it was read, once parsed.
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

    /// State as it was read; `None` if nobody used it or the row did not exist.
    pub(crate) fn read(&self) -> Option<&dyn AnyState> {
        self.read.as_deref()
    }

    pub(crate) const fn is_changed(&self) -> bool {
        self.version > self.read_version
    }
}

/// Rows of a batch, with the changes of all inputs decided so far.
pub(crate) type Rows = BTreeMap<RowKey, Slot>;

/// Event recorded by an input.
pub(crate) struct RecordedEvent {
    pub(crate) key: RowKey,
    pub(crate) version: i64,
    pub(crate) name: &'static str,
    pub(crate) data: String,
}

/// Fact to publish after the commit.
pub(crate) struct Publication<F> {
    pub(crate) fact: F,
    /// Index of the event that it publishes, among this input's events.
    pub(crate) event: Option<usize>,
}

/// Task to create with the commit.
pub(crate) struct NewTask {
    pub(crate) id: Uuid,
    pub(crate) kind: &'static str,
    pub(crate) payload: String,
}

/// Effects of an input other than row changes.
pub(crate) struct Effects<F> {
    pub(crate) events: Vec<RecordedEvent>,
    pub(crate) published: Vec<Publication<F>>,
    pub(crate) tasks: Vec<NewTask>,
    pub(crate) measured: Vec<Measurement>,
}

/// Identity of the input that a unit of work belongs to.
pub(crate) struct Cause<'a, F> {
    /// Service and handler. Included in derived ids, since two steps of one service may consume the same message.
    pub(crate) producer: String,
    pub(crate) id: Uuid,
    pub(crate) correlation_id: Uuid,
    pub(crate) now: Timestamp,
    /// Time of the last accepted loss of data.
    pub(crate) lost_before: Option<Timestamp>,
    /// Fact of the input; `None` if it is no message.
    pub(crate) message: Option<&'a F>,
}

/// Reads and changes of one input.
///
/// Changes go to copies. They replace the rows of the batch if the input succeeds and are dropped otherwise.
pub struct UnitOfWork<'a, F> {
    rows: &'a mut Rows,
    changed: BTreeMap<RowKey, (i64, Arc<dyn AnyState>)>,
    effects: Effects<F>,
    cause: Cause<'a, F>,
}

impl<'a, F> UnitOfWork<'a, F> {
    pub(crate) fn new(rows: &'a mut Rows, cause: Cause<'a, F>) -> Self {
        let effects = Effects { events: vec![], published: vec![], tasks: vec![], measured: vec![] };
        Self { rows, changed: BTreeMap::new(), effects, cause }
    }

    /// Time at which the input was decided.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.cause.now
    }

    /// Time of the last loss of data that an operator accepted; `None` if there was none. What this service did before
    /// it, for sagas that began before it, may be forgotten.
    #[must_use]
    pub const fn lost_before(&self) -> Option<Timestamp> {
        self.cause.lost_before
    }

    /// True if this service may have forgotten what it did for a saga, because it accepted a loss of data after the saga
    /// began. A missing or older row then proves nothing.
    #[must_use]
    pub fn may_have_forgotten(&self, saga: Uuid) -> bool {
        self.cause.lost_before.is_some_and(|lost| {
            ids::began_at(saga) <= lost.checked_add(CLOCKS_DIFFER).unwrap_or(Timestamp::MAX)
        })
    }

    /// Id of the input's saga.
    #[must_use]
    pub const fn correlation_id(&self) -> Uuid {
        self.cause.correlation_id
    }

    /// Fact that is being handled; `None` if the input is no message. A policy can copy members from it that no row
    /// stores.
    #[must_use]
    pub const fn message(&self) -> Option<&'a F> {
        self.cause.message
    }

    /// State of a row. The default state if the row does not exist.
    ///
    /// # Panics
    /// If the input did not declare the row among its reads, or the stored state is not of kind `D`. The engine
    /// turns the panic into a dead letter of this one input.
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
        // Keep the stored JSON: an unreadable state must fail for every input of the batch.
        let Slot { state, read, stored, .. } = slot;
        state.get_or_insert_with(|| match stored {
            None => Arc::new(D::default()),
            Some(json) => match serde_json::from_str::<D>(json) {
                Ok(state) => read.insert(Arc::new(state)).clone(),
                Err(error) => panic!("row {key:?} holds a state that is none: {error}"),
            },
        })
    }

    /// Passes a command to a row and records the resulting events, each followed by its policy. `Ok(true)` if any
    /// event resulted.
    ///
    /// # Errors
    /// The rejection of the row. Nothing is recorded then.
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

    /// Records an event: folds it into the row and adds it to the history. Returns the state before.
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
        self.effects.events.push(RecordedEvent { key, version, name: D::event_name(event), data });
        before
    }

    /// Publishes a fact after the commit, for the event that was recorded last.
    pub fn publish(&mut self, fact: impl Into<F>) {
        let event = self.effects.events.len().checked_sub(1);
        self.effects.published.push(Publication { fact: fact.into(), event });
    }

    /// Creates a task of this kind with the commit. Returns its id, which is the same in every attempt.
    pub fn add_task(&mut self, kind: &'static str, payload: &impl Serialize) -> Uuid {
        let Cause { correlation_id, producer, id, .. } = &self.cause;
        let id = ids::task_id(*correlation_id, producer, *id, self.effects.tasks.len());
        self.effects.tasks.push(NewTask { id, kind, payload: to_json(payload) });
        id
    }

    /// Records a measurement, which counts after the commit.
    pub fn measure(&mut self, measurement: Measurement) {
        self.effects.measured.push(measurement);
    }

    /// Applies the changes to the batch.
    pub(crate) fn apply(self) -> Effects<F> {
        for (key, (version, state)) in self.changed {
            if let Some(slot) = self.rows.get_mut(&key) {
                slot.version = version;
                slot.state = Some(state);
            }
        }
        self.effects
    }
}

/// Policy: whenever this event happens, publish that, call that.
///
/// `F` is the type of published facts. The unit of work calls [`Policy::whenever`] right after it records an event,
/// in the same transaction. So no fact is published without its event, and no event loses its fact.
pub trait Policy<F>: Decider {
    /// Adds the effects of `event`, which has just changed the row `id`. None by default.
    ///
    /// `before` is the state before the event. In `work` the row has the state after it.
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
