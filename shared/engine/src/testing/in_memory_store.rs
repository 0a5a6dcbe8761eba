//! Pure: the in-memory store of a service under test, with checks after each batch.

use std::collections::{BTreeMap, BTreeSet};

use saga_core::dead_letter::{DEAD_LETTER_TYPES, DeadLetterStatus, DeadLettered, StoredDeadLetter};
use saga_core::decider::Decider;
use saga_core::decision::{
    EventWrite, InboxState, KeyedAnswer, Loaded, OutboxWrite, Reads, TaskRetry, Writes,
};
use saga_core::message::{Envelope, Message};
use saga_core::metric::{Measurement, Metric};
use saga_core::row::{Projected, RowKey, StoredRow};
use saga_core::service::Service;
use saga_core::waiting::{Retry, Task};
use uuid::Uuid;

/// Content of the in-memory store.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InMemoryStore {
    /// Rows with their versions, by key.
    pub rows: BTreeMap<RowKey, (i64, Projected)>,
    /// All events, as (row, version, name, JSON, causation id).
    pub events: Vec<(RowKey, i64, &'static str, String, Uuid)>,
    /// All outbox entries in order.
    pub outbox: Vec<OutboxMessage>,
    /// Inbox marks, as (step, message id).
    pub inbox: BTreeSet<(&'static str, Uuid)>,
    /// Messages that wait for a retry.
    pub retries: BTreeMap<(String, Uuid), Retry>,
    /// Tasks without a final result, by id.
    pub tasks: BTreeMap<Uuid, Task>,
    /// All tasks ever added, in order.
    pub called: Vec<Task>,
    /// Dead letters, each once for every failure.
    pub dead: Vec<DeadLettered>,
    /// Current dead letters by id.
    pub dead_letters: BTreeMap<Uuid, StoredDeadLetter>,
    /// Idempotency keys with their answers.
    pub keys: BTreeMap<String, KeyedAnswer>,
    /// All measurements in order. No database has them.
    pub measured: Vec<Measurement>,
}

/// Outbox entry of the in-memory store.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboxMessage {
    /// Envelope as published, byte for byte.
    pub payload: Vec<u8>,
    /// Message id, unique among all entries.
    pub id: Uuid,
    /// Name of the message type.
    pub message_type: String,
    /// Event that the fact publishes, as (row, version).
    pub event: Option<(RowKey, i64)>,
}

impl InMemoryStore {
    /// Lists the events of a kind, each with the type of the fact that publishes it.
    ///
    /// # Panics
    /// If an event cannot be read.
    pub fn events_with_facts<D: Decider>(&self) -> impl Iterator<Item = (D::Event, Option<&str>)> {
        self.events.iter().filter(|(key, ..)| key.kind == D::KIND).map(|(key, version, _, data, _)| {
            let publishes = |message: &&OutboxMessage| message.event == Some((key.clone(), *version));
            let fact = self.outbox.iter().find(publishes).map(|message| message.message_type.as_str());
            (serde_json::from_str(data).expect("a stored event can be read"), fact)
        })
    }

    /// Expects that every measurement belongs to a declared metric, and matches its declaration.
    ///
    /// # Panics
    /// If one does not.
    #[track_caller]
    pub fn measures_only(&self, declared: &[&Metric]) {
        for measurement in &self.measured {
            let name = measurement.metric.name;
            assert!(declared.contains(&measurement.metric), "{name} is not among the metrics of the service");
            assert!(measurement.is_as_declared(), "{measurement:?} is something else than its metric");
        }
    }

