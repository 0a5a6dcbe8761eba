//! Pure: the reads and writes of a batch.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use jiff::Timestamp;
use uuid::Uuid;

use crate::dead_letter::{DeadLettered, StoredDeadLetter};
use crate::metric::Measurement;
use crate::row::{Projected, RowKey, SearchedBy, StoredRow};
use crate::trace::TraceContext;
use crate::waiting::{Retry, Task};

/// Reads that a batch needs before it can be decided.
#[derive(Debug, Clone, Default)]
pub struct Reads {
    /// Rows by key. The order is the order of locking.
    pub rows: BTreeSet<RowKey>,
    /// Messages by (step, message id), whose inbox state is read.
    pub inbox: BTreeSet<(&'static str, Uuid)>,
    /// Tasks with results in this batch, whose current claims are read.
    pub tasks: BTreeSet<Uuid>,
    /// Idempotency keys, whose stored answers are read.
    pub keys: BTreeSet<String>,
    /// Dead letters that this batch replays or that operator commands are about.
    pub dead_letters: BTreeSet<Uuid>,
}

/// Stored data that answers the [`Reads`] of a batch.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// Rows of the reads that exist.
    pub rows: BTreeMap<RowKey, StoredRow>,
    /// Rows that were read because a decision [asked for them](Writes::to_read), whether or not they exist.
    pub also_read: BTreeSet<RowKey>,
    /// Inbox states of known messages.
    pub inbox: BTreeMap<(&'static str, Uuid), InboxState>,
    /// Current claims of open tasks.
    pub tasks: BTreeMap<Uuid, i64>,
    /// Stored answers of idempotency keys.
    pub keys: BTreeMap<String, KeyedAnswer>,
    /// Dead letters of the reads that exist.
    pub dead_letters: BTreeMap<Uuid, StoredDeadLetter>,
    /// Id below which finished rows may have been purged.
    pub purged_before: Option<Uuid>,
}

/// State of a message in the inbox of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboxState {
    /// Processed: the inbox has an entry.
    Processed,
    /// Failed, with a retry scheduled.
    Retrying,
    /// Failed, and kept as a dead letter.
    DeadLettered,
}

/// Stored answer of an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyedAnswer {
    /// Digest of the answered request.
    pub fingerprint: String,
    /// Reply as JSON, for the repeated request.
    pub reply: String,
}

/// Changed row, guarded by the version that was read.
#[derive(Debug, Clone)]
pub struct RowWrite {
    /// Key of the row, unique in the batch.
    pub key: RowKey,
    /// Version that was read: the guard. 0 inserts.
    pub read_version: i64,
    /// Version of the row after the batch.
    pub version: i64,
    /// Table columns of the new state.
    pub projected: Projected,
    /// Indexed values before the batch; `None` if unknown. Unchanged values need not be written.
    pub searched_by: Option<SearchedBy>,
}

/// Event to append to a row's history.
#[derive(Debug, Clone)]
pub struct EventWrite {
    /// Row that the event belongs to.
    pub key: RowKey,
    /// Version of the row after the event.
    pub version: i64,
    /// Name of the event in the history ([`crate::decider::Decider::event_name`]).
    pub name: &'static str,
    /// Event as JSON, as the history stores it.
    pub data: String,
    /// Id of the input that caused the event.
    pub causation_id: Uuid,
}

/// Outbox entry that a batch adds.
#[derive(Debug, Clone)]
pub struct OutboxWrite {
    /// Derived id of the message, the same whenever the decision is repeated.
    pub id: Uuid,
    /// Saga of the message. Entries of one saga are published in order.
    pub saga: Uuid,
    /// Subject to publish to, e.g. `order.created`.
    pub subject: String,
    /// Serialized envelope, ready to publish.
    pub payload: Bytes,
    /// Index in [`Writes::events`] of the published event.
    pub event: Option<usize>,
    /// Trace context of the input that caused the message.
    pub trace: Option<TraceContext>,
}

/// Failed attempt of a task that stays open.
#[derive(Debug, Clone)]
pub struct TaskRetry {
    /// Id of the task that failed.
    pub id: Uuid,
    /// Failed attempts, including this one.
    pub attempts: u32,
    /// Time of the next attempt.
    pub next_attempt: Timestamp,
    /// Error of this attempt, in one line.
    pub last_error: String,
    /// Trace context of the task, if it is recorded from now on.
    pub trace: Option<TraceContext>,
}

