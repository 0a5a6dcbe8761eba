//! Pure: what the database of a service under test would hold, and what must be true of it after every batch.

use std::collections::{BTreeMap, BTreeSet};

use saga_core::dead_letter::{DEAD_LETTER_TYPES, DeadLetterStatus, DeadLettered, StoredDeadLetter};
use saga_core::decider::Decider;
use saga_core::decision::{EventWrite, InboxState, KeyedAnswer, Loaded, OutboxWrite, Reads, Writes};
use saga_core::message::{Envelope, Message};
use saga_core::metric::{Measurement, Metric};
use saga_core::row::{Projected, RowKey, StoredRow};
use saga_core::service::Service;
use saga_core::waiting::{Retry, Task};
use uuid::Uuid;

/// What the database would hold.
#[derive(Debug, Default, PartialEq)]
pub struct Kept {
    /// Rows, each with its version.
    pub rows: BTreeMap<RowKey, (i64, Projected)>,
    /// (row, version, name, JSON, cause) of every event.
    pub events: Vec<(RowKey, i64, &'static str, String, Uuid)>,
    /// Every message ever promised, in order.
    pub outbox: Vec<Promise>,
    /// (step, message id) of every message handled.
    pub inbox: BTreeSet<(&'static str, Uuid)>,
    /// Messages that wait for another try.
    pub retries: BTreeMap<(String, Uuid), Retry>,
    /// Tasks whose outcome is still to come, by id.
    pub tasks: BTreeMap<Uuid, Task>,
    /// Every call that was ever to be made, in order.
    pub called: Vec<Task>,
    /// Dead letters, each as often as it was parked.
    pub dead: Vec<DeadLettered>,
    /// Dead letters as they are now.
    pub dead_letters: BTreeMap<Uuid, StoredDeadLetter>,
    /// Answered idempotency keys.
    pub keys: BTreeMap<String, KeyedAnswer>,
    /// Everything that was ever measured, in order; no database holds it.
    pub measured: Vec<Measurement>,
}

/// A message that is promised.
#[derive(Debug, PartialEq)]
pub struct Promise {
    /// Its envelope's bytes.
    pub payload: Vec<u8>,
    /// Id of the message; no two promises may share one.
    pub id: Uuid,
    /// Name of its type.
    pub message_type: String,
    /// (row, version) of the event it tells.
    pub tells: Option<(RowKey, i64)>,
}

impl Kept {
    /// Every event of a kind, with the type of the fact that tells it.
    ///
    /// # Panics
    /// When an event cannot be read.
    pub fn events_told<D: Decider>(&self) -> impl Iterator<Item = (D::Event, Option<&str>)> {
        self.events.iter().filter(|(key, ..)| key.kind == D::KIND).map(|(key, version, _, data, _)| {
            let is_it = |promise: &&Promise| promise.tells == Some((key.clone(), *version));
            let fact = self.outbox.iter().find(is_it).map(|promise| promise.message_type.as_str());
            (serde_json::from_str(data).expect("a stored event can be read"), fact)
        })
    }

    /// What was measured is among what the service declares, as that is declared: the rest would be shown nowhere.
    ///
    /// # Panics
    /// When it is not.
    #[track_caller]
    pub fn measures_only(&self, declared: &[&Metric]) {
        for measurement in &self.measured {
            let name = measurement.metric.name;
            assert!(declared.contains(&measurement.metric), "{name} is not among the metrics of the service");
            assert!(measurement.is_as_declared(), "{measurement:?} is something else than its metric");
        }
    }

    /// Answers what is asked for, and nothing else.
    pub(super) fn load(&self, reads: &Reads) -> Loaded {
        let row = |key: &RowKey| {
            let (version, projected) = self.rows.get(key)?;
            Some((key.clone(), StoredRow { version: *version, state: projected.state.clone() }))
        };
        let known = |place: &(&'static str, Uuid)| {
            let is_parked = || {
                self.dead_letters
                    .values()
                    .any(|stored| (stored.dead_letter.step.as_str(), stored.inbox_id) == *place)
            };
            let known = match () {
                () if self.inbox.contains(place) => InboxState::Processed,
                () if self.retries.contains_key(&(place.0.to_owned(), place.1)) => InboxState::Retrying,
                () if is_parked() => InboxState::DeadLettered,
                () => return None,
            };
            Some((*place, known))
        };
        Loaded {
            rows: reads.rows.iter().filter_map(row).collect(),
            inbox: reads.inbox.iter().filter_map(known).collect(),
            tasks: reads.tasks.iter().filter_map(|id| Some((*id, self.tasks.get(id)?.claim))).collect(),
            keys: reads
                .keys
                .iter()
                .filter_map(|key| Some((key.clone(), self.keys.get(key)?.clone())))
                .collect(),
            dead_letters: reads
                .dead_letters
                .iter()
                .filter_map(|id| Some((*id, self.dead_letters.get(id)?.clone())))
                .collect(),
            also_read: BTreeSet::new(),
            purged_before: None,
        }
    }

    pub(super) fn apply<S: Service>(&mut self, writes: Writes) {
        for entry in &writes.outbox {
            let promise = Promise::of::<S>(entry, &writes.events);
            let is_new = self.outbox.iter().all(|before| before.id != promise.id);
            assert!(is_new, "{} is told under a used id", entry.subject);
            self.outbox.push(promise);
        }
        for event in writes.events {
            self.events.push((event.key, event.version, event.name, event.data, event.causation_id));
        }
        for row in writes.rows {
            let before = self.rows.get(&row.key).map_or(0, |(version, _)| *version);
            assert_eq!(before, row.read_version, "{:?} is guarded by the version it was read at", row.key);
            self.check_fold::<S>(&row.key, row.version, &row.projected);
            self.rows.insert(row.key, (row.version, row.projected));
        }
        for id in writes.tasks_done {
            self.tasks.remove(&id);
        }
        for task in writes.tasks {
            assert!(
                self.called.iter().all(|called| called.id != task.id),
                "{} is called under a used id",
                task.kind
            );
            self.called.push(task.clone());
            self.tasks.insert(task.id, task);
        }
        for retry in writes.task_retries {
            let task = self.tasks.get_mut(&retry.id).expect("a task that is tried again is open");
            task.attempts = retry.attempts;
            task.trace = retry.trace.or(task.trace);
        }
        for (step, id) in writes.retries_done {
            self.retries.remove(&(step.to_owned(), id));
        }
        for retry in writes.retries {
            self.retries.insert((retry.step.clone(), retry.message_id), retry);
        }
        for retry in writes.retries_again {
            self.retries.entry((retry.step.clone(), retry.message_id)).or_insert(retry);
        }
        self.inbox.extend(writes.inbox);
        for dead_letter in writes.new_dead_letters {
            self.dead.push(dead_letter.clone());
            let (status, inbox_id) = (DeadLetterStatus::Pending, dead_letter.message_id);
            let stored = StoredDeadLetter { status, revision: 0, inbox_id, dead_letter };
            let before = self.dead_letters.insert(stored.dead_letter.id, stored);
            assert_eq!(before, None, "a new dead letter is new");
        }
        for stored in writes.changed_dead_letters {
            let before = self.dead_letters.insert(stored.dead_letter.id, stored.clone());
            let before = before.expect("a changed dead letter was there");
            if before.dead_letter.replays < stored.dead_letter.replays {
                self.dead.push(stored.dead_letter);
            }
        }
        for task in writes.tasks_again {
            self.tasks.entry(task.id).or_insert(task);
        }
        self.keys.extend(writes.keys);
        self.measured.extend(writes.measured.into_iter().map(|(_, measurement)| measurement));
    }

    /// Each row is the fold of its events, and its version counts them.
    fn check_fold<S: Service>(&self, key: &RowKey, version: i64, projected: &Projected) {
        let kind = S::rows().into_iter().find(|kind| kind.name == key.kind).expect("the kind is declared");
        assert_eq!(kind.fields.len(), projected.fields.len(), "{key:?} has a value for each field");
        let history = self.events.iter().filter(|event| event.0 == *key);
        let versions: Vec<i64> = history.clone().map(|event| event.1).collect();
        assert_eq!(versions, (1..=version).collect::<Vec<_>>(), "{key:?} counts its events");
        let folded = kind.fold(&key.id, None, history.map(|event| &event.3));
        assert_eq!(
            &folded.expect("a stored event can be read"),
            projected,
            "{key:?} is the fold of its events"
        );
    }
}

impl Promise {
    fn of<S: Service>(entry: &OutboxWrite, events: &[EventWrite]) -> Self {
        let envelope = Envelope::from_bytes(&entry.payload).expect("what is told is an envelope");
        assert_eq!(
            (entry.id, S::NAME),
            (envelope.id, envelope.producer.as_str()),
            "who says it, under which id"
        );
        let tells = entry.event.map(|index| (events[index].key.clone(), events[index].version));
        let promise = Self {
            payload: entry.payload.to_vec(),
            id: entry.id,
            message_type: envelope.message_type,
            tells,
        };
        if !promise.is_announcement() {
            let fact = promise.fact::<S>();
            assert_eq!(entry.subject, fact.subject(S::NAME), "the subject says what it is");
        }
        promise
    }

    /// What it tells.
    ///
    /// # Panics
    /// When it cannot be read.
    #[must_use]
    pub fn fact<S: Service>(&self) -> S::Fact {
        let envelope = Envelope::from_bytes(&self.payload).expect("what is told is an envelope");
        envelope.open().expect("what is told can be read").fact
    }

    /// Whether the engine tells of a dead letter.
    fn is_announcement(&self) -> bool {
        DEAD_LETTER_TYPES.iter().any(|announced| announced.name == self.message_type)
    }
}

/// The facts among these promises.
pub(super) fn told<S: Service>(outbox: &[Promise]) -> Vec<S::Fact> {
    outbox.iter().filter(|promise| !promise.is_announcement()).map(Promise::fact::<S>).collect()
}