    /// Loads exactly what `reads` asks for.
    pub(super) fn load(&self, reads: &Reads) -> Loaded {
        let row = |key: &RowKey| {
            let (version, projected) = self.rows.get(key)?;
            Some((key.clone(), StoredRow { version: *version, state: projected.state.clone() }))
        };
        let inbox_state = |message: &(&'static str, Uuid)| {
            let is_dead_lettered = || {
                self.dead_letters
                    .values()
                    .any(|stored| (stored.dead_letter.step.as_str(), stored.inbox_id) == *message)
            };
            let state = match () {
                () if self.inbox.contains(message) => InboxState::Processed,
                () if self.retries.contains_key(&(message.0.to_owned(), message.1)) => InboxState::Retrying,
                () if is_dead_lettered() => InboxState::DeadLettered,
                () => return None,
            };
            Some((*message, state))
        };
        Loaded {
            rows: reads.rows.iter().filter_map(row).collect(),
            inbox: reads.inbox.iter().filter_map(inbox_state).collect(),
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

    /// Applies a batch, and checks it.
    pub(super) fn apply<S: Service>(&mut self, writes: Writes) {
        for entry in &writes.outbox {
            let message = OutboxMessage::of::<S>(entry, &writes.events);
            let is_new = self.outbox.iter().all(|before| before.id != message.id);
            assert!(is_new, "{} is published under a used id", entry.subject);
            self.outbox.push(message);
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
        self.apply_tasks(writes.tasks_done, writes.tasks, writes.task_retries, writes.tasks_again);
        self.inbox.extend(writes.inbox);
        for (step, id) in writes.retries_done {
            self.retries.remove(&(step.to_owned(), id));
        }
        for retry in writes.retries {
            self.retries.insert((retry.step.clone(), retry.message_id), retry);
        }
        for retry in writes.retries_again {
            self.retries.entry((retry.step.clone(), retry.message_id)).or_insert(retry);
        }
        self.apply_dead_letters(writes.new_dead_letters, writes.changed_dead_letters);
        self.keys.extend(writes.keys);
        self.measured.extend(writes.measured.into_iter().map(|(_, measurement)| measurement));
    }

    fn apply_tasks(&mut self, done: Vec<Uuid>, new: Vec<Task>, retries: Vec<TaskRetry>, again: Vec<Task>) {
        for id in done {
            self.tasks.remove(&id);
        }
        for task in new {
            let is_new = self.called.iter().all(|called| called.id != task.id);
            assert!(is_new, "{} is added under a used id", task.kind);
            self.called.push(task.clone());
            self.tasks.insert(task.id, task);
        }
        for retry in retries {
            let task = self.tasks.get_mut(&retry.id).expect("a task that is retried is open");
            task.attempts = retry.attempts;
            task.trace = retry.trace.or(task.trace);
        }
        for task in again {
            self.tasks.entry(task.id).or_insert(task);
        }
    }

    fn apply_dead_letters(&mut self, new: Vec<DeadLettered>, changed: Vec<StoredDeadLetter>) {
        for dead_letter in new {
            self.dead.push(dead_letter.clone());
            let (status, inbox_id) = (DeadLetterStatus::Pending, dead_letter.message_id);
            let stored = StoredDeadLetter { status, revision: 0, inbox_id, dead_letter };
            let before = self.dead_letters.insert(stored.dead_letter.id, stored);
            assert_eq!(before, None, "a new dead letter is new");
        }
        for stored in changed {
            let before = self.dead_letters.insert(stored.dead_letter.id, stored.clone());
            let before = before.expect("a changed dead letter exists");
            if before.dead_letter.replays < stored.dead_letter.replays {
                self.dead.push(stored.dead_letter);
            }
        }
    }

    /// Checks that a row is the fold of its events, and its version their number.
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

impl OutboxMessage {
    fn of<S: Service>(entry: &OutboxWrite, events: &[EventWrite]) -> Self {
        let envelope = Envelope::from_bytes(&entry.payload).expect("an outbox entry is an envelope");
        assert_eq!(
            (entry.id, S::NAME),
            (envelope.id, envelope.producer.as_str()),
            "id and producer of the message"
        );
        let event = entry.event.map(|index| (events[index].key.clone(), events[index].version));
        let message = Self {
            payload: entry.payload.to_vec(),
            id: entry.id,
            message_type: envelope.message_type,
            event,
        };
        if !message.is_announcement() {
            let fact = message.fact::<S>();
            assert_eq!(entry.subject, fact.subject(S::NAME), "subject of the fact");
        }
        message
    }

    /// Fact of the entry.
    ///
    /// # Panics
    /// If the fact cannot be read.
    #[must_use]
    pub fn fact<S: Service>(&self) -> S::Fact {
        let envelope = Envelope::from_bytes(&self.payload).expect("an outbox entry is an envelope");
        envelope.open().expect("a fact can be read").fact
    }

    /// True for announcements of dead letters.
    fn is_announcement(&self) -> bool {
        DEAD_LETTER_TYPES.iter().any(|announced| announced.name == self.message_type)
    }
}

/// Facts among these entries, without announcements of dead letters.
pub(super) fn facts_of<S: Service>(outbox: &[OutboxMessage]) -> Vec<S::Fact> {
    outbox.iter().filter(|message| !message.is_announcement()).map(OutboxMessage::fact::<S>).collect()
}