/// Place of a replay among the earlier attempts, for its span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayTrace {
    /// Attempts before the replay.
    pub attempts: u32,
    /// Trace contexts of the failed attempt and of the operator's request, as far as they are known.
    pub links: Vec<TraceContext>,
}

/// Changes that one transaction writes.
#[derive(Debug, Clone, Default)]
pub struct Writes {
    /// Rows to read before the batch can be decided. If there are any, nothing else is written yet.
    ///
    /// The store then reads them in the same transaction and decides again, with them in [`Loaded::also_read`].
    pub to_read: BTreeSet<RowKey>,
    /// Changed rows, one entry for each.
    pub rows: Vec<RowWrite>,
    /// Events to append, in the order of decision.
    pub events: Vec<EventWrite>,
    /// Outbox entries to add, in the order of decision.
    pub outbox: Vec<OutboxWrite>,
    /// Inbox entries to add: (step, message id) of messages that need no other attempt.
    pub inbox: Vec<(&'static str, Uuid)>,
    /// Retries to insert or overwrite.
    pub retries: Vec<Retry>,
    /// Retries to insert unless they exist. Existing ones stay unchanged.
    pub retries_again: Vec<Retry>,
    /// Retries to delete, before any of the above are written.
    pub retries_done: Vec<(&'static str, Uuid)>,
    /// Tasks to add, claimed at once under [`Writes::claim`].
    pub tasks: Vec<Task>,
    /// Tasks to insert without a claim unless they exist. Existing ones stay unchanged.
    pub tasks_again: Vec<Task>,
    /// Failed attempts of open tasks.
    pub task_retries: Vec<TaskRetry>,
    /// Tasks to delete, before any of the above are written.
    pub tasks_done: Vec<Uuid>,
    /// Dead letters to add. Each is also announced through `outbox`.
    pub new_dead_letters: Vec<DeadLettered>,
    /// Existing dead letters to update, in the order of their changes.
    pub changed_dead_letters: Vec<StoredDeadLetter>,
    /// Answers of idempotency keys to add.
    pub keys: Vec<(String, KeyedAnswer)>,
    /// Measurements with the ids of their inputs, in the order of decision. Not stored.
    pub measured: Vec<(Uuid, Measurement)>,
    /// Places of replays among earlier attempts, with the ids of the inputs, for traces. Not stored.
    pub replays: Vec<(Uuid, ReplayTrace)>,
    /// Reasons of the failures that inputs report, with the ids of the inputs, for traces. Not stored.
    pub failure_reasons: Vec<(Uuid, &'static str)>,
    /// Time at which the input was decided.
    pub decided_at: Timestamp,
    /// Owner of the new tasks, and the end of the claim.
    pub claim: Option<(String, Timestamp)>,
}

impl Writes {
    /// Removes the claims of the new tasks, so that any replica may take them.
    pub fn release_claims(&mut self) {
        self.claim = None;
        self.tasks.iter_mut().for_each(|task| task.claim = 0);
    }

    /// Deletes a retry and cancels its other changes.
    pub(crate) fn end_retry(&mut self, key: (&'static str, Uuid)) {
        let is_it = |retry: &Retry| retry.step == key.0 && retry.message_id == key.1;
        self.retries.retain(|retry| !is_it(retry));
        self.retries_again.retain(|retry| !is_it(retry));
        self.retries_done.push(key);
    }

    /// Deletes a task and cancels its other changes.
    pub(crate) fn end_task(&mut self, id: Uuid) {
        self.tasks.retain(|task| task.id != id);
        self.tasks_again.retain(|task| task.id != id);
        self.task_retries.retain(|retry| retry.id != id);
        self.tasks_done.push(id);
    }

    /// True if there is nothing to write.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
            && self.outbox.is_empty()
            && self.inbox.is_empty()
            && self.retries.is_empty()
            && self.retries_again.is_empty()
            && self.retries_done.is_empty()
            && self.tasks.is_empty()
            && self.tasks_again.is_empty()
            && self.task_retries.is_empty()
            && self.tasks_done.is_empty()
            && self.new_dead_letters.is_empty()
            && self.changed_dead_letters.is_empty()
            && self.keys.is_empty()
    }
}

/// Decides a batch on what was loaded.
///
/// Called again if the transaction is repeated or if the batch [needs more rows](Writes::to_read). Only the result
/// of the last call counts.
pub type Decide = Box<dyn FnMut(Loaded) -> Writes + Send>;
